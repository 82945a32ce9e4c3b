"""The parameter sets of desilofhe: slots, levels, moduli, and the needs of its bootstrap.

Two of the library's constructors matter here. ``Engine(log_coeff_count, special_prime_count)`` is
leveled: one 40-bit prime per level, a base prime and ``k`` special primes of 60 bits each, and as
many levels as 128-bit security leaves; more special primes mean fewer levels and smaller, faster
keys. ``Engine(use_bootstrap_to_14_levels=True)`` can bootstrap: it has 15 more primes of 54 bits.

The library does not publish its moduli. These figures were read from the residues of serialised
keys and ciphertexts of version 1.17.0, whose largest value gives the size of each prime. The secret
is made by atlasc (``keys.ternary_secret``), dense and ternary; the sparse secret inside a bootstrap
is the library's. These are assumptions about a closed library, checked by ``tests/atlasc/targets``;
docs/backend-desilo.md says how they were found.

The top level of a leveled engine is not used: a rotation there silently costs a level.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.noise import NoiseModel
from atlasc.targets.parameters import Moduli, ParameterSet

PRIME_BITS = 40
"""Bits of the prime of one level, and log2 of the scale."""
LARGE_PRIME_BITS = 60
"""Bits of the base prime and of each special prime."""
BOOTSTRAP_PRIMES = (15, 54)
"""Number of primes that a bootstrap consumes, and their bits."""
BOOTSTRAP_LEVELS = 14
BOOTSTRAP_SECRET_WEIGHT = 128
"""Nonzero coefficients of the sparse secret around the bootstrap's ModRaise."""

LIBRARY_LEVELS = {
    14: {1: 7, 2: 6, 3: 4},
    15: {2: 17, 3: 15, 4: 14, 5: 12, 6: 11, 7: 9, 8: 8},
    16: {4: 36, 5: 34, 6: 33, 7: 31, 8: 30, 9: 28, 10: 27, 12: 24, 14: 21, 16: 18},
}
"""log2 of the ring degree -> special primes -> the library's max_level.

(15, 1), (16, 1), (16, 2) and (16, 3) are missing on purpose: their lowest levels are broken. At
ring degree 2^16 everything is garbage after more than 36 rescalings from the top, at 2^15 after
more than 17."""

_BOOTSTRAP_KEY_BYTES = int(13.8 * 2**30)
"""Bytes of the 'medium' bootstrap key with three stages, in memory."""
BOOTSTRAP_FILE_BYTES = int(8.8 * 2**30)
"""Bytes of this key in a file."""


def noise_model(ring_degree: int, log_scale: float = 40) -> NoiseModel:
    """The errors of desilofhe. It encrypts and switches keys at the squared scale, where both
    errors vanish. Its rescale is that of ``NoiseModel.ckks``, and happens before a product.

    Measured on desilofhe 1.17.0: rescaling at N = 2^14 and 2^15; a bootstrap's 1.2e-5 on any two
    vectors that share one (6e-6 where a vector has one for itself); the cubic term on the vector of
    ones, which came back as 0.9984, and it predicts the error on uniform slots in [-16, 16],
    7.4e-5, to the digit.
    """
    rescale = NoiseModel.ckks(ring_degree, log_scale).rescale
    tiny = 3.2 * ring_degree / 2.0 ** (2 * log_scale)
    return NoiseModel(
        tiny, rescale, tiny, bootstrap=1.2e-5, bootstrap_cubic=1.6e-3, relinearize=tiny
    )


@dataclass(frozen=True)
class DesiloParameters(ParameterSet):
    """One parameter set.

    Attributes:
        log_ring_degree, special_primes: see the base class.
        bootstrap: whether this is the set with bootstraps; it fixes the other two to 16 and 4.

    Raises:
        AtlasError: the library has no such set, or the set does not work.
    """

    family = "desilo"
    base_primes = 2
    library_bytes = 3 * 2**28

    log_ring_degree: int
    special_primes: int
    bootstrap: bool = False

    def __post_init__(self) -> None:
        known = [(n, k) for n, row in LIBRARY_LEVELS.items() for k in row]
        key = (self.log_ring_degree, self.special_primes)
        if key not in ([(16, 4)] if self.bootstrap else known):
            listed = ", ".join(f"2^{n} with {k}" for n, k in known)
            raise AtlasError(
                f"desilofhe has no usable parameters with ring degree 2^{key[0]} and {key[1]} "
                f"special primes{' for bootstrapping' if self.bootstrap else ''}",
                remedy=f"choose one of: {listed}; with bootstrapping only 2^16 with 4",
            )

    @classmethod
    def leveled(cls, levels: int) -> Iterable[DesiloParameters]:
        return (found for found in LEVELED if found.max_level >= levels)

    @classmethod
    def bootstrapped(cls) -> DesiloParameters:
        return BOOTSTRAPPED

    @property
    def max_level(self) -> int:
        """Level of a fresh ciphertext; higher levels of the library break their contract."""
        if self.bootstrap:
            return BOOTSTRAP_LEVELS
        return LIBRARY_LEVELS[self.log_ring_degree][self.special_primes] - 1

    @property
    def moduli(self) -> Moduli:
        """See the base class; the key to the sparse secret has the primes of level 0."""
        primes = (LARGE_PRIME_BITS, *[PRIME_BITS] * (self.max_level + 1))
        special = (LARGE_PRIME_BITS,) * self.special_primes
        if not self.bootstrap:
            return Moduli(primes, special, PRIME_BITS)
        sparse = BOOTSTRAP_SECRET_WEIGHT, float(sum(primes[: self.base_primes]) + sum(special))
        count, bits = BOOTSTRAP_PRIMES
        return Moduli((*primes, *[bits] * count), special, PRIME_BITS, sparse)

    def noise_model(self) -> NoiseModel:
        """See the base class; this library keeps the squared scale."""
        return noise_model(self.ring_degree, self.moduli.scale)

    def digits(self, level: int) -> int:
        """A digit has as many primes as there are special primes, but five in the set with
        bootstraps. This was measured: keys of the library at levels 2, 8, 12, 13, 14 and 29 have 1
        to 7 digits.
        """
        return -(-self.residues(level) // (5 if self.bootstrap else self.special_primes))

    @property
    def needs(self) -> BootstrapNeeds:
        """See the base class; the bootstrap key rotates to the right by powers of two. The other
        two
        keys are full: they reach the primes that a bootstrap consumes."""
        if not self.bootstrap:
            return BootstrapNeeds()
        rotations = frozenset(
            self.slots - (1 << power) for power in range(self.slots.bit_length() - 1)
        )
        full = BOOTSTRAP_LEVELS + BOOTSTRAP_PRIMES[0]
        return BootstrapNeeds(rotations, {}, (full, full), {"bootstrap_key": _BOOTSTRAP_KEY_BYTES})


BOOTSTRAPPED = DesiloParameters(16, 4, bootstrap=True)
LEVELED = [DesiloParameters(n, k) for n, row in LIBRARY_LEVELS.items() for k in row]
