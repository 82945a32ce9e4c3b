"""Chebyshev sums refined by Newton steps, as in ARION (code: hangenba/Arion)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from atlasc.passes.approximation.algorithms.direct_softmax import direct_softmax
from atlasc.passes.approximation.algorithms.iterations import newton_inverse_sqrt
from atlasc.passes.approximation.arithmetic import Arithmetic
from atlasc.passes.approximation.description import Norm, Softmax
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum, Interval

T = TypeVar("T")


@dataclass(frozen=True)
class ChebyshevSoftmax(Softmax):
    """exp as one Chebyshev sum, the inverse of its row sum as another, refined by Newton steps.

    Attributes:
        shift: subtracted from the scores.
        exp_degree, exp_range: of the exponential; the range is that of the shifted scores.
        inverse_degree, inverse_range: of 1/x on the row sums.
        newton_steps: each squares the relative error of the inverse.
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
        """The score of a masked key."""
        return self.shift + self.exp_range[0]

    def apply(self, arithmetic: Arithmetic[T], scores: T) -> T:
        """Probabilities of the scores."""
        low, high = self.exp_range
        domain = low + self.shift, high + self.shift
        exponential = ChebyshevSum.fitted("exp", self.exp_degree, self.exp_range, domain=domain)
        inverse = ChebyshevSum.fitted("inverse", self.inverse_degree, self.inverse_range)
        return direct_softmax(arithmetic, scores, exponential, inverse, self.newton_steps)


@dataclass(frozen=True)
class ChebyshevNewtonNorm(Norm):
    """1/sqrt as a Chebyshev sum refined by Newton steps; each step takes two levels.

    Attributes:
        degree: of the Chebyshev fit.
        newton_steps: each about squares the relative error.
        range: of the variance (or mean square) plus epsilon.
    """

    algorithm = "chebyshev_newton"

    degree: int
    newton_steps: int
    range: Interval

    def inverse_sqrt(self, arithmetic: Arithmetic[T], v: T) -> T:
        """1/sqrt(v)."""
        total = ChebyshevSum.fitted("invsqrt", self.degree, self.range)
        guess = arithmetic.chebyshev(v, total)
        return newton_inverse_sqrt(arithmetic, v, guess, self.newton_steps)
