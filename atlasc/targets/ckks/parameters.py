"""Parameter sets of atlasc's own CKKS engine, on any device.

The engine takes any chain of primes of up to 60 bits. A leveled set has as many levels as its
program. A set with a bootstrap is one of ``atlasc/program/bootstrap`` (docs/bootstrapping.md). A
key has the primes and the digits of the highest level that it serves.

The engine keeps arrays of limited lengths and refuses larger sets itself. The limits are those of
``runtime_cuda/ckks/ring/limits.hpp``; a test compares them. Python refuses a set when it reads it,
before it computes the set's sizes and costs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.program.bootstrap.circuit import circuit
from atlasc.program.bootstrap.sets import FEWER_KEYS, SETS, most_keys
from atlasc.program.engine import LEAST_COPIES
from atlasc.program.function import Function
from atlasc.program.key_plan import Root
from atlasc.program.transform_work import TransformWork
from atlasc.targets.bootstrap_needs import BootstrapNeeds
from atlasc.targets.ckks.roots import roots_of
from atlasc.targets.moduli import Moduli, digit_bits, special_for
from atlasc.targets.noise import NoiseModel
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.security import estimated_log_qp

if TYPE_CHECKING:
    from typing_extensions import Self

SCALE_BITS = 40
"""Bits of the prime at one level of a leveled set, and log2 of its scale."""
BOOTSTRAPPED_RING = 16
BOOTSTRAP_ERROR = 2.0**-20.5
"""A bound on the standard deviation of a bootstrap's error. Measured: 2^-21.8 where slots are
uniform in [-1, 1], 2^-20.6 where all are 1."""
LOG_RING_DEGREES = (13, 14, 15, 16)
LEAST_LOG_DEGREE, MOST_LOG_DEGREE = 1, 17
"""log2 of the ring degree. Rings below 2^11 can only be simulated: the engine refuses them, and no
bundle has them, because they cannot reach 128 bits of security."""
MOST_PRIMES = 64
"""Greatest number of primes of Q, and so of digits of a key."""
MOST_SPECIAL = 8
MOST_TOGETHER = 16
"""Polynomials that a device works on at once."""
STORED = Path(__file__).with_name("needs.json")
"""What the bootstrap of each set needs. Every process of a role asks for it, and counting it on the
circuits takes a second. ``python -m atlasc.targets.ckks`` writes the file."""


@dataclass(frozen=True)
class CkksParameters(ParameterSet):
    """One parameter set. Each device's own class defines the size of primes and the bootstrap set.

    Attributes:
        prime_bits: bits of the prime at level 0 of a leveled set, and of its special primes.
        named: name of the set to bootstrap with.
        log_ring_degree: see the base class.
        levels: products that a fresh ciphertext allows; with a bootstrap, products after it.
        special_primes: number of special primes, at most ``MOST_SPECIAL``.
        bootstrap: name of a set with a bootstrap, which fixes the levels and the special primes;
            empty for a leveled set.

    Raises:
        AtlasError: the set does not exist, or the engine does not take its numbers.
    """

    in_runtime = True

    more_work: ClassVar[float] = 1.05
    key_steps: ClassVar[int] = 1 + len(FEWER_KEYS)
    prime_bits: ClassVar[int] = 60
    named: ClassVar[str] = "fourteen_levels"

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
        numbers = self.log_ring_degree, self.levels, self.special_primes
        require_possible(*numbers, lambda: len(self._limbs(len(self.moduli.primes) - 1)))
        chosen = SETS.get(self.bootstrap)
        fixed = chosen and (chosen.levels, chosen.special_primes)
        if fixed and fixed != numbers[1:]:
            raise AtlasError(
                f"the bootstrap parameters {self.bootstrap!r} have {fixed[0]} levels and "
                f"{fixed[1]} special primes, not {self.levels} and {self.special_primes}"
            )

    @classmethod
    def leveled(cls, levels: int) -> Iterator[Self]:
        """See the base class; one set with exactly the program's levels, none if they are too
        many.
        """
        for log_degree in LOG_RING_DEGREES if levels < MOST_PRIMES else ():
            for special in range(1, MOST_SPECIAL + 1):
                yield cls(log_degree, levels, special)

    @classmethod
    def bootstrapped(cls, name: str = "", log_ring_degree: int = BOOTSTRAPPED_RING) -> Self:
        """A set of ``SETS``, by default ``named``; rings other than 2^16 are for tests only."""
        name = name or cls.named
        chosen = SETS[name]
        return cls(log_ring_degree, chosen.levels, chosen.special_primes, name)

    @property
    def max_level(self) -> int:
        return self.levels

    def residues(self, level: int) -> int:
        """See the base class; a level with more bits than a prime may have uses several primes."""
        return len(self._limbs(level))

    def special_at(self, level: int) -> int:
        return special_for(self._limbs(level), self.moduli.special)

    def digits(self, level: int) -> int:
        return len(digit_bits(self._limbs(level), sum(self.moduli.special)))

    def key_bytes(self, level: int) -> int:
        """See the base class; residues are packed without gaps."""
        return self._key_bytes(level, self.special_primes)

    def switched_key_bytes(self, level: int) -> int:
        """Bytes of a key that a key switch at ``level`` reads."""
        return self._key_bytes(level, self.special_at(level))

    def _key_bytes(self, level: int, special: int) -> int:
        bits = sum(self._limbs(level)) + sum(self.moduli.special[:special])
        return 2 * self.digits(level) * bits * self.ring_degree // 8

    def _extended_bytes(self, level: int) -> int:
        """Bytes of a polynomial at a level, special primes included."""
        return (self.residues(level) + self.special_at(level)) * self.ring_degree * 8

    def transform_bytes(self, work: TransformWork) -> int:
        """See the base class: sums, digits of the operands and of one sum, encoded plaintexts; and
        rotated operands, where they are not multiplied as they are made: a GPU always does.
        """
        polynomials = 2 * work.sums + (work.operands + 1) * self.digits(work.level)
        if work.dense and not self.device:
            polynomials += 2 * work.babies
        return math.ceil((polynomials + work.plaintexts) * self._extended_bytes(work.level))

    def _limbs(self, level: int) -> list[int]:
        """Sizes of the primes at a level, as the engine splits them."""
        limbs = []
        for bits in self.moduli.primes[: level + 1]:
            count = -(-bits // self.prime_bits)
            limbs += [(bits + at) // count for at in range(count)]
        return limbs

    @property
    def moduli(self) -> Moduli:
        """See the base class; the key to the sparse secret has q0 and one special prime."""
        if not self.bootstrap:
            primes = (self.prime_bits, *[SCALE_BITS] * self.levels)
            # Smaller special primes where security has room for so many of them alone, as long as a
            # digit has as many primes.
            count = self.special_primes
            room = (estimated_log_qp(self.ring_degree) - sum(primes)) // count
            least = SCALE_BITS - (SCALE_BITS - self.prime_bits) // count
            bits = room if least <= room < self.prime_bits else self.prime_bits
            return Moduli(primes, (bits,) * count, SCALE_BITS)
        chosen = SETS[self.bootstrap]
        sparse = chosen.secret_weight, float(chosen.base_bits + chosen.special_bits)
        special = (chosen.special_bits,) * self.special_primes
        return Moduli(chosen.prime_bits, special, chosen.scale_bits, sparse)

    def noise_model(self) -> NoiseModel:
        """The errors of CKKS at this scale, and the error of a bootstrap (docs/bootstrapping.md).

        A bootstrap errs by what the sine bends and by what it rounds. Both together were measured
        at N = 2^16 for slots that fill its range. In smaller rings it rounds less.
        """
        return replace(super().noise_model(), bootstrap=BOOTSTRAP_ERROR)

    @property
    def measured_as(self) -> Self:
        """See the base class: with the fewest rotations."""
        return replace(self, bootstrap=most_keys(self.bootstrap)) if self.bootstrap else self

    def with_fewer_keys(self, step: int) -> Self:
        """See the base class; a leveled set has no keys but the program's."""
        if not self.bootstrap:
            return self
        base = most_keys(self.bootstrap)
        names = [base, *(f"{base}_{end}" for end in FEWER_KEYS)]
        return replace(self, bootstrap=names[step])

    @property
    def roots(self) -> dict[int, Root]:
        return roots_of(self, self._limbs)

    @property
    def log_scales(self) -> tuple[float, ...]:
        return SETS[self.bootstrap].log_scales if self.bootstrap else ()

    def circuit(self, period: int) -> Sequence[Function]:
        return circuit(self.bootstrap, self.slots, period, self.lanes) if self.bootstrap else ()

    @property
    def bootstrap_from(self) -> int:
        return SETS[self.bootstrap].stc_stages if self.bootstrap else 0

    @property
    def landings(self) -> int:
        """See the base class. Each level takes memory; with all of them, and not every other one,
        the seconds of BERT-base's shape fall by another 0.6 to 1.2 % (docs/bootstrapping.md).
        """
        return 2 if self.bootstrap else 0

    @property
    def narrow(self) -> int:
        return LEAST_COPIES if self.bootstrap else 0

    @property
    def needs(self) -> BootstrapNeeds:
        """See the base class; a key of the bootstrap is like any other key, but reaches higher.
        Narrow bootstraps rotate by the amounts of a whole one, some of them a level or two higher.
        """
        return needs_of(self) if self.bootstrap else BootstrapNeeds()


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


@cache
def needs_of(parameters: CkksParameters) -> BootstrapNeeds:
    """The needs of a set with a bootstrap; counted where they are not stored."""
    if found := _stored().get(name_of(parameters)):
        rotations = {int(amount): level for amount, level in found["rotations"].items()}
        two, one, narrow = found["key_switches"]
        landings = {kind: tuple(shares) for kind, shares in found["landings"].items()}
        return BootstrapNeeds(
            frozenset(rotations), rotations, tuple(found["key_levels"]), found["memory"],
            two, one, narrow, landings, found["work"],
        )  # fmt: skip
    from atlasc.targets.ckks.counted_needs import counted_needs

    return counted_needs(parameters)


def name_of(parameters: ParameterSet) -> str:
    """The name of a set in the file: whatever its needs depend on."""
    kind = type(parameters).__name__
    return f"{kind} {parameters.bootstrap} {parameters.log_ring_degree}"


@cache
def _stored() -> dict[str, dict[str, Any]]:
    return dict(json.loads(STORED.read_text(encoding="utf-8")))
