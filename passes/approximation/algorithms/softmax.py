"""Iterative softmax: Cho et al. 2024, the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Arithmetic, Interval
from atlasc.passes.approximation.description import Softmax, interval
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.approximation.fits.coefficients import checked, chosen
from atlasc.passes.approximation.fits.validity import Meaning

T = TypeVar("T")

EXP_RANGE: Interval = (-8.0, 0.0)
EXP_DEGREE = 15
#: Ranges of the sum of squares before each iteration (the paper's section on softmax).
SUM_RANGES: tuple[Interval, ...] = (
    (0.085, 256.0),
    (0.003, 1.238),
    (0.003, 1.238),
    (0.003, 1.238),
    (0.0036, 1.0816),
)
MAX_EXPONENT = 9


def iterative_softmax(
    arithmetic: Arithmetic[T],
    scores: T,
    *,
    degrees: Sequence[int],
    shift: float,
    exp_range: Interval = EXP_RANGE,
    exp_degree: int = EXP_DEGREE,
    sum_ranges: Sequence[Interval] = SUM_RANGES,
    coefficients: Sequence[Sequence[float]] | None = None,
    exp_coefficients: Sequence[float] | None = None,
    renormalisations: int = 0,
) -> T:
    """Softmax over the last axis.

    y = exp((x - shift) / 2^k), then for each of the k iterations y = (invsqrt(sum y^2) y)^2: every
    iteration makes the row sum one and doubles the exponent, so k of them give exp(x) over its sum.
    A row sum that is then wrong by a factor 1 + d is made right to d^2 by y = y (2 - sum y), a step
    of Newton's method that costs one level, as the sum has been multiplied already.

    Args:
        scores: [..., n]; (scores - shift) / 2^k must lie in `exp_range`.
        degrees: of the fit of 1/sqrt in each iteration.
        shift: subtracted from all scores, about their maximum.
        sum_ranges: of the sum of squares before each iteration.
        coefficients, exp_coefficients: of the fits of 1/sqrt and of the exponential; None for the
            interpolants.
        renormalisations: steps of Newton's method at the end.
    """
    low, high = exp_range
    factor = 2 ** len(degrees)
    domain = (shift + factor * low, shift + factor * high)
    exponential = chosen(exp_coefficients, "exp", exp_degree, exp_range)
    y = arithmetic.chebyshev(scores, exponential, domain, Meaning("exp", exp_range))
    y = arithmetic.masked(y, float(np.polynomial.chebyshev.chebval(-1.0, exponential)))
    for index, (degree, sum_range) in enumerate(zip(degrees, sum_ranges, strict=False)):
        total = arithmetic.row_sum(arithmetic.square(y))
        given = None if coefficients is None else coefficients[index]
        fitted = chosen(given, "invsqrt", degree, sum_range)
        meaning = Meaning("invsqrt", sum_range)
        root = arithmetic.chebyshev(total, fitted, sum_range, meaning)
        y = arithmetic.square(arithmetic.mul(y, root))
    for _ in range(renormalisations):
        y = arithmetic.sub(arithmetic.add(y, y), arithmetic.mul(y, arithmetic.row_sum(y)))
    return y


@dataclass(frozen=True)
class SoftmaxApproximation(Softmax):
    """Iterative softmax. Depth 5 + sum of (p_j + 5), with an exponential of degree 15, and 2 for
    each renormalisation.

    Attributes:
        iterations: p_j, the levels of iteration j's fit of 1/sqrt; the first zero drops that
            iteration and all after it.
        shift: subtracted from the scores, from calibration.
        exp_range, exp_degree: of the exponential.
        sum_ranges: one per iteration, of the sum of squares.
        degrees: of the fits, where they are not the greatest of their levels, 2^p_j - 1.
        coefficients: of each iteration's fit, where they are not the interpolants.
        exp_coefficients: of the exponential, likewise.
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
        degrees = self.degrees
        if degrees is not None and tuple(map(levels_of_degree, degrees)) != exponents:
            raise AtlasError(
                f"the degrees {list(degrees)} do not have the levels {list(exponents)}",
                remedy="a polynomial of degree d takes ceil(log2(d + 1)) levels",
            )
        if degrees == tuple(2**p - 1 for p in exponents):
            object.__setattr__(self, "degrees", None)
        object.__setattr__(self, "iterations", exponents)
        object.__setattr__(self, "shift", float(self.shift))
        object.__setattr__(self, "exp_range", interval(self.exp_range, "the range of exp"))
        object.__setattr__(self, "sum_ranges", ranges[: len(exponents)])
        exponential = checked(self.exp_coefficients, self.exp_degree)
        object.__setattr__(self, "exp_coefficients", exponential)
        if self.coefficients is not None:
            if len(self.coefficients) != len(exponents):
                raise AtlasError(
                    f"softmax has {len(exponents)} iterations but coefficients for "
                    f"{len(self.coefficients)}"
                )
            pairs = zip(self.coefficients, self.fit_degrees, strict=True)
            given = tuple(checked(values, degree) for values, degree in pairs)
            object.__setattr__(self, "coefficients", given)

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

    @property
    def depth(self) -> int:
        """Depth in the paper's convention."""
        iterations = sum(p + 5 for p in self.iterations)
        return 1 + levels_of_degree(self.exp_degree) + iterations + 2 * (self.renormalisations or 0)

    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of the scores."""
        return iterative_softmax(
            arithmetic,
            scores,
            degrees=self.fit_degrees,
            shift=self.shift,
            exp_range=self.exp_range,
            exp_degree=self.exp_degree,
            sum_ranges=self.sum_ranges or SUM_RANGES,
            coefficients=self.coefficients,
            exp_coefficients=self.exp_coefficients,
            renormalisations=self.renormalisations or 0,
        )
