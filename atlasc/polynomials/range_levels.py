"""Costs of ranges: levels of polynomials that are right to a fixed error on all of a range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate, chebval

from atlasc.calibration.ranges import Range
from atlasc.ir.scalar_functions import function
from atlasc.polynomials.fits.chebyshev_sum import Interval, from_unit
from atlasc.polynomials.parametrisation import SOFTMAX_ITERATIONS

ERROR = 1e-3
"""Error of each polynomial: relative for 1/sqrt, otherwise a share of the greatest magnitude."""
HIGHEST_LEVEL = 12
LEVELS_OF_ITERATION = 2
"""Levels of a softmax iteration beside its 1/sqrt: the square before it and the one after it."""


def levels_of_ranges(ranges: Sequence[Range]) -> int:
    """Levels of the nonlinear ops, if each polynomial has the least number of levels for an error
    of at most `ERROR` on its whole range.
    """
    return sum(map(_levels, ranges))


def levels_of_inverse_root(low: float, high: float) -> int:
    """Levels of a polynomial for 1/sqrt with an error of at most `ERROR` between two values."""
    return _least("invsqrt", (low, high if high > low else low * (1 + ERROR)))


def as_seen(known: Range) -> Range:
    """A range with the ends seen in calibration, without a margin."""
    seen = replace(known, low=known.seen_low, high=known.seen_high)
    if known.scores is None or known.sum_quantiles is None:
        return seen
    scores = (known.seen_low, known.seen_high)
    sums = tuple((quantiles[0], quantiles[-1]) for quantiles in known.sum_quantiles)
    return replace(seen, scores=(scores,) * len(known.scores), log_sums=sums)


def _levels(known: Range) -> int:
    interval = known.low, known.high
    match known.kind:
        case "scores":
            return min(_softmax(known, count + 1) for count in range(SOFTMAX_ITERATIONS))
        case "variance" | "mean square":
            return _least("invsqrt", interval)
    return _least(known.op.removeprefix("nn."), interval)


def _softmax(known: Range, iterations: int) -> int:
    """Levels of an iterative softmax."""
    low, high = known.scores_at(iterations - 1)
    total = _least("exp", ((low - high) / 2**iterations, 0.0))
    for ends, _ in known.sums(iterations):
        total += LEVELS_OF_ITERATION + _least("invsqrt", (ends[0], ends[1]))
    return total


@lru_cache(maxsize=4096)
def _least(name: str, interval: Interval) -> int:
    """Levels of the first interpolant of degree 2^p - 1 with an error of at most `ERROR`."""
    known = function(name)
    grid = -np.cos(np.pi * np.linspace(0, 1, 4 << HIGHEST_LEVEL))
    # The lower end of a very wide range is rounded to 0, where no 1/sqrt has a fit.
    with np.errstate(divide="ignore", invalid="ignore"):
        exact = known.numpy(from_unit(grid, interval))
        size = np.abs(exact) if known.positive_domain else np.abs(exact).max()
        for level in range(1, HIGHEST_LEVEL):
            found = chebinterpolate(lambda t: known.numpy(from_unit(t, interval)), 2**level - 1)
            if (np.abs(chebval(grid, found) - exact) / size).max() <= ERROR:
                return level
    return HIGHEST_LEVEL
