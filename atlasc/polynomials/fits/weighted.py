"""Least-squares fits that are best for seen arguments, and bounded on the whole interval.

A Chebyshev interpolant spends its degree evenly on the interval, but arguments are not spread
evenly: a GELU on (-17, 25) gets most of them from (-3, 3). A weighted fit minimises

    mean over seen arguments of e(x)^2  +  lambda * mean over the interval of e(x)^2.

Here e is the error relative to the function (1/sqrt, 1/x), or to its greatest magnitude
(activations). Lambda is the least value of a geometric grid for which |e| stays bounded on the
whole interval. One bound is a number, another a few times the greatest error of the interpolant. So
an argument that was never seen gets a coarse value, but no explosion.

The exponential of a softmax is judged by the effect of its errors on probabilities. With k halvings
a softmax computes y = exp(x / 2^k) of shifted scores x <= 0, and then y^(2^k) over the row's sum
exp(s). An error d in y becomes an error

    2^k y^(2^k - 1) d exp(-s)

in the probability. So the best fit depends on the row sums of a model, not on exp alone. Also,
errors of many small y must not move the first sum of a row, which would leave its range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial.chebyshev import chebinterpolate, chebval, chebvander

from atlasc.calibration.ranges import ChannelRanges
from atlasc.ir.scalar_functions import function
from atlasc.polynomials.fits.chebyshev import check_domain, fit
from atlasc.polynomials.fits.chebyshev_sum import (
    ABSOLUTE_ERROR,
    RELATIVE_ERROR,
    Array,
    Interval,
    from_unit,
)

HIGHEST_WEIGHTED_DEGREE = 127
"""Degree above which an interpolant is as right as a ciphertext can show, and least squares are
slow."""
HIGHEST_CHANNEL_DEGREE = 63
"""Degree above which one polynomial for all channels errs less than other approximations do."""
FLOORS = tuple(10.0**exponent for exponent in range(-9, 4))
"""The grid of lambda."""
POINTS_OF_CELL = 4
LEAST_GRID, CHANNEL_GRID, EXP_GRID = 256, 257, 512
CHANNELS_AT_ONCE = 256
NEGLIGIBLE = 1e-4
"""Error of a probability up to which a small y may be wrong, because it does not count."""


class Bound(NamedTuple):
    """Greatest error of a fit where few or no arguments were seen.

    Attributes:
        error: greatest error on the interval.
        times: greatest error as a multiple of the interpolant's.
    """

    error: float
    times: float


RELATIVE = Bound(RELATIVE_ERROR, 8.0)
"""Bound for 1/sqrt and 1/x, which so stay positive and at most half as large again."""
ABSOLUTE = Bound(ABSOLUTE_ERROR, 1.5)
"""Bound for activations. Their rare large arguments matter most for the hidden states."""
OF_CHANNEL = Bound(ABSOLUTE_ERROR, 4.0)
"""Bound for an activation in one channel; looser, because few channels have rare large
arguments.
"""
FOLLOWED = Bound(RELATIVE_ERROR, 2.0)
"""Bound for 1/sqrt in an iteration before others, whose ranges must cover its greatest error."""


class JudgedFit(NamedTuple):
    """A fit and its quality; errors are relative in the sense of the module.

    Attributes:
        coefficients: [degree + 1], read-only, as `chebyshev.fit` returns them.
        floor: lambda; None for the interpolant.
        seen_error: root mean square error over the seen arguments.
        least, greatest: the extreme errors on the whole interval.
        bounded: whether these are within the bound. Otherwise the degree is too low for every
            lambda, and this is the fit with the least greatest error.
    """

    coefficients: Array
    floor: float | None
    seen_error: float
    least: float
    greatest: float
    bounded: bool

    @property
    def worst_error(self) -> float:
        """The greatest magnitude of an error on the whole interval."""
        return max(-self.least, self.greatest)


@lru_cache(maxsize=4096)
def weighted_fit(
    name: str,
    degree: int,
    interval: Interval,
    quantiles: tuple[float, ...],
    bound: Bound | None = None,
    weighted: bool = True,
) -> JudgedFit:
    """The weighted fit of a function; the interpolant if it is better on the seen arguments.

    Args:
        name: name in `scalar_functions.FUNCTIONS`.
        degree: above `HIGHEST_WEIGHTED_DEGREE` the interpolant is returned.
        interval: interval on which the fit is bounded.
        quantiles: evenly spaced quantiles of the seen arguments, ascending, at least two.
        bound: None for `RELATIVE` or `ABSOLUTE`, depending on the function.
        weighted: False for the interpolant.

    Raises:
        AtlasError: the function is unknown, or not defined on the interval.
    """
    low, high = check_domain(name, degree, interval)
    known = function(name)
    bound = bound or (RELATIVE if known.positive_domain else ABSOLUTE)
    # Dense enough for a sum of this degree, ends included.
    angles = np.pi * np.linspace(0, 1, max(LEAST_GRID, 4 * (degree + 1)))
    points = low + (high - low) * (0.5 - 0.5 * np.cos(angles))
    greatest = np.abs(known.numpy(points)).max()

    def rows(x: Array) -> tuple[Array, Array]:
        """Chebyshev polynomials [points, degree + 1] and the function [points], both divided by the
        reference of relative errors.
        """
        values = known.numpy(x)
        scale = values if known.positive_domain else np.full_like(values, greatest)
        t = np.clip((2 * x - (low + high)) / (high - low), -1, 1)
        return chebvander(t, degree) / scale[:, None], values / scale

    both = (
        rows(between(np.clip(np.asarray(quantiles), low, high), known.positive_domain)),
        rows(points),
    )

    def judged(coefficients: Array, floor: float | None, allowed: float) -> JudgedFit:
        coefficients.setflags(write=False)
        seen, grid = (basis @ coefficients - values for basis, values in both)
        error, least, most = float(np.sqrt(np.mean(np.square(seen)))), grid.min(), grid.max()
        bounded = bool(max(-least, most) <= allowed)
        return JudgedFit(coefficients, floor, error, float(least), float(most), bounded)

    if weighted and degree <= HIGHEST_WEIGHTED_DEGREE:
        # Double precision is enough for an interpolant to compare with.
        nodes = chebinterpolate(lambda t: known.numpy(from_unit(t, interval)), degree)
        plain = judged(nodes, None, bound.error)
        allowed = min(bound.error, bound.times * plain.worst_error)
        # Mean square errors are made of R of the QR decomposition of [rows, values].
        seen, grid = (_triangle(np.column_stack(part) / np.sqrt(len(part[1]))) for part in both)
        found = []
        for floor in FLOORS:
            square = _triangle(np.vstack([seen, np.sqrt(floor) * grid]))[:-1]
            solution = np.linalg.solve(square[:, :-1], square[:, -1]).astype(np.float64)
            found.append(judged(solution, floor, allowed))
            if found[-1].bounded:
                break
        best = found[-1]
        if not best.bounded:
            best = min([*found, plain], key=lambda one: one.worst_error)
        if best.seen_error < plain.seen_error:
            return best
    return judged(fit(name, degree, interval), None, bound.error)


def _triangle(rows: Array) -> Array:
    return np.asarray(np.linalg.qr(rows, mode="r"), dtype=np.float64)


def between(quantiles: Array, logarithmic: bool = False) -> Array:
    """[..., points] of equal weight: a few between each two of [..., quantiles], evenly spaced, or
    evenly in the logarithm.
    """
    ends = np.log(quantiles) if logarithmic else quantiles
    shares = (np.arange(POINTS_OF_CELL) + 0.5) / POINTS_OF_CELL
    points = ends[..., :-1, None] + np.diff(ends)[..., None] * shares
    points = points.reshape(*ends.shape[:-1], -1)
    return np.exp(points) if logarithmic else points


def channel_fits(name: str, degree: int, ranges: ChannelRanges, weighted: bool = True) -> Array:
    """Coefficients [C, degree + 1] of each channel's Chebyshev sum on its own range.

    All channels are solved at once, by normal equations. These lose digits, but far fewer than
    matter for fits of such degrees.

    The degree is at most `HIGHEST_CHANNEL_DEGREE`. Without `weighted` these are the interpolants.
    """
    low, high, seen = (np.asarray(part) for part in (ranges.low, ranges.high, ranges.quantiles))
    found = []
    for start in range(0, len(low), CHANNELS_AT_ONCE):
        some = slice(start, start + CHANNELS_AT_ONCE)
        quantiles = seen[some] if weighted else None
        found.append(_some_channels(function(name).numpy, degree, low[some], high[some], quantiles))
    return np.concatenate(found)


def _some_channels(
    exact: Callable[[Any], Any], degree: int, low: Array, high: Array, quantiles: Array | None
) -> Array:
    """The fits [C, degree + 1] of some channels; interpolants if the quantiles [C, Q] are None.

    Values and errors are shares of the greatest magnitude in a channel. The argument is mapped to
    [-1, 1], so that all channels share the Chebyshev polynomials on the grid.
    """
    middle, half = (low + high)[:, None] / 2, (high - low)[:, None] / 2
    fits = chebinterpolate(lambda t: exact(middle + half * t).T, degree).T
    if quantiles is None:
        return fits
    t = np.cos(np.pi * np.linspace(0, 1, CHANNEL_GRID))
    grid, on_grid = chebvander(t, degree), exact(middle + half * t)
    scale = np.abs(on_grid).max(axis=1, keepdims=True)
    scale[scale == 0] = 1.0
    on_grid /= scale
    t = np.clip((between(quantiles) - middle) / half, -1, 1)
    basis, values = chebvander(t, degree), exact(middle + half * t) / scale

    def worst(found: Array, of: Any) -> Array:
        errors: Array = np.abs(found @ grid.T - on_grid[of])
        return errors.max(axis=1)

    def mean_square(found: Array, of: Any) -> Array:
        errors = (basis[of] @ found[:, :, None])[:, :, 0] - values[of]
        return np.asarray(np.mean(np.square(errors), axis=1))

    rows = basis.transpose(0, 2, 1)
    square, right = rows @ basis / t.shape[1], rows @ values[:, :, None] / t.shape[1]
    grid_square = grid.T @ grid / CHANNEL_GRID
    grid_right = (on_grid @ grid / CHANNEL_GRID)[:, :, None]
    plain, left = fits / scale, np.arange(len(fits))
    bound = np.minimum(OF_CHANNEL.error, OF_CHANNEL.times * worst(plain, slice(None)))
    for floor in FLOORS:
        system = square[left] + floor * grid_square
        found = np.linalg.solve(system, right[left] + floor * grid_right[left])[:, :, 0]
        good = worst(found, left) <= bound[left]
        better = good & (mean_square(found, left) < mean_square(plain[left], left))
        fits[left[better]] = found[better] * scale[left[better]]
        left = left[~good]
        if not len(left):
            break
    return fits


class Exponential(NamedTuple):
    """A Chebyshev sum for exp.

    Attributes:
        coefficients: [degree + 1].
        error: greatest error in a probability, over all scores; root mean square over the seen
            rows.
        greatest: greatest error of y.
    """

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
        degree: degree of the sum.
        exp_range: (low, 0), range of the shifted scores over 2^halvings.
        halvings: k.
        log_sums: s of the seen rows, as evenly spaced quantiles.
        allowed: error of y that does not move a row's first sum.
        weighted: minimise the errors in probabilities, instead of interpolating.
    """
    t = -np.cos(np.pi * np.linspace(0, 1, max(EXP_GRID, 4 * (degree + 1))))
    exact = np.exp(from_unit(t, exp_range))
    # The error in a probability for an error of one in y. A row with a score x has a sum of
    # at least exp(x). Where y is too small to count, an error must still not make it count.
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
    return Exponential(coefficients, float((weight * error).max()), float(error.max()))


def least_exponential(
    degrees: Sequence[int],
    tolerance: float,
    exp_range: Interval,
    halvings: int,
    log_sums: tuple[float, ...],
    allowed: float,
    weighted: bool,
) -> Exponential:
    """The exponential of the least degree whose error is within the tolerance, and whose y errs at
    most as allowed; otherwise that of the greatest degree. ``degrees`` ascend.
    """
    for degree in degrees:
        found = exponential(degree, exp_range, halvings, log_sums, allowed, weighted)
        if found.error <= tolerance and found.greatest <= allowed:
            break
    return found
