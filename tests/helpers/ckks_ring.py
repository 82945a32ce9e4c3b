"""The ring of CKKS on paper: slots and coefficients, a real encryption, the raised modulus."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]
Integers = NDArray[np.int64]
Complexes = NDArray[np.complex128]


def powers_of_five(degree: int) -> Integers:
    """5^j modulo 2 degree for j < degree/2: the root of unity of slot j."""
    powers = [1]
    while len(powers) < degree // 2:
        powers.append(powers[-1] * 5 % (2 * degree))
    return np.array(powers)


def slots_of(polynomial: Reals) -> Complexes:
    """[degree/2] values of a polynomial [degree] at the roots of unity, Cheon et al. 2017."""
    degree = polynomial.size
    values = np.fft.ifft(polynomial, 2 * degree) * (2 * degree)
    return np.ascontiguousarray(values[powers_of_five(degree)])


def polynomial_of(slots: Complexes) -> Reals:
    """The inverse of :func:`slots_of`."""
    degree = 2 * slots.size
    powers = powers_of_five(degree)
    spectrum = np.zeros(2 * degree, dtype=np.complex128)
    spectrum[powers], spectrum[-powers] = slots, slots.conj()
    return np.fft.fft(spectrum)[:degree].real / degree


def raised(message: Integers, modulus: int, weight: int, rng: np.random.Generator) -> Integers:
    """Coefficients that a ciphertext of ``message`` holds when its modulus is raised.

    A secret of this Hamming weight, a uniform c1, c0 = m - c1 s modulo ``modulus``, both centred;
    then c0 + c1 s over the integers, exactly. All is below 2^63 if weight * modulus/2 is.
    """
    degree = message.size
    c1 = rng.integers(-(modulus // 2), modulus // 2, degree)
    product = np.zeros(degree, dtype=np.int64)
    for position in rng.choice(degree, weight, replace=False):
        shifted = np.roll(c1, position)
        shifted[:position] *= -1  # X^degree = -1
        product += rng.choice((-1, 1)) * shifted
    c0 = (message - product + modulus // 2) % modulus - modulus // 2
    return c0 + product
