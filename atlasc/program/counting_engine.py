"""An engine without data: it runs a lowered program at the speed of integers and counts its costs.

A ciphertext is represented by its level, and by whether it was rescaled. Counts are kept by
*scope*, a label that the caller sets (an op, a layer), so that one run gives the table of a whole
model. Each primitive is counted with the level at which it runs, because the level decides its
cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, get_args
from weakref import WeakKeyDictionary

from atlasc.ir.errors import AtlasError
from atlasc.program.engine import Engine, Vector, is_narrow
from atlasc.program.function import Function
from atlasc.program.plaintexts import Slots
from atlasc.program.transform_work import TransformKind, TransformTerm, TransformWork

CostKind = Literal[
    "encrypt", "decrypt", "add", "add_plain", "add_scalar", "negate", "times_i", "rescale", "mul",
    "mul_lazy", "square", "mul_plain", "mul_scalar", "rotate", "rotate_hoisted", "hoist",
    TransformKind, "bootstrap", "bootstrap_one", "bootstrap_narrow",
]  # fmt: skip
"""Names of counted primitives. ``level`` is that of the (lower) operand; for ``bootstrap`` that of
the result.

Products are left at the squared scale, so that a sum of products is rescaled once. The ``rescale``
of a ciphertext is counted when it first becomes a factor, and the costs of products are those of
rescaled factors. ``mul`` and ``square`` are relinearized, ``mul_lazy`` is not: it is every term of
a ``dot`` except the last. A conjugation is counted as a ``rotate``.

``rotate_hoisted`` is one rotation of a ``rotate_many`` with at least two; ``hoist`` is their shared
decomposition, counted once per call. A cost table gives the two costs apart, or 0 for ``hoist``.
A ``transform`` counts a ``hoist`` for each operand that it rotates, and kinds of its own
(:class:`TransformWork`); its results are rescaled.

