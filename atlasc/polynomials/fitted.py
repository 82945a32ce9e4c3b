"""Fits approximations on calibrated ranges, for a parametrisation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from atlasc.calibration.ranges import EXP_RANGE, WIDEST, ChannelRanges, Range
from atlasc.ir.errors import AtlasError
from atlasc.polynomials.algorithms.chebyshev import (
    SUM_RANGES,
    ActivationApproximation,
    ChannelActivation,
    DirectSoftmax,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.polynomials.description import Activation, Softmax
from atlasc.polynomials.fits.chebyshev_sum import Interval
from atlasc.polynomials.fits.weighted import (
    FOLLOWED,
    HIGHEST_CHANNEL_DEGREE,
    HIGHEST_WEIGHTED_DEGREE,
    RELATIVE,
    channel_fits,
    exponential,
    least_exponential,
    weighted_fit,
)
from atlasc.polynomials.parametrisation import DIRECT, Parametrisation

EXP_DEGREES = (3, 7, 15, 31, 63, 127)
"""Degrees of the exponential of an iterative softmax on measured ranges."""
EXP_SHARE = 0.1
"""The exponential may add this share of the last iteration's error to probabilities, ..."""
LEAST_TOLERANCE, GREATEST_TOLERANCE = 1e-6, 1e-3
"""... but at least the first and at most the second of these errors."""
SUM_SHARE = 0.1
"""Share by which errors of the exponential may move the first sum of a row."""
SUM_ROOM = 1.5
"""Least growth of the ranges of later sums at both ends, because earlier iterations have errors."""
LEAST_FACTOR, GREATEST_FACTOR = 0.1, 3.0
"""Range in which the polynomial over 1/sqrt is assumed to stay; outside it no setting is usable."""
NORM_EXTENSION = 1.15
"""A weighted fit of 1/sqrt is bounded at least this factor beyond the seen variances. Such a fit is
coarse where nothing was seen, so the extra range costs little."""
SCORE_EXTENSION = 1.0
"""How much further scores may reach than the seen scores. At temperature T this moves the logarithm
of a row's first sum by 1/T of it. Inputs unlike the calibration leave these ranges first."""
BEYOND = 1.5
"""How far above (-8, 0) the paper's exponential is used, for the greatest score of a calibrated
range."""
PAPER_EXP_RANGE = (EXP_RANGE[0], BEYOND)
"""Its domain reaches as far, because outside [-1, 1] a Chebyshev sum of degree 15 amplifies the
rounding of its own products, by 10^5 at 1.375."""
FINEST_SPREAD, GREATEST_SPREAD = 1 / 64, 1 / 2
"""Errors of an iteration below the first do not move the sums of the next iteration; errors above
the second count as the second."""


def fitted_norm(degree: int, known: Range | None, space: Parametrisation) -> NormApproximation:
    """A norm's approximation; its range stays open if none is known."""
    if known is None:
        return NormApproximation(degree)
    interval = known.low, known.high
    if space.fits == "weighted" and known.quantiles is not None:
        interval = _wider(interval, known.quantiles, NORM_EXTENSION)
    return NormApproximation(degree, interval, _weighted("invsqrt", degree, interval, known, space))


def fitted_activation(
    function: str, degree: int, known: Range | None, space: Parametrisation
) -> Activation:
    """An activation's approximation; its range stays open if none is known."""
    if known is None:
        return ActivationApproximation(degree)
    if space.channels == "each" and known.channels and degree <= HIGHEST_CHANNEL_DEGREE:
        return _by_channel(function, degree, known.channels, space.fits == "weighted")
    interval = known.low, known.high
    coefficients = _weighted(function, degree, interval, known, space)
    return ActivationApproximation(degree, interval, coefficients)


@lru_cache(maxsize=256)
def _by_channel(
    function: str, degree: int, known: ChannelRanges, weighted: bool
) -> ChannelActivation:
    ranges = np.column_stack([known.low, known.high])
    return ChannelActivation(degree, ranges, channel_fits(function, degree, known, weighted))


