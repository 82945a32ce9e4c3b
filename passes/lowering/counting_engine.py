"""An engine without data: it runs a lowered program at the speed of integers and counts what it
would cost.

A ciphertext is nothing but its level. The counts are kept per *scope*, a label that the caller
sets (an op, a layer), so that one run yields the table of a whole model; each primitive is
counted together with the level at which it runs, because that decides its price.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.engine import Vector

Primitive = Literal[
    "encrypt",
    "decrypt",
    "add",
    "add_plain",
    "negate",
    "mul",
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

``rotate_hoisted`` is one rotation of a ``rotate_many`` of at least two, ``hoist`` its shared
decomposition, counted once for such a call: a cost table gives the price of the two apart, and 0
for ``hoist`` where it does not.
"""

PRIMITIVES: tuple[Primitive, ...] = Primitive.__args__  # type: ignore[attr-defined]

_PRODUCTS: tuple[Primitive, ...] = ("mul", "square")
_ROTATIONS: tuple[Primitive, ...] = ("rotate", "rotate_hoisted")


@dataclass
class Counts:
    """What one scope did.

    Attributes:
        primitives: calls by (primitive, level).
        rotations: key-switching rotations by amount, with 0 < amount < slots.
        rotation_levels: the highest level at which each amount is used: the level of its key.
    """

    primitives: Counter[tuple[Primitive, int]] = field(default_factory=Counter)
    rotations: Counter[int] = field(default_factory=Counter)
    rotation_levels: dict[int, int] = field(default_factory=dict)

    def count(self, *primitives: Primitive) -> int:
        """Calls of the given primitives, over all levels."""
        return sum(n for (primitive, _), n in self.primitives.items() if primitive in primitives)

    @property
    def key_switches(self) -> int:
        """Rotations, hoisted ones included, and relinearisations."""
        return self.count(*_PRODUCTS, *_ROTATIONS)

    @property
    def ciphertext_products(self) -> int:
        """Products of two ciphertexts, and squares."""
        return self.count(*_PRODUCTS)

    @property
    def plaintext_products(self) -> int:
        """Products with a vector or with a number."""
        return self.count("mul_plain", "mul_scalar")

    @property
    def rescales(self) -> int:
        """Every product is rescaled once."""
        return self.ciphertext_products + self.plaintext_products

    @property
    def bootstraps(self) -> int:
        """Bootstraps."""
        return self.count("bootstrap")

    def seconds(self, costs: Mapping[tuple[Primitive, int], float]) -> float:
        """Predicted time under a cost table (primitive, level) -> seconds of one call.

        Raises:
            AtlasError: the table has no price for a primitive that occurs.
        """
        total = 0.0
        for key, times in self.primitives.items():
            price = costs.get(key)
            if price is None:
                raise AtlasError(
                    f"the cost table has no entry for {key[0]} at level {key[1]}",
                    why=f"the program uses it {times} times",
                    remedy="measure the table again with this backend and these parameters",
                )
            total += times * price
        return total

    def merge(self, other: Counts) -> None:
        """Add the counts of ``other`` to these."""
        self.primitives.update(other.primitives)
        self.rotations.update(other.rotations)
        for amount, level in other.rotation_levels.items():
            if level > self.rotation_levels.get(amount, -1):
                self.rotation_levels[amount] = level


