"""Parameter sets: how one is chosen, what it costs, how exact it is, and the memory it takes."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import STRICT, parse_json
from atlasc.passes.costs import PrimitiveCosts
from atlasc.passes.execution.counting_engine import PRIMITIVES, Primitive
from atlasc.targets.chain import Chain
from atlasc.targets.costs import FittedCosts, active_table
from atlasc.targets.noise import NoiseModel
from atlasc.targets.security import check_set, max_log_qp, set_bits

if TYPE_CHECKING:
    from typing_extensions import Self

TRANSFORM = 10.0
"""Products of a residue that its number-theoretic transform counts as."""


@dataclass(frozen=True)
class ParameterSet(Chain):
    """Base of the parameter sets of all targets; a subclass is a dataclass of JSON values.

    Attributes:
        family: the target that the sets were made for; names their cost table.
        device: whether programs run in the memory of a device rather than in the machine's.
        in_runtime: whether the C++ runtime makes engines with these moduli.
        library_bytes: working memory of the library at ring degree 2^16.
        cost_table: by which seconds are predicted; None for the table in use. No part of the
            identity of a set, nor of its JSON form.
    """

    __pydantic_config__ = STRICT

    family: ClassVar[str]
    device: ClassVar[bool] = False
    in_runtime: ClassVar[bool] = False
    library_bytes: ClassVar[int]
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
    def choose(cls, levels: int, slots: int = 1, *, insecure_for_tests: bool = False) -> Self:
        """The cheapest set for a program: by key switches at each of its levels, which decide the
        time and, with the level, the memory of the keys.

        Args:
            levels: multiplicative depth of the whole program.
            slots: real numbers that a ciphertext must hold at least.
            insecure_for_tests: accept fewer than 128 bits.

        Returns:
            A leveled set when one is large enough, else the one that bootstraps, for which the
            caller has to place bootstraps.

        Raises:
            AtlasError: no set has that many slots, or none is secure.
        """
        fits = [
            found
            for found in cls.leveled(levels)
            if found.slots >= slots and (insecure_for_tests or found._is_secure())
        ]
        largest = cls.bootstrapped()
        if not fits and largest.slots < slots:
            raise AtlasError(
                f"{cls.family} has no parameters with {slots} slots and {levels} levels",
                why=f"ciphertexts have up to {largest.slots} slots",
                remedy="use a shorter sequence or a smaller batch",
            )
        best = min(fits, key=lambda found: found._work(levels), default=largest)
        check_set(best, insecure_for_tests=insecure_for_tests)
        return best

    @classmethod
    def matching(cls, slots: int, levels: int, bootstrap: bool) -> Self | None:
        """The cheapest set for a program that is packed already; None where there is none."""
        if bootstrap:
            found = cls.bootstrapped()
            return found if (found.slots, found.max_level) == (slots, levels) else None
        fits = [p for p in cls.leveled(levels) if p.slots == slots and p._is_secure()]
        return min(fits, key=lambda found: found._work(levels), default=None)

    def _is_secure(self) -> bool:
        return self.log_qp <= max_log_qp(self.ring_degree)

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
        try:
            if "cost_table" in data:
                raise ValueError("cost_table: no member of it")
            return parse_json(json.dumps(dict(data)), cls)
        except (TypeError, ValueError) as error:
            raise AtlasError(
                f"the parameters of {cls.family} cannot be read", why=str(error)
            ) from error

    # --- security, exactness, costs

    @property
    def security_bits(self) -> int:
        """Bits of security of its weakest secret; 0 for a ring that the guidelines do not cover."""
        try:
            return set_bits(self)
        except AtlasError:
            return 0

    @property
    @abstractmethod
    def scale_bits(self) -> int:
        """log2 of the scale of a program's ciphertexts."""

    def noise_model(self) -> NoiseModel:
        """The errors that the simulator adds in this set's stead."""
        return NoiseModel.ckks(self.ring_degree, self.scale_bits)

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """Errors of a bootstrap: standard deviation in each slot, and factor of its cubic term."""
        noise = self.noise_model()
        return noise.bootstrap, noise.bootstrap_cubic

    def costed_by(self, table: Path | None) -> Self:
        """The same set, whose seconds are predicted by a table; None for the table in use."""
        return replace(self, cost_table=table)

    def fitted_costs(self) -> FittedCosts | None:
        """Costs by the table; None where nobody measured them.

        Raises:
            AtlasError: the table is missing or damaged.
        """
        table = active_table(self.family, self.cost_table)
        return None if table is None else FittedCosts(table, self.from_dict)

    def measured_costs(self) -> PrimitiveCosts | None:
        """Seconds of all primitives at all levels; None without a cost table."""
        fitted = self.fitted_costs()
        return None if fitted is None else fitted.costs(self)

    def costs(self) -> PrimitiveCosts:
        """Measured costs, or without a table relative ones, which can only be compared."""
        return self.measured_costs() or self.relative_costs()

    def relative_costs(self) -> PrimitiveCosts:
        """Costs by the residues that a primitive touches; 1 is a rotation at the highest level."""
        table: dict[tuple[Primitive, int], float] = {}
        for level in range(self.max_level + 1):
            residues, digits = self.residues(level), self.digits(level)
            wide = residues + self.special_primes
            hoist = digits * wide * TRANSFORM
            switch = 2 * digits * wide + 2 * (wide + residues) * TRANSFORM
            known: dict[str, float] = {
                "rotate": hoist + switch,
                "rotate_hoisted": switch,
                "hoist": hoist,
                "mul": hoist + switch,
                "square": hoist + switch,
                "rescale": 2 * residues * TRANSFORM,
                "mul_plain": (1 + TRANSFORM) * residues,
                "add_plain": TRANSFORM * residues,
                "times_i": 2 * residues,
            }
            for primitive in PRIMITIVES:
                table[primitive, level] = known.get(primitive, 2.0 * residues)
        top = max(cost for (name, _), cost in table.items() if name == "rotate")
        return {key: cost / top for key, cost in table.items()}

    # --- bootstraps and memory

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes: two real ones as the parts of a complex one."""
        return 2 if self.bootstrap else 1

    @property
    @abstractmethod
    def bootstrap_rotations(self) -> frozenset[int]:
        """Amounts, to the left, that the bootstrap's keys serve: a program may use them too."""

    @property
    def shared_rotations(self) -> Mapping[int, int]:
        """Those of them whose keys are like any other, and hoist: amount -> level, which is at
        least the highest of a program."""
        return {}

    @property
    @abstractmethod
    def bootstrap_key_levels(self) -> tuple[int, int]:
        """Levels of the relinearisation and the conjugation key that a bootstrap needs."""

    @abstractmethod
    def bootstrap_memory(self) -> dict[str, int]:
        """Bytes that a bootstrap takes beside these two keys, by what they are for."""

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
        others: Iterable[int | None] = relinearization_level, conjugation_level
        if self.bootstrap:
            others = self.bootstrap_key_levels
        own = (level for amount, level in rotations.items() if amount not in self.shared_rotations)
        return {
            "rotation_keys": sum(map(self.key_bytes, own)),
            "other_keys": sum(self.key_bytes(level) for level in others if level is not None),
            "ciphertexts": self.ciphertexts_bytes({self.max_level: 8} if live is None else live),
            "constants": 0 if self.device else constants,
            "library": self.library_bytes * self.ring_degree // 2**16,
            **(self.bootstrap_memory() if self.bootstrap else {}),
        }

    def ciphertexts_bytes(self, counts: Mapping[int, int]) -> int:
        """Size of some ciphertexts. ``counts``: level -> how many."""
        return sum(self.ciphertext_bytes(level) * count for level, count in counts.items())