``bootstrap_one`` refreshes the last of an odd number of ciphertexts, if a ``bootstrap`` refreshes
two. ``bootstrap_narrow`` refreshes one whose slots repeat.
"""

COST_KINDS: tuple[CostKind, ...] = get_args(CostKind)


@dataclass
class Counts:
    """The counts of one scope.

    Attributes:
        primitives: (primitive, level) -> calls.
        rotation_groups: (level, amounts by which one ciphertext is rotated together) -> calls, with
            0 < amount < slots.
        transform_levels: amount of a step of a ``transform`` -> highest level. Such a rotation
            takes a key of its own, which reaches the level.
        conjugation_level: the highest level at which a ciphertext is conjugated; −1 for none.
    """

    primitives: Counter[tuple[CostKind, int]] = field(default_factory=Counter)
    rotation_groups: Counter[tuple[int, tuple[int, ...]]] = field(default_factory=Counter)
    transform_levels: dict[int, int] = field(default_factory=dict)
    conjugation_level: int = -1

    def count(self, *primitives: CostKind) -> int:
        """Number of calls of the given primitives, over all levels."""
        return sum(n for (primitive, _), n in self.primitives.items() if primitive in primitives)

    @property
    def rotation_levels(self) -> dict[int, int]:
        """Amount -> the highest level at which it is used, which is the level of its key."""
        groups = sorted(self.rotation_groups)
        levels = {amount: level for level, amounts in groups for amount in amounts}
        return highest(levels, self.transform_levels)

    @property
    def key_switches(self) -> int:
        """Number of rotations (hoisted ones included), conjugations and relinearizations."""
        rotations = self.count("rotate", "rotate_hoisted", "transform_baby", "transform_giant")
        return self.count("mul", "square") + rotations

    @property
    def ciphertext_products(self) -> int:
        """Number of products of two ciphertexts, squares included."""
        return self.count("mul", "square", "mul_lazy")

    @property
    def plaintext_products(self) -> int:
        """Number of products with a vector or with a number."""
        return self.count("mul_plain", "mul_scalar", "transform_product", "transform_dense")

    @property
    def bootstraps(self) -> int:
        """Number of bootstraps."""
        return self.count("bootstrap", "bootstrap_one", "bootstrap_narrow")

    def seconds(self, costs: Mapping[tuple[CostKind, int], float]) -> float:
        """Predicted seconds. ``costs``: (primitive, level) -> seconds of one call.

        Raises:
            AtlasError: the table has no cost for a primitive that occurs.
        """
        for (primitive, level), times in self.primitives.items():
            if (primitive, level) not in costs:
                raise AtlasError(
                    f"the cost table has no entry for {primitive} at level {level}",
                    why=f"the program uses it {times} times",
                    remedy="measure the table again with this backend and these parameters",
                )
        return sum((times * costs[key] for key, times in self.primitives.items()), 0.0)

    def merge(self, other: Counts) -> None:
        """Add the counts of ``other`` to these."""
        self.primitives.update(other.primitives)
        self.rotation_groups.update(other.rotation_groups)
        self.transform_levels = highest(self.transform_levels, other.transform_levels)
        self.conjugation_level = max(self.conjugation_level, other.conjugation_level)


def highest(levels: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    """Amount -> the higher of its two levels."""
    return {
        amount: max(levels.get(amount, -1), others.get(amount, -1))
        for amount in levels.keys() | others.keys()
    }


class Counted:
    """A ciphertext without data.

    Attributes:
        rescaled: whether it was, as a product that became a factor.
        canonical: whether it never needs that: rotations and their sums are rescaled as they are.
    """

    __slots__ = ("canonical", "level", "rescaled")

    def __init__(self, level: int) -> None:
        self.level, self.rescaled, self.canonical = level, False, False


def _same_level(primitive: CostKind) -> Callable[..., Counted]:
    """A method whose result has the lowest level of its ciphertexts."""

    def call(self: CountingEngine, one: Counted, other: Any = None) -> Counted:
        operands = [one, other] if isinstance(other, Counted) else [one]
        level = min(operand.level for operand in operands)
        self._primitives[primitive, level] += 1
        if not any(operand.rescaled or operand.canonical for operand in operands):
            return self._new(level)
        for operand in operands:
            self._settle(operand)
        return self._canonical(level)

    return call


def _product(primitive: CostKind) -> Callable[..., Counted]:
    """A method whose result is one below the lowest level of its ciphertexts."""

    def call(self: CountingEngine, *factors: Counted) -> Counted:
        level = min(factor.level for factor in factors)
        if level < 1:
            self._require_level(primitive, *factors)
        for factor in factors:
            self._settle(factor)
            if factor.level > level and len(factors) > 1:
                self._primitives["mul_scalar", level] += 1
                self._primitives["rescale", level] += 1
        self._primitives[primitive, level] += 1
        return self._new(level - 1)

    return call


class CountingEngine(Engine[Counted]):
    """An engine that only keeps levels. It ignores vectors.

    Attributes:
        counts: scope -> counts.
    """

    def __init__(self, *shape: Any, **named: Any) -> None:
        super().__init__(*shape, **named)
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
        return Counted(level)

    def _canonical(self, level: int) -> Counted:
        made = self._new(level)
        made.canonical = True
        return made

    def _rescale(self, factor: Counted) -> None:
        factor.rescaled = True

    def _settle(self, factor: Counted) -> None:
        """Rescale a ciphertext, unless it is."""
        if not (factor.rescaled or factor.canonical):
            self._primitives["rescale", factor.level] += 1
            self._rescale(factor)

    def _vector(self, value: Any, primitive: str) -> Any:
        return value

    def _made(self, slots: Slots, array: Any) -> Any:
        return slots

    def _encrypt(self, vector: Any, level: int) -> Counted:
        self._primitives["encrypt", level] += 1
        return self._canonical(level)

    def decrypt(self, ciphertext: Counted) -> Vector:
        """Refused; the error lists the calls of each primitive."""
        total = self.total()
        calls = {name: total.count(name) for name in sorted(COST_KINDS)}
        raise AtlasError(
            "the target count computes no answers",
            why="the program called " + ", ".join(f"{n} {name}" for name, n in calls.items() if n),
            remedy="use --target sim for answers without encryption",
        )

    add = sub = _same_level("add")
    negate, times_i = _same_level("negate"), _same_level("times_i")
    _add_vector, _add_scalar = _same_level("add_plain"), _same_level("add_scalar")
    mul, square, _mul_lazy = _product("mul"), _product("square"), _product("mul_lazy")
    _mul_vector, _mul_scalar = _product("mul_plain"), _product("mul_scalar")

    def _dot(self, lefts: Sequence[Counted], rights: Sequence[Counted], level: int) -> Counted:
        *rest, last = zip(lefts, rights, strict=True)
        terms = [self._mul_lazy(*pair) for pair in rest]
        total = self.mul(*last)
        for term in terms:
            total = self.add(total, term)
        return total

    def add_plain(self, ciphertext: Counted, value: Any) -> Counted:
        """Counts a number as ``add_scalar``, everything else as ``add_plain``."""
        number = isinstance(value, (float, int))
        return self._add_scalar(ciphertext) if number else self._add_vector(ciphertext)

    def mul_plain(self, ciphertext: Counted, value: Any) -> Counted:
        """Counts a number as ``mul_scalar``, everything else as ``mul_plain``."""
        number = isinstance(value, (float, int))
        return self._mul_scalar(ciphertext) if number else self._mul_vector(ciphertext)

    def _rotate(self, ciphertext: Counted, amount: int) -> Counted:
        return self.rotate_many(ciphertext, [amount])[0]

    def rotate_many(self, ciphertext: Counted, amounts: Sequence[int]) -> list[Counted]:
        """One rotation to the left for each amount; several rotations are hoisted."""
        used = [amount % self.slots for amount in amounts]
        nonzero = [amount for amount in used if amount]
        level = ciphertext.level
        if len(nonzero) > 1:
            self._primitives["hoist", level] += 1
        if nonzero:
            self._settle(ciphertext)
            together: CostKind = "rotate_hoisted" if len(nonzero) > 1 else "rotate"
            self._primitives[together, level] += len(nonzero)
            self._current.rotation_groups[level, tuple(sorted(set(nonzero)))] += 1
        return [self._canonical(level) if amount else ciphertext for amount in used]

    def conjugate(self, ciphertext: Counted) -> Counted:
        """Conjugation, at the same level."""
        level = ciphertext.level
        self._primitives["rotate", level] += 1
        self._current.conjugation_level = max(self._current.conjugation_level, level)
        self._settle(ciphertext)
        return self._canonical(level)

    def dot_plain(self, ciphertexts: Sequence[Counted], values: Sequence[Any]) -> Counted:
        """Counts as the base class, at once where all operands have one level."""
        level, terms = ciphertexts[0].level, len(ciphertexts)
        if level < 1 or any(one.level != level for one in ciphertexts):
            return super().dot_plain(ciphertexts, values)
        for factor in ciphertexts:
            self._settle(factor)
        numbers = sum(isinstance(value, (float, int)) for value in values)
        counts: dict[CostKind, int] = {"mul_scalar": numbers, "mul_plain": terms - numbers}
        self._primitives.update({(name, level): n for name, n in counts.items() if n})
        if terms > 1:
            self._primitives["add", level - 1] += terms - 1
        # The loop of the base class holds this many at once: the last sum and product, and the next
        # ones.
        held = [self._new(level - 1) for _ in range(min(2 * terms - 1, 4))]
        return held[-1]

    def play(
        self,
        function: Function,
        operands: Sequence[Sequence[Counted]],
        arrays: Sequence[Any] = (),
    ) -> list[Counted]:
        """As the base class. A function costs the same whatever made its operands."""
        for one in (given for operand in operands for given in operand):
            one.canonical = False
        results = super().play(function, operands, arrays)
        for one in results:
            one.canonical = False
        return results

    def call(
        self,
        primitive: str,
        operands: Sequence[Counted],
        plaintexts: Sequence[Any] = (),
        numbers: Sequence[int] = (),
    ) -> list[Counted]:
        """As the base class. The ``transform`` of a function for costs tells its work instead of
        its terms.
        """
        if plaintexts and isinstance(plaintexts[0], TransformWork):
            return self._transformed(plaintexts[0])
        return super().call(primitive, operands, plaintexts, numbers)

    def transform(
        self,
        ciphertexts: Sequence[Counted],
        terms: Sequence[TransformTerm],
        chained: bool = False,
    ) -> list[Counted]:
        """See the base class. The division by the level's primes comes last, so the keys of giant
        steps reach the operands' level, too.
        """
        level = self._require_level("transform", *ciphertexts)
        return self._transformed(TransformWork.of(level, terms, self.slots, chained=chained))

    def _transformed(self, work: TransformWork) -> list[Counted]:
        self._execute(work)
        current, levels = self._current, dict.fromkeys(work.amounts, work.level)
        current.transform_levels = highest(current.transform_levels, levels)
        return [self._canonical(work.level - 1) for _ in range(work.results)]

    def _execute(self, work: TransformWork) -> None:
        """Count the primitives of a ``transform``."""
        if work.operands:
            self._primitives["hoist", work.level] += work.operands
        for kind, calls in work.calls.items():
            if calls:
                self._primitives[kind, work.level] += calls

    def raise_modulus(self, ciphertext: Counted, level: int, copies: int) -> Counted:
        """Count nothing: the two key switches are part of the counted ``bootstrap``."""
        return self._new(level)

    def _drop_to(self, ciphertext: Counted, level: int) -> Counted:
        return self._new(level)

    def _bootstrap(self, ciphertexts: Sequence[Counted], level: int, period: int) -> list[Counted]:
        if is_narrow(period, self.slots):
            self._primitives["bootstrap_narrow", level] += len(ciphertexts)
        else:
            whole, rest = divmod(len(ciphertexts), self.bootstrap_batch)
            if whole:
                self._primitives["bootstrap", level] += whole
            if rest:
                self._primitives["bootstrap_one", level] += 1
        return [self._new(level) for _ in ciphertexts]

    def _refuse(self, primitive: str, why: str, remedy: str = "") -> NoReturn:
        raise AtlasError(
            f"{primitive} is impossible" + (f" in {self._scope}" if self._scope else ""),
            where=self._scope,
            why=why,
            remedy="place a bootstrap before this op, or choose parameters with more levels",
        )


_COUNTED: WeakKeyDictionary[Function, Counts] = WeakKeyDictionary()


def counts_of(function: Function) -> Counts:
    """The costs of a function, as if no earlier op had rescaled its operands."""
    if function not in _COUNTED:
        engine = CountingEngine(*function.shape)
        engine.play(function, [[Counted(level) for level in one] for one in function.levels])
        _COUNTED[function] = engine.total()
    return _COUNTED[function]
