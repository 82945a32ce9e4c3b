"""Iterative softmax: Cho et al. 2024, the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Arithmetic, Interval
from atlasc.passes.approximation.chebyshev import fit, levels_of_degree
from atlasc.passes.approximation.description import Softmax, interval

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
    iterations: Sequence[int],
    shift: float,
    exp_range: Interval = EXP_RANGE,
    exp_degree: int = EXP_DEGREE,
    sum_ranges: Sequence[Interval] = SUM_RANGES,
) -> T:
    """Softmax over the last axis.

    y = exp((x - shift) / 2^k), then for each of the k iterations y = (invsqrt(sum y^2) y)^2: every
    iteration makes the row sum one and doubles the exponent, so k of them give exp(x) over its sum.

    Args:
        scores: [..., n]; (scores - shift) / 2^k must lie in `exp_range`.
        iterations: p_j, the exponents; iteration j fits 1/sqrt with degree 2^p_j - 1.
        shift: subtracted from all scores, about their maximum.
        sum_ranges: of the sum of squares before each iteration.
    """
    low, high = exp_range
    factor = 2 ** len(iterations)
    domain = (shift + factor * low, shift + factor * high)
    exponential = fit("exp", exp_degree, exp_range)
    y = arithmetic.chebyshev(scores, exponential, domain)
    y = arithmetic.masked(y, float(np.polynomial.chebyshev.chebval(-1.0, exponential)))
    for exponent, sum_range in zip(iterations, sum_ranges, strict=False):
        total = arithmetic.row_sum(arithmetic.square(y))
        inverse = arithmetic.chebyshev(total, fit("invsqrt", 2**exponent - 1, sum_range), sum_range)
        y = arithmetic.square(arithmetic.mul(y, inverse))
    return y


@dataclass(frozen=True)
class SoftmaxApproximation(Softmax):
    """Iterative softmax. Depth 5 + sum of (p_j + 5), with an exponential of degree 15.

    Attributes:
        iterations: p_j; the first zero drops that iteration and all after it.
        shift: subtracted from the scores, from calibration.
        exp_range, exp_degree: of the exponential.
        sum_ranges: one per iteration, of the sum of squares.
    """

    algorithm = "iterative"

    iterations: tuple[int, ...]
    shift: float = 0.0
    exp_range: Interval = EXP_RANGE
    exp_degree: int = EXP_DEGREE
    sum_ranges: tuple[Interval, ...] | None = None

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
        if len(ranges) < len(exponents):
            raise AtlasError(
                f"softmax has {len(exponents)} iterations but {len(ranges)} ranges of sums"
            )
        object.__setattr__(self, "iterations", exponents)
        object.__setattr__(self, "shift", float(self.shift))
        object.__setattr__(self, "exp_range", interval(self.exp_range, "the range of exp"))
        object.__setattr__(self, "sum_ranges", ranges[: len(exponents)])

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
        return 1 + levels_of_degree(self.exp_degree) + sum(p + 5 for p in self.iterations)

    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of the scores."""
        return iterative_softmax(
            arithmetic,
            scores,
            iterations=self.iterations,
            shift=self.shift,
            exp_range=self.exp_range,
            exp_degree=self.exp_degree,
            sum_ranges=self.sum_ranges or SUM_RANGES,
        )
