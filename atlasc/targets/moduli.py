"""The primes of a parameter set, and how key switches divide them into digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

DIGIT_ROOM = 10
"""Bits by which the special primes that are left to a key switch exceed its only digit. The key's
error then adds 2^-10 of what it would add to a digit as large as they are, far less than what the
division rounds. `digit_room` of ``runtime_cuda/ckks/ring/chain.hpp``."""
MOST_IN_BLOCK = 16
"""Primes of a digit, and of what a key switch divides by: `most_in_block` of
``runtime_cuda/ckks/ring/limits.hpp``."""


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


def special_for(sizes: Sequence[int], special: Sequence[int]) -> int:
    """Number of special primes, the first ones, that a key switch of atlasc's engine computes with.
    All of them, but where it has one digit that is shorter than they are.

    Args:
        sizes: bits of the primes of a ciphertext.
        special: bits of all special primes.
    """
    if len(digit_bits(sizes, sum(special))) > 1:
        return len(special)
    wanted = sum(sizes) + DIGIT_ROOM
    return next(
        (n for n, bits in enumerate(accumulate(special), 1) if bits >= wanted), len(special)
    )
