"""Parameter sets of the target ``cpu``."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.targets.ckks.parameters import CkksParameters


@dataclass(frozen=True)
class CpuParameters(CkksParameters):
    """One parameter set: as the base class has them, but with primes of at most 50 bits, for which
    AVX-512 IFMA multiplies eight numbers at a time, and AVX2 four. A level that needs more bits has
    two primes.
    """

    family = "cpu"
    library_bytes = 2**28
    """Tables of the transforms, and what a key switch works on."""
    prime_bits = 50
    named = "fourteen_levels_40"
