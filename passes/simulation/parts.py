"""Inputs of a simulation, divided among threads."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.simulation.snapshots import Snapshots

AHEAD, FEWEST_FOR_AHEAD = 2, 8
"""The number of inputs that are evaluated first, and the fewest inputs with which that is done."""


@dataclass
class Part:
    """Some of the inputs, which one thread evaluates.

    Attributes:
        values: what the server gets, encrypted and public.
        snapshots: values before nonlinear ops, by the approximations before them.
        left: which inputs left the range of a polynomial in the segment that a key of `snapshots`
            ends with; None where the inputs are not watched.
    """

    values: dict[Value, np.ndarray]
    snapshots: Snapshots
    left: dict[int, np.ndarray] | None = None

    def watch(self, key: int) -> np.ndarray | None:
        """Where the inputs are written down that leave a range from now on."""
        if self.left is None:
            return None
        count = len(next(iter(self.values.values())))
        return self.left.setdefault(key, np.zeros(count, dtype=np.bool_))

    def leaving(self, keys: Sequence[int]) -> np.ndarray | None:
        """Which inputs left a range in any of these segments."""
        return None if self.left is None else np.any([self.left[key] for key in keys], axis=0)


@dataclass
class PreparedInputs:
    """Inputs whose client part has been computed.

    Attributes:
        rounds: parts that are evaluated at the same time, in the order of the inputs. A few inputs
            are evaluated first: a setting that explodes nearly always does so on any input, and the
            other inputs are then not evaluated.
        threads: how many work on a round.
    """

    rounds: list[list[Part]]
    threads: int


class End:
    """The first segment that need not be evaluated; threads lower it where values explode.

    What is found does not depend on which thread is faster: a part goes on until it is past the
    first explosion of the others.
    """

    def __init__(self, segment: int) -> None:
        self.segment = segment
        self._lock = Lock()

    def lower(self, segment: int) -> None:
        """No segment from this one on is needed."""
        with self._lock:
            self.segment = min(self.segment, segment)


def divided(
    values: Mapping[Value, np.ndarray],
    inputs: int,
    threads: int,
    memory: int,
    watched: bool = False,
) -> PreparedInputs:
    """Values of inputs, [N, ...] each, divided into rounds of parts.

    Args:
        memory: bytes of snapshots.
        watched: whether runs find which inputs leave a range.
    """

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
        return PreparedInputs([parts(0, inputs)], threads)
    return PreparedInputs([parts(0, AHEAD), parts(AHEAD, inputs)], threads)
