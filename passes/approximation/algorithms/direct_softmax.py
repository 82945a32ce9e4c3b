"""Softmax in one pass: the exponentials, times the inverse of their sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.algorithms.iterations import newton_inverse
from atlasc.passes.approximation.algorithms.softmax import EXP_DEGREE, EXP_RANGE
from atlasc.passes.approximation.arithmetic import Arithmetic, Interval
from atlasc.passes.approximation.description import Softmax, interval
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.approximation.fits.coefficients import checked, chosen
from atlasc.passes.approximation.fits.validity import Meaning

T = TypeVar("T")


def direct_softmax(
    arithmetic: Arithmetic[T],
    scores: T,
    *,
    exponential: NDArray[np.float64],
    domain: Interval,
    exp_range: Interval,
    inverse: NDArray[np.float64],
    sum_range: Interval,
    newton_steps: int = 0,
) -> T:
    """Softmax over the last axis, masked scores holding the low end of `domain`.

    Args:
        scores: [..., n], in `domain`.
        exponential: coefficients of exp(score - shift) on `domain`.
        exp_range: the domain of the shifted scores.
        inverse: coefficients of 1/x on `sum_range`, where the row sums lie.
        newton_steps: each squares the relative error of the inverse.
    """
    y = arithmetic.chebyshev(scores, exponential, domain, Meaning("exp", exp_range))
    y = arithmetic.masked(y, float(np.polynomial.chebyshev.chebval(-1.0, exponential)))
    total = arithmetic.row_sum(y)
    guess = arithmetic.chebyshev(total, inverse, sum_range, Meaning("inverse", sum_range))
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
        coefficients, exp_coefficients: of the two sums, where they are no interpolants.
    """

    algorithm = "direct"

    degree: int
    sum_range: Interval | None = None
    shift: float = 0.0
    exp_degree: int = EXP_DEGREE
    exp_range: Interval = EXP_RANGE
    coefficients: tuple[float, ...] | None = None
    exp_coefficients: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if min(self.degree, self.exp_degree) < 1:
            raise AtlasError(
                f"a softmax cannot have polynomials of degrees {self.exp_degree}, {self.degree}"
            )
        object.__setattr__(self, "exp_range", interval(self.exp_range, "the range of exp"))
        object.__setattr__(self, "coefficients", checked(self.coefficients, self.degree))
        exponential = checked(self.exp_coefficients, self.exp_degree)
        object.__setattr__(self, "exp_coefficients", exponential)
        if self.sum_range is not None:
            known = interval(self.sum_range, "the range of softmax sums")
            if known[0] <= 0:
                raise AtlasError("softmax sums are positive", why=f"their range is {known}")
            object.__setattr__(self, "sum_range", known)

    @property
    def score_range(self) -> Interval:
        """The scores on which the exponential is valid."""
        return self.shift + self.exp_range[0], self.shift + self.exp_range[1]

    @property
    def mask_fill(self) -> float:
        """The score of a masked key."""
        return self.score_range[0]

    @property
    def depth(self) -> int:
        """Depth in the paper's convention."""
        return levels_of_degree(self.exp_degree) + levels_of_degree(self.degree) + 4

    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of the scores."""
        if self.sum_range is None:
            raise AtlasError(
                "a softmax has no range of its sums yet",
                why="the polynomial for their inverse needs it",
                remedy="calibrate first",
            )
        return direct_softmax(
            arithmetic,
            scores,
            exponential=chosen(self.exp_coefficients, "exp", self.exp_degree, self.exp_range),
            domain=self.score_range,
            exp_range=self.exp_range,
            inverse=chosen(self.coefficients, "inverse", self.degree, self.sum_range),
            sum_range=self.sum_range,
        )
