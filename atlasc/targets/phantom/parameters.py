"""Parameter sets of the C++ runtime on Phantom-FHE: moduli, levels, sizes; and the choice among
them.

Phantom takes any chain of primes of up to 60 bits. A leveled set has as many levels as its program;
a set that bootstraps is one of ``runtime_cuda/bootstrap`` (docs/bootstrapping.md). A key has the
primes and the digits of the highest level that it serves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.counting_engine import PRIMITIVES, Primitive
from atlasc.targets.noise import NoiseModel
from atlasc.targets.phantom.bootstrap import SETS, BootstrapNeeds, bootstrap_needs
from atlasc.targets.ring import Ring
from atlasc.targets.security import max_log_qp
from atlasc.targets.security_estimates import check_set, set_bits

BASE_BITS = 60
"""What a leveled set has left at level 0."""
SCALE_BITS = 40
"""Of the prime of one level of a leveled set, and so of the scale."""
SPECIAL_BITS = 60
BOOTSTRAP_BATCH = 2
"""The runtime refreshes two real ciphertexts as the parts of a complex one."""
BOOTSTRAPPED_RING = 16
LOG_RING_DEGREES = (13, 14, 15, 16)
MAX_SPECIAL_PRIMES = 8

_LIBRARY_BYTES = 2**30
"""Of the CUDA context, of Phantom's tables and of what a key switch decomposes into, at most."""


