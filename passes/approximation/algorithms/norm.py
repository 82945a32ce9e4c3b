"""Norms with one Chebyshev sum for 1/sqrt of the variance or mean square."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Arithmetic, Interval
from atlasc.passes.approximation.description import _NORM_LEVELS, Norm, interval
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.approximation.fits.coefficients import checked, chosen
from atlasc.passes.approximation.fits.validity import Meaning

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

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise AtlasError(f"a norm cannot have a polynomial of degree {self.degree}")
        if self.range is not None:
            object.__setattr__(self, "range", interval(self.range, "the range of a norm"))
        object.__setattr__(self, "coefficients", checked(self.coefficients, self.degree))

    def inverse_sqrt(self, arithmetic: Arithmetic[T], v: T) -> T:
        """1/sqrt(v / unit)."""
        known = self._range()
        return arithmetic.chebyshev(v, self._fit(known), known, Meaning("invsqrt", known))

    def _normalise(
        self,
        arithmetic: Arithmetic[T],
        centred: T,
        spread: T,
        spread_unit: float,
        centred_unit: float,
        epsilon: float,
    ) -> T:
        # Both units and epsilon disappear into the domain map and the coefficients.
        low, high = self._range()
        domain = ((low - epsilon) / spread_unit, (high - epsilon) / spread_unit)
        coefficients = self._fit((low, high)) * centred_unit
        meaning = Meaning("invsqrt", (low, high), centred_unit)
        return arithmetic.mul(centred, arithmetic.chebyshev(spread, coefficients, domain, meaning))

    def _fit(self, known: Interval) -> NDArray[np.float64]:
        return chosen(self.coefficients, "invsqrt", self.degree, known)

    def _range(self) -> Interval:
        if self.range is None:
            raise AtlasError(
                "a norm has no range yet",
                why="the polynomial for 1/sqrt needs the range of its argument",
                remedy="calibrate first",
            )
        return self.range

    def depth_of(self, op_name: str) -> int:
        """Depth of that op in the paper's convention."""
        return _NORM_LEVELS[op_name] + 1 + levels_of_degree(self.degree)