def _weighted(
    function: str, degree: int, interval: Interval, known: Range, space: Parametrisation
) -> tuple[float, ...] | None:
    """Coefficients of the weighted fit; None for an interpolant."""
    if space.fits != "weighted" or known.quantiles is None or degree > HIGHEST_WEIGHTED_DEGREE:
        return None
    found = weighted_fit(function, degree, interval, known.quantiles)
    return None if found.floor is None else tuple(found.coefficients)


def fitted_softmax(
    degrees: Sequence[int], algorithm: int, known: Range | None, space: Parametrisation
) -> Softmax:
    """A softmax's approximation; if no range is known, its ranges stay open or are the paper's.

    The degrees are those of the fits of 1/sqrt, or of 1/sum and exp, depending on the algorithm at
    this position in `SOFTMAX_ALGORITHMS`.
    """
    if algorithm == DIRECT:
        degree, exp_degree = degrees
        if known is None:
            return DirectSoftmax(degree, exp_degree=exp_degree)
        return fitted_direct(degree, exp_degree, known, space)
    steps = max(0, algorithm - DIRECT) or None
    if known is not None and space.softmax_ranges == "measured":
        return measured_softmax(degrees, known, space, steps)
    facts = {} if known is None else paper_ranges(known, len(degrees))
    return SoftmaxApproximation.of_degrees(degrees, renormalisations=steps, **facts)


def paper_ranges(known: Range, iterations: int) -> dict[str, Any]:
    """Shift, correction and exponential of an iterative softmax on the paper's ranges."""
    return {
        "shift": paper_shift(known, iterations),
        "log_keys": known.log_keys(iterations - 1),
        "exp_range": PAPER_EXP_RANGE,
    }


def paper_shift(known: Range, iterations: int) -> float:
    """The constant that an iterative softmax on the paper's ranges subtracts from its scores.

    A softmax does not depend on this constant, but its polynomials do. 1/sqrt of a low degree is
    worst at the low end of its range, so the rows' sums should be large, and the constant small. It
    is the least constant for which no score leaves the range where exp is right, and no first row
    sum exceeds the top of its range, margins included. With k iterations the argument of exp is
    (score - shift) / 2^k.
    """
    halvings = iterations - 1
    shift = known.shift(halvings) - BEYOND * 2**iterations
    if known.log_sums is None:
        return shift
    greatest = known.log_sums[halvings][1]
    return max(shift, 2**halvings * (greatest - math.log(SUM_RANGES[0][1])))


def measured_softmax(
    degrees: Sequence[int],
    known: Range,
    space: Parametrisation,
    renormalisations: int | None = None,
) -> SoftmaxApproximation:
    """An iterative softmax on the ranges that calibration measured, not on the paper's.

    The exponential gets the least degree whose errors vanish in the probabilities beside those of
    the last 1/sqrt, which nothing corrects. If the polynomial of an iteration is f times 1/sqrt,
    the next sum is f^4 times the measured one, so its range gets room for all f that the polynomial
    has. This room is a power of `SUM_ROOM`, so that there are few different ranges and fits.
    """

    def room(factor: float) -> float:
        return SUM_ROOM ** max(1, math.ceil(math.log(factor, SUM_ROOM)))

    count = len(degrees)
    log_sums = _log_sums(known, count - 1)
    weighted = space.fits == "weighted"
    sums = [(covered((e[0], e[1])), covered_values(seen)) for e, seen in known.sums(count)]
    ranges: list[Interval] = []
    fits: list[tuple[float, ...]] = []
    below = above = 1.0
    error = 0.0
    for degree, ((low, high), seen) in zip(degrees, sums, strict=True):
        interval = covered((low / below, high * above))
        if weighted and not ranges:
            interval = covered(_wider(interval, seen, math.exp(SCORE_EXTENSION / 2 ** (count - 1))))
        if weighted:
            seen = _spread(seen, error)
        bound = FOLLOWED if len(ranges) < count - 1 else RELATIVE
        chosen = weighted_fit("invsqrt", degree, interval, seen, bound, weighted)
        ranges.append(interval)
        fits.append(tuple(chosen.coefficients))
        error = chosen.seen_error
        below = room(1 / max(1 + chosen.least, LEAST_FACTOR) ** 4)
        above = room(min(1 + chosen.greatest, GREATEST_FACTOR) ** 4)
    lowest, shift = known.scores_at(count - 1)
    exp_range = ((lowest - shift) / 2**count, 0.0)
    remaining = error**2 ** (renormalisations or 0)
    tolerance = min(max(EXP_SHARE * remaining, LEAST_TOLERANCE), GREATEST_TOLERANCE)
    # By the Cauchy-Schwarz inequality the sum of squares moves by at most this share.
    allowed = SUM_SHARE / 2 * math.sqrt(sums[0][1][0] / (known.width or 1))
    found = least_exponential(EXP_DEGREES, tolerance, exp_range, count, log_sums, allowed, weighted)
    return SoftmaxApproximation.of_degrees(
        degrees,
        log_keys=known.log_keys(count - 1),
        shift=shift,
        exp_range=exp_range,
        exp_degree=len(found.coefficients) - 1,
        sum_ranges=tuple(ranges),
        coefficients=tuple(fits) if weighted else None,
        exp_coefficients=tuple(found.coefficients) if weighted else None,
        renormalisations=renormalisations,
    )


