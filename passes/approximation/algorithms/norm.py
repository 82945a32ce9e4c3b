"""Norms with one Chebyshev sum for 1/sqrt of the variance or mean square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from atlasc.passes.approximation.arithmetic import Arithmetic
from atlasc.passes.approximation.description import Norm
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum, Interval

T = TypeVar("T")


@dataclass(frozen=True)
class NormApproximation(Norm):
    """Depth p + 8 for a LayerNorm and p + 6 for an RMSNorm, with p = ceil(log2(degree + 1)).

    Attributes:
        degree: of the Chebyshev fit of 1/sqrt.
        range: of the variance (or mean square) plus epsilon; None before calibration.
        coefficients: of the Chebyshev sum, where it is not the interpolant.
    """

    algorithm = "chebyshev"

    degree: int
    range: Interval | None = None
    coefficients: tuple[float, ...] | None = None

    def inverse_sqrt(self, arithmetic: Arithmetic[T], v: T) -> T:
        """1/sqrt(v)."""
        return arithmetic.chebyshev(v, self._sum(None))

    def normalised(self, arithmetic: Arithmetic[T], x: T, share: float, epsilon: float) -> T:
        """x / sqrt(share * sum(x^2) + epsilon); share and epsilon go into the domain map."""
        domain = None
        if self.range is not None:
            domain = (self.range[0] - epsilon) / share, (self.range[1] - epsilon) / share
        squares = arithmetic.row_sum(arithmetic.square(x))
        return arithmetic.mul(x, arithmetic.chebyshev(squares, self._sum(domain)))

    def _sum(self, domain: Interval | None) -> ChebyshevSum:
        known, given = self.range, self.coefficients
        return ChebyshevSum.fitted("invsqrt", self.degree, known, given, domain)
