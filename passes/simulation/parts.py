"""Inputs of a simulation, divided among threads, with their values in the middle of the model."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.module import Value

AHEAD, FEWEST_FOR_AHEAD = 2, 8
"""The number of inputs that are evaluated first, and the fewest inputs with which that is done."""


class Snapshots:
    """Least recently used values by key, up to a number of bytes."""

    def __init__(self, memory: int) -> None:
        self.memory = memory
        self._values: OrderedDict[int, dict[Value, np.ndarray]] = OrderedDict()
        self._bytes = 0

    def load(self, key: int) -> dict[Value, np.ndarray] | None:
        """The values stored under a key, if they are still kept."""
        return self._values.get(key)

    def touch(self, path: Sequence[int]) -> None:
        """Mark the keys of a setting as used, its first ones last: they are shared the most."""
        for key in reversed(path):
            if key in self._values:
                self._values.move_to_end(key)

    def store(self, key: int, values: dict[Value, np.ndarray], path: Sequence[int] = ()) -> None:
        """Keep values; the least recently used ones go when memory is short.

        Args:
            path: keys that must not go for it; if only those are left, the values are not kept.
        """
        if key in self._values:
            return
        size = _bytes(values)
        for old in [k for k in self._values if k not in path]:
            if self._bytes + size <= self.memory:
                break
            self._bytes -= _bytes(self._values.pop(old))
        if self._bytes + size <= self.memory:
            self._values[key] = values
            self._bytes += size


def _bytes(values: dict[Value, np.ndarray]) -> int:
    return sum(array.nbytes for array in values.values())


@dataclass
class Part:
    """Some of the inputs, which one thread evaluates.

    Attributes:
        values: what the server gets, encrypted and public.
        snapshots: values before nonlinear ops, by the keys of the settings that begin so.
        left: which inputs left the range of a polynomial in the segment of a key; None where the
            inputs are not watched.
        failed: keys of settings that explode in the segment of the key.
    """

    values: dict[Value, np.ndarray]
    snapshots: Snapshots
    left: dict[int, np.ndarray] | None = None
    failed: set[int] = field(default_factory=set)


Rounds = list[list[Part]]
"""Parts that are evaluated at the same time, in the order of the inputs.

A few inputs are evaluated first: a setting that explodes nearly always does so on any input, and
the other inputs are then not evaluated.
"""


def divided(
    values: Mapping[Value, np.ndarray], threads: int, memory: int, watched: bool = False
) -> Rounds:
    """Values of inputs, [N, ...] each, divided into rounds of parts.

    Args:
        threads: parts of a round at most.
        memory: bytes of snapshots.
        watched: whether runs find which inputs leave a range.
    """
    inputs = len(next(iter(values.values())))

    def parts(start: int, end: int) -> list[Part]:
        pieces = max(1, min(threads, end - start))
        bounds = [start + (end - start) * piece // pieces for piece in range(pieces + 1)]
        return [
            Part(
                {value: array[first:last] for value, array in values.items()},
                Snapshots(memory * (last - first) // inputs),
                {} if watched else None,
            )
            for first, last in itertools.pairwise(bounds)
        ]

    if inputs < FEWEST_FOR_AHEAD:
        return [parts(0, inputs)]
    return [parts(0, AHEAD), parts(AHEAD, inputs)]