def _spread(seen: tuple[float, ...], error: float) -> tuple[float, ...]:
    """Quantiles of a sum after 1/sqrt was wrong by -error, 0 or error.

    The error is rounded up to a power of two, so that there are few different quantiles and fits.
    """
    if error < FINEST_SPREAD:
        return seen
    error = min(2.0 ** math.ceil(math.log2(error)), GREATEST_SPREAD)
    moved = np.outer([(1 - error) ** 4, 1.0, (1 + error) ** 4], seen)
    return tuple(np.quantile(moved, np.linspace(0, 1, len(seen))).tolist())


def fitted_direct(
    degree: int, exp_degree: int, known: Range, space: Parametrisation
) -> DirectSoftmax:
    """A direct softmax; its ranges are always the measured ones."""
    assert known.log_sums is not None
    lowest, shift = known.scores_at(0)
    exp_range = (lowest - shift, 0.0)
    log_sums = _log_sums(known, 0)
    low, high = covered(
        (math.exp(known.log_sums[0][0] - shift), math.exp(known.log_sums[0][1] - shift))
    )
    coefficients = exp_coefficients = None
    if space.fits == "weighted":
        allowed = SUM_SHARE * math.exp(log_sums[0]) / (known.width or 1)
        found = exponential(exp_degree, exp_range, 0, log_sums, allowed, weighted=True)
        exp_coefficients = tuple(found.coefficients)
        seen = covered_values(tuple(math.exp(s) for s in log_sums))
        low, high = covered(_wider((low, high), seen, math.exp(SCORE_EXTENSION)))
        coefficients = tuple(weighted_fit("inverse", degree, (low, high), seen).coefficients)
    return DirectSoftmax(
        degree, (low, high), shift, exp_degree, exp_range, coefficients, exp_coefficients,
        log_keys=known.log_keys(0),
    )  # fmt: skip


def _log_sums(known: Range, halvings: int) -> tuple[float, ...]:
    """Quantiles of the logarithm of a row's sum of exp(score - shift), with both at temperature
    2^halvings.
    """
    if known.total_quantiles is None:
        raise AtlasError(
            f"the calibration has no quantiles of the row sums of {known.op}",
            where=known.location,
            remedy="calibrate on inputs",
        )
    found = [s - known.shift(halvings) for s in known.total_quantiles[halvings]]
    return tuple(max(s, found[-1] - math.log(WIDEST)) for s in found)


def covered(interval: Interval) -> Interval:
    """A range of positive arguments, cut at the low end as far as no polynomial can cover it.
    Smaller arguments get a wrong value and no explosion, and a search sees the error.
    """
    return max(interval[0], interval[1] / WIDEST), interval[1]


def covered_values(seen: tuple[float, ...]) -> tuple[float, ...]:
    """Ascending positive values; values too small for a polynomial are raised, see `covered`."""
    return tuple(max(value, seen[-1] / WIDEST) for value in seen)


def _wider(interval: Interval, seen: Sequence[float], factor: float) -> Interval:
    """An interval of positive arguments that reaches a factor beyond the seen arguments."""
    low, high = interval
    return min(low, seen[0] / factor), max(high, seen[-1] * factor)
