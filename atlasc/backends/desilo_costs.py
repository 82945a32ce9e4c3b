"""What a primitive of desilofhe costs on two cores: the prices for predicted latencies.

A key switch at level l works with d digits on p = l + 2 + k primes (k special ones): d p products
with the key, and about p transforms before and after. Everything else is linear in the primes of
the ciphertext. The constants are a fit to measurements of version 1.17.0 on two cores of a server
(``benchmarks/desilo_primitives.py`` prints measured and predicted side by side); expect them
within a factor of 1.5 there, and to scale with the cores elsewhere.
"""

from __future__ import annotations

from atlasc.backends.desilo_parameters import DesiloParameters
from atlasc.passes.lowering.counting_engine import Primitive

BOOTSTRAP_SECONDS = 34.0
"""At 14 levels with the medium key, on two cores that do nothing else."""
BOOTSTRAP_KEY_SECONDS = 97.0
"""Generating that key."""

# Seconds at N = 2^16: (per digit and prime, per prime, fixed).
_SWITCH: dict[Primitive, tuple[float, float]] = {
    "rotate": (0.9e-3, 6.5e-3),
    "hoist": (0.4e-3, 9.2e-3),
    "rotate_hoisted": (0.45e-3, 3.0e-3),
}
_LINEAR: dict[Primitive, tuple[float, float]] = {
    "encrypt": (12e-3, 0.0),
    "decrypt": (23e-3, 0.0),
    "add": (0.13e-3, 0.0),
    "negate": (0.13e-3, 0.0),
    "add_plain": (0.3e-3, 4e-3),
    "mul_plain": (4.3e-3, 4e-3),
    "mul_scalar": (0.9e-3, 0.0),
}
_RESCALE_AND_MULTIPLY = 5e-3
_KEY_GENERATION = 2.5e-3


def price(
    parameters: DesiloParameters, primitive: Primitive, level: int, *, factor: float = 1.0
) -> float:
    """Seconds of one call of ``primitive`` at ``level``, on two cores.

    Args:
        parameters: which engine.
        primitive: as the counting engine names it.
        level: of the lower operand; for a bootstrap, of the result.
        factor: of this machine: 2 for one that is twice as slow.
    """
    if primitive == "bootstrap":
        return BOOTSTRAP_SECONDS * factor
    scale = factor * parameters.ring_degree * parameters.log_ring_degree / (2**16 * 16)
    if primitive in _LINEAR:
        slope, fixed = _LINEAR[primitive]
        return scale * (slope * (level + 2) + fixed)
    primes = level + 2 + parameters.special_primes
    products = parameters.digits(level) * primes
    if primitive in ("mul", "square"):
        per_product, per_prime = _SWITCH["rotate"]
        extra = _RESCALE_AND_MULTIPLY * (level + 2)
    else:
        per_product, per_prime = _SWITCH[primitive]
        extra = 0.0
    return scale * (per_product * products + per_prime * primes + extra)


def cost_table(
    parameters: DesiloParameters, *, factor: float = 1.0
) -> dict[tuple[Primitive, int], float]:
    """Prices of all primitives at all levels, for ``Counts.seconds``."""
    primitives: tuple[Primitive, ...] = (*_LINEAR, *_SWITCH, "mul", "square")
    table = {
        (primitive, level): price(parameters, primitive, level, factor=factor)
        for primitive in primitives
        for level in range(parameters.max_level + 1)
    }
    if parameters.bootstrap_level is not None:
        table["bootstrap", parameters.bootstrap_level] = BOOTSTRAP_SECONDS * factor
    return table


def key_generation_seconds(
    parameters: DesiloParameters,
    rotations: dict[int, int],
    relinearization_level: int | None = None,
) -> float:
    """Predicted time to generate the keys of a program. ``rotations``: amount -> level."""
    levels = list(rotations.values())
    total = 0.0
    if parameters.bootstrap:
        total = BOOTSTRAP_KEY_SECONDS
    elif relinearization_level is not None:
        levels.append(relinearization_level)
    scale = _KEY_GENERATION * parameters.ring_degree * parameters.log_ring_degree / (2**16 * 16)
    for level in levels:
        primes = level + 2 + parameters.special_primes
        total += scale * 2 * parameters.digits(level) * primes
    return total
