"""Which inputs stand out: those on which settings fail first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from atlasc.passes.calibration.measure import Measurement

TAIL = 0.9
"""Quantile that the distance of an extreme is measured with."""


def standing_out(measured: Sequence[Measurement]) -> tuple[int, ...]:
    """The inputs that reach an end of some range, those first that are furthest from the others.

    An end is the least or the greatest of any quantity that a `Measurement` holds. How far its
    extreme lies from the median is counted in distances from the median to the 90% quantile.

    Args:
        measured: of all nonlinear ops, on the same inputs.

    Returns:
        positions of inputs, each once.
    """
    found: dict[int, float] = {}
    for values in (end for measurement in measured for end in _ends(measurement)):
        middle, tail = np.quantile(values, [0.5, TAIL])
        first = int(values.argmax())
        if tail > middle:
            found[first] = max(
                found.get(first, 0.0), float((values[first] - middle) / (tail - middle))
            )
    return tuple(sorted(found, key=lambda position: (-found[position], position)))


def _ends(measurement: Measurement) -> Iterator[np.ndarray]:
    """[N] values whose greatest is an end of a range."""
    pairs = [(measurement.low, measurement.high), measurement.log_sums, measurement.log_squares]
    for low, high in (pair for pair in pairs if pair is not None):
        yield from (-low).reshape(len(low), -1).T
        yield from high.reshape(len(high), -1).T
