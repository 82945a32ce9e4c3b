"""Where a polynomial is right: on its domain, and beyond it until it leaves the function.

A fit does not end at its domain. An exponential of degree 15 on (-8, 0) is right to 1.6e-5 of its
value at +1.5, while a 1/sqrt of degree 511 is wrong just outside its domain. How far a fit holds
depends on the fit, not on the domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.scalar_functions import function

RELATIVE_ERROR = 0.5
"""Of 1/sqrt and 1/x: they stay positive, and at most half as large again."""
ABSOLUTE_ERROR = 0.05
"""Of other functions, of the greatest magnitude on the domain, or of the value where that is
greater. Weighted fits keep both bounds on all of their domain."""
FARTHEST, NEAREST, STEPS = 1.0, 1e-6, 400
"""Points beyond a domain that are examined: the farthest and the nearest, in halves of its width,
and their number."""
POINTS = 256
SLACK = 1e-6
"""Rounding within this share of half a range's width is no violation."""
SLACK_OF_SINGLE = 1e-5
"""The same for values of float32."""


@dataclass(frozen=True)
class FittedFunction:
    """What a Chebyshev sum stands for.

    Attributes:
        function: a name in `scalar_functions.FUNCTIONS`.
        interval: in the function's own units, what the domain is mapped to.
        factor: of the function.
    """

    function: str
    interval: tuple[float, float]
    factor: float = 1.0

    def valid(self, coefficients: NDArray[np.float64]) -> tuple[float, float]:
        """The widest interval around the domain on which the sum is right, the domain being
        [-1, 1]: its error is no greater than anywhere in the domain, or than any fit may have.

        Args:
            coefficients: [degree + 1].
        """
        return _valid(self, np.asarray(coefficients, dtype=np.float64).tobytes())


def valid_range(domain: tuple[float, float], valid: Sequence[float]) -> tuple[float, float]:
    """`valid`, which takes the domain for [-1, 1], in the units of the domain."""
    middle, half = (domain[0] + domain[1]) / 2, (domain[1] - domain[0]) / 2
    return middle + half * valid[0], middle + half * valid[1]


def widened(low: float, high: float, dtype: Any) -> tuple[float, float]:
    """A range with room for the rounding of a dtype."""
    slack = (SLACK_OF_SINGLE if np.dtype(dtype) == np.float32 else SLACK) * (high - low) / 2
    return low - slack, high + slack


@lru_cache(maxsize=4096)
def _valid(meaning: FittedFunction, coefficients: bytes) -> tuple[float, float]:
    series = np.frombuffer(coefficients) / meaning.factor
    known = function(meaning.function)
    low, high = meaning.interval
    grid = -np.cos(np.pi * np.linspace(0, 1, max(POINTS, 4 * len(series))))
    top = np.abs(known.numpy(_mapped(grid, low, high))).max()

    def errors(t: NDArray[np.float64]) -> NDArray[np.float64]:
        x = _mapped(t, low, high)
        with np.errstate(all="ignore"):
            exact = known.numpy(x)
            size = np.abs(exact) if known.positive_domain else np.maximum(np.abs(exact), top)
            found = np.abs(np.polynomial.chebyshev.chebval(t, series) - exact) / size
        return np.where(np.isfinite(found), found, np.inf)

    bound = RELATIVE_ERROR if known.positive_domain else ABSOLUTE_ERROR
    bound = max(bound, float(errors(grid).max()))
    beyond = np.geomspace(NEAREST, FARTHEST, STEPS)

    def reach(side: float) -> float:
        wrong = np.flatnonzero(errors(side * (1 + beyond)) > bound)
        last = (wrong[0] if len(wrong) else STEPS) - 1
        return side if last < 0 else side * (1 + float(beyond[last]))

    return reach(-1.0), reach(1.0)


def _mapped(t: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    return (low + high) / 2 + (high - low) / 2 * t
