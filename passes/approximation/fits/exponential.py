"""The exponential of a softmax, judged by what its errors do to probabilities.

With k halvings a softmax computes y = exp(x / 2^k) of shifted scores x <= 0, and then y^(2^k) over
the row's sum exp(s). An error d in y becomes one of

    2^k y^(2^k - 1) d exp(-s)

in the probability: what matters depends on the row sums that a model has, not on exp alone.
Besides, errors of many small y must not move the first sum of a row, which would leave its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial.chebyshev import chebval, chebvander

from atlasc.passes.approximation.fits.chebyshev import Interval, fit
from atlasc.passes.approximation.fits.chebyshev_sum import Array, from_unit

NEGLIGIBLE = 1e-4
"""Error of a probability that a y so small that it does not count may make."""
POINTS = 512


@dataclass(frozen=True)
class Exponential:
    """A Chebyshev sum for exp.

    Attributes:
        error: the greatest that it makes in a probability: of all scores, root mean square over the
            rows that were seen.
        greatest: error of y.
    """

    degree: int
    coefficients: Array
    error: float
    greatest: float


@lru_cache(maxsize=1024)
def exponential(
    degree: int,
    exp_range: Interval,
    halvings: int,
    log_sums: tuple[float, ...],
    allowed: float,
    weighted: bool,
) -> Exponential:
    """The exponential of one softmax.

    Args:
        exp_range: (low, 0) of the shifted scores over 2^halvings.
        halvings: k.
        log_sums: s of the rows that were seen, as evenly spaced quantiles.
        allowed: error of y that does not move a row's first sum.
        weighted: least squares of the errors in probabilities, instead of the interpolant.
    """
    t = -np.cos(np.pi * np.linspace(0, 1, max(POINTS, 4 * (degree + 1))))
    exact = np.exp(from_unit(t, exp_range))
    # The error in a probability for an error of one in y. A row that holds a score x has a sum of
    # exp(x) or more. Where y is so small that it does not count, an error must still not grow into
    # something that does.
    power, sums = 2**halvings, np.asarray(log_sums, dtype=np.float64)
    scores = power * np.log(exact)
    inverse = np.exp(-2 * np.maximum(sums[None, :], scores[:, None])).mean(axis=1)
    least = np.exp((np.log(NEGLIGIBLE) + sums.min()) / power)
    weight = power * np.maximum(exact, least) ** (power - 1) * np.sqrt(inverse)
    if weighted:
        both = np.hypot(weight, NEGLIGIBLE / allowed)
        rows = chebvander(t, degree) * both[:, None]
        coefficients = np.linalg.lstsq(rows, exact * both, rcond=None)[0]
        coefficients.setflags(write=False)
    else:
        coefficients = fit("exp", degree, exp_range)
    error = np.abs(chebval(t, coefficients) - exact)
    return Exponential(degree, coefficients, float((weight * error).max()), float(error.max()))


def least_exponential(
    degrees: Sequence[int],
    tolerance: float,
    exp_range: Interval,
    halvings: int,
    log_sums: tuple[float, ...],
    allowed: float,
    weighted: bool,
) -> Exponential:
    """The exponential of the least of rising degrees that is within the tolerance, and y within
    what is allowed; else that of the greatest.
    """
    for degree in degrees:
        found = exponential(degree, exp_range, halvings, log_sums, allowed, weighted)
        if found.error <= tolerance and found.greatest <= allowed:
            break
    return found
