"""Limits of a parameter set on the engines of ``runtime_cuda``.

The engine keeps arrays of these lengths and refuses larger sets itself. The numbers are those of
``runtime_cuda/ckks/ring/limits.hpp``; a test compares them. Python refuses a set when it reads it,
before it computes the set's sizes and costs.
"""

from __future__ import annotations

from collections.abc import Callable

from atlasc.ir.errors import AtlasError

LEAST_LOG_DEGREE, MOST_LOG_DEGREE = 1, 17
"""log2 of the ring degree. Rings below 2^11 can only be simulated: the engine refuses them, and no
bundle has them, because they cannot reach 128 bits of security."""
MOST_PRIMES = 64
"""Greatest number of primes of Q, and so of digits of a key."""
MOST_SPECIAL = 8
MOST_TOGETHER = 16
"""Polynomials that a device works on at once."""


def require_possible(
    log_ring_degree: int, levels: int, special_primes: int, primes: Callable[[], int]
) -> None:
    """Refuse a parameter set that the engine cannot have.

    Args:
        log_ring_degree, levels, special_primes: numbers of the set; any integers.
        primes: returns the number of primes of Q, as the engine splits them; called if the other
            numbers are possible.

    Raises:
        AtlasError: one of the numbers is too small or too large.
    """
    why = ""
    if not LEAST_LOG_DEGREE <= log_ring_degree <= MOST_LOG_DEGREE:
        degrees = f"2^{LEAST_LOG_DEGREE} to 2^{MOST_LOG_DEGREE}"
        why = f"its ring degree is 2^{log_ring_degree}; {degrees} are possible"
    elif not 0 <= levels < MOST_PRIMES:
        why = f"it has {levels} levels; 0 to {MOST_PRIMES - 1} are possible"
    elif not 1 <= special_primes <= MOST_SPECIAL:
        why = f"it has {special_primes} special primes; 1 to {MOST_SPECIAL} are possible"
    elif (count := primes()) > MOST_PRIMES:
        why = f"it has {count} primes; up to {MOST_PRIMES} are possible"
    if why:
        raise AtlasError(
            "the engine does not support these parameters",
            why=why,
            remedy="compile the model again; do not trust somebody else's program that needs them",
        )
