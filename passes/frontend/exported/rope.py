"""Rotary embeddings of HuggingFace whose frequencies follow the length of a text (dynamic NTK)."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from atlasc.passes.frontend.exported.graph import holding

if TYPE_CHECKING:
    import torch

POSITIONS = "position_ids"
DYNAMIC = "dynamic"
"""Kind of embedding whose frequencies change behind the length that it was trained for."""
LONGEST = "max_seq_len_cached"
"""Attribute of such an embedding: the longest text that it has frequencies for."""


@contextmanager
def settled(module: torch.nn.Module, inputs: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """Let the embeddings of a model that change no frequency for inputs of these shapes be plain
    ones during a block: torch.export cannot follow the branch by which they compare lengths.

    Positions that are an input may be greater than the number of tokens.
    """
    tokens = max((one.shape[1] for one in inputs.values() if one.ndim > 1), default=0)
    tokens = sys.maxsize if POSITIONS in inputs else tokens
    with ExitStack() as held:
        for part in module.modules():
            kinds = getattr(part, "rope_type", None)
            if DYNAMIC in _kinds(kinds) and _is_settled(part, tokens):
                held.enter_context(holding(part, rope_type=_plain(kinds)))
        yield


def dynamic_rope(config: Any) -> int | None:
    """Positions of a config whose rotary embedding changes with the length; None of another."""
    said = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    types = {one.get("rope_type", one.get("type")) for one in _tables(said)}
    positions = getattr(config, "max_position_embeddings", None)
    return positions if DYNAMIC in types else None


def _tables(said: Any) -> Iterator[Mapping[str, Any]]:
    """The settings of a rotary embedding, or those of each kind of layer."""
    if isinstance(said, Mapping):
        yield said
        for one in said.values():
            yield from _tables(one)


def _kinds(kinds: Any) -> list[Any]:
    """The kinds of an embedding: one, or one for each kind of layer."""
    return list(kinds.values()) if isinstance(kinds, Mapping) else [kinds]


def _plain(kinds: Any) -> Any:
    if isinstance(kinds, Mapping):
        return {layer: _plain(kind) for layer, kind in kinds.items()}
    return "default" if kinds == DYNAMIC else kinds


def _is_settled(part: torch.nn.Module, tokens: int) -> bool:
    """Whether texts of so many tokens are not longer than those of training, and no text was."""
    trained = getattr(part, "original_max_seq_len", 0)
    read = [value for name, value in vars(part).items() if name.endswith(LONGEST)]
    return bool(tokens <= trained) and all(bool(longest <= trained) for longest in read)
