"""Activations as one Chebyshev sum, or as one for every channel."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.arithmetic import Arithmetic
from atlasc.passes.approximation.description import Activation
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum, Interval

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

    def apply(self, arithmetic: Arithmetic[T], x: T, function: str) -> T:
        """The function of x."""
        total = ChebyshevSum.fitted(function, self.degree, self.range, self.coefficients)
        return arithmetic.chebyshev(x, total)


@dataclass(frozen=True, eq=False)
class ChannelActivation(Activation):
    """One Chebyshev sum of one degree with other coefficients, on another range, for every channel.

    The map of the ranges to [-1, 1] goes into the linear layer before; the coefficients become
    vectors over the slots. Depth and levels are those of one polynomial for all channels.

    Attributes:
        degree: of the Chebyshev sums.
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

    def apply(self, arithmetic: Arithmetic[T], x: T, function: str) -> T:
        """The function of x, whose last axis holds the channels."""
        low, high = self.ranges.T
        t = arithmetic.scale(x, 2 / (high - low))
        t = arithmetic.add_const(t, -(high + low) / (high - low))
        return arithmetic.chebyshev(t, ChebyshevSum.of(self.coefficients))
