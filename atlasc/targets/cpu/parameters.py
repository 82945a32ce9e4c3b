"""Parameter sets of the target ``cpu``."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.targets.ckks.parameters import CkksParameters


@dataclass(frozen=True)
class CpuParameters(CkksParameters):
    """One parameter set, as in the base class, but with primes of at most 50 bits.

    With such primes AVX-512 IFMA multiplies eight numbers at a time, and AVX2 four. A level that
    needs more bits has two primes.
    """

    family = "cpu"
    library_bytes = 2**28
    """Bytes of the tables of the transforms, and of the work space of a key switch."""
    prime_bits = 50
    named = "fifteen_levels_40"
