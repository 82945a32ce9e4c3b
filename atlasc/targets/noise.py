"""How much error CKKS adds to the slots, primitive by primitive."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.execution.engine import Vector


@dataclass(frozen=True)
class NoiseModel:
    """Standard deviations of the Gaussian error that a primitive adds to each slot.

    Absolute errors of slot values, so they already contain the division by the scale. Rescaling
    happens on the ciphertext operands *before* a product (the result is left at the squared
    scale), as desilofhe and other libraries with lazy rescaling do: the error of a product grows
    with the other factor.

    Attributes:
        fresh: encryption.
        rescale: the rounding of one rescaling.
        key_switch: a rotation or a relinearisation.
        bootstrap: a bootstrap.
        bootstrap_cubic: a bootstrap takes the sine for the identity, so a *coefficient* c of the
            encoded polynomial comes back as c - bootstrap_cubic c^3. Slots that look random have
            tiny coefficients; but their mean is one coefficient, and it suffers.
    """

    fresh: float = 0.0
    rescale: float = 0.0
    key_switch: float = 0.0
    bootstrap: float = 0.0
    bootstrap_cubic: float = 0.0

    @classmethod
    def ckks(cls, ring_degree: int, log_scale: int = 40) -> NoiseModel:
        """The model for a dense ternary secret, after Cheon et al. 2017, section 3.

        Rounding a coefficient of both components gives variance (1 + h)/12 with h = 2N/3; a slot is
        a sum of N coefficients, so its variance is N times that. Fresh and key switching errors are
        at the squared scale (see above) and vanish beside it. At N = 2^16 the result, 1.4e-8, is
        what desilofhe 1.17.0 shows. The figures for the bootstrap were measured on that library:
        1.2e-5 on any two vectors that share one (6e-6 where a vector has one for itself); the cubic
        term on the vector of ones, which came back as 0.9984, and it predicts the error on uniform
        slots in [-16, 16], 7.4e-5, to the digit.
        """
        rescale = math.sqrt(ring_degree * (1 + 2 * ring_degree / 3) / 12) / 2.0**log_scale
        tiny = 3.2 * ring_degree / 2.0 ** (2 * log_scale)
        return cls(tiny, rescale, tiny, bootstrap=1.2e-5, bootstrap_cubic=1.6e-3)


def coefficients(slots: Vector) -> Vector:
    """The polynomial, of twice as many coefficients, whose canonical embedding is ``slots``.

    Coefficient 0 is the mean of the slots. Cheon et al. 2017, section 2.2, without the scale.
    """
    degree = 2 * slots.size
    powers = _powers_of_five(degree)
    spectrum = np.zeros(2 * degree)
    spectrum[powers] = spectrum[-powers] = slots
    return np.ascontiguousarray(np.fft.fft(spectrum)[:degree].real) / degree


def from_coefficients(polynomial: Vector) -> Vector:
    """The inverse of :func:`coefficients`."""
    degree = polynomial.size
    values = np.fft.ifft(polynomial, 2 * degree) * (2 * degree)
    return np.ascontiguousarray(values[_powers_of_five(degree)].real)


@lru_cache(maxsize=4)
def _powers_of_five(degree: int) -> NDArray[np.int64]:
    """5^j modulo 2 degree, for j = 0 .. degree/2 - 1: which root of unity belongs to slot j."""
    powers = accumulate(range(degree // 2), lambda power, _: power * 5 % (2 * degree), initial=1)
    return np.fromiter(powers, dtype=np.int64, count=degree // 2)
