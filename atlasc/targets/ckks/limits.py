"""What a parameter set may have at most, on engines of ``runtime_cuda``.

The engine keeps arrays of these lengths (``runtime_cuda/ckks/ring/limits.hpp`` has the same
numbers; a test compares them), and refuses larger sets itself. Here a set is refused where Python
reads it, before sizes and costs are computed of it.
"""

from __future__ import annotations

from collections.abc import Callable

from atlasc.ir.errors import AtlasError

LEAST_LOG_DEGREE, MOST_LOG_DEGREE = 1, 17
"""log2 of the ring degree. Rings below 2^11 are simulated alone: the engine refuses them, and no
bundle has them, because they have no 128 bits."""
MOST_PRIMES = 64
"""Of Q, and so digits of a key."""
MOST_SPECIAL = 8


def require_possible(
    log_ring_degree: int, levels: int, special_primes: int, primes: Callable[[], int]
) -> None:
    """Refuse a set that the engine cannot have.

    Args:
        log_ring_degree, levels, special_primes: of the set; any integers.
        primes: of Q, as the engine splits them; called where the others are possible.

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
            "there are no such parameters",
            why=why,
            remedy="compile the model again; do not use a program from somebody else that has them",
        )
