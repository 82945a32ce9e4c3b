"""Least-squares fits that are best where arguments were seen, and bounded on the whole interval.

A Chebyshev interpolant spends its degree evenly on the interval, but arguments do not lie evenly: a
GELU on (-17, 25) gets most of them from (-3, 3). A weighted fit minimises

    mean over what was seen of e(x)^2  +  lambda * mean over the interval of e(x)^2,

where e is the error relative to the function (1/sqrt, 1/x) or to its greatest magnitude
(activations), and lambda is the least of a geometric grid for which |e| stays bounded on the whole
interval: within `RELATIVE` or `ABSOLUTE`, and a few times the interpolant's greatest error. So an
argument that was never seen gets a coarse value, but no explosion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.scalar_functions import function
from atlasc.passes.approximation.fits.chebyshev import check_domain, fit
from atlasc.passes.approximation.fits.chebyshev_sum import Interval
from atlasc.passes.approximation.fits.validity import ABSOLUTE_ERROR, RELATIVE_ERROR

HIGHEST_WEIGHTED_DEGREE = 127
"""Above it an interpolant is right to what a ciphertext can show, and least squares are slow."""
FLOORS = tuple(10.0**exponent for exponent in range(-9, 4))
POINTS_OF_CELL = 4
LEAST_GRID = 256


@dataclass(frozen=True)
class Bound:
    """How far a fit may be off where arguments were hardly seen.

    Attributes:
        error: greatest error on the interval.
        times: greatest error as a multiple of the interpolant's.
    """

    error: float
    times: float


RELATIVE = Bound(RELATIVE_ERROR, 8.0)
"""Of 1/sqrt and 1/x, which so stay positive and at most half as large again."""
ABSOLUTE = Bound(ABSOLUTE_ERROR, 1.5)
"""Of activations. Their rare large arguments decide what a layer adds to its hidden states."""
FOLLOWED = Bound(RELATIVE_ERROR, 2.0)
"""Of 1/sqrt in an iteration that others follow: they need ranges for the greatest of its errors."""


@dataclass(frozen=True)
class JudgedFit:
    """A fit and how good it is; errors are relative as the module says.

    Attributes:
        coefficients: [degree + 1], read-only, as `chebyshev.fit` returns them.
        floor: lambda; None for the interpolant.
        seen_error: root mean square over what was seen.
        least, greatest: the extreme errors on the whole interval.
        bounded: whether these are within the function's bound. Otherwise the degree is too low for
            any lambda, and this is the fit whose greatest error is least.
    """

    coefficients: NDArray[np.float64]
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
) -> JudgedFit:
    """The weighted fit of a function; the interpolant where that is better on what was seen.

    Args:
        name: in `scalar_functions.FUNCTIONS`.
        degree: above `HIGHEST_WEIGHTED_DEGREE` the interpolant is returned.
        interval: on which the fit is bounded.
        quantiles: evenly spaced ones of the arguments that were seen, rising, at least two.
        bound: None for `RELATIVE` or `ABSOLUTE`, as the function is.

    Raises:
        AtlasError: no such function, or an interval on which it is not defined.
    """
    if degree > HIGHEST_WEIGHTED_DEGREE:
        return interpolated_fit(name, degree, interval, quantiles)
    problem = _Problem.of(name, degree, interval, quantiles)
    problem = replace(problem, bound=bound or problem.bound)
    interpolant = problem.judged(_interpolant(name, degree, interval), None)
    problem = problem.limited(interpolant.worst_error)
    candidates = []
    for floor, coefficients in problem.solutions():
        candidates.append(problem.judged(coefficients, floor))
        if candidates[-1].bounded:
            break
    best = candidates[-1]
    if not best.bounded:
        best = min([*candidates, interpolant], key=lambda found: found.worst_error)
    if best.seen_error < interpolant.seen_error:
        return best
    return interpolated_fit(name, degree, interval, quantiles)


@lru_cache(maxsize=4096)
def interpolated_fit(
    name: str, degree: int, interval: Interval, quantiles: tuple[float, ...]
) -> JudgedFit:
    """The interpolant, judged in the same way."""
    return _Problem.of(name, degree, interval, quantiles).judged(fit(name, degree, interval), None)


def _interpolant(name: str, degree: int, interval: Interval) -> NDArray[np.float64]:
    """The interpolant in double precision, which is enough to compare with."""
    low, high = interval
    angles = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    values = function(name).numpy((low + high) / 2 + (high - low) / 2 * np.cos(angles))
    coefficients = 2 / (degree + 1) * np.cos(np.outer(np.arange(degree + 1), angles)) @ values
    coefficients[0] /= 2
    return coefficients


@dataclass(frozen=True)
class _Points:
    """Some points of the interval.

    Attributes:
        rows: [points, degree + 1] Chebyshev polynomials there, over what errors are relative to.
        values: [points] the function, likewise.
    """

    rows: NDArray[np.float64]
    values: NDArray[np.float64]

    def errors(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of a Chebyshev sum."""
        return self.rows @ coefficients - self.values

    def triangle(self) -> NDArray[np.float64]:
        """R of the QR decomposition of [rows, values], of which the mean square error is made."""
        both = np.column_stack([self.rows, self.values]) / np.sqrt(len(self.values))
        return np.asarray(np.linalg.qr(both, mode="r"), dtype=np.float64)


