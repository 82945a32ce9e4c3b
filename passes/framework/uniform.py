"""Arrays of one repeated number: the weights of a model of which only the shapes are known.

A bare configuration has no weights. Its arrays are views of a single number, all strides zero, and
stay so while passes fold constants into them; a plan of 8 billion parameters would take 60 GB.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def is_uniform(array: np.ndarray) -> bool:
    """Whether the array stores one number for all its elements."""
    return array.size == 1 or not any(array.strides)


def elementwise(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """``function(*arrays)`` with broadcasting; of arrays of one number it is one number again."""
    if not all(is_uniform(array) for array in arrays):
        return function(*arrays)
    shape = np.broadcast_shapes(*(array.shape for array in arrays))
    return np.broadcast_to(function(*(array.reshape(-1)[:1] for array in arrays)), shape)
