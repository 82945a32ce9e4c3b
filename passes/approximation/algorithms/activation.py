"""Activations as one Chebyshev sum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Arithmetic, Interval
from atlasc.passes.approximation.description import Activation, interval
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.approximation.fits.coefficients import checked, chosen
from atlasc.passes.approximation.fits.validity import Meaning

T = TypeVar("T")


@dataclass(frozen=True)
class ActivationApproximation(Activation):
    """Depth p + 1, with p = ceil(log2(degree + 1)).

    Attributes:
        degree: of the Chebyshev fit.
        range: of the argument; None before calibration.
        coefficients: of the Chebyshev sum, where it is not the interpolant.
    """

    algorithm = "chebyshev"

    degree: int
    range: Interval | None = None
    coefficients: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise AtlasError(f"an activation cannot have a polynomial of degree {self.degree}")
        if self.range is not None:
            object.__setattr__(self, "range", interval(self.range, "the range of an activation"))
        object.__setattr__(self, "coefficients", checked(self.coefficients, self.degree))

    @property
    def depth(self) -> int:
        """Depth in the paper's convention."""
        return 1 + levels_of_degree(self.degree)

    def apply(self, arithmetic: Arithmetic[T], x: T, function: str) -> T:
        """The function of x."""
        if self.range is None:
            raise AtlasError(
                "an activation has no range yet",
                why="its polynomial needs the range of its argument",
                remedy="calibrate first",
            )
        coefficients = chosen(self.coefficients, function, self.degree, self.range)
        meaning = Meaning(function, self.range)
        return arithmetic.chebyshev(x, coefficients, self.range, meaning)
