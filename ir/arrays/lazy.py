"""Arrays that are made anew whenever they are read, and not kept.

A model's weights can be larger than the memory. What a pass makes of a large weight is therefore
written down, as a function of the weight, and evaluated when an op needs the numbers: one weight is
in memory at a time. Small arrays are made at once.

A bare config has no weights. Its arrays are views of a single number with strides of zero, and stay
so while passes fold constants into them; a plan of 8 billion parameters would otherwise take 60 GB.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any, cast

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

LARGE = 1 << 18
"""Bytes of an array from which it is made when it is read."""
TRIMMED = 256 << 20
"""Bytes that are made until freed memory goes back to the system."""


class LazyArray(NDArrayOperatorsMixin):
    """An array whose shape and type are known, and whose numbers are made at each use.

    It stands for an array: NumPy's functions, operators and methods take it, and give plain arrays.
    Its numbers never change. Pickled, it is a plain array.

    Args:
        make: gives the array.
        rows: gives ``array[index]`` for an array of integers; None reads the whole array for it.

    Attributes:
        shape, dtype: those of the array.
        key: equal for arrays that are known to be equal.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        make: Callable[[], np.ndarray],
        rows: Callable[[np.ndarray], np.ndarray] | None = None,
        key: Hashable = None,
    ) -> None:
        self.shape, self.dtype, self._make, self._rows = shape, np.dtype(dtype), make, rows
        self.key = id(self) if key is None else key

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the numbers, once they are made."""
        return self.size * self.dtype.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """Those of an array in C's order: no number stands for several elements."""
        steps = (math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))
        return tuple(step * self.dtype.itemsize for step in steps)

    @property
    def T(self) -> np.ndarray:
        """The array with its axes in reverse, made when it is read."""
        return lazy(self.shape[::-1], self.dtype, lambda: self._make().T)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        _note_made(self.nbytes)
        return np.asarray(self._make(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(one) if isinstance(one, LazyArray) else one for one in inputs]
        return getattr(ufunc, method)(*plain, **options)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> np.ndarray:
        if self._rows is not None and isinstance(index, np.ndarray) and index.dtype.kind in "iu":
            return self._rows(index)
        return cast(np.ndarray, np.asarray(self)[index])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.asarray, (np.asarray(self),)


@cache
def _trim() -> Callable[[int], int]:
    """glibc's ``malloc_trim``; elsewhere a function that does nothing."""
    return getattr(ctypes.CDLL(None), "malloc_trim", lambda pad: 0)


_made = 0


def _note_made(size: int) -> None:
    """Give freed memory back to the system now and then: glibc keeps it where smaller objects lie
    between the arrays, so that a process would grow with all weights that it ever made.
    """
    global _made
    _made += size
    if _made > TRIMMED:
        _made = 0
        _trim()(0)


def is_large(shape: tuple[int, ...], dtype: Any) -> bool:
    """Whether an array of this shape is made only when it is read."""
    return math.prod(shape) * np.dtype(dtype).itemsize > LARGE


def lazy(shape: tuple[int, ...], dtype: Any, make: Callable[[], np.ndarray]) -> np.ndarray:
    """The array that ``make`` gives: at once if it is small, else at each use."""
    if not is_large(shape, dtype):
        return make()
    return cast(np.ndarray, LazyArray(tuple(shape), dtype, make))


def rows_of(array: np.ndarray, rows: Any) -> np.ndarray:
    """Some rows of an array, chosen by a slice or by their numbers; of a plain array as NumPy gives
    them.
    """
    if isinstance(array, np.ndarray):
        return array[rows]
    shape = (len(np.arange(len(array))[rows]), *array.shape[1:])
    return lazy(shape, array.dtype, lambda: array[rows])


def as_dtype(array: Any, dtype: Any) -> np.ndarray:
    """An array, or a number, in another type (None: its own); one number for all elements stays one
    number, as the weights of a bare configuration are.
    """
    if isinstance(array, np.ndarray) and array.size > 1 and not any(array.strides):
        return np.broadcast_to(array[(0,) * array.ndim].astype(dtype), array.shape)
    if isinstance(array, np.ndarray | LazyArray) and is_large(array.shape, array.dtype):
        if dtype is None or array.dtype == dtype:
            return cast(np.ndarray, array)
        rows = partial(_rows_as, cast(np.ndarray, array), dtype)
        return cast(
            np.ndarray, LazyArray(array.shape, dtype, partial(np.asarray, array, dtype), rows)
        )
    return np.asarray(array, dtype=dtype)


def _rows_as(array: np.ndarray, dtype: Any, rows: np.ndarray) -> np.ndarray:
    return array[rows].astype(dtype)


def is_uniform(array: np.ndarray) -> bool:
    """Whether the array stores only one number for all its elements."""
    return array.size == 1 or not any(array.strides)


def elementwise(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """``function(*arrays)`` with broadcasting; if each array stores one number, so does the result.

    A large result is made at each use, so ``function`` and the arrays may not change.
    """
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    if all(is_uniform(array) for array in arrays):
        return np.broadcast_to(function(*(array.reshape(-1)[:1] for array in arrays)), shape)
    dtype = function(*(np.ones(1, array.dtype) for array in arrays)).dtype
    return lazy(shape, dtype, lambda: function(*map(np.asarray, arrays)))
