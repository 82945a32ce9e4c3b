"""Approximations by Chebyshev sums: ours, and those of ARION, refined by Newton steps."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.calibration.ranges import EXP_RANGE
from atlasc.ir.errors import AtlasError
from atlasc.polynomials.arithmetic import Term
from atlasc.polynomials.description import Activation, Norm, Softmax, interval
from atlasc.polynomials.fits.chebyshev import levels_of_degree
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum, Interval, checked

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
    """Softmax by k iterations: Cho et al. 2024, the paper's Algorithm 1. Depth 5 + sum of (p_j + 5)
    with an exponential of degree 15, and 2 for each renormalisation.

    y = exp((x - shift) / 2^k), then for each of the k iterations y = (invsqrt(sum y^2) y)^2: every
    iteration makes the row sum one and doubles the exponent, so k of them give exp(x) over its sum.
    A row sum that is then wrong by a factor 1 + d is made right to d^2 by y = y (2 - sum y), a step
    of Newton's method that costs one level, as the sum has been multiplied already.

    Attributes:
        iterations: p_j, the levels of iteration j's fit of 1/sqrt; the first zero drops that
            iteration and all after it.
        shift: subtracted from the scores.
        sum_ranges: one per iteration, of the sum of squares.
        degrees: of the fits, where they are not the greatest of their levels, 2^p_j - 1.
        coefficients, exp_coefficients: of each iteration's fit and of the exponential, where they
            are not the interpolants.
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
        exponents = tuple(takewhile(bool, map(int, self.iterations)))
        ranges = SUM_RANGES if self.sum_ranges is None else self.sum_ranges
        ranges = tuple(interval(r, "a range of softmax sums") for r in ranges)
        greatest = tuple(2**p - 1 for p in exponents)
        degrees, given = self.degrees or greatest, self.coefficients
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
        if tuple(map(levels_of_degree, degrees)) != exponents:
            raise AtlasError(
                f"the degrees {list(degrees)} do not have the levels {list(exponents)}",
                remedy="a polynomial of degree d takes ceil(log2(d + 1)) levels",
            )
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
    def score_range(self) -> Interval:
        """The scores on which the exponential is valid."""
        low, high = (self.shift + 2 ** len(self.iterations) * end for end in self.exp_range)
        return low, high

    @property
    def mask_fill(self) -> float:
        """The score of a masked key; see `Softmax.mask_fill`."""
        return sum(self.score_range) / 2

    @property
    def temperature(self) -> float:
        """The first sum is that of squares of exp(score / 2^k)."""
        return 2.0 ** (len(self.iterations) - 1)

    def apply(self, scores: Term) -> Term:
        """Probabilities of the scores."""
        exponential = ChebyshevSum.fitted(
            "exp", self.exp_degree, self.exp_range, self.exp_coefficients, self.score_range
        )
        y = scores.chebyshev(exponential).masked(exponential.middle)
        degrees = self.degrees or tuple(2**p - 1 for p in self.iterations)
        coefficients = self.coefficients or [None] * len(degrees)
        fits = zip(degrees, self.sum_ranges or SUM_RANGES, coefficients, strict=True)
        for iteration, fit in enumerate(fits):
            total = y.square().row_sum()
            chosen = ChebyshevSum.fitted("invsqrt", *fit, of_probabilities=iteration > 0)
            y = (y * total.chebyshev(chosen)).square()
        for _ in range(self.renormalisations or 0):
            y = y + y - y * y.row_sum()
        return y


@dataclass(frozen=True)
class DirectSoftmax(Softmax):
    """Depth e + p + 4: e + 1 for the exponential, 1 for the row sum, p + 1 for its inverse, 1 for
    the product. Cheap where the row sums of a model do not differ by much.

    Attributes:
        degree: of the fit of 1/x on the row sums.
        sum_range: of the row sums of exp(score - shift); None before calibration.
        shift: subtracted from the scores.
        exp_degree, exp_range: of the exponential; the range is that of the shifted scores.
        coefficients, exp_coefficients: of the two sums, where they are not the interpolants.
    """

    algorithm = "direct"
    positive = ("sum_range",)

    degree: int
    sum_range: Interval | None = None
    shift: float = 0.0
    exp_degree: int = EXP_DEGREE
    exp_range: Interval = EXP_RANGE
    coefficients: tuple[float, ...] | None = None
    exp_coefficients: tuple[float, ...] | None = None

    @property
    def mask_fill(self) -> float:
        """The score of a masked key; see `Softmax.mask_fill`."""
        return self.shift + sum(self.exp_range) / 2

    def apply(self, scores: Term, newton_steps: int = 0) -> Term:
        """Probabilities of the scores: exponentials, times the inverse of their sum.

        Each Newton step y = y (2 - x y) squares the relative error of the inverse, in two levels.
        """
        domain = self.shift + self.exp_range[0], self.shift + self.exp_range[1]
        exponential = ChebyshevSum.fitted(
            "exp", self.exp_degree, self.exp_range, self.exp_coefficients, domain
        )
        inverse = ChebyshevSum.fitted("inverse", self.degree, self.sum_range, self.coefficients)
        exponentials = scores.chebyshev(exponential).masked(exponential.middle)
        x = exponentials.row_sum()
        y = x.chebyshev(inverse)
        for _ in range(newton_steps):
            y = y + (y - y.square() * x)
        return exponentials * y