@dataclass(frozen=True)
class _Problem:
    """Least squares over the seen points and over a grid of the interval.

    Attributes:
        seen, grid: both kinds of points.
        bound: of the errors on the grid.
    """

    seen: _Points
    grid: _Points
    bound: Bound

    @staticmethod
    def of(name: str, degree: int, interval: Interval, quantiles: Sequence[float]) -> _Problem:
        low, high = interval = check_domain(name, degree, interval)
        chosen = function(name)
        seen = np.clip(np.asarray(quantiles, dtype=np.float64), low, high)
        grid = _grid(interval, degree + 1)
        greatest = np.abs(chosen.numpy(grid)).max()

        def points(x: NDArray[np.float64]) -> _Points:
            values = chosen.numpy(x)
            scale = values if chosen.positive_domain else np.full_like(values, greatest)
            rows = np.polynomial.chebyshev.chebvander(_unit(x, interval), degree)
            return _Points(rows / scale[:, None], values / scale)

        bound = RELATIVE if chosen.positive_domain else ABSOLUTE
        return _Problem(points(between(seen, chosen.positive_domain)), points(grid), bound)

    def limited(self, interpolant: float) -> _Problem:
        """The same with errors bounded by a multiple of the interpolant's greatest error too."""
        error = min(self.bound.error, self.bound.times * interpolant)
        return replace(self, bound=replace(self.bound, error=error))

    def solutions(self) -> Iterator[tuple[float, NDArray[np.float64]]]:
        """Pairs of a floor and its coefficients, floors rising."""
        seen, grid = self.seen.triangle(), self.grid.triangle()
        for floor in FLOORS:
            stacked = np.vstack([seen, np.sqrt(floor) * grid])
            square = np.asarray(np.linalg.qr(stacked, mode="r"), dtype=np.float64)[:-1]
            yield floor, np.linalg.solve(square[:, :-1], square[:, -1]).astype(np.float64)

    def judged(self, coefficients: NDArray[np.float64], floor: float | None) -> JudgedFit:
        """A fit with its errors."""
        coefficients.setflags(write=False)
        error = float(np.sqrt(np.mean(np.square(self.seen.errors(coefficients)))))
        on_grid = self.grid.errors(coefficients)
        least, greatest = float(on_grid.min()), float(on_grid.max())
        bounded = max(-least, greatest) <= self.bound.error
        return JudgedFit(coefficients, floor, error, least, greatest, bounded)


def _grid(interval: Interval, terms: int) -> NDArray[np.float64]:
    """Points of the interval, ends included, dense enough for a sum of that number of terms."""
    low, high = interval
    count = max(LEAST_GRID, 4 * terms)
    return low + (high - low) * (0.5 - 0.5 * np.cos(np.pi * np.linspace(0, 1, count)))


def _unit(x: NDArray[np.float64], interval: Interval) -> NDArray[np.float64]:
    low, high = interval
    return np.clip((2 * x - (low + high)) / (high - low), -1, 1)


def between(quantiles: NDArray[np.float64], logarithmic: bool = False) -> NDArray[np.float64]:
    """[..., points] of equal weight: a few spread evenly between each two of [..., quantiles], or
    evenly in the logarithm.
    """
    ends = np.log(quantiles) if logarithmic else quantiles
    shares = (np.arange(POINTS_OF_CELL) + 0.5) / POINTS_OF_CELL
    points = ends[..., :-1, None] + np.diff(ends)[..., None] * shares
    points = points.reshape(*ends.shape[:-1], -1)
    return np.exp(points) if logarithmic else points
