"""Parameter sets: how one is chosen, ring and moduli, security, costs, exactness and memory."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import STRICT, parse_json
from atlasc.targets.noise import NoiseModel
from atlasc.targets.security import REQUIRED_BITS, Secret, check_security

if TYPE_CHECKING:
    from typing_extensions import Self

    from atlasc.passes.lowering.rotation_keys import KeyPlan
    from atlasc.program.function import Function


NARROWER = 5
"""log2 of the slots over the period of the narrow bootstrap whose cost stands for that of all."""


@dataclass(frozen=True)
class Moduli:
    """Sizes of the primes of a set in bits.

    Attributes:
        primes: of Q: at level 0, then upwards, then those that a bootstrap consumes.
        special: of the special primes, by which a key switch divides.
        scale: log2 of the scale of a program's ciphertexts.
        sparse: weight of the secret around a bootstrap's raising of the modulus, and log2 of the
            modulus of the key that leads to it; None without bootstraps.
    """

    primes: tuple[int, ...]
    special: tuple[int, ...]
    scale: int
    sparse: tuple[int, float] | None = None


@dataclass(frozen=True)
class BootstrapNeeds:
    """The keys and the memory of a bootstrap; empty in a leveled set.

    Attributes:
        rotations: amounts, to the left, that its keys serve: a program may use them too.
        shared: those of them whose keys are like any other, and hoist: amount -> level, which is at
            least the highest of a program.
        key_levels: of the relinearisation and the conjugation key.
        key_switches: of one bootstrap; 0 where they are not known.
        key_switches_of_one: of the bootstrap of a ciphertext without a partner.
        key_switches_narrow: of a narrow bootstrap.
        memory: bytes beside these two keys, by what they are for.
    """

    rotations: frozenset[int] = frozenset()
    shared: Mapping[int, int] = field(default_factory=dict)
    key_levels: tuple[int, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    key_switches: int = 0
    key_switches_of_one: int = 0
    key_switches_narrow: int = 0

    def with_own(self, rotations: Mapping[int, int]) -> dict[int, int]:
        """Those that are like any other beside a program's own: amount -> highest level."""
        highest = dict(sorted(self.shared.items()))
        for amount, level in sorted(rotations.items()):
            highest[amount] = max(level, highest.get(amount, level))
        return highest


class _Fields:
    """Fields that the sets of all targets have, each in its own order."""

    log_ring_degree: int
    special_primes: int
    bootstrap: bool | str


