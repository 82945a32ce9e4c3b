"""The primes of a parameter set, and how key switches divide them into digits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Moduli:
    """Sizes of the primes of a set in bits.

    Attributes:
        primes: bits of the primes of Q, from level 0 upwards, then those that a bootstrap consumes.
        special: bits of the special primes, by which a key switch divides.
        scale: log2 of the scale of a program's ciphertexts.
        sparse: Hamming weight of the sparse secret around the bootstrap's ModRaise, and log2 of
            the modulus of the key that leads to it; None without bootstraps.
    """

    primes: tuple[int, ...]
    special: tuple[int, ...]
    scale: int
    sparse: tuple[int, float] | None = None


def digit_bits(sizes: Iterable[int], most: int) -> list[int]:
    """Bits of each digit of a key switch: neighbouring primes form a digit as long as their bits do
    not exceed those of the special primes.

    Args:
        sizes: bits of the primes that are divided into digits.
        most: bits of the special primes together.
    """
    digits: list[int] = []
    for bits in sizes:
        if digits and digits[-1] + bits <= most:
            digits[-1] += bits
        else:
            digits.append(bits)
    return digits
