"""Roots of a parameter set: keys that a server derives rotation keys by.

A root is a rotation key of another chain (``runtime_cuda/ckks/keys/derived_keys.hpp``). It rotates
modulo the special primes of the set and those up to a level; it divides by primes above that level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from atlasc.program.key_plan import HOPS, Root
from atlasc.targets.moduli import MOST_IN_BLOCK, digit_bits
from atlasc.targets.noise import ERROR_VARIANCE
from atlasc.targets.parameters import ParameterSet

Limbs = Callable[[int], list[int]]
"""Sizes of all primes up to a level, as the engine splits them."""

MOST_MORE = 1.02
"""Most by which the error of a key switch may grow with derived keys. The model of noise is within
3% of the engine, so it holds for them too."""


def roots_of(parameters: ParameterSet, limbs: Limbs) -> dict[int, Root]:
    """The smallest root for each highest level of derived keys, where there is one: the modulus has
    primes above the level, and key switches divide by so much more than their digits have that the
    larger error of derived keys vanishes beside their roundings.
    """
    found: dict[int, Root] = {}
    for level in range(parameters.max_level + 1):
        possible = (
            root
            for root, variance in _possible(parameters, limbs, level)
            if _more_error(parameters, level, variance) <= MOST_MORE
        )
        if best := min(possible, key=lambda root: root.bytes, default=None):
            found[level] = best
    return found


def _possible(parameters: ParameterSet, limbs: Limbs, level: int) -> Iterator[tuple[Root, float]]:
    """Roots, each with the variance of the error that it adds to a key."""
    degree, special = parameters.ring_degree, parameters.moduli.special
    kept = limbs(level)
    rotated = [*special, *kept]
    for last in range(level + 1, len(parameters.moduli.primes)):
        above = limbs(last)[len(kept) :]
        most = sum(above)
        if len(above) > MOST_IN_BLOCK:
            return
        if most < max(rotated):
            continue
        digits = digit_bits(rotated, most)
        rounded = (1 + 2 * degree / 3) / 12
        digit = degree * ERROR_VARIANCE / 12
        variance = rounded + digit * sum(4.0 ** (bits - most) for bits in digits)
        size = 2 * len(digits) * (sum(rotated) + most) * degree // 8
        yield Root(last, size), variance


def _more_error(parameters: ParameterSet, level: int, variance: float) -> float:
    """The greatest factor of the error of a key switch up to a level, if each of ``HOPS`` rotations
    adds a variance to the key's error.
    """
    noise = parameters.noise_model()
    larger = math.sqrt(1 + HOPS * variance / ERROR_VARIANCE)
    return max(
        math.hypot(noise.key_switch, larger * noise.digits[at]) / noise.of_key_switch(at)
        for at in range(level + 1)
    )