@dataclass(frozen=True)
class PhantomParameters(Ring):
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
    def bootstrapped(cls, name: str, log_ring_degree: int = BOOTSTRAPPED_RING) -> PhantomParameters:
        """A set of ``SETS``; another ring than 2^16 is for tests alone."""
        chosen = SETS[name]
        return cls(log_ring_degree, chosen.levels_left, chosen.special_primes, name)

    @property
    def max_level(self) -> int:
        """Levels of a program's fresh ciphertext."""
        return self.levels

    @property
    def bootstrap_level(self) -> int | None:
        """Levels after a bootstrap; None for a leveled set."""
        return self.levels if self.bootstrap else None

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes."""
        return BOOTSTRAP_BATCH if self.bootstrap else 1

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """Of a bootstrap: standard deviation in each slot, and factor of its cubic term."""
        noise = self.noise_model()
        return noise.bootstrap, noise.bootstrap_cubic

    @property
    def needs(self) -> BootstrapNeeds | None:
        """What a bootstrap asks for; None for a leveled set."""
        return bootstrap_needs(self.bootstrap, self.slots) if self.bootstrap else None

    @property
    def bootstrap_rotations(self) -> frozenset[int]:
        """Amounts, to the left, for which the bootstrap has keys: a program may use them too."""
        return frozenset() if self.needs is None else frozenset(self.needs.rotations)

    # --- moduli

    @property
    def prime_bits(self) -> tuple[int, ...]:
        """Of Q: what is left at level 0, then one for each level upwards."""
        if self.bootstrap:
            return SETS[self.bootstrap].prime_bits
        return (BASE_BITS, *[SCALE_BITS] * self.levels)

    @property
    def special_bits(self) -> tuple[int, ...]:
        """Of P, the special primes."""
        bits = SETS[self.bootstrap].eval_bits if self.bootstrap else SPECIAL_BITS
        return (bits,) * self.special_primes

    @property
    def scale_bits(self) -> int:
        """log2 of the scale of a program's ciphertexts."""
        return SETS[self.bootstrap].scale_bits if self.bootstrap else SCALE_BITS

    @property
    def primes(self) -> int:
        """Number of primes of Q."""
        return len(self.prime_bits)

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli, at most."""
        return float(sum(self.prime_bits) + sum(self.special_bits))

    @property
    def sparse(self) -> tuple[int, float] | None:
        """See the base class: the key to the sparse secret has q0 and one special prime."""
        if not self.bootstrap:
            return None
        chosen = SETS[self.bootstrap]
        return chosen.secret_weight, float(chosen.base_bits + chosen.eval_bits)

    @property
    def security_bits(self) -> int:
        """Of all its secrets; 0 for a ring that the table does not have."""
        try:
            return set_bits(self)
        except AtlasError:
            return 0

    @property
    def dnum(self) -> int:
        """Digits of the decomposition in a key switch at the top."""
        return self.digits(self.primes - 1)

    def noise_model(self) -> NoiseModel:
        """The errors of CKKS at this scale, and of a bootstrap as docs/bootstrapping.md has them:
        its standard deviation, and a sine's cubic term (2π/R)²/6 at R = q0/scale."""
        noise = NoiseModel.ckks(self.ring_degree, self.scale_bits)
        ratio = 2.0 ** (self.prime_bits[0] - self.scale_bits)
        cubic = (2 * math.pi / ratio) ** 2 / 6
        return NoiseModel(noise.fresh, noise.rescale, noise.key_switch, 2.0**-21, cubic)

    # --- sizes

    def digits(self, level: int) -> int:
        """Digits of the decomposition in a key switch at ``level``."""
        return -(-(level + 1) // self.special_primes)

    def residues(self, level: int) -> int:
        """Primes of a ciphertext at ``level``."""
        return level + 1

    def ciphertext_bytes(self, level: int) -> int:
        """Size of a ciphertext at ``level``."""
        return 2 * self.residues(level) * self.ring_degree * 8

    def key_bytes(self, level: int) -> int:
        """Size of a relinearisation, conjugation or rotation key that reaches ``level``."""
        primes = self.residues(level) + self.special_primes
        return 2 * self.digits(level) * primes * self.ring_degree * 8

    def memory_parts(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
        live: Mapping[int, int] | None = None,
        constants: int = 0,
    ) -> dict[str, int]:
        """Peak memory of an execution on the device in bytes, by what it is for.

        Args:
            rotations: amount -> level of the rotation keys. Those of the bootstrap's amounts are
                its own, and reach higher.
            relinearization_level, conjugation_level: of the other two; None: no key.
            live: level -> ciphertexts at the moment that needs most; eight at the top level where
                nobody counted them.
            constants: bytes of the program's arrays, which stay in the machine's memory.
        """
        needs = self.needs
        others = [relinearization_level, conjugation_level]
        if needs is not None:
            others = [needs.relinearization_level, needs.conjugation_level]
        own = {a: level for a, level in rotations.items() if a not in self.bootstrap_rotations}
        parts = {
            "rotation_keys": sum(map(self.key_bytes, own.values())),
            "other_keys": sum(self.key_bytes(level) for level in others if level is not None),
            "ciphertexts": self._ciphertexts({self.max_level: 8} if live is None else live),
            "library": _LIBRARY_BYTES * self.ring_degree // 2**16,
        }
        if needs is not None:
            # To the sparse secret and back: a key at the lowest level, one at the top.
            levels = (0, self.primes - 1, *needs.rotations.values())
            parts["bootstrap_keys"] = sum(map(self.key_bytes, levels))
            parts["bootstrap_work"] = self._ciphertexts(needs.live)
            parts["bootstrap_diagonals"] = self._ciphertexts(needs.diagonals) // 2
        return parts

    def _ciphertexts(self, counts: Mapping[int, int]) -> int:
        return sum(self.ciphertext_bytes(level) * count for level, count in counts.items())

    def work(self) -> dict[tuple[Primitive, int], float]:
        """Costs by the residues that a primitive touches, to compare placements and plans of keys
        where nobody measured seconds; 1 is a rotation at the top of the chain. A transform of a
        residue (number-theoretic) counts as ten products.
        """
        transform = 10.0
        table: dict[tuple[Primitive, int], float] = {}
        for level in range(self.max_level + 1):
            residues, digits = self.residues(level), self.digits(level)
            wide = residues + self.special_primes
            hoist = digits * wide * transform
            switch = 2 * digits * wide + 2 * (wide + residues) * transform
            costs: dict[str, float] = {
                "rotate": hoist + switch,
                "rotate_hoisted": switch,
                "hoist": hoist,
                "mul": hoist + switch,
                "square": hoist + switch,
                "rescale": 2 * residues * transform,
                "mul_plain": (1 + transform) * residues,
                "add_plain": transform * residues,
                "times_i": 2 * residues,
            }
            for primitive in PRIMITIVES:
                table[primitive, level] = costs.get(primitive, 2.0 * residues)
        top = max(cost for (name, _), cost in table.items() if name == "rotate")
        return {key: cost / top for key, cost in table.items()}

    def to_dict(self) -> dict[str, Any]:
        """For a manifest; :meth:`from_dict` reads it back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PhantomParameters:
        """Raises AtlasError when ``data`` is not what :meth:`to_dict` writes."""
        try:
            return cls(
                int(data["log_ring_degree"]),
                int(data["levels"]),
                int(data["special_primes"]),
                str(data["bootstrap"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise AtlasError(
                "the parameters of phantom cannot be read", why=f"{type(error).__name__}: {error}"
            ) from error


def choose_parameters(
    levels: int, *, min_slots: int = 1, insecure_for_tests: bool = False
) -> PhantomParameters:
    """The cheapest parameter set for a program of ``levels`` levels without bootstraps.

    The cost is that of one key switch at each level of the program.

    Args:
        levels: multiplicative depth of the whole program.
        min_slots: slots that a ciphertext must have at least.
        insecure_for_tests: accept sets of fewer than 128 bits.

    Returns:
        A leveled set when one is large enough, else the one that bootstraps, for which the caller
        has to place bootstraps.

    Raises:
        AtlasError: no set has that many slots, or none is secure.
    """
    fits = [
        found
        for log_degree in LOG_RING_DEGREES
        for special in range(1, MAX_SPECIAL_PRIMES + 1)
        if (found := PhantomParameters(log_degree, levels, special)).slots >= min_slots
        and (insecure_for_tests or found.log_qp <= max_log_qp(found.ring_degree))
    ]
    largest = PhantomParameters.bootstrapped("fourteen_levels")
    if not fits and largest.slots < min_slots:
        raise AtlasError(
            f"phantom has no parameters with {min_slots} slots and {levels} levels",
            why=f"ciphertexts have up to {largest.slots} slots",
            remedy="use a shorter sequence or a smaller batch",
        )
    best = min(fits, key=lambda p: _cost(p, levels), default=largest)
    check_set(best, insecure_for_tests=insecure_for_tests)
    return best


def _cost(parameters: PhantomParameters, levels: int) -> float:
    work = sum(
        (parameters.digits(level) + 8) * (parameters.residues(level) + parameters.special_primes)
        for level in range(levels + 1)
    )
    return float(work * parameters.ring_degree * parameters.log_ring_degree)