class CountingEngine:
    """Implements :class:`~atlasc.passes.lowering.engine.Engine` with levels alone.

    Args:
        slots: real numbers in a ciphertext, a power of two.
        max_level: levels of a fresh ciphertext.
        bootstrap_level: levels after a bootstrap; None when the parameters do not allow one.
    """

    def __init__(self, slots: int, max_level: int, bootstrap_level: int | None = None) -> None:
        self.slots = slots
        self.max_level = max_level
        self.bootstrap_level = bootstrap_level
        self.counts: dict[str, Counts] = {}
        self._scope = ""
        self._enter("")

    @property
    def scope(self) -> str:
        """The label under which calls are counted; assign to change it."""
        return self._scope

    @scope.setter
    def scope(self, label: str) -> None:
        self._enter(label)

    @contextmanager
    def scoped(self, label: str) -> Iterator[None]:
        """Count under ``label`` inside a ``with``, then under the label from before."""
        before = self._scope
        self._enter(label)
        try:
            yield
        finally:
            self._enter(before)

    def total(self) -> Counts:
        """The counts of all scopes together."""
        result = Counts()
        for counts in self.counts.values():
            result.merge(counts)
        return result

    def _enter(self, label: str) -> None:
        self._scope = label
        self._current = self.counts.setdefault(label, Counts())
        self._primitives = self._current.primitives

    # --- the Engine protocol; a ciphertext is its level, a vector is not looked at

    def encrypt(self, vector: Vector | None, level: int | None = None) -> int:
        """A fresh ciphertext at ``level``, by default at the top; ``vector`` is not looked at."""
        level = self.max_level if level is None else level
        if not 0 <= level <= self.max_level:
            self._fail("encrypt", f"level {level} is not in 0..{self.max_level}")
        self._primitives["encrypt", level] += 1
        return level

    def decrypt(self, ciphertext: int) -> Vector:
        """Refused: there is no data."""
        raise AtlasError(
            "a counting engine holds no data to decrypt",
            remedy="run the program on sim or on a backend",
        )

    def level(self, ciphertext: int) -> int:
        """The ciphertext itself."""
        return ciphertext

    def add(self, left: int, right: int) -> int:
        """Sum, at the lower level."""
        level = left if left < right else right
        self._primitives["add", level] += 1
        return level

    sub = add

    def negate(self, ciphertext: int) -> int:
        """Negation, at the same level."""
        self._primitives["negate", ciphertext] += 1
        return ciphertext

    def add_plain(self, ciphertext: int, value: Any) -> int:
        """Sum with a vector or a number, at the same level."""
        self._primitives["add_plain", ciphertext] += 1
        return ciphertext

    def mul(self, left: int, right: int) -> int:
        """Product, one below the lower level."""
        level = left if left < right else right
        if level < 1:
            self._underflow("mul")
        self._primitives["mul", level] += 1
        return level - 1

    def square(self, ciphertext: int) -> int:
        """Square, one level lower."""
        if ciphertext < 1:
            self._underflow("square")
        self._primitives["square", ciphertext] += 1
        return ciphertext - 1

    def mul_plain(self, ciphertext: int, value: Any) -> int:
        """``value`` may be anything: a number counts as ``mul_scalar``, all else as
        ``mul_plain``.
        """
        if ciphertext < 1:
            self._underflow("mul_plain")
        kind: Primitive = "mul_scalar" if isinstance(value, (float, int)) else "mul_plain"
        self._primitives[kind, ciphertext] += 1
        return ciphertext - 1

    def rotate(self, ciphertext: int, amount: int) -> int:
        """Rotation to the left, at the same level."""
        amount %= self.slots
        if amount:
            self._primitives["rotate", ciphertext] += 1
            self._key_use(amount, ciphertext)
        return ciphertext

    def rotate_many(self, ciphertext: int, amounts: Sequence[int]) -> list[int]:
        """One rotation to the left for each amount, hoisted."""
        used = [amount % self.slots for amount in amounts]
        nonzero = [amount for amount in used if amount]
        if len(nonzero) == 1:
            self._primitives["rotate", ciphertext] += 1
        elif nonzero:
            self._primitives["hoist", ciphertext] += 1
            self._primitives["rotate_hoisted", ciphertext] += len(nonzero)
        for amount in nonzero:
            self._key_use(amount, ciphertext)
        return [ciphertext] * len(used)

    def drop_to(self, ciphertext: int, level: int) -> int:
        """The same slots at a lower level."""
        if not 0 <= level <= ciphertext:
            self._fail("drop_to", f"a ciphertext at level {ciphertext} has no level {level}")
        return level

    def bootstrap(self, ciphertext: int) -> int:
        """The same slots at ``bootstrap_level``."""
        if self.bootstrap_level is None:
            self._fail("bootstrap", "these parameters do not allow a bootstrap")
        self._primitives["bootstrap", self.bootstrap_level] += 1
        return self.bootstrap_level

    def _key_use(self, amount: int, level: int) -> None:
        counts = self._current
        counts.rotations[amount] += 1
        if level > counts.rotation_levels.get(amount, -1):
            counts.rotation_levels[amount] = level

    def _underflow(self, primitive: str) -> NoReturn:
        self._fail(primitive, "the operand is at level 0: no multiplication is left")

    def _fail(self, primitive: str, why: str) -> NoReturn:
        raise AtlasError(
            f"{primitive} is impossible" + (f" in {self._scope}" if self._scope else ""),
            where=self._scope,
            why=why,
            remedy="place a bootstrap before it, or choose parameters with more levels",
        )
