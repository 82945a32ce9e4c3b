"""Chebyshev sums whose coefficients are computed when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.fits.chebyshev import fit
from atlasc.passes.approximation.fits.validity import FittedFunction

Array = NDArray[np.float64]
Interval = tuple[float, float]
UNIT: Interval = (-1.0, 1.0)


@dataclass(frozen=True, eq=False)
class ChebyshevSum:
    """sum_k coefficients[..., k] T_k(t), where t is the affine map of `domain` onto [-1, 1].

    Depth and levels need the degree alone, so nothing is fitted for them.

    Attributes:
        degree: of the sum.
        compute: gives the coefficients.
        calibrated: the domain, (low, high) of the argument; None before calibration.
        meaning: the function that the sum approximates; None where it approximates none.
    """

    degree: int
    compute: Callable[[], Array]
    calibrated: Interval | None = UNIT
    meaning: FittedFunction | None = None

    @staticmethod
    def of(coefficients: Array, domain: Interval = UNIT) -> ChebyshevSum:
        """The sum with known coefficients, [degree + 1], or [C, degree + 1] for C channels."""
        return ChebyshevSum(np.shape(coefficients)[-1] - 1, lambda: coefficients, domain)

    @staticmethod
    def fitted(
        function: str,
        degree: int,
        interval: Interval | None,
        given: Sequence[float] | None = None,
        domain: Interval | None = None,
        factor: float = 1.0,
    ) -> ChebyshevSum:
        """The sum for `factor` times a function.

        Args:
            function: a name in `scalar_functions.FUNCTIONS`.
            interval: (low, high) in the function's own units; None before calibration.
            given: coefficients of the function in place of the interpolant's.
            domain: what the argument has in place of the interval, where they differ.
        """
        if interval is None:
            return ChebyshevSum(degree, lambda: _missing(function), None)

        def compute() -> Array:
            known = fit(function, degree, interval) if given is None else np.asarray(given, float)
            return known if factor == 1.0 else known * factor

        meaning = FittedFunction(function, interval, factor)
        return ChebyshevSum(degree, compute, domain or interval, meaning)

    @cached_property
    def coefficients(self) -> Array:
        """float64 [degree + 1], or [C, degree + 1] for the C places of the last axis."""
        return self.compute()

    @property
    def domain(self) -> Interval:
        """(low, high) of the argument; AtlasError before calibration."""
        return _missing("a function") if self.calibrated is None else self.calibrated

    @property
    def normalised(self) -> bool:
        """Whether the algorithm itself brings the argument into [-1, 1]."""
        return self.meaning is None and self.calibrated == UNIT

    @property
    def valid(self) -> Interval:
        """Where the sum is right, the domain being [-1, 1]; see `FittedFunction.valid`."""
        return UNIT if self.meaning is None else self.meaning.valid(self.coefficients)

    @property
    def lowest(self) -> float:
        """The sum at the low end of its domain."""
        return float(np.polynomial.chebyshev.chebval(-1.0, self.coefficients))


def _missing(function: str) -> Any:
    raise AtlasError(
        f"the polynomial for {function} has no range yet",
        why="it needs the range of its argument",
        remedy="calibrate first",
    )


def checked(given: Any, degree: int) -> tuple[float, ...]:
    """Coefficients as floats; raises AtlasError where they are not finite or too few or many."""
    values = tuple(float(value) for value in given)
    if len(values) != degree + 1 or not np.isfinite(values).all():
        raise AtlasError(
            f"a polynomial of degree {degree} has {degree + 1} finite coefficients",
            why=f"there are {len(values)}",
        )
    return values
