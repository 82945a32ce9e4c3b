"""Weights in a file that the architecture does not read: whether they would change an answer.

The head of another task changes nothing, so a note says that it is not computed. Any other unread
weight is refused: a layer beyond those of the config, or the matrices of an adapter beside the
weights that they change. A weight counts as a head if some architecture of the same model has it
after its base, and the loaded architecture does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.ir.errors import AtlasError, named
from atlasc.loading.model_files.huggingface import build

if TYPE_CHECKING:
    import torch


def require_read(
    names: Iterable[str], module: torch.nn.Module, config: Any, source: Path
) -> list[tuple[str, str]]:
    """Notes on weights that are not read, by their names in the file.

    Raises:
        AtlasError: one of these weights belongs to the computation of the model.
    """
    names = sorted(names)
    if not names:
        return []
    own, prefix = _parts(module), str(getattr(module, "base_model_prefix", "")) + "."
    heads = {part for one in _architectures(config) for part in _parts(one)} - own
    inside = [n for n in names if n.removeprefix(prefix).split(".")[0] not in heads]
    if inside:
        raise AtlasError(
            f"the file has {_counted(inside)} that {type(module).__name__} does not read",
            where=str(source),
            why=f"{named(inside)}: without these weights the answers would differ from the model's",
            remedy="use the config.json that was saved with these weights; merge an adapter into "
            "its model first: model.merge_and_unload().save_pretrained(directory)",
        )
    return [
        (
            f"{_counted(names)} of the file {'is' if len(names) == 1 else 'are'} not read",
            f"  why: {type(module).__name__}, which config.json names, has no part for these "
            "weights: "
            f"{named(names)}\n"
            "  what to do: nothing, if you want the outputs of this architecture; otherwise name "
            'another one in config.json: "architectures"',
        )
    ]


def _counted(names: Sequence[str]) -> str:
    return f"{len(names)} {'weight' if len(names) == 1 else 'weights'}"


def _parts(module: torch.nn.Module) -> set[str]:
    """Names of the parts of a model: the parts of its base, and the parts after the base."""
    prefix = str(getattr(module, "base_model_prefix", ""))
    base = getattr(module, prefix, module) if prefix else module
    own = {name for name, _ in (*module.named_children(), *module.named_parameters(recurse=False))}
    inner = {name for name, _ in (*base.named_children(), *base.named_parameters(recurse=False))}
    return (own | inner) - {prefix}


def _architectures(config: Any) -> Iterator[torch.nn.Module]:
    """All architectures of transformers for a config, without weights."""
    from transformers.models.auto import modeling_auto

    classes = set()
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING"):
            found = mapping.get(type(config), ())
            classes |= set(found if isinstance(found, tuple) else (found,))
    for one in sorted(classes, key=lambda one: str(one.__name__)):
        try:
            yield build(config, one, meta=True)
        except AtlasError:  # for a task whose settings the config lacks
            continue
