"""A value whose elements are those of another value, in another order or fewer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np

from atlasc.ir.module import Op, Value

_KNOWN: WeakValueDictionary[tuple[int, ...], np.ndarray] = WeakValueDictionary()
"""Shape -> its numbers, while somebody has them: a large model has thousands of values of few
shapes."""


@dataclass(frozen=True, eq=False)
class Moved:
    """A value as elements of another value.

    Attributes:
        base: a value of the new module.
        index: the number of each element in the base, in the value's shape.
        moves: the ops between base and value, to be kept if nothing better is found; None if the
            base is not their operand.
    """

    base: Value
    index: np.ndarray
    moves: tuple[Op, ...] | None = None

    @property
    def whole(self) -> bool:
        """Whether every element of the base is still present."""
        return self.index.size == math.prod(self.base.tensor.shape)


def numbers(value: Value) -> np.ndarray:
    """The number of each element of a value, in its shape; not to be written to."""
    shape = tuple(value.tensor.shape)
    known = _KNOWN.get(shape)
    if known is None:
        known = _KNOWN[shape] = np.arange(math.prod(shape)).reshape(shape)
        known.flags.writeable = False
    return known


def itself(value: Value) -> Moved:
    """A value as elements of itself."""
    return Moved(value, numbers(value), ())


def moved_to(base: Value, index: np.ndarray) -> Moved:
    """A value whose index was found without moves; it has none if it is the base itself."""
    of = Moved(base, index)
    return itself(base) if index.shape == base.tensor.shape and is_plain(of) else of


def is_plain(of: Moved) -> bool:
    """Whether no element has moved."""
    if of.index is _KNOWN.get(of.index.shape):
        return of.whole
    return of.whole and bool((of.index.ravel() == np.arange(of.index.size)).all())