@dataclass(frozen=True)
class ParameterSet(_Fields):
    """Base of the parameter sets of all targets; a subclass is a dataclass of JSON values.

    Attributes:
        family: the target that the sets were made for; names their cost table.
        device: whether programs run in the memory of a device rather than in the machine's.
        in_runtime: whether the C++ runtime makes engines with these moduli.
        library_bytes: working memory of the library at ring degree 2^16.
        base_primes: primes of a ciphertext at level 0.
        log_ring_degree: log2 of the ring degree N; a ciphertext has N/2 slots.
        special_primes: number of special primes.
        bootstrap: false in a leveled set.
        cost_table: by which seconds are predicted; None for the table in use. No part of the
            identity of a set, nor of its JSON form.
    """

    __pydantic_config__ = STRICT

    family: ClassVar[str]
    device: ClassVar[bool] = False
    in_runtime: ClassVar[bool] = False
    library_bytes: ClassVar[int]
    base_primes: ClassVar[int] = 1
    cost_table: Path | None = field(default=None, kw_only=True, compare=False, repr=False)

    # --- which sets there are

    @classmethod
    @abstractmethod
    def leveled(cls, levels: int) -> Iterable[Self]:
        """Sets without bootstraps that have so many levels at least."""

    @classmethod
    @abstractmethod
    def bootstrapped(cls) -> Self:
        """The set that bootstraps."""

    @classmethod
    def choose(cls, levels: int, slots: int = 1) -> Self:
        """The cheapest set for a program: by key switches at each of its levels, which decide the
        time and, with the level, the memory of the keys.

        Args:
            levels: multiplicative depth of the whole program.
            slots: real numbers that a ciphertext must hold at least.

        Returns:
            A leveled set when one is large enough, else the one that bootstraps, for which the
            caller has to place bootstraps.

        Raises:
            AtlasError: no set has that many slots, or none has 128 bits of security.
        """
        fits = [p for p in cls._secure(levels) if p.slots >= slots]
        largest = cls.bootstrapped()
        if not fits and largest.slots < slots:
            raise AtlasError(
                f"{cls.family} has no parameters with {slots} slots and {levels} levels",
                why=f"ciphertexts have up to {largest.slots} slots",
                remedy="use a shorter sequence or a smaller batch",
            )
        best = min(fits, key=lambda found: found._work(levels), default=largest)
        check_security(best.secrets)
        return best

    @classmethod
    def matching(cls, slots: int, levels: int, bootstrap: bool) -> Self | None:
        """The cheapest set for a program that is packed already; None where there is none."""
        if bootstrap:
            found = cls.bootstrapped()
            return found if (found.slots, found.max_level) == (slots, levels) else None
        fits = [p for p in cls._secure(levels) if p.slots == slots]
        return min(fits, key=lambda found: found._work(levels), default=None)

    @classmethod
    @cache
    def _secure(cls, levels: int) -> list[Self]:
        return [p for p in cls.leveled(levels) if p.security_bits >= REQUIRED_BITS]

    def _work(self, levels: int) -> int:
        """Work of one key switch at each level of a program, to compare sets by."""
        primes = [self.residues(level) + self.special_primes for level in range(levels + 1)]
        work = sum((self.digits(level) + 8) * count for level, count in enumerate(primes))
        return work * self.ring_degree * self.log_ring_degree

    def to_dict(self) -> dict[str, Any]:
        """For a manifest; :meth:`from_dict` reads it back."""
        return {name: value for name, value in asdict(self).items() if name != "cost_table"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Raises AtlasError when ``data`` is not what :meth:`to_dict` writes."""
        with explained(f"the parameters of {cls.family} cannot be read"):
            if "cost_table" in data:
                raise ValueError("cost_table: no member of it")
            return parse_json(json.dumps(dict(data)), cls)

    # --- ring and moduli

    @property
    @abstractmethod
    def max_level(self) -> int:
        """Levels of a fresh ciphertext of a program, and of one after a bootstrap."""

    @property
    @abstractmethod
    def moduli(self) -> Moduli:
        """The sizes of its primes."""

    @property
    def ring_degree(self) -> int:
        """N, twice the slots."""
        return 1 << self.log_ring_degree

    @property
    def slots(self) -> int:
        """Real numbers in a ciphertext."""
        return self.ring_degree // 2

    @property
    def bootstrap_level(self) -> int | None:
        """Levels after a bootstrap; None for a leveled set."""
        return self.max_level if self.bootstrap else None

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes: two real ones as the parts of a complex one."""
        return 2 if self.bootstrap else 1

    def circuit(self, period: int) -> Sequence[Function]:
        """The bootstrap of slots that repeat after ``period`` in primitives: functions of one
        ciphertext and of two. Empty where there is none, or where it is a library's.
        """
        return ()

    @property
    def narrow(self) -> int:
        """How often slots must repeat to be bootstrapped narrowly; 0: that is not possible."""
        return 0

    @property
    def log_scales(self) -> tuple[float, ...]:
        """log2 of the scale at each level, where a bootstrap is in primitives; else empty."""
        return ()

    @property
    def shape(self) -> tuple[int, int, int | None, int]:
        """What an engine is told first: slots, levels, levels and batch of a bootstrap."""
        return self.slots, self.max_level, self.bootstrap_level, self.bootstrap_batch

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli under which a key or a ciphertext is published."""
        return float(sum(self.moduli.primes) + sum(self.moduli.special))

    @property
    def dnum(self) -> int:
        """Digits of a key switch at the top of the chain, where a bootstrap starts."""
        return self.digits(len(self.moduli.primes) - self.base_primes)

    def digits(self, level: int) -> int:
        """Digits of the decomposition in a key switch at ``level``."""
        return -(-self.residues(level) // self.special_primes)

    def residues(self, level: int) -> int:
        """Primes of a ciphertext at ``level``."""
        return level + self.base_primes

    def ciphertext_bytes(self, level: int) -> int:
        """Size of a ciphertext at ``level``, in memory and in a file."""
        return 2 * self.residues(level) * self.ring_degree * 8

    def key_bytes(self, level: int) -> int:
        """Size of a relinearisation, conjugation or rotation key that reaches ``level``."""
        primes = self.residues(level) + self.special_primes
        return 2 * self.digits(level) * primes * self.ring_degree * 8

    # --- security and exactness

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets of a key set, the client's own first."""
        keys = "ciphertexts, relinearisation, conjugation and rotation keys"
        if self.moduli.sparse is None:
            return (Secret(keys, self.ring_degree, self.log_qp),)
        weight, log_q = self.moduli.sparse
        return (
            Secret(keys + ", key back from the sparse secret", self.ring_degree, self.log_qp),
            Secret("key to the sparse secret", self.ring_degree, log_q, weight),
        )

    @property
    def security_bits(self) -> int:
        """Bits of security of its weakest secret; 0 for a ring that the guidelines do not cover."""
        try:
            return min(secret.bits for secret in self.secrets)
        except AtlasError:
            return 0

    def noise_model(self) -> NoiseModel:
        """The errors that the simulator adds in this set's stead."""
        return NoiseModel.ckks(self.ring_degree, self.moduli.scale, self.digit_ratios)

    @property
    def digit_ratios(self) -> list[list[float]]:
        """Of each digit that a key switch at level 0, 1, ... takes: its modulus over that of the
        special primes. Sizes in bits decide, as primes are the greatest of their sizes."""
        primes, special = self.moduli.primes[: self.max_level + 1], sum(self.moduli.special)
        digits: list[int] = []
        found: list[list[float]] = []
        left = 0
        for bits in primes:
            if bits > left:
                digits, left = [*digits, 0], special
            digits[-1], left = digits[-1] + bits, left - bits
            found.append([2.0 ** min(bits - special, 0) for bits in digits])
        return found

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """Errors of a bootstrap: standard deviation in each slot, and factor of its cubic term."""
        noise = self.noise_model()
        return noise.bootstrap, noise.bootstrap_cubic

    def costed_by(self, table: Path | None) -> Self:
        """The same set, whose seconds are predicted by a table; None for the table in use."""
        return replace(self, cost_table=table)

    # --- memory

    @property
    @abstractmethod
    def needs(self) -> BootstrapNeeds:
        """What a bootstrap needs."""

    def memory_parts(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
        live: Mapping[int, int] | None = None,
        constants: int = 0,
    ) -> dict[str, int]:
        """Peak memory of an execution in bytes, by what it is for; on a device, of the device.

        Args:
            rotations: amount -> level of the rotation keys. Shared ones are the bootstrap's.
            relinearization_level, conjugation_level: of the other two; None: no key.
            live: level -> ciphertexts at the moment that needs most; eight at the top level where
                they were not counted.
            constants: bytes of the program's arrays, which lie in the machine's memory.
        """
        needs = self.needs
        others = needs.key_levels or (relinearization_level, conjugation_level)
        own = (level for amount, level in rotations.items() if amount not in needs.shared)
        return {
            "rotation_keys": sum(map(self.key_bytes, own)),
            "other_keys": sum(self.key_bytes(level) for level in others if level is not None),
            "ciphertexts": self.ciphertexts_bytes({self.max_level: 8} if live is None else live),
            "constants": 0 if self.device else constants,
            "library": self.library_bytes * self.ring_degree // 2**16,
            **needs.memory,
        }

    def plan_memory(self, plan: KeyPlan) -> dict[str, int]:
        """The same of an unknown program with the keys of a plan."""
        levels = plan.relinearization_level, plan.conjugation_level
        return self.memory_parts(plan.rotations, *levels)

    def ciphertexts_bytes(self, counts: Mapping[int, int]) -> int:
        """Size of some ciphertexts. ``counts``: level -> how many."""
        return sum(self.ciphertext_bytes(level) * count for level, count in counts.items())


Set = TypeVar("Set", bound=ParameterSet)


def require_set(parameters: ParameterSet, kind: type[Set]) -> Set:
    """The set itself; AtlasError where it belongs to another target."""
    if not isinstance(parameters, kind):
        raise AtlasError(
            f"the program was compiled for the parameters of another target than {kind.family}",
            remedy=f"compile the model again with --target {kind.family}",
        )
    return parameters
