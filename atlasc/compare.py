"""Two backends side by side, op by op: where do they part?

Every primitive is applied to both ciphertexts of a pair, so both programs advance together and only
live values are kept, however long the program is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from atlasc.client import Packed
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.passes.lowering.engine import Engine, Vector
from atlasc.session import encrypt_all, execute

TOLERANCE = 1e-4
"""Default without bootstraps: products add 1e-7, and polynomials stretch it."""
BOOTSTRAP_TOLERANCE = 1e-2
"""Default with bootstraps, each of which adds 3e-5 at worst."""


@dataclass
class Pair:
    """One ciphertext of each engine."""

    reference: Any
    target: Any


class PairEngine:
    """Implements :class:`~atlasc.passes.lowering.engine.Engine` on pairs of ciphertexts.

    Levels are the reference's; :meth:`decrypt` gives the target's slots.

    Args:
        reference: what is believed.
        target: what is examined; of the same slots and levels.

    Raises:
        AtlasError: the engines differ in slots or levels.
    """

    def __init__(self, reference: Engine[Any], target: Engine[Any]) -> None:
        self.reference, self.target = reference, target
        self.slots, self.max_level = reference.slots, reference.max_level
        self.bootstrap_level = reference.bootstrap_level
        for name in ("slots", "max_level", "bootstrap_level"):
            ours, theirs = getattr(reference, name), getattr(target, name)
            if ours != theirs:
                raise AtlasError(
                    "two engines of different parameters cannot be compared",
                    why=f"{name} is {ours} in the reference and {theirs} in the target",
                )

    def _both(self, name: str, *arguments: Any) -> Pair:
        """The same primitive on both sides."""
        results = []
        for side in ("reference", "target"):
            mine = [getattr(a, side) if isinstance(a, Pair) else a for a in arguments]
            results.append(getattr(getattr(self, side), name)(*mine))
        return Pair(*results)

    def encrypt(self, vector: Vector, level: int | None = None) -> Pair:
        """Encrypt with both."""
        return self._both("encrypt", vector, level)

    def decrypt(self, ciphertext: Pair) -> Vector:
        """The target's slots."""
        return self.target.decrypt(ciphertext.target)

    def level(self, ciphertext: Pair) -> int:
        """The reference's level."""
        return self.reference.level(ciphertext.reference)

    def add(self, left: Pair, right: Pair) -> Pair:
        """Sums."""
        return self._both("add", left, right)

    def sub(self, left: Pair, right: Pair) -> Pair:
        """Differences."""
        return self._both("sub", left, right)

    def negate(self, ciphertext: Pair) -> Pair:
        """Negations."""
        return self._both("negate", ciphertext)

    def add_plain(self, ciphertext: Pair, value: Vector | float) -> Pair:
        """Sums with a plaintext."""
        return self._both("add_plain", ciphertext, value)

    def mul(self, left: Pair, right: Pair) -> Pair:
        """Products."""
        return self._both("mul", left, right)

    def square(self, ciphertext: Pair) -> Pair:
        """Squares."""
        return self._both("square", ciphertext)

    def mul_plain(self, ciphertext: Pair, value: Vector | float) -> Pair:
        """Products with a plaintext."""
        return self._both("mul_plain", ciphertext, value)

    def rotate(self, ciphertext: Pair, amount: int) -> Pair:
        """Rotations."""
        return self._both("rotate", ciphertext, amount)

    def rotate_many(self, ciphertext: Pair, amounts: Sequence[int]) -> list[Pair]:
        """Rotations, hoisted on both sides."""
        ours = self.reference.rotate_many(ciphertext.reference, amounts)
        theirs = self.target.rotate_many(ciphertext.target, amounts)
        return [Pair(a, b) for a, b in zip(ours, theirs, strict=True)]

    def drop_to(self, ciphertext: Pair, level: int) -> Pair:
        """Both at a lower level."""
        return self._both("drop_to", ciphertext, level)

    def bootstrap(self, ciphertext: Pair) -> Pair:
        """Both refreshed."""
        return self._both("bootstrap", ciphertext)


@dataclass(frozen=True)
class OpDifference:
    """How far the engines are apart after one op.

    Attributes:
        op, value, location: which op, its result's name, and its module path.
        level: of the reference.
        target_level: of the target; another one is a difference too.
        difference: greatest absolute difference over all slots of all ciphertexts.
        largest: greatest absolute slot of the reference.
        tolerance: the bound on ``difference``.
    """

    op: str
    value: str
    location: str
    level: int
    target_level: int
    difference: float
    largest: float
    tolerance: float

    @property
    def parts(self) -> bool:
        """Whether the engines disagree here."""
        return not self.difference <= self.tolerance or self.level != self.target_level


@dataclass
class Comparison:
    """The course of two engines through one program.

    Attributes:
        ops: one entry an op, in the order of execution.
        refused: what stopped the execution, if an engine refused an op.
    """

    ops: list[OpDifference] = field(default_factory=list)
    refused: AtlasError | None = None

    @property
    def first(self) -> OpDifference | None:
        """The first op whose difference leaves its tolerance."""
        return next((op for op in self.ops if op.parts), None)

    @property
    def worst(self) -> OpDifference | None:
        """The op with the greatest difference."""
        return max(self.ops, key=lambda op: op.difference, default=None)


def compare(
    program: Module,
    query: Packed,
    reference: Engine[Any],
    target: Engine[Any],
    *,
    tolerance: float | None = None,
    isolate: bool = False,
    before: Callable[[Op], None] | None = None,
) -> Comparison:
    """Run one query on two engines.

    Args:
        program: ckks module.
        query: packed inputs.
        reference: what is believed, usually the simulator.
        target: what is examined; it must be able to decrypt.
        tolerance: largest difference, for slots up to 1; larger values get proportionally more.
            None chooses :data:`TOLERANCE`, or :data:`BOOTSTRAP_TOLERANCE` with bootstraps.
        isolate: encrypt the reference's result anew after each op, so that the difference is what
            that op alone adds. A debugging tool: the reference's slots must be in this process.
        before: called before every op.

    Raises:
        AtlasError: the engines have different parameters.
    """
    if tolerance is None:
        bootstraps = any(op.name == "ckks.bootstrap" for op in program.ops)
        tolerance = BOOTSTRAP_TOLERANCE if bootstraps else TOLERANCE
    pairs = PairEngine(reference, target)
    result = Comparison()

    def observe(op: Op, ciphertexts: list[Any]) -> None:
        if op.name == "ckks.public_input":
            return
        result.ops.append(_difference(op, ciphertexts, pairs, tolerance))
        if isolate:
            for pair in ciphertexts:
                slots = reference.decrypt(pair.reference)
                pair.target = target.encrypt(slots, reference.level(pair.reference))

    encrypted = encrypt_all(pairs, query)
    try:
        execute(pairs, program, encrypted, query.public, before, observe)
    except AtlasError as error:
        result.refused = error
    return result


def _difference(
    op: Op, ciphertexts: list[Pair], engines: PairEngine, tolerance: float
) -> OpDifference:
    difference = largest = 0.0
    for pair in ciphertexts:
        slots = engines.reference.decrypt(pair.reference)
        apart = np.abs(engines.target.decrypt(pair.target) - slots).max()
        difference = float(np.fmax(difference, apart)) if apart == apart else float("inf")
        largest = max(largest, float(np.abs(slots).max()))
    return OpDifference(
        op.name,
        op.value.name,
        op.location,
        engines.reference.level(ciphertexts[0].reference),
        engines.target.level(ciphertexts[0].target),
        difference,
        largest,
        tolerance * max(1.0, largest),
    )
