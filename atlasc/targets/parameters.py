"""Parameter sets: their choice, ring, moduli, security, costs, exactness and memory."""

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
from atlasc.program.key_plan import KeyPlan, Root
from atlasc.program.transform_work import MOST_SUMS, TransformWork
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.moduli import Moduli, digit_bits
from atlasc.targets.noise import NoiseModel
from atlasc.targets.security import REQUIRED_BITS, Secret, check_security

if TYPE_CHECKING:
    from typing_extensions import Self

    from atlasc.program.function import Function
    from atlasc.program.live_engine import Peaks


NARROWER = 5
"""log2 of the number of repetitions for which a narrow bootstrap is measured; its cost stands for
all narrow bootstraps."""


class _Fields:
    """Fields that the sets of all targets have, each class in its own order."""

    log_ring_degree: int
    special_primes: int
    bootstrap: bool | str


@dataclass(frozen=True)
class ParameterSet(_Fields):
    """Base of the parameter sets of all targets; a subclass is a dataclass of JSON values.

    Attributes:
        family: target that the sets were made for; it names their cost table.
        device: engine of the GPUs in whose memory programs run; empty where that is the machine's.
        in_runtime: whether the C++ runtime can make engines with these moduli.
        library_bytes: working memory of the library at ring degree 2^16, in bytes.
        base_primes: number of primes of a ciphertext at level 0.
        key_steps: for `with_fewer_keys`: from 0 up to here.
        lanes, most_sums: options of `PlaceBootstraps` and of `Pack`.
        more_work: work of key switches that smaller keys may cost, as a multiple of the least.
        log_ring_degree: log2 of the ring degree N; a ciphertext has N/2 slots.
        special_primes: number of special primes.
        bootstrap: False in a leveled set.
        cost_table: table that predicts seconds; None for the table in use. It is no part of the
            identity of a set, nor of its JSON form.
    """

    __pydantic_config__ = STRICT

    family: ClassVar[str]
    device: ClassVar[str] = ""
    in_runtime: ClassVar[bool] = False
    library_bytes: ClassVar[int]
    base_primes: ClassVar[int] = 1
    key_steps: ClassVar[int] = 1
    lanes: ClassVar[int] = 1
    most_sums: ClassVar[int] = MOST_SUMS
    more_work: ClassVar[float] = 1.0
    cost_table: Path | None = field(default=None, kw_only=True, compare=False, repr=False)

    # --- which sets there are

    @classmethod
    @abstractmethod
    def leveled(cls, levels: int) -> Iterable[Self]:
        """Sets without bootstraps that have at least ``levels`` levels."""

    @classmethod
    @abstractmethod
    def bootstrapped(cls) -> Self:
        """The set with a bootstrap."""

    @classmethod
    def choose(cls, levels: int, slots: int = 1) -> Self:
        """The set for a program: of those that take little more than the least work, counted in key
        switches at each of its levels, the one with the smallest keys.

        Args:
            levels: multiplicative depth of the whole program.
            slots: how many real numbers a ciphertext must hold at least.

        Returns:
            A leveled set if one is large enough, otherwise the set with a bootstrap, for which the
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
        best = cls._best(fits, levels) or largest
        check_security(best.secrets)
        return best

    @classmethod
    def matching(cls, slots: int, levels: int, bootstrap: bool) -> Self | None:
        """The cheapest set for a program that is packed already; None if there is none."""
        if bootstrap:
            found = cls.bootstrapped()
            return found if (found.slots, found.max_level) == (slots, levels) else None
        fits = [p for p in cls._secure(levels) if p.slots == slots]
        return cls._best(fits, levels)

    @classmethod
    def _best(cls, fits: Sequence[Self], levels: int) -> Self | None:
        """The set with the smallest keys of those that take little more than the least work."""
        least = min((one._work(levels) for one in fits), default=0)
        fast = (one for one in fits if one._work(levels) <= cls.more_work * least)
        return min(fast, key=lambda one: (one.key_bytes(levels), one._work(levels)), default=None)

    @classmethod
    @cache
    def _secure(cls, levels: int) -> list[Self]:
        return [p for p in cls.leveled(levels) if p.security_bits >= REQUIRED_BITS]

    def _work(self, levels: int) -> int:
        """Work of one key switch at each level of a program, to compare sets."""
        primes = [self.residues(level) + self.special_primes for level in range(levels + 1)]
        work = sum((self.digits(level) + 8) * count for level, count in enumerate(primes))
        return work * self.ring_degree * self.log_ring_degree

    def to_dict(self) -> dict[str, Any]:
        """The set for a manifest; :meth:`from_dict` reads it back."""
        return {name: value for name, value in asdict(self).items() if name != "cost_table"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The set of a manifest. Raises AtlasError if :meth:`to_dict` cannot have written
        ``data``.
        """
        with explained(f"the parameters of {cls.family} cannot be read"):
            if "cost_table" in data:
                raise ValueError("cost_table is not part of a saved set")
            return parse_json(json.dumps(dict(data)), cls)

    # --- ring and moduli

    @property
    @abstractmethod
    def max_level(self) -> int:
        """Level of a fresh ciphertext of a program, and of a ciphertext after a bootstrap."""

    @property
    @abstractmethod
    def moduli(self) -> Moduli:
        """The sizes of the set's primes."""

    @property
    def ring_degree(self) -> int:
        """The ring degree N: twice the slots."""
        return 1 << self.log_ring_degree

    @property
    def slots(self) -> int:
        """Number of real numbers in a ciphertext."""
        return self.ring_degree // 2

    @property
    def bootstrap_level(self) -> int | None:
        """Level after a bootstrap; None for a leveled set."""
        return self.max_level if self.bootstrap else None

    @property
    def bootstrap_from(self) -> int:
        """Least level of a ciphertext that can be bootstrapped: the levels that this consumes."""
        return 0

    @property
    def bootstrap_batch(self) -> int:
        """Number of ciphertexts that one bootstrap refreshes: two real ones as one complex
        ciphertext.
        """
        return 2 if self.bootstrap else 1

    def circuit(self, period: int) -> Sequence[Function]:
        """The bootstrap of slots that repeat after ``period``, in primitives: a function of one
        ciphertext, and a function of two. Empty without a bootstrap, or if a library has its own.
        """
        return ()

    @property
    def narrow(self) -> int:
        """Least number of copies of repeating slots for a narrow bootstrap; 0 if the target
        has no narrow bootstraps.
        """
        return 0

    @property
    def landings(self) -> int:
        """``landings`` of `PlaceBootstraps`."""
        return 0

    @property
    def log_scales(self) -> tuple[float, ...]:
        """log2 of the scale at each level, if a bootstrap is in primitives; otherwise empty."""
        return ()

    @property
    def shape(self) -> tuple[int, int, int | None, int]:
        """The first arguments of an engine: slots, levels, level after and batch of a bootstrap."""
        return self.slots, self.max_level, self.bootstrap_level, self.bootstrap_batch

    @property
    def log_qp(self) -> float:
        """log2 of the product of all moduli under which a key or a ciphertext is published."""
        return float(sum(self.moduli.primes) + sum(self.moduli.special))

    @property
    def dnum(self) -> int:
        """Digits of a key switch (dnum) at the top of the chain, where a bootstrap starts."""
        return self.digits(len(self.moduli.primes) - self.base_primes)

    def digits(self, level: int) -> int:
        """Number of digits of the decomposition in a key switch at ``level``."""
        return -(-self.residues(level) // self.special_primes)

    def special_at(self, level: int) -> int:
        """Number of special primes that a key switch at ``level`` computes with."""
        return self.special_primes

    def residues(self, level: int) -> int:
        """Number of primes of a ciphertext at ``level``."""
        return level + self.base_primes

    def ciphertext_bytes(self, level: int) -> int:
        """Bytes of a ciphertext at ``level``, in memory and in a file."""
        return 2 * self.residues(level) * self.ring_degree * 8

    def key_bytes(self, level: int) -> int:
        """Bytes of a relinearization, conjugation or rotation key that reaches ``level``."""
        primes = self.residues(level) + self.special_primes
        return 2 * self.digits(level) * primes * self.ring_degree * 8

    # --- security and exactness

    @property
    def secrets(self) -> tuple[Secret, ...]:
        """All secrets of a key set, the client's own first."""
        keys = "ciphertexts, relinearization, conjugation and rotation keys"
        if self.moduli.sparse is None:
            return (Secret(keys, self.ring_degree, self.log_qp),)
        weight, log_q = self.moduli.sparse
        return (
            Secret(keys + ", key back from the sparse secret", self.ring_degree, self.log_qp),
            Secret("key to the sparse secret", self.ring_degree, log_q, weight),
        )

    @property
    def security_bits(self) -> int:
        """Bits of security of the weakest secret; 0 for a ring that the guidelines do not cover."""
        try:
            return min(secret.bits for secret in self.secrets)
        except AtlasError:
            return 0

    def noise_model(self) -> NoiseModel:
        """The errors that the simulator adds in place of this set's encryption."""
        return NoiseModel.ckks(self.ring_degree, self.moduli.scale, self.digit_ratios)

    @property
    def digit_ratios(self) -> list[list[float]]:
        """For each digit of a key switch at level 0, 1, ...: its modulus over that of the special
        primes that the level computes with.

        Sizes in bits decide, because each prime is the greatest of its size."""
        primes, special = self.moduli.primes, self.moduli.special
        used = [sum(special[: self.special_at(level)]) for level in range(self.max_level + 1)]
        return [
            [2.0 ** min(bits - most, 0) for bits in digit_bits(primes[: level + 1], sum(special))]
            for level, most in enumerate(used)
        ]

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """Errors of a bootstrap: standard deviation in each slot, and factor of the cubic term."""
        noise = self.noise_model()
        return noise.bootstrap, noise.bootstrap_cubic

    def costed_by(self, table: Path | None) -> Self:
        """The same set with a table that predicts its seconds; None for the table in use."""
        return replace(self, cost_table=table)

    @property
    def fewer_keys(self) -> bool:
        """Whether bootstraps and linear transforms take fewer keys and more rotations."""
        return self != self.measured_as

    @property
    def measured_as(self) -> Self:
        """The set whose measured seconds stand for this one's."""
        return self

    def with_fewer_keys(self, step: int) -> Self:
        """The set whose bootstraps take fewer keys and more rotations, step by step; 0 is the set
        with the fewest rotations.
        """
        return self

    @property
    def roots(self) -> dict[int, Root]:
        """Roots by which a server derives rotation keys up to a level: level -> root. Empty where
        the engine derives none.
        """
        return {}

    # --- memory

    @property
    @abstractmethod
    def needs(self) -> BootstrapNeeds:
        """The keys and the memory that a bootstrap needs."""

    def memory_parts(
        self,
        rotations: Mapping[int, int],
        relinearization_level: int | None = None,
        conjugation_level: int | None = None,
        live: Peaks | None = None,
        constants: int = 0,
    ) -> dict[str, int]:
        """Peak memory of an execution: purpose -> bytes; for a device, of the device's memory.

        Args:
            rotations: amount -> level of each rotation key; shared keys belong to the bootstrap.
            relinearization_level, conjugation_level: levels of these two keys; None: no key.
            live: the ciphertexts when memory peaks; None assumes eight at the top level.
            constants: bytes of the program's arrays in this memory.
        """
        needs = self.needs
        others = needs.key_levels or (relinearization_level, conjugation_level)
        own = (level for amount, level in rotations.items() if amount not in needs.shared)
        return {
            "rotation_keys": sum(map(self.key_bytes, own)),
            "other_keys": sum(self.key_bytes(level) for level in others if level is not None),
            "ciphertexts": self.live_bytes({None: {self.max_level: 8}} if live is None else live),
            "constants": constants,
            "library": self.library_bytes * self.ring_degree // 2**16,
            **needs.memory,
        }

    def plan_memory(self, plan: KeyPlan) -> dict[str, int]:
        """Peak memory of an unknown program with the keys of a plan: purpose -> bytes."""
        levels = plan.relinearization_level, plan.conjugation_level
        return self.memory_parts(plan.rotations, *levels)

    def live_bytes(self, live: Peaks) -> int:
        """Most bytes of ciphertexts and the work of a ``transform`` together."""
        return max(
            self.ciphertexts_bytes(counts) + (self.transform_bytes(work) if work else 0)
            for work, counts in live.items()
        )

    def transform_bytes(self, work: TransformWork) -> int:
        """Bytes that a ``transform`` takes beside its operands: here it consists of rotations and
        products, whose factors are in memory twice.
        """
        return (2 * work.babies + work.sums) * self.ciphertext_bytes(work.level)

    def ciphertexts_bytes(self, counts: Mapping[int, int]) -> int:
        """Bytes of some ciphertexts. ``counts``: level -> number of ciphertexts."""
        return sum(self.ciphertext_bytes(level) * count for level, count in counts.items())


Set = TypeVar("Set", bound=ParameterSet)


def require_set(parameters: ParameterSet, kind: type[Set]) -> Set:
    """The set itself; raises AtlasError if it belongs to another target."""
    if not isinstance(parameters, kind):
        raise AtlasError(
            f"the program was compiled for another target than {kind.family}",
            remedy=f"compile the model again with --target {kind.family}",
        )
    return parameters
