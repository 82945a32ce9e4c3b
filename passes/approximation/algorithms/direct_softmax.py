"""Softmax in one pass: the exponentials, times the inverse of their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from atlasc.passes.approximation.algorithms.iterations import newton_inverse
from atlasc.passes.approximation.algorithms.iterative_softmax import EXP_DEGREE
from atlasc.passes.approximation.arithmetic import Arithmetic
from atlasc.passes.approximation.description import Softmax
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum, Interval
from atlasc.passes.calibration.ranges import EXP_RANGE

T = TypeVar("T")


def direct_softmax(
    arithmetic: Arithmetic[T],
    scores: T,
    exponential: ChebyshevSum,
    inverse: ChebyshevSum,
    newton_steps: int = 0,
) -> T:
    """Softmax over the last axis, masked scores holding the low end of the exponential's domain.

    Args:
        scores: [..., n], in the domain of the exponential.
        exponential: exp(score - shift).
        inverse: 1/x where the row sums lie.
        newton_steps: each squares the relative error of the inverse.
    """
    y = arithmetic.chebyshev(scores, exponential)
    y = arithmetic.masked(y, exponential.lowest)
    total = arithmetic.row_sum(y)
    guess = arithmetic.chebyshev(total, inverse)
    return arithmetic.mul(y, newton_inverse(arithmetic, total, guess, newton_steps))


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
    def score_range(self) -> Interval:
        """The scores on which the exponential is valid."""
        return self.shift + self.exp_range[0], self.shift + self.exp_range[1]

    @property
    def mask_fill(self) -> float:
        """The score of a masked key."""
        return self.score_range[0]

    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of the scores."""
        fitted, given = ChebyshevSum.fitted, self.exp_coefficients
        exponential = fitted("exp", self.exp_degree, self.exp_range, given, self.score_range)
        inverse = fitted("inverse", self.degree, self.sum_range, self.coefficients)
        return direct_softmax(arithmetic, scores, exponential, inverse)
