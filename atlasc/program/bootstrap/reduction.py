"""The modular reduction of a bootstrap (EvalMod): a polynomial that maps x = I + e to e, for
integers |I| <= K and small e.

e is about sin(2 pi x) / (2 pi). It comes in one of two forms.

An odd Chebyshev sum. It needs to be right near integers only, and has coefficients to spare: its
values and slopes at the integers are made exact, by a correction that leaves it as small as it was
in between.

Or a cosine of the angle 2 pi (x - 1/4) divided by 2^r, which an even sum of a far lower degree
yields to double precision, and r double angles: a level more, and two thirds of the key switches.

Sources: Han and Ki, CT-RSA 2020 (a fit that is good near integers; double angles); Bossuat,
Mouchet, Troncoso-Pastoriza, Hubaux, EUROCRYPT 2021; Bossuat, Troncoso-Pastoriza, Hubaux, ACNS 2022
(the distribution of I for a sparse secret).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import comb, factorial, inf, log2, pi
from typing import Any

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

Reals = NDArray[np.float64]

MARGIN = 0.25
"""Room beyond K for the message and for errors."""
CONVERGED = 1e-3
"""Where the last Chebyshev coefficient is below, a correction at the integers is as small."""
ACCURATE = 2.0**-44
"""What a sum before double angles may leave out of the cosine: nothing corrects it."""


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
    """A sum of Chebyshev polynomials ``T_k`` and what is done before and after it. The domain goes
    into CoeffsToSlots, and the gain into the coefficients of the sum.

    Without double angles, ``coefficients[k]`` is that of T_k(x / domain), whose sum is 2 pi e; even
    ones are 0. With r of them, it is that of T_k(T_2((x - 1/4) / domain)): an even sum has half as
    many terms in T_2, so the plan of the sum is that of half the degree. The sum is 2 cos(2 pi (x -
    1/4) / 2^r), and c^2 - 2 doubles the angle of c: no product has a factor of its own.

    Attributes:
        bound: K.
        double_angles: r.
    """

    coefficients: Reals
    bound: int
    double_angles: int = 0

    @property
    def shift(self) -> float:
        """What is subtracted from x: a sine is a cosine of what is a quarter less."""
        return 0.25 if self.double_angles else 0.0

    @property
    def domain(self) -> float:
        """The greatest x, shifted."""
        return self.bound + MARGIN + self.shift

    @property
    def gain(self) -> float:
        """What e is multiplied by in the result."""
        return 4 * pi if self.double_angles else 2 * pi

    def __call__(self, x: Reals) -> Reals:
        """e, in double precision."""
        t = (np.asarray(x) - self.shift) / self.domain
        value = chebyshev.chebval(2 * t * t - 1 if self.double_angles else t, self.coefficients)
        for _ in range(self.double_angles):
            value = value * value - 2
        return np.asarray(value / self.gain, dtype=np.float64)

    def error_bound(self, ratio: float, amplitude: float = 1.0) -> float:
        """The largest error of a slot that the reduction causes, in exact arithmetic: for all
        messages of absolute value up to the amplitude A, and for all |I| <= K.

        Args:
            ratio: R, q0 over a message of 1.
            amplitude: A.
        """
        integers = np.arange(-self.bound, self.bound + 1.0)[:, None]
        m = amplitude * np.linspace(-1, 1, 257)
        return float(np.abs(ratio * self(integers + m / ratio) - m).max())


def make_reduction(degree: int, bound: int, double_angles: int = 0) -> Reduction:
    """The reduction by a Chebyshev sum of this degree, and so many double angles.

    Raises:
        ValueError: the degree is too low for a sine on [-K, K] (it takes more than 2 pi K), or for
            the cosine of a part of the angle.
    """
    made = _cosine(degree, bound, double_angles) if double_angles else _sine(degree, bound)
    if made is None:
        raise ValueError(f"a sine on [-{bound}, {bound}] takes a higher degree than {degree}")
    return made


def _cosine(degree: int, bound: int, double_angles: int) -> Reduction | None:
    """Nothing where the series has not converged."""
    count = degree // 2 + 1
    empty = Reduction(np.zeros(count), bound, double_angles)

    def cosine(u: Any) -> Any:
        """Twice that of T_2's argument, which is even."""
        angle = 2 * pi * empty.domain * np.sqrt((1 + u) / 2)
        return 2 * np.cos(angle / 2**double_angles)

    found = chebyshev.chebinterpolate(cosine, 8 * count)
    # Double angles multiply errors by 2^r sin(2^r a) / sin(a), and the message's part is 1/R.
    if np.abs(found[count:]).max() > ACCURATE:
        return None
    return Reduction(found[:count], bound, double_angles)


def _sine(degree: int, bound: int) -> Reduction | None:
    """Nothing where the series has not converged."""
    domain, odd = bound + MARGIN, np.arange(1, degree + 1, 2)

    def sine(t: Any) -> Any:
        return np.sin(2 * pi * domain * t)

    # With far more nodes than coefficients, the fit is the truncated series.
    found = chebyshev.chebinterpolate(sine, 8 * (degree + 1))[odd]
    if abs(found[-1]) > CONVERGED:
        return None
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
