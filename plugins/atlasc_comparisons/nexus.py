"""The approximations of NEXUS (Zhang et al., NDSS 2025). MOAI shares some of them.

The numbers of iterations are those of the authors' code (zju-abclab/NEXUS). The exponential is
(1 + x/128)^128. The inverse is a product with 4 steps, on 0.01 times the sum. 1/sqrt starts from a
line and takes 4 Newton and 2 Goldschmidt steps. GELU takes two signs; each is two polynomials g_4
and two f_4 of Cheon et al. 2020.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import function as scalar_function
from atlasc.polynomials.algorithms.chebyshev import newton_inverse_sqrt
from atlasc.polynomials.arithmetic import Term
from atlasc.polynomials.description import Activation, Norm, Softmax
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum, Interval

LINE_SLOPE, LINE_INTERCEPT = -1.29054537e-4, 1.29054537e-1
LINE_RANGE: Interval = (4.0, 800.0)
"""The first guess of 1/sqrt is a line; with 4 + 2 steps it converges on this range."""
NEWTON_STEPS, GOLDSCHMIDT_STEPS = 4, 2
SIGN_WIDTH = 0.016
"""Share of the reach in which the composite sign is not yet +-1."""
_G4 = (5850 / 1024, -34974 / 1024, 97015 / 1024, -113492 / 1024, 46623 / 1024)
_F4 = (315 / 128, -420 / 128, 378 / 128, -180 / 128, 35 / 128)
"""Coefficients of x, x^3, ..: Cheon, Kim and Kim 2020 (eprint 2019/1234), g_4 over 2^10 and f_4
over 2^7."""


@dataclass(frozen=True)
class PowerSoftmax(Softmax):
    """exp is (1 + x/2^r)^(2^r), and the inverse of its row sum is a product. Depth 17 with r = 7, 4
    steps and a divisor.

    Let s be the row sum over `divisor`. Its inverse is the product of 1 + (1 - s)^(2^i) for i = 0
    .. steps, and takes steps + 1 levels. The relative error is |1 - s|^(2^(steps+1)). With the
    published settings that is 8e-4 on row sums in (20, 180), and it is useless below 5.

    Attributes:
        squarings: r.
        steps: steps of the inverse.
        divisor: brings the row sum into (0, 2); 1 for none.
        shift: constant that is subtracted from the scores.
    """

    algorithm = "power_exp"

    squarings: int = 7
    steps: int = 4
    divisor: float = 100.0
    shift: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.divisor > 0:
            raise AtlasError(f"the divisor of a softmax's row sums cannot be {self.divisor:g}")

    @property
    def mask_fill(self) -> float:
        """The score of a masked key."""
        return self.shift - 2.0**self.squarings  # there the exponential is exactly zero

    def apply(self, scores: Term) -> Term:
        """Probabilities of the scores."""
        scale = 2.0**-self.squarings
        y = scores * scale + (1.0 - self.shift * scale)
        for _ in range(self.squarings):
            y = y.square()
        total = y.row_sum()
        if self.divisor != 1.0:
            total = total * (1 / self.divisor)
        power = total + -1.0  # only even powers follow, so the sign does not matter
        inverse = total * -1.0 + 2.0
        for _ in range(self.steps):
            power = power.square()
            inverse = inverse * (power + 1.0)
        if self.divisor != 1.0:
            inverse = inverse * (1 / self.divisor)
        return y * inverse


@dataclass(frozen=True)
class LineNewtonNorm(Norm):
    """1/sqrt from a line, Newton and Goldschmidt steps. Depth 22 for a LayerNorm, 20 for an
    RMSNorm.

    The relative error is at most 4e-4 if the scaled argument is in (4, 800). A factor brings a
    measured range there; it goes into 1/n and takes no level. A range wider than 200 to 1 loses its
    low end. Goldschmidt's coupled iteration takes two levels per step, and two more around the
    steps.

    Attributes:
        range: range of the variance (or mean square) plus epsilon; None keeps the argument as it
            is.
    """

    algorithm = "newton_goldschmidt"

    range: Interval | None = None

    @property
    def unit(self) -> float:
        """The factor of the argument that `inverse_sqrt` needs."""
        if self.range is None:
            return 1.0
        centre = math.sqrt(LINE_RANGE[0] * LINE_RANGE[1] / (self.range[0] * self.range[1]))
        return min(centre, LINE_RANGE[1] / self.range[1])

    def inverse_sqrt(self, v: Term) -> Term:
        """1/sqrt(v / unit)."""
        guess = newton_inverse_sqrt(v, v * LINE_SLOPE + LINE_INTERCEPT, NEWTON_STEPS)
        root, half = v * guess, guess * 0.5
        for _ in range(GOLDSCHMIDT_STEPS):
            excess = root * half + -0.5
            root, half = root - root * excess, half - half * excess
        return half * 2.0


@dataclass(frozen=True)
class SignPiecewiseActivation(Activation):
    """Three pieces: 0 below -3.5, a polynomial of degree 12 between, x above 3.5. Depth 18.

    The signs of (x + 3.5) / m and (x - 3.5) / m choose the piece, with m = max |x| + 3.5. The
    published m is 8.5, for |x| <= 5. Beyond |x| = 12 the polynomial grows faster than the
    difference of the signs vanishes.

    Attributes:
        range: range of the argument.
    """

    algorithm = "sign_piecewise"

    range: Interval = (-5.0, 5.0)

    @staticmethod
    def covers(function: str) -> bool:
        """Whether the function is 0 on one side and x on the other."""
        return scalar_function(function).linear_beyond is not None

    def apply(self, x: Term, function: str) -> Term:
        """The function of x."""
        piece = scalar_function(function).linear_beyond
        if piece is None:
            raise AtlasError(
                f"the piecewise approximation does not cover {function}",
                why="it needs a function that is 0 on one side and x on the other",
                remedy="use a Chebyshev approximation for this op",
            )
        reach = max(abs(end) for end in self.range) + piece

        def half_sign(z: Term) -> Term:
            """sign(z)/2 for |z| <= reach, within 5e-5 where |z| >= 0.0157 reach."""
            z = z * (1 / reach)
            coarse, fine = _sign_polynomial(_G4), _sign_polynomial(_F4)
            for coefficients in (coarse, coarse, fine, fine / 2):
                z = z.chebyshev(ChebyshevSum.of(coefficients))
            return z

        below, above = half_sign(x + piece), half_sign(x + -piece)
        domain = (-piece - SIGN_WIDTH * reach, piece + SIGN_WIDTH * reach)
        total = ChebyshevSum(12, lambda: fit(function, 12, domain), domain)
        return x.chebyshev(total) * (below - above) + x * (above + 0.5)


@lru_cache(maxsize=2)
def _sign_polynomial(odd: tuple[float, ...]) -> NDArray[np.float64]:
    power_basis = np.zeros(2 * len(odd))
    power_basis[1::2] = odd
    return np.asarray(np.polynomial.chebyshev.poly2cheb(power_basis), dtype=np.float64)
