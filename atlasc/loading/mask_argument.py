"""A mask of padding under any name: the module is given ``attention_mask`` as it wants its own."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import Field

from atlasc.ir.bounds import MAX_NAME
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import Schema
from atlasc.loading import MASK
from atlasc.loading.model_files.wrappers import named_inputs

if TYPE_CHECKING:
    import torch

DROPPED = -1e4
"""What is added to the scores of a dropped key, at most."""


class Form(NamedTuple):
    """How a module wants a mask of padding.

    Attributes:
        kind: ``bool``, ``int`` or ``float`` for zeros and ones; ``added`` for what is added to
            scores.
        kept: whether a one is a token, and not padding.
        shape: extents after the batch: -1 for the tokens, and ones.
        low: what is added to the scores of padding.
    """

    kind: str
    kept: bool = True
    shape: tuple[int, ...] = (-1,)
    low: float = -np.inf

    def of(self, mask: torch.Tensor, like: torch.dtype) -> torch.Tensor:
        """The mask for the module, from ``attention_mask`` [batch, tokens]; ``like`` is the type of
        the module's floats.
        """
        import torch

        keep = (mask != 0).reshape(len(mask), *self.shape)
        if self.kind == "added":
            zero = torch.zeros((), dtype=like, device=mask.device)
            return torch.where(keep, zero, torch.full_like(zero, self.low))
        chosen = keep if self.kept else keep.logical_not()
        types = {"bool": torch.bool, "int": torch.int64, "float": like}
        return chosen.to(types[self.kind])


FORMS = (
    Form("int"), Form("bool"), Form("bool", kept=False), Form("float"), Form("int", kept=False),
    Form("float", kept=False), Form("added"), Form("added", low=float(np.finfo(np.float32).min)),
)  # fmt: skip
"""Forms that are tried, in this order."""


def forms_of(array: np.ndarray) -> list[Form]:
    """The forms that a mask [N, ...] of data may have; none if it is no mask of tokens."""
    shape = tuple(-1 if extent > 1 else 1 for extent in array.shape[1:])
    if shape.count(-1) != 1:
        return []
    kind = {"b": "bool", "i": "int", "u": "int", "f": "float"}.get(array.dtype.kind, "")
    if np.isin(array, (0, 1)).all() and kind:
        return [Form(kind, True, shape), Form(kind, False, shape)]
    if kind == "float" and ((array == 0) | (array <= DROPPED)).all():
        return [Form("added", True, shape, float(array.min()))]
    return []


class OwnMask(Schema):
    """The mask that a module takes under a name of its own, as clients of its program may give it.

    Attributes:
        argument: the module's own name.
        added: whether it is what is added to scores: 0 for a token, and a great negative number.
        kept: whether another one is true, or 1, for a token, and not for padding.
    """

    argument: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    added: bool = False
    kept: bool = True

    def read(self, array: np.ndarray) -> np.ndarray:
        """``attention_mask`` of such a mask.

        Raises:
            AtlasError: it has other numbers than a mask has.
        """
        if array.dtype.kind not in "biuf":
            raise AtlasError(f"the mask {self.argument} must hold numbers, not {array.dtype}")
        low = array <= DROPPED
        fits = (array == 0) | low if self.added else np.isin(array, (0, 1))
        if not fits.all():
            numbers = f"0 and {DROPPED:g} or less" if self.added else "0 and 1"
            raise AtlasError(
                f"the mask {self.argument} must hold {numbers} alone",
                why="a mask leaves in the clear, and nothing else does",
            )
        keep = ~low if self.added else (array != 0) == self.kept
        return keep.reshape(len(array), -1).astype(np.int64)


@dataclass
class Given:
    """The mask in data, as it was given under the module's own name; None if it was not."""

    array: np.ndarray | None = None


def with_public_mask(module: torch.nn.Module, argument: str, form: Form | None) -> Any:
    """A module that takes ``attention_mask`` in place of an argument of another name or form.

    Args:
        module: the module.
        argument: its argument, which is a mask of padding.
        form: how it wants it; None leaves it out, and keeps what data give in its place.
    """
    import torch

    like = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)

    class Masked(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module
            self.mask_argument, self.form, self.given = argument, form, Given()

        def forward(self, **inputs: torch.Tensor) -> Any:
            mask = inputs.pop(MASK, None)
            if mask is not None and form is not None:
                inputs[argument] = form.of(mask, like)
            return self.module(**inputs)

    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    every = {**named_inputs(module)}
    place = every.pop(argument)
    every = {name: one.replace(kind=one.KEYWORD_ONLY) for name, one in every.items()}
    mask = place.replace(name=MASK, kind=place.KEYWORD_ONLY)
    ordered = [own, *every.values(), mask]
    Masked.forward.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    Masked.__name__ = type(module).__name__
    return Masked()


def own_mask(module: Any) -> OwnMask | None:
    """The mask of a module that `with_public_mask` made; None of others, and of one whose form is
    not known yet.
    """
    form = getattr(module, "form", None) if hasattr(module, "mask_argument") else None
    if form is None:
        return None
    added = form.kind == "added"
    return OwnMask(argument=module.mask_argument, added=added, kept=added or form.kept)


def read_masks(
    arrays: dict[str, np.ndarray], module: Any, known: OwnMask | None = None
) -> dict[str, np.ndarray]:
    """Arrays of data, with ``attention_mask`` in place of a mask under the module's own name.

    Args:
        arrays: the arrays.
        module: the model's module; None for a client, which has ``known`` instead.
        known: the mask as a bundle's client knows it.

    Raises:
        AtlasError: data has both masks, or one with other numbers than a mask has.
    """
    known = known or own_mask(module)
    argument = getattr(module, "mask_argument", None) if known is None else known.argument
    if argument is None or argument not in arrays:
        return arrays
    if argument != MASK and MASK in arrays:
        raise AtlasError(
            f"data has two masks, {argument} and {MASK}",
            remedy=f"give one of them: {argument} as the model takes it, or {MASK}, which is 1 "
            "for each token",
        )
    given = arrays.pop(argument)
    if module is not None:
        module.given.array = given
    return arrays if known is None else {**arrays, MASK: known.read(given)}
