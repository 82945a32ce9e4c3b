"""A choice of features: rows of the weight before it, or a linear layer of ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from atlasc.ir.arrays.lazy import is_uniform, rows_of
from atlasc.ir.module import Value
from atlasc.ir.opdef import Symbol


def layer_of(
    value: Value,
    chosen: Sequence[int],
    symbols: Mapping[str, np.ndarray],
    constant: Callable[[str, np.ndarray], Symbol],
) -> tuple[Value, dict[str, Symbol]]:
    """The operand and the arrays of the linear layer that makes some features of a value.

    Args:
        value: what has the features.
        chosen: numbers of the features, in any order; a number may come again.
        symbols: the arrays of the value's module.
        constant: adds an array to the module, by a name.
    """
    op = value.op
    if op.name == "nn.linear":
        rows = _rows(chosen)
        return op.operands[0], {
            name: constant(f"{given.name}.part", _part(symbols[given.name], rows))
            for name, given in op.chosen("weight", "bias").items()
        }
    weight = np.zeros((len(chosen), value.tensor.shape[-1]), np.float32)
    weight[range(len(chosen)), list(chosen)] = 1
    return value, {"weight": constant("features", weight)}


def _rows(chosen: Sequence[int]) -> slice | list[int]:
    """A slice where the numbers have one distance, so that a part of an array is a view of it."""
    rows = [int(row) for row in chosen]
    steps = {after - before for before, after in pairwise(rows)} or {1}
    step = steps.pop()
    if not rows or steps or not step:
        return rows
    stop = rows[-1] + step
    return slice(rows[0], None if stop < 0 else stop, step)


def _part(array: np.ndarray, rows: Any) -> np.ndarray:
    """Some rows; one number that stands for all elements stays one number."""
    if is_uniform(array) and isinstance(rows, list):
        return np.broadcast_to(array.reshape(-1)[0], (len(rows), *array.shape[1:]))
    return rows_of(array, rows)
