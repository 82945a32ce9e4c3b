"""An engine without data: it runs a lowered program at the speed of integers and counts what it
would cost.

A ciphertext is its level, and whether it was rescaled. The counts are kept per *scope*, a label
that the caller sets (an op, a layer), so that one run yields the table of a whole model; each
primitive is counted together with the level at which it runs, because that decides its cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.engine import Vector

Primitive = Literal[
    "encrypt",
    "decrypt",
    "add",
    "add_plain",
    "negate",
    "times_i",
    "rescale",
    "mul",
    "mul_lazy",
    "square",
    "mul_plain",
    "mul_scalar",
    "rotate",
    "rotate_hoisted",
    "hoist",
    "bootstrap",
]
"""What is counted. ``level`` is that of the (lower) operand; for ``bootstrap`` that of the
result.

Products are left at the squared scale, so that sums of them are rescaled once: the ``rescale`` of
a ciphertext is counted where it first becomes a factor, and the costs of products are those of
rescaled factors. ``mul`` and ``square`` are relinearised, ``mul_lazy`` is not: a term of a ``dot``
but for its last one. A conjugation is counted as a ``rotate``.

``rotate_hoisted`` is one rotation of a ``rotate_many`` of at least two, ``hoist`` its shared
decomposition, counted once for such a call: a cost table gives the cost of the two apart, and 0
for ``hoist`` where it does not.
"""

PRIMITIVES: tuple[Primitive, ...] = Primitive.__args__  # type: ignore[attr-defined]

_RELINEARISED: tuple[Primitive, ...] = ("mul", "square")
_ROTATIONS: tuple[Primitive, ...] = ("rotate", "rotate_hoisted")


@dataclass
class Counts:
    """What one scope did.

    Attributes:
        primitives: calls by (primitive, level).
        rotations: key-switching rotations by amount, with 0 < amount < slots.
        rotation_groups: calls by (level, amounts by which one ciphertext is rotated together).
        rotation_levels: the highest level at which each amount is used: the level of its key.
        conjugation_level: the highest level at which a ciphertext is conjugated; −1 for none.
    """

    primitives: Counter[tuple[Primitive, int]] = field(default_factory=Counter)
    rotations: Counter[int] = field(default_factory=Counter)
    rotation_groups: Counter[tuple[int, tuple[int, ...]]] = field(default_factory=Counter)
    rotation_levels: dict[int, int] = field(default_factory=dict)
    conjugation_level: int = -1

    def count(self, *primitives: Primitive) -> int:
        """Calls of the given primitives, over all levels."""
        return sum(n for (primitive, _), n in self.primitives.items() if primitive in primitives)

    @property
    def key_switches(self) -> int:
        """Rotations, hoisted ones included, conjugations and relinearisations."""
        return self.count(*_RELINEARISED, *_ROTATIONS)

    @property
    def ciphertext_products(self) -> int:
        """Products of two ciphertexts, and squares."""
        return self.count(*_RELINEARISED, "mul_lazy")

    @property
    def plaintext_products(self) -> int:
        """Products with a vector or with a number."""
        return self.count("mul_plain", "mul_scalar")

    @property
    def rescales(self) -> int:
        """Rescalings; a sum of products needs one."""
        return self.count("rescale")

    @property
    def bootstraps(self) -> int:
        """Bootstraps."""
        return self.count("bootstrap")

    def seconds(self, costs: Mapping[tuple[Primitive, int], float]) -> float:
        """Predicted time under a cost table (primitive, level) -> seconds of one call.

        Raises:
            AtlasError: the table has no cost for a primitive that occurs.
        """
        total = 0.0
        for key, times in self.primitives.items():
            cost = costs.get(key)
            if cost is None:
                raise AtlasError(
                    f"the cost table has no entry for {key[0]} at level {key[1]}",
                    why=f"the program uses it {times} times",
                    remedy="measure the table again with this backend and these parameters",
                )
            total += times * cost
        return total

    def merge(self, other: Counts) -> None:
        """Add the counts of ``other`` to these."""
        self.primitives.update(other.primitives)
        self.rotations.update(other.rotations)
        self.rotation_groups.update(other.rotation_groups)
        for amount, level in other.rotation_levels.items():
            if level > self.rotation_levels.get(amount, -1):
                self.rotation_levels[amount] = level
        self.conjugation_level = max(self.conjugation_level, other.conjugation_level)


class Counted:
    """A ciphertext without data."""

    __slots__ = ("level", "rescaled")

    def __init__(self, level: int) -> None:
        self.level = level
        self.rescaled = False


def _unary(primitive: Primitive) -> Callable[..., Counted]:
    """A method whose result stays at the level of its ciphertext."""

    def call(self: CountingEngine, ciphertext: Counted, *_: Any) -> Counted:
        self._primitives[primitive, ciphertext.level] += 1
        return self._new(ciphertext.level)

    return call


class CountingEngine:
    """Implements :class:`~atlasc.passes.execution.engine.Engine` with levels alone.

    Args:
        slots: real numbers in a ciphertext, a power of two.
        max_level: levels of a fresh ciphertext.
        bootstrap_level: levels after a bootstrap; None when the parameters do not allow one.
        bootstrap_batch: ciphertexts that one bootstrap refreshes.
    """

    def __init__(
        self,
        slots: int,
        max_level: int,
        bootstrap_level: int | None = None,
        bootstrap_batch: int = 1,
    ) -> None:
        self.slots = slots
        self.max_level = max_level
        self.bootstrap_level = bootstrap_level
        self.bootstrap_batch = bootstrap_batch
        self.counts: dict[str, Counts] = {}
        self.scope = ""

    @property
    def scope(self) -> str:
        """The label under which calls are counted; assign to change it."""
        return self._scope

    @scope.setter
    def scope(self, label: str) -> None:
        self._scope = label
        self._current = self.counts.setdefault(label, Counts())
        self._primitives = self._current.primitives

    def total(self) -> Counts:
        """The counts of all scopes together."""
        result = Counts()
        for counts in self.counts.values():
            result.merge(counts)
        return result

    def _new(self, level: int) -> Counted:
        """A result."""
        return Counted(level)

    # --- the Engine protocol; a vector is not looked at

    def encrypt(self, vector: Vector | None, level: int | None = None) -> Counted:
        """A fresh ciphertext at ``level``, by default at the top; ``vector`` is not looked at."""
        level = self.max_level if level is None else level
        if not 0 <= level <= self.max_level:
            self._fail("encrypt", f"level {level} is not in 0..{self.max_level}")
        self._primitives["encrypt", level] += 1
        return self._new(level)

    def decrypt(self, ciphertext: Counted) -> Vector:
        """Refused: there is no data."""
        raise AtlasError(
            "a counting engine holds no data to decrypt",
            remedy="run the program on sim or on a backend",
        )

    def level(self, ciphertext: Counted) -> int:
        """Multiplications that are left."""
        return ciphertext.level

    def add(self, left: Counted, right: Counted) -> Counted:
        """Sum, at the lower level."""
        level = min(left.level, right.level)
        self._primitives["add", level] += 1
        return self._new(level)

    sub = add

    negate, times_i, add_plain = _unary("negate"), _unary("times_i"), _unary("add_plain")

    def mul(self, left: Counted, right: Counted) -> Counted:
        """Product, one below the lower level."""
        return self._product("mul", left, right)

    def square(self, ciphertext: Counted) -> Counted:
        """Square, one level lower."""
        return self._product("square", ciphertext)

    def dot(self, lefts: Sequence[Counted], rights: Sequence[Counted]) -> Counted:
        """Sum of products, relinearised once."""
        *rest, last = zip(lefts, rights, strict=True)
        terms = [self._product("mul_lazy", *pair) for pair in rest]
        total = self._product("mul", *last)
        for term in terms:
            total = self.add(total, term)
        return total

    def mul_plain(self, ciphertext: Counted, value: Any) -> Counted:
        """``value`` may be anything: a number counts as ``mul_scalar``, all else as
        ``mul_plain``.
        """
        number = isinstance(value, (float, int))
        return self._product("mul_scalar" if number else "mul_plain", ciphertext)

    def rotate(self, ciphertext: Counted, amount: int) -> Counted:
        """Rotation to the left, at the same level."""
        amount %= self.slots
        if not amount:
            return ciphertext
        self._primitives["rotate", ciphertext.level] += 1
        self._count_rotations(ciphertext.level, (amount,))
        return self._new(ciphertext.level)

    def rotate_many(self, ciphertext: Counted, amounts: Sequence[int]) -> list[Counted]:
        """One rotation to the left for each amount, hoisted."""
        used = [amount % self.slots for amount in amounts]
        nonzero = [amount for amount in used if amount]
        level = ciphertext.level
        if len(nonzero) == 1:
            self._primitives["rotate", level] += 1
        elif nonzero:
            self._primitives["hoist", level] += 1
            self._primitives["rotate_hoisted", level] += len(nonzero)
        self._count_rotations(level, nonzero)
        return [self._new(level) if amount else ciphertext for amount in used]

    def conjugate(self, ciphertext: Counted) -> Counted:
        """Conjugation, at the same level."""
        level = ciphertext.level
        self._primitives["rotate", level] += 1
        self._current.conjugation_level = max(self._current.conjugation_level, level)
        return self._new(level)

    def drop_to(self, ciphertext: Counted, level: int) -> Counted:
        """The same slots at a lower level."""
        if not 0 <= level <= ciphertext.level:
            self._fail("drop_to", f"a ciphertext at level {ciphertext.level} has no level {level}")
        return ciphertext if level == ciphertext.level else self._new(level)

    def bootstrap(self, ciphertext: Counted) -> Counted:
        """The same slots at ``bootstrap_level``."""
        return self.bootstrap_many([ciphertext])[0]

    def bootstrap_many(self, ciphertexts: Sequence[Counted]) -> list[Counted]:
        """The same slots at ``bootstrap_level``, ``bootstrap_batch`` ciphertexts at a time."""
        if self.bootstrap_level is None:
            self._fail("bootstrap", "these parameters do not allow a bootstrap")
        count = -(-len(ciphertexts) // self.bootstrap_batch)
        self._primitives["bootstrap", self.bootstrap_level] += count
        return [self._new(self.bootstrap_level) for _ in ciphertexts]

    def _product(self, primitive: Primitive, *factors: Counted) -> Counted:
        level = min(factor.level for factor in factors)
        if level < 1:
            self._fail(primitive, "the operand is at level 0: no multiplication is left")
        for factor in factors:
            if not factor.rescaled:
                self._primitives["rescale", level] += 1
                factor.rescaled = True
        self._primitives[primitive, level] += 1
        return self._new(level - 1)

    def _count_rotations(self, level: int, amounts: Sequence[int]) -> None:
        """Rotations of one ciphertext, by other amounts than 0."""
        counts = self._current
        if amounts:
            counts.rotation_groups[level, tuple(sorted(set(amounts)))] += 1
        for amount in amounts:
            counts.rotations[amount] += 1
            if level > counts.rotation_levels.get(amount, -1):
                counts.rotation_levels[amount] = level

    def _fail(self, primitive: str, why: str) -> NoReturn:
        raise AtlasError(
            f"{primitive} is impossible" + (f" in {self._scope}" if self._scope else ""),
            where=self._scope,
            why=why,
            remedy="place a bootstrap before it, or choose parameters with more levels",
        )
