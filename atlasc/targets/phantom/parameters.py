"""Parameter sets of the C++ runtime on Phantom-FHE: moduli, levels, and what its bootstrap takes.

Phantom takes any chain of primes of up to 60 bits. A leveled set has as many levels as its program;
a set that bootstraps is one of ``runtime_cuda/bootstrap`` (docs/bootstrapping.md). A key has the
primes and the digits of the highest level that it serves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from atlasc.ir.errors import AtlasError
from atlasc.targets.noise import NoiseModel
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.phantom.bootstrap import SETS, BootstrapNeeds, bootstrap_needs

BASE_BITS = 60
"""Bits of the prime that a leveled set has left at level 0."""
SCALE_BITS = 40
"""Bits of the prime of one level of a leveled set, and of its scale."""
SPECIAL_BITS = 60
BOOTSTRAPPED_RING = 16
LOG_RING_DEGREES = (13, 14, 15, 16)
MAX_SPECIAL_PRIMES = 8


@dataclass(frozen=True)
class PhantomParameters(ParameterSet):
    """One parameter set.

    Attributes:
        log_ring_degree: log2 of the ring degree N; a ciphertext has N/2 slots.
        levels: products that a fresh ciphertext allows; after a bootstrap, where there is one.
        special_primes: at most ``MAX_SPECIAL_PRIMES``.
        bootstrap: name of a set that bootstraps, which fixes the levels and the special primes;
            empty for a leveled one.

    Raises:
        AtlasError: no such set, or numbers that the engine does not take.
    """

    family = "phantom"
    device = True
    in_runtime = True
    library_bytes = 2**30
    """The CUDA context, Phantom's tables, and the digits of a key switch, at most."""

    log_ring_degree: int
    levels: int
    special_primes: int
    bootstrap: str = ""

    def __post_init__(self) -> None:
        if self.bootstrap and self.bootstrap not in SETS:
            raise AtlasError(
                f"there are no bootstrap parameters {self.bootstrap!r}",
                remedy=f"choose one of: {', '.join(SETS)}",
            )
        if self.levels < 0 or not 1 <= self.special_primes <= MAX_SPECIAL_PRIMES:
            raise AtlasError(
                f"there are no parameters with {self.levels} levels and {self.special_primes} "
                "special primes",
                remedy=f"choose 0 levels or more, and 1 to {MAX_SPECIAL_PRIMES} special primes",
            )

    @classmethod
    def leveled(cls, levels: int) -> Iterator[PhantomParameters]:
        """See the base class; as many levels as the program has."""
        for log_degree in LOG_RING_DEGREES:
            for special in range(1, MAX_SPECIAL_PRIMES + 1):
                yield cls(log_degree, levels, special)

    @classmethod
    def bootstrapped(
        cls, name: str = "fourteen_levels", log_ring_degree: int = BOOTSTRAPPED_RING
    ) -> PhantomParameters:
        """A set of ``SETS``; another ring than 2^16 is for tests alone."""
        chosen = SETS[name]
        return cls(log_ring_degree, chosen.levels_left, chosen.special_primes, name)

    @property
    def max_level(self) -> int:
        """Levels of a program's fresh ciphertext."""
        return self.levels

    @property
    def needs(self) -> BootstrapNeeds | None:
        """What a bootstrap asks of an engine; None for a leveled set."""
        return bootstrap_needs(self.bootstrap, self.slots) if self.bootstrap else None

    # --- moduli

    @property
    def prime_bits(self) -> tuple[int, ...]:
        """Primes of Q: what is left at level 0, then one for each level upwards."""
        if self.bootstrap:
            return SETS[self.bootstrap].prime_bits
        return (BASE_BITS, *[SCALE_BITS] * self.levels)

    @property
    def special_bits(self) -> tuple[int, ...]:
        """Primes of P, the special ones."""
        bits = SETS[self.bootstrap].eval_bits if self.bootstrap else SPECIAL_BITS
        return (bits,) * self.special_primes

    @property
    def scale_bits(self) -> int:
        """log2 of the scale of a program's ciphertexts."""
        return SETS[self.bootstrap].scale_bits if self.bootstrap else SCALE_BITS

    @property
    def sparse(self) -> tuple[int, float] | None:
        """See the base class: the key to the sparse secret has q0 and one special prime."""
        if not self.bootstrap:
            return None
        chosen = SETS[self.bootstrap]
        return chosen.secret_weight, float(chosen.base_bits + chosen.eval_bits)

    def noise_model(self) -> NoiseModel:
        """The errors of CKKS at this scale, and of a bootstrap as docs/bootstrapping.md has them:
        its standard deviation, and a sine's cubic term (2π/R)²/6 at R = q0/scale."""
        ratio = 2.0 ** (self.prime_bits[0] - self.scale_bits)
        cubic = (2 * math.pi / ratio) ** 2 / 6
        return replace(super().noise_model(), bootstrap=2.0**-21, bootstrap_cubic=cubic)

    # --- what a bootstrap takes

    @property
    def bootstrap_rotations(self) -> frozenset[int]:
        """Amounts, to the left, for which the bootstrap has keys."""
        return frozenset(self.shared_rotations)

    @property
    def shared_rotations(self) -> Mapping[int, int]:
        """All of them: a key of the bootstrap is like any other, and reaches higher."""
        return {} if self.needs is None else self.needs.rotations

    @property
    def bootstrap_key_levels(self) -> tuple[int, int]:
        """See the base class."""
        assert self.needs is not None
        return self.needs.relinearization_level, self.needs.conjugation_level

    def bootstrap_memory(self) -> dict[str, int]:
        """See the base class."""
        needs = self.needs
        assert needs is not None
        # To the sparse secret and back: a key at the lowest level, one at the top.
        levels = (0, len(self.prime_bits) - 1, *needs.rotations.values())
        return {
            "bootstrap_keys": sum(map(self.key_bytes, levels)),
            "bootstrap_work": self.ciphertexts_bytes(needs.live),
            "bootstrap_diagonals": self.ciphertexts_bytes(needs.diagonals) // 2,
        }