@dataclass(frozen=True)
class ChebyshevSoftmax(Softmax):
    """The direct softmax of ARION (code: hangenba/Arion), its inverse refined by Newton steps.

    Attributes:
        shift: subtracted from the scores.
        exp_degree, exp_range: of the exponential; the range is that of the shifted scores.
        inverse_degree, inverse_range: of 1/x on the row sums.
    """

    algorithm = "chebyshev"
    positive = ("inverse_range",)

    shift: float
    exp_degree: int
    exp_range: Interval
    inverse_degree: int
    inverse_range: Interval
    newton_steps: int = 0

    @property
    def mask_fill(self) -> float:
        """The score of a masked key; see `Softmax.mask_fill`."""
        return self.shift + sum(self.exp_range) / 2

    def apply(self, scores: Term) -> Term:
        """Probabilities of the scores."""
        inverse = self.inverse_degree, self.inverse_range
        direct = DirectSoftmax(*inverse, self.shift, self.exp_degree, self.exp_range)
        return direct.apply(scores, self.newton_steps)


@dataclass(frozen=True)
class NormApproximation(Norm):
    """1/sqrt as a Chebyshev sum. Depth p + 8 for a LayerNorm and p + 6 for an RMSNorm, with
    p = ceil(log2(degree + 1)).

    Attributes:
        range: of the variance (or mean square) plus epsilon; None before calibration.
        coefficients: of the Chebyshev sum, where it is not the interpolant.
    """

    algorithm = "chebyshev"

    degree: int
    range: Interval | None = None
    coefficients: tuple[float, ...] | None = None

    def inverse_sqrt(self, v: Term) -> Term:
        """1/sqrt(v)."""
        return v.chebyshev(self._sum(None))

    def normalised(self, x: Term, share: float, epsilon: float) -> Term:
        """x / sqrt(share * sum(x^2) + epsilon); share and epsilon go into the domain map."""
        domain = None
        if self.range is not None:
            domain = (self.range[0] - epsilon) / share, (self.range[1] - epsilon) / share
        return x * x.square().row_sum().chebyshev(self._sum(domain))

    def _sum(self, domain: Interval | None) -> ChebyshevSum:
        known, given = self.range, self.coefficients
        return ChebyshevSum.fitted("invsqrt", self.degree, known, given, domain)


@dataclass(frozen=True)
class ChebyshevNewtonNorm(Norm):
    """1/sqrt as a Chebyshev sum that Newton steps refine, as in ARION (code: hangenba/Arion).

    Attributes:
        range: of the variance (or mean square) plus epsilon.
    """

    algorithm = "chebyshev_newton"

    degree: int
    newton_steps: int
    range: Interval

    def inverse_sqrt(self, v: Term) -> Term:
        """1/sqrt(v)."""
        guess = v.chebyshev(ChebyshevSum.fitted("invsqrt", self.degree, self.range))
        return newton_inverse_sqrt(v, guess, self.newton_steps)


def newton_inverse_sqrt(x: Term, guess: Term, steps: int) -> Term:
    """1/sqrt(x) by y = (3 y - x y^3) / 2; two levels a step once -x/2 is computed.

    Each step about squares the relative error.
    """
    y = guess
    for _ in range(steps):
        cubic = x * -0.5 * y * y.square()
        y = y * 1.5 + cubic
    return y


@dataclass(frozen=True)
class ActivationApproximation(Activation):
    """One Chebyshev sum. Depth p + 1, with p = ceil(log2(degree + 1)).

    Attributes:
        range: of the argument; None before calibration.
        coefficients: of the Chebyshev sum, where it is not the interpolant.
    """

    algorithm = "chebyshev"

    degree: int
    range: Interval | None = None
    coefficients: tuple[float, ...] | None = None

    def apply(self, x: Term, function: str) -> Term:
        """The function of x."""
        total = ChebyshevSum.fitted(function, self.degree, self.range, self.coefficients)
        return x.chebyshev(total)


@dataclass(frozen=True, eq=False)
class ChannelActivation(Activation):
    """One Chebyshev sum of one degree with other coefficients, on another range, for every channel.

    The map of the ranges to [-1, 1] goes into the linear layer before; the coefficients become
    vectors over the slots. Depth and levels are those of one polynomial for all channels.

    Attributes:
        ranges: [C, 2] of the argument in each channel.
        coefficients: [C, degree + 1].
    """

    algorithm = "chebyshev by channel"

    degree: int
    ranges: NDArray[np.float64]
    coefficients: NDArray[np.float64]

    def __post_init__(self) -> None:
        channels, terms = len(self.coefficients), self.degree + 1
        for name, shape in (("ranges", (channels, 2)), ("coefficients", (channels, terms))):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.shape != shape or not np.isfinite(array).all():
                raise AtlasError(
                    f"{name} of a polynomial of degree {self.degree} for each of {channels} "
                    f"channels must be finite numbers, {shape}",
                    why=f"they are {array.shape}" if array.shape != shape else "some are not",
                )
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.degree < 1 or not (self.ranges[:, 0] < self.ranges[:, 1]).all():
            raise AtlasError("an activation needs a degree of 1 at least, and ranges low < high")

    @cached_property
    def digest(self) -> bytes:
        """Of the arrays: approximations are looked up thousands of times."""
        return hashlib.sha256(self.ranges.tobytes() + self.coefficients.tobytes()).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ChannelActivation) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def apply(self, x: Term, function: str) -> Term:
        """The function of x, whose last axis holds the channels."""
        low, high = self.ranges.T
        t = x * (2 / (high - low)) + -(high + low) / (high - low)
        return t.chebyshev(ChebyshevSum.of(self.coefficients, meaning=(function, self.ranges)))
