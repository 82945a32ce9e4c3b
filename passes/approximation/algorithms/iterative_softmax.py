"""Iterative softmax: Cho et al. 2024, the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Arithmetic
from atlasc.passes.approximation.description import Softmax, interval
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum, Interval, checked
from atlasc.passes.calibration.ranges import EXP_RANGE

T = TypeVar("T")

EXP_DEGREE = 15
SUM_RANGES: tuple[Interval, ...] = (
    (0.085, 256.0),
    (0.003, 1.238),
    (0.003, 1.238),
    (0.003, 1.238),
    (0.0036, 1.0816),
)
"""Ranges of the sum of squares before each iteration (the paper's section on softmax)."""
MAX_EXPONENT = 9


@dataclass(frozen=True)
class SoftmaxApproximation(Softmax):
    """Softmax by k iterations. Depth 5 + sum of (p_j + 5), with an exponential of degree 15, and 2
    for each renormalisation.

    y = exp((x - shift) / 2^k), then for each of the k iterations y = (invsqrt(sum y^2) y)^2: every
    iteration makes the row sum one and doubles the exponent, so k of them give exp(x) over its sum.
    A row sum that is then wrong by a factor 1 + d is made right to d^2 by y = y (2 - sum y), a step
    of Newton's method that costs one level, as the sum has been multiplied already.

    Attributes:
        iterations: p_j, the levels of iteration j's fit of 1/sqrt; the first zero drops that
            iteration and all after it.
        shift: subtracted from the scores, from calibration.
        exp_range, exp_degree: of the exponential.
        sum_ranges: one per iteration, of the sum of squares.
        degrees: of the fits, where they are not the greatest of their levels, 2^p_j - 1.
        coefficients: of each iteration's fit, where they are not the interpolants.
        exp_coefficients: of the exponential, where it is not the interpolant.
        renormalisations: steps of Newton's method at the end; None for none.
    """

    algorithm = "iterative"

    iterations: tuple[int, ...]
    shift: float = 0.0
    exp_range: Interval = EXP_RANGE
    exp_degree: int = EXP_DEGREE
    sum_ranges: tuple[Interval, ...] | None = None
    degrees: tuple[int, ...] | None = None
    coefficients: tuple[tuple[float, ...], ...] | None = None
    exp_coefficients: tuple[float, ...] | None = None
    renormalisations: int | None = None

    @staticmethod
    def of_degrees(degrees: Sequence[int], **entries: Any) -> SoftmaxApproximation:
        """An iterative softmax whose fits of 1/sqrt have these degrees."""
        iterations = tuple(levels_of_degree(degree) for degree in degrees)
        return SoftmaxApproximation(iterations, degrees=tuple(degrees), **entries)

    def __post_init__(self) -> None:
        super().__post_init__()
        exponents = tuple(int(p) for p in self.iterations)
        exponents = exponents[: exponents.index(0)] if 0 in exponents else exponents
        ranges = SUM_RANGES if self.sum_ranges is None else self.sum_ranges
        ranges = tuple(interval(r, "a range of softmax sums") for r in ranges)
        if not exponents or not all(1 <= p <= MAX_EXPONENT for p in exponents):
            raise AtlasError(
                f"iterative softmax cannot have the iterations {list(self.iterations)}",
                remedy=f"give at least one exponent, each from 1 to {MAX_EXPONENT}",
            )
        if self.renormalisations is not None and self.renormalisations < 1:
            raise AtlasError(f"a softmax cannot have {self.renormalisations} renormalisations")
        if len(ranges) < len(exponents):
            raise AtlasError(
                f"softmax has {len(exponents)} iterations but {len(ranges)} ranges of sums"
            )
        greatest = tuple(2**p - 1 for p in exponents)
        degrees = self.degrees or greatest
        if tuple(map(levels_of_degree, degrees)) != exponents:
            raise AtlasError(
                f"the degrees {list(degrees)} do not have the levels {list(exponents)}",
                remedy="a polynomial of degree d takes ceil(log2(d + 1)) levels",
            )
        given = self.coefficients
        if given is not None and len(given) != len(exponents):
            raise AtlasError(
                f"softmax has {len(exponents)} iterations but coefficients for {len(given)}"
            )
        for name, value in {
            "iterations": exponents,
            "shift": float(self.shift),
            "sum_ranges": ranges[: len(exponents)],
            "degrees": None if degrees == greatest else degrees,
            "coefficients": given and tuple(map(checked, given, degrees)),
        }.items():
            object.__setattr__(self, name, value)

    @property
    def fit_degrees(self) -> tuple[int, ...]:
        """Degree of the fit of 1/sqrt in each iteration."""
        return self.degrees or tuple(2**p - 1 for p in self.iterations)

    @property
    def score_range(self) -> Interval:
        """The scores on which the exponential is valid."""
        factor = 2 ** len(self.iterations)
        return self.shift + factor * self.exp_range[0], self.shift + factor * self.exp_range[1]

    @property
    def mask_fill(self) -> float:
        """The score of a masked key."""
        return self.score_range[0]

    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of the scores."""
        exponential = ChebyshevSum.fitted(
            "exp", self.exp_degree, self.exp_range, self.exp_coefficients, self.score_range
        )
        y = arithmetic.chebyshev(scores, exponential)
        y = arithmetic.masked(y, exponential.lowest)
        coefficients = self.coefficients or [None] * len(self.iterations)
        fits = zip(self.fit_degrees, self.sum_ranges or SUM_RANGES, coefficients, strict=True)
        for degree, sum_range, given in fits:
            total = arithmetic.row_sum(arithmetic.square(y))
            inverse = ChebyshevSum.fitted("invsqrt", degree, sum_range, given)
            y = arithmetic.square(arithmetic.mul(y, arithmetic.chebyshev(total, inverse)))
        for _ in range(self.renormalisations or 0):
            y = arithmetic.sub(arithmetic.add(y, y), arithmetic.mul(y, arithmetic.row_sum(y)))
        return y
