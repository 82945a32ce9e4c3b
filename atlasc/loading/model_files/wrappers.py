"""Modules that hold a model and pass their arguments on to it: torch.compile, DataParallel, ..."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

WRAPPED = ("_orig_mod", "module")
"""Attributes under which the wrappers hold the model."""


def named_inputs(module: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a module's forward, by name."""
    try:
        every = inspect.signature(module.forward).parameters
    except (AttributeError, TypeError, ValueError):  # a module of torch.jit has no signature
        return {}
    return {
        name: one
        for name, one in every.items()
        if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    }


def unwrapped(model: torch.nn.Module, note: Callable[[str, str], object]) -> torch.nn.Module:
    """The model inside of wrappers, with a note; a module without wrappers is returned as it is."""
    inner: Any = model
    while not named_inputs(inner):
        parts = [part for name, part in inner.named_children() if name in WRAPPED]
        if len(parts) != 1:
            break
        inner = parts[0]
    if inner is not model:
        note(
            f"the {type(inner).__name__} inside of the {type(model).__name__} is compiled",
            "  why: the wrapper passes its arguments on; it changes how the model runs, not what "
            "it computes",
        )
    return inner
