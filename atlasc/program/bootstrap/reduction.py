"""The modular reduction of a bootstrap (EvalMod): a polynomial that maps x = I + e to e, for
integers |I| <= K and small e.

e is about sin(2 pi x) / (2 pi), an odd Chebyshev sum. The sum must be right only near integers, and
has more coefficients than this takes. So its values and slopes at the integers are made exact, by a
correction that does not enlarge the sum in between.

Sources: Han and Ki, CT-RSA 2020 (a fit that is good near integers); Bossuat, Mouchet,
Troncoso-Pastoriza, Hubaux, EUROCRYPT 2021; Bossuat, Troncoso-Pastoriza, Hubaux, ACNS 2022 (the
distribution of I for a sparse secret).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, inf, log2, pi, sqrt
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

Reals = NDArray[np.float64]

MARGIN = 0.25
"""Room beyond K for the message and for errors."""
CONVERGED = 1e-3
"""If the last Chebyshev coefficient is below this, a correction at the integers is as small."""


def log2_failure(ring_degree: int, weight: int, bound: int) -> float:
    """log2 of the probability that some coefficient of a ciphertext, raised from q0, exceeds q0 ·
    bound, for a ternary secret of this Hamming weight.

    A coefficient over q0 is a sum of weight + 1 numbers that are uniform in [-1/2, 1/2]
    (Irwin-Hall). The bound is the union over both signs and all coefficients, which is tight where
    it matters.
    """
    count = weight + 1
    x = Fraction(count, 2) - bound
    terms = ((-1) ** k * comb(count, k) * (x - k) ** count for k in range(int(x) + 1))
    tail = sum(terms, Fraction(0)) / factorial(count) if x > 0 else Fraction(0)
    # The integers may exceed the range of floats, so their logarithms are subtracted.
    found = log2(tail.numerator) - log2(tail.denominator) if tail else -inf
    return min(0.0, found + 1 + log2(ring_degree))


def choose_bound(ring_degree: int, weight: int, log2_probability: float) -> int:
    """The least K whose :func:`log2_failure` is at most ``log2_probability``."""
    bound = 1
    while log2_failure(ring_degree, weight, bound) > log2_probability:
        bound += 1
    return bound


@dataclass(frozen=True, eq=False)
class Reduction:
    """``coefficients`` of T_k(x / domain), ``[degree + 1]``, whose sum is 2 pi e; even ones are 0.

    CoeffsToSlots includes the division by the domain, SlotsToCoeffs the factor 1/(2 pi).

    Attributes:
        bound: K, the greatest |I|.
    """

    coefficients: Reals
    bound: int

    @property
    def domain(self) -> float:
        """The greatest x."""
        return self.bound + MARGIN

    def __call__(self, x: Reals) -> Reals:
        """e, in double precision."""
        sine = chebyshev.chebval(np.asarray(x) / self.domain, self.coefficients)
        return np.asarray(sine / (2 * pi), dtype=np.float64)

    def error_bound(self, ring_degree: int, ratio: float, amplitude: float = 1.0) -> float:
        """The largest error of a slot that the reduction causes, in exact arithmetic.

        It holds for every message with slots (complex or real) of absolute value up to the
        amplitude A, and for all |I| <= K.

        A slot is the sum of N coefficients m_k times numbers of absolute value 1, and sum m_k^2 <=
        A^2 (Parseval). So an error of a coefficient of at most E0 + E1 |m| + E2 m^2 becomes an
        error of a slot of at most N E0 + sqrt(N) A E1 + A^2 E2. The sine's own error is all E2.

        Args:
            ring_degree: N.
            ratio: q0 / scale.
            amplitude: A.
        """
        integers = np.arange(-self.bound, self.bound + 1.0)[:, None]

        def added(m: Reals) -> Reals:
            """Error of the Chebyshev sum beyond the sine's error, in units of the message."""
            e = m / ratio
            return ratio * (self(integers + e) - np.sin(2 * pi * e) / (2 * pi))

        step = np.array([amplitude / 64])
        value, slope = added(0 * step), (added(step) - added(-step)) / (2 * step)
        # Closer to 0, rounding errors divided by m^2 would dominate.
        away = amplitude * np.linspace(1 / 8, 1, 29)
        m = np.concatenate([-away, away])
        curved = np.abs(added(m) - value - slope * m) / m**2
        turn = 2 * pi * amplitude / ratio
        sine = amplitude * abs(np.sin(turn) / turn - 1)
        linear = sqrt(ring_degree) * amplitude * np.abs(slope).max()
        return float(
            ring_degree * np.abs(value).max() + linear + amplitude**2 * curved.max() + sine
        )


def make_reduction(degree: int, bound: int) -> Reduction:
    """The reduction with a Chebyshev sum of this degree.

    Raises:
        ValueError: the degree is too low for a sine on [-K, K]; it must exceed 2 pi K.
    """
    domain, odd = bound + MARGIN, np.arange(1, degree + 1, 2)

    def sine(t: Any) -> Any:
        return np.sin(2 * pi * domain * t)

    # With far more nodes than coefficients, the fit is the truncated series.
    found = chebyshev.chebinterpolate(sine, 8 * (degree + 1))[odd]
    if abs(found[-1]) > CONVERGED:
        raise ValueError(f"a sine on [-{bound}, {bound}] takes a higher degree than {degree}")
    # The smallest change, in the sense of least squares, that makes values 0 and slopes right.
    angles = np.arccos(np.arange(bound + 1) / domain)[:, None]
    values = np.cos(odd * angles)[1:]  # an odd sum is zero at zero
    # Slopes are divided by the degree, so that all conditions have about one size.
    slopes = odd * np.sin(odd * angles) / np.sin(angles) / degree
    conditions = np.concatenate([values, slopes])
    wanted = np.concatenate([np.zeros(bound), np.full(bound + 1, 2 * pi * domain / degree)])
    coefficients = np.zeros(degree + 1)
    coefficients[odd] = found
    coefficients[odd] += np.linalg.lstsq(conditions, wanted - conditions @ found)[0]
    return Reduction(coefficients, bound)
