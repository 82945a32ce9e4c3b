"""What shows that a model and its data do not belong together, or that the model is damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError, named
from atlasc.loading import IDS, MASK
from atlasc.loading.texts.tokenizer import copied
from atlasc.loading.texts.tokens import special_of

if TYPE_CHECKING:
    from atlasc.loading.inputs import Inputs
    from atlasc.loading.loaded_model import LoadedModel

MOST_UNKNOWN = 0.5
"""Share of unknown tokens from which on the data say nothing about the model."""
TOLD_UNKNOWN = 0.01
"""Share of unknown tokens from which on a note says so."""


def require_finite_weights(model: LoadedModel) -> None:
    """Raise AtlasError if a weight is NaN or infinite, or a buffer NaN (masks may be infinite)."""
    import torch

    module: Any = model.module
    weights = [(name, one, torch.isfinite) for name, one in module.named_parameters()]
    buffers = [(name, one, _is_number) for name, one in module.named_buffers()]
    bad = {}
    for name, tensor, is_fine in (*weights, *buffers):
        if tensor.is_meta or not tensor.is_floating_point():
            continue
        values = tensor.detach()
        if torch.isfinite(values.sum(dtype=torch.float32)):  # one pass over a large tensor
            continue
        if count := int((~is_fine(values)).sum()):
            kind = "NaN" if bool(torch.isnan(values).any()) else "infinite"
            bad[name] = f"{name}: {count} of {values.numel()} numbers {kind}"
    if bad:
        raise AtlasError(
            f"{len(bad)} {'weight holds' if len(bad) == 1 else 'weights hold'} NaN or infinity",
            where=str(model.source),
            why=named([*bad.values()]),
            remedy="copy the file again, or repair the training: the model answers nothing else",
        )


def _is_number(values: Any) -> Any:
    return ~values.isnan()


def tell_tokenizer(inputs: Inputs, model: LoadedModel, note: Callable[[str, str], object]) -> None:
    """Say if the clients of a program need transformers for its tokenizer."""
    if IDS not in inputs.arrays or model.tokenizer is None or copied(model.tokenizer) is not None:
        return
    note(
        "clients of the program need transformers to read texts",
        f"  why: its tokenizer, a {type(model.tokenizer).__name__}, is none of the library "
        "tokenizers, or gives other tokens there\n"
        "  what to do: install transformers where texts are encrypted, or give token ids there",
    )


def tell_unknown(inputs: Inputs, model: LoadedModel, note: Callable[[str, str], object]) -> None:
    """Say which share of the tokens of texts the tokenizer does not know.

    Raises:
        AtlasError: it is so large that the texts say nothing about the model.
    """
    if (ids := inputs.arrays.get(IDS)) is None:
        return  # images need no tokenizer, so none is read
    if type(unknown := getattr(model.tokenizer, "unk_token_id", None)) is not int:
        return
    special = special_of(model)
    added = {*special.single.tolist(), *special.pair.tolist()}
    if unknown in added or unknown == getattr(model.tokenizer, "eos_token_id", None):
        return  # one token for several purposes, as of GPT-2, whose bytes are all known
    words = (inputs.arrays[MASK] > 0) & ~np.isin(ids, [*added])
    missing = words & (ids == unknown)
    share = float(missing.sum() / max(words.sum(), 1))
    if share < TOLD_UNKNOWN:
        return
    worst = inputs.names[int(missing.sum(axis=1).argmax())]
    what = f"the model's tokenizer does not know {share:.1%} of the tokens of the data"
    most = f"the most are in {worst}"
    remedy = (
        "check that the tokenizer's files are those of this model, with its whole vocabulary, and "
        "that the texts are in a language that it reads"
    )
    if share >= MOST_UNKNOWN:
        raise AtlasError(
            what,
            where=str(model.directory),
            why=f"all unknown words are one token, so the data say nothing about the model; {most}",
            remedy=remedy,
        )
    note(what, f"  why: {most}\n  what to do: {remedy}")
