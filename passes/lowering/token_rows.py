"""The part of an op's operands that one token of its result needs.

A row of a tensor with three axes has lost its token axis, as after ``select``; in heads the axis
stays with extent 1.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from atlasc.ir.module import Op
from atlasc.ir.scalar_functions import ACTIVATIONS

Axes = list[int | None] | None
"""For each operand, the axis of the row that a row of the result needs (None for all of it); None
instead of the list if the op mixes tokens."""


def _alike(op: Op, axis: int) -> Axes:
    shape = op.value.tensor.shape[: axis + 1]
    same = all(operand.tensor.shape[: axis + 1] == shape for operand in op.operands)
    return [axis] * len(op.operands) if same else None


def _reshape(op: Op, axis: int) -> Axes:
    shape, source = op.value.tensor.shape, op.operands[0].tensor.shape
    ranks = {len(shape), len(source)}
    return [1] if axis == 1 and shape[:2] == source[:2] and ranks == {3, 4} else None


def _queries(op: Op, axis: int) -> Axes:
    """Axes for heads [batch, heads, tokens, ...]: all of the keys, the values and the masks."""
    others = [None] * (len(op.operands) - 1)
    return [axis, *others] if axis == 2 and len(op.value.tensor.shape) == 4 else None


def _copies(op: Op, axis: int) -> Axes:
    return None if op.attributes["axis"] == axis else [axis]


_EACH = ("linear", "square", "double", "row_sum", "center", "chebyshev", "add_constant", "scale",
         "affine", "layer_norm", "rms_norm", *ACTIVATIONS)  # fmt: skip
MASKS = ("mask_fill", "mask_zero")
RULES: dict[str, Callable[[Op, int], Axes]] = {
    **dict.fromkeys(_EACH, lambda op, axis: [axis]),
    **dict.fromkeys(("add", "sub", "mul"), _alike),
    **dict.fromkeys(("matmul", "rotary", "softmax", "add_positions", *MASKS), _queries),
    "repeat": _copies,
    "reshape": _reshape,
    "transpose": lambda op, axis: [op.attributes["permutation"][axis]],
}
"""Maps an op of the nn or the poly level, and the axis of a row of its result, to the axes that it
needs of its operands.
"""
CONSTANTS = {
    "add_constant": ("value",),
    "scale": ("factor",),
    "affine": ("scale", "shift"),
    "rotary": ("cos", "sin"),
    "mask_fill": ("bias",),
}
"""Attributes that may differ from token to token."""


def kind_of(op: Op) -> str:
    """The name of an op without its IR level."""
    return op.name.partition(".")[2]


def axes_of(op: Op, axis: int) -> Axes:
    """See ``RULES``; a row of the last axis holds no whole token."""
    kind, rank = kind_of(op), len(op.value.tensor.shape)
    mixed = rank != 4 if kind == "transpose" else axis == rank - 1
    return None if kind not in RULES or mixed else RULES[kind](op, axis)


def row_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of a row of a tensor of some shape."""
    kept = (1,) if len(shape) == 4 else ()
    return (*shape[:axis], *kept, *shape[axis + 1 :])


def constant_row(array: np.ndarray, rank: int, axis: int) -> tuple[np.ndarray, int]:
    """The last row of a constant along the axis of the tokens, and the least token from which on
    all rows are this one.

    Args:
        array: broadcasts to a tensor of ``rank`` axes.
        axis: axis of the tokens in this tensor. In four axes it stays, with extent 1.
    """
    at = axis - (rank - array.ndim)
    if at < 0:
        return array, 0
    rows = np.moveaxis(array, at, 0)
    differing = np.flatnonzero((rows != rows[-1]).reshape(len(rows), -1).any(axis=1))
    row = np.expand_dims(rows[-1], at) if rank == 4 else rows[-1]
    return row, int(differing[-1]) + 1 if len(differing) else 0
