"""Chebyshev sums, whose coefficients are computed on first use, and the ranges where they are
right.

A fit stays right for some way outside its domain. An exponential of degree 15 on (-8, 0) is right
to 1.6e-5 of its value at +1.5, while a 1/sqrt of degree 511 is wrong just outside its domain. How
far a fit stays right depends on the fit, not on the domain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebval
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.scalar_functions import function as named_function
from atlasc.polynomials.fits.chebyshev import Interval, fit, levels_of_degree

Array = NDArray[np.float64]
UNIT: Interval = (-1.0, 1.0)

RELATIVE_ERROR = 0.5
"""Allowed relative error of 1/sqrt and 1/x, which so stay positive and at most half as large
again.
"""
ABSOLUTE_ERROR = 0.05
"""Allowed error of other functions, as a share of the greatest magnitude on the domain, or of the
value if that is greater. Weighted fits keep both bounds on all of their domain."""
FARTHEST, NEAREST, STEPS = 1.0, 1e-6, 400
"""Points beyond a domain that are checked: the farthest and the nearest, in halves of its width,
and their number."""
POINTS = 256
NEGLIGIBLE = 2.0**-40
"""Share of the greatest coefficient by which the omitted terms of a sum may change it. The errors
of encryption are greater by far: 2^-30 without a bootstrap, 2^-20 with one. At a scale of 2^40 a
smaller coefficient is encoded as 0."""
SLACK, SLACK_OF_SINGLE = 1e-6, 1e-5
"""Excess that counts as rounding and not as a violation, as a share of half a range's width; the
second is for float32."""


def valid_domain(function: str, interval: Interval, coefficients: Array) -> Interval:
    """The widest interval around the domain on which a sum approximates a function rightly.

    The result is in units in which the domain is [-1, 1]. A sum counts as right at a point if its
    error is no greater than anywhere in the domain, or than every fit may have.

    Args:
        function: name of the function.
        interval: the domain, in the function's own units.
        coefficients: [degree + 1].
    """
    return _valid(function, interval, np.asarray(coefficients, dtype=np.float64).tobytes())


@lru_cache(maxsize=4096)
def _valid(function: str, interval: Interval, coefficients: bytes) -> Interval:
    series = np.frombuffer(coefficients)
    known = named_function(function)
    grid = -np.cos(np.pi * np.linspace(0, 1, max(POINTS, 4 * len(series))))
    with np.errstate(divide="ignore"):  # the low end of a very wide interval rounds to 0
        top = np.abs(known.numpy(from_unit(grid, interval))).max()

    def errors(t: Array) -> Array:
        with np.errstate(all="ignore"):
            exact = known.numpy(from_unit(t, interval))
            size = np.abs(exact) if known.positive_domain else np.maximum(np.abs(exact), top)
            found = np.abs(chebval(t, series) - exact) / size
        return np.where(np.isfinite(found), found, np.inf)

    bound = RELATIVE_ERROR if known.positive_domain else ABSOLUTE_ERROR
    bound = max(bound, float(errors(grid).max()))
    beyond = np.geomspace(NEAREST, FARTHEST, STEPS)

    def reach(side: float) -> float:
        wrong = np.flatnonzero(errors(side * (1 + beyond)) > bound)
        last = (wrong[0] if len(wrong) else STEPS) - 1
        return side if last < 0 else side * (1 + float(beyond[last]))

    return reach(-1.0), reach(1.0)


def from_unit(t: Array, interval: Interval) -> Array:
    """The affine map of [-1, 1] onto an interval."""
    low, high = interval
    return (low + high) / 2 + (high - low) / 2 * t


def valid_range(domain: Sequence[float], valid: Sequence[float]) -> Interval:
    """`valid`, given in units in which the domain is [-1, 1], in the units of the domain."""
    middle, half = (domain[0] + domain[1]) / 2, (domain[1] - domain[0]) / 2
    return middle + half * valid[0], middle + half * valid[1]


def widened(low: float, high: float, dtype: Any) -> Interval:
    """A range with room for the rounding of a dtype."""
    slack = (SLACK_OF_SINGLE if np.dtype(dtype) == np.float32 else SLACK) * (high - low) / 2
    return low - slack, high + slack


@dataclass(frozen=True, eq=False)
class ChebyshevSum:
    """sum_k coefficients[..., k] T_k(t), where t is the affine map of `domain` onto [-1, 1].

    Depth needs only the degree, so nothing is fitted for it. Levels of a calibrated sum depend on
    the terms that count.

    Attributes:
        compute: computes the coefficients.
        calibrated: the domain, (low, high) of the argument; None before calibration.
        meaning: the function that the sum approximates, and the interval, in its own units, that
            the domain is mapped to: [2], or [C, 2] for C channels. None if it approximates no
            function.
        of_probabilities: whether the argument is a sum of squares of K probabilities, which lies
            between 1 / K and 1 for every input (Cauchy and Schwarz).
    """

    degree: int
    compute: Callable[[], Array]
    calibrated: Interval | None = UNIT
    meaning: tuple[str, Interval | Array] | None = None
    of_probabilities: bool = False

    def __post_init__(self) -> None:
        if self.calibrated is not None and not self.calibrated[0] < self.calibrated[1]:
            raise AtlasError(
                "the domain of a Chebyshev sum must have low < high",
                why=f"it is ({self.calibrated[0]:g}, {self.calibrated[1]:g})",
            )

    @staticmethod
    def of(
        coefficients: Array,
        domain: Interval = UNIT,
        meaning: tuple[str, Array] | None = None,
    ) -> ChebyshevSum:
        """The sum with known coefficients, [degree + 1], or [C, degree + 1] for C channels."""
        return ChebyshevSum(np.shape(coefficients)[-1] - 1, lambda: coefficients, domain, meaning)

    @staticmethod
    def fitted(
        function: str,
        degree: int,
        interval: Interval | None,
        given: Sequence[float] | None = None,
        domain: Interval | None = None,
        of_probabilities: bool = False,
    ) -> ChebyshevSum:
        """The sum for a function on (low, high) in its own units; None before calibration.

        Args:
            function: name of the function.
            degree: degree of the sum.
            interval: (low, high) in the function's own units.
            given: coefficients to use instead of the interpolant's.
            domain: range of the argument, if it differs from the interval.
            of_probabilities: see the attribute.
        """
        if interval is None:
            return ChebyshevSum(degree, lambda: _missing(function), None)

        def compute() -> Array:
            return fit(function, degree, interval) if given is None else np.asarray(given, float)

        return ChebyshevSum(
            degree, compute, domain or interval, (function, interval), of_probabilities
        )

    @cached_property
    def coefficients(self) -> Array:
        """float64 [terms], or [C, terms] for the C channels of the last axis: at most degree + 1
        terms. A sum for a known function has no negligible terms (`without_negligible`).
        """
        found = np.asarray(self.compute(), dtype=np.float64)
        if self.meaning is None:
            return found
        return without_negligible(found, _precision(*self.meaning))

    @property
    def levels(self) -> int:
        """Levels that the sum consumes; before calibration, the levels of its degree."""
        if self.calibrated is None:
            return levels_of_degree(self.degree)
        return levels_of_degree(self.coefficients.shape[-1] - 1)

    @property
    def domain(self) -> Interval:
        """(low, high) of the argument; AtlasError before calibration."""
        return _missing("a function") if self.calibrated is None else self.calibrated

    @property
    def normalised(self) -> bool:
        """Whether the algorithm itself brings the argument into [-1, 1]."""
        own = self.meaning is None or isinstance(self.meaning[1], np.ndarray)
        return own and self.calibrated == UNIT

    @property
    def valid(self) -> Interval:
        """The range where the sum is right, in units in which the domain is [-1, 1].

        See `valid_domain`. Sums of several channels are only checked on their domains.
        """
        if self.meaning is None or self.coefficients.ndim > 1:
            return UNIT
        function, (low, high) = self.meaning
        return valid_domain(function, (float(low), float(high)), self.coefficients)

    @property
    def middle(self) -> float:
        """Value of the sum in the middle of its domain."""
        return float(chebval(0.0, self.coefficients))


def without_negligible(coefficients: Array, precision: float = 1.0) -> Array:
    """Coefficients [..., terms] without negligible terms.

    Together the omitted terms change the sum on its domain by less than `NEGLIGIBLE` · `precision`
    times its greatest coefficient, since no |T_k| exceeds 1 there. A smooth function has many such
    terms: an interpolant of GELU of degree 511 on (-10, 14) has 425. Trailing terms are cut
    off, which saves levels. The other negligible terms become 0, which saves products.
    """
    size = np.abs(coefficients).reshape(-1, coefficients.shape[-1])  # [C, terms]
    greatest = size.max(axis=1, keepdims=True)
    share = (size / np.where(greatest > 0, greatest, 1)).max(axis=0)  # [terms]
    most, terms = NEGLIGIBLE / 2 * precision, len(share)
    kept = leading_terms(share, most)
    found = coefficients[..., :kept].copy()
    found[..., share[:kept] < most / terms] = 0.0
    return found


def leading_terms(sizes: Array, most: float) -> int:
    """Number of leading terms, at least 1, after which the sizes [terms] of the rest sum up to at
    most ``most``.
    """
    rest = np.cumsum(sizes[::-1])
    return max(1, len(sizes) - int(np.searchsorted(rest, most, side="right")))


def _precision(function: str, interval: Interval | Array) -> float:
    """The precision that a sum for a function needs, for `without_negligible`.

    An activation needs the precision of its greatest value. Exponentials and inverses are factors
    of products, so their small values count as much as their large ones.
    """
    if function in ACTIVATIONS:
        return 1.0
    with np.errstate(all="ignore"):  # in a range that reaches 0 every term counts
        values = named_function(function).numpy(np.asarray(interval, dtype=np.float64))
        least = float(values.min() / values.max())
    return least if least > 0 else 0.0


def _missing(function: str) -> Any:
    raise AtlasError(
        f"the polynomial for {function} has no range yet",
        why="its range follows from the range of its argument",
        remedy="calibrate first",
    )


def checked(given: Any, degree: int) -> tuple[float, ...]:
    """Coefficients as floats; AtlasError if they are not finite or their number is wrong."""
    values = tuple(float(value) for value in given)
    if len(values) != degree + 1 or not np.isfinite(values).all():
        raise AtlasError(
            f"a polynomial of degree {degree} has {degree + 1} finite coefficients",
            why=f"{len(values)} are given",
        )
    return values
