"""The common parts of all kernels: recorder, constants, and the map from tensors to slots."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache, partial, reduce
from typing import Any, TypeVar

import numpy as np

from atlasc.ir.layout import UNUSED, Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.program.function import EngineParameters
from atlasc.program.kernels.fewer_keys import with_fewer_keys
from atlasc.program.plaintexts import Argument, Literal, Lookup, Slots, Table, Term
from atlasc.program.record import CostRecorder, Recorder, Register
from atlasc.program.rotation_plan import PlannedEngine, RotationPlan
from atlasc.program.transform_work import MOST_SUMS, TransformTerm

Key = TypeVar("Key", bound=Hashable)

KEY_SWITCH = 20
"""Rough cost of a key switch, in products with a plaintext (its encoding included). Linear
transforms and attention choose their plans by it."""
HOISTED = 0.6
"""Rough cost of a hoisted rotation, in key switches."""
GIANT_STEP = 8
"""Rough cost of a giant step of a fused transform, in baby steps. Transforms by diagonals that
repeat choose their plans by it."""
ROWS = ("b", "t")
"""Axes whose padding copies index 0. A padding row is then as harmless as a real row; a row of
zeros would have variance 0 and leave every calibrated range."""


@cache
def nothing(repeats: int = 1) -> Slots:
    """Slots of a function that is recorded only for its costs: how often they repeat is all that
    is known of them.
    """
    table = Table("nothing", partial(np.zeros, 1), repeats)
    return Slots((Term(0.0, (Lookup(None, ((table, 0),)),)),))


NOTHING = nothing()


class Context:
    """The recorder that kernels write to, and the program that they read.

    Attributes:
        recorder: records the instructions of one function.
        engine: the recorder, with rotations by the plan of the program.
        symbols: the module's arrays.
        costs_only: whether functions are recorded only for their costs: slots are left out, and
            arrays may be missing.
    """

    def __init__(self, shape: EngineParameters, module: Module, costs_only: bool = False) -> None:
        self.shape, self.symbols, self.costs_only = shape, module.symbols, costs_only
        self._plan, self._tables = RotationPlan.of(module), dict[tuple[Any, ...], Any]()
        self._most_sums = module.attributes.get("most_sums", MOST_SUMS)
        self._fewer_keys = module.attributes.get("fewer_keys", False)
        self.begin()

    def begin(self) -> None:
        """Begin a new function."""
        self.recorder = (
            CostRecorder(self.shape, self._most_sums) if self.costs_only else Recorder(self.shape)
        )
        plan = self._plan
        self.engine: Any = self.recorder if plan is None else PlannedEngine(self.recorder, plan)

    def slots(self, function: Callable[..., Slots], *arguments: Any, repeats: int = 1) -> Slots:
        """The plaintext ``function(*arguments)``, whose slots repeat so often; slots that only
        repeat if only costs are recorded.
        """
        return nothing(repeats) if self.costs_only else function(*arguments)

    def transform(
        self,
        x: list[Register],
        places: np.ndarray,
        value: Callable[..., Slots],
        repeats: int,
        fused: bool = True,
    ) -> list[Register]:
        """A ``transform`` of many terms; without one object for each if only costs are recorded.

        Args:
            x: its operands.
            places: result, giant step, operand and baby step of each term, ``[terms, 4]``.
            value: these four numbers -> plaintext of a term.
            repeats: how often the slots of each plaintext repeat.
            fused: whether it divides once for each result; then each step has a key of its own.
        """
        if not fused:
            return self._separate(x, places, value, repeats)
        if not self._fewer_keys:
            return self._transform(x, places, places, value, repeats)
        used, turn, chained, after = with_fewer_keys(places, len(x), self.shape.slots)
        x = [*x, *(self.engine.rotate(one, turn) for one in x if turn)]
        found = self._transform(x, places, used, value, repeats, chained)
        return [self.engine.rotate(one, turn) for one, turn in zip(found, after, strict=True)]

    def _transform(
        self,
        x: list[Register],
        places: np.ndarray,
        used: np.ndarray,
        value: Callable[..., Slots],
        repeats: int,
        chained: bool = False,
    ) -> list[Register]:
        """The same, with other places that are ``used`` for the values of ``places``."""
        if isinstance(self.recorder, CostRecorder):
            return self.recorder.transform_at(x, used, repeats, chained)
        terms = [
            TransformTerm(baby, giant, value(*place), into, out)
            for place, (out, giant, into, baby) in zip(places.tolist(), used.tolist(), strict=True)
        ]
        return self.recorder.transform(x, terms, chained)

    def _separate(
        self, x: list[Register], places: np.ndarray, value: Callable[..., Slots], repeats: int
    ) -> list[Register]:
        """The same by rotations and products that each divide. A rotation may be composed of
        others (:mod:`atlasc.program.rotation_plan`).
        """
        operand, baby = places.T[2:]
        rotated = dict[tuple[int, ...], Register]()
        for into, one in enumerate(x):
            amounts = np.unique(baby[operand == into]).tolist()
            many = self.engine.rotate_many(one, amounts)
            rotated |= {(into, by): turned for by, turned in zip(amounts, many, strict=True)}
        sums = dict[tuple[int, int], list[tuple[int, ...]]]()
        for place in places.tolist():
            sums.setdefault((place[0], place[1]), []).append(tuple(place))

        def turned(by: int, terms: list[tuple[int, ...]]) -> Register:
            operands = [rotated[place[2:]] for place in terms]
            slots = [self.slots(value, *place, repeats=repeats) for place in terms]
            return self.engine.rotate(self.engine.dot_plain(operands, slots), by)

        parts = ((out, turned(by, terms)) for (out, by), terms in sums.items())
        return list(self.totals(parts).values())

    def table(
        self, name: str, of: Hashable, make: Callable[[], np.ndarray], repeats: int = 1
    ) -> Table:
        """The table called ``name`` for a layout, or for anything else that it depends on; made
        once.
        """
        return self._tables.setdefault((name, of), Table(name, make, repeats))

    def slot_table(
        self, name: str, layout: Layout, make: Callable[[], np.ndarray], of: Hashable = ()
    ) -> Table:
        """The table of integers for the slots of a layout; of copies that come first, for one.

        Args:
            make: gives them for all slots, or for runs of slots of one copy.
            of: what they depend on beside the layout.
        """
        if not layout.copies_first:
            return self.table(name, (layout, of), make)
        period = layout.slots // layout.feature_repeats
        return self.table(
            name, (layout, of), lambda: np.atleast_1d(make())[:period], layout.feature_repeats
        )

    def array_slots(self, op: Op, array: Argument | Literal, shape: tuple[int, ...]) -> list[Slots]:
        """An array ``[..., F]`` in the layout of an op's result, one plaintext per ciphertext.

        The flags of the op define the padding. An array without features of its own (extent 1) has
        the same value for all features, padding included.
        """
        layout, flags = layout_of(op.value), op.attributes
        if self.costs_only:
            return [NOTHING] * layout.ciphertexts
        repeat: tuple[str, ...] = ("b",) if flags.get("zero_padding") else ROWS
        repeat = (*ROWS, "g") if flags.get("copy_padding") else repeat
        features = shape[-1] > 1
        shape = shape if features else (*shape, 1)[-len(layout.extents) :]
        tables = self.places(layout, shape, repeat, features)
        return [Slots.of(array, (table, 0)) for table in tables]

    def places(
        self,
        layout: Layout,
        shape: tuple[int, ...],
        repeat: tuple[str, ...],
        features: bool = False,
    ) -> list[Table]:
        """For each ciphertext a table of the element of an array that each slot takes.

        Args:
            layout: the layout of the slots.
            shape: shape of the array, which broadcasts to the layout's; with ``features`` its last
                axis stands for blocks and features of a block.
            repeat: axes whose padding copies index 0.
            features: whether the last axis is split into blocks.
        """
        key = (layout, shape, repeat, features)
        if key not in self._tables:
            numbers = np.arange(1.0, math.prod(shape) + 1).reshape(shape)
            # [ciphertexts, slots]; 0 where there is no element
            packed = layout.pack(blocked(numbers, layout) if features else numbers, repeat)
            repeats = _repeats(packed) if layout.features_low or layout.copies_first else 1
            period = layout.slots // repeats
            self._tables[key] = [
                Table(f"element.{out}", partial(np.subtract, places[:period], 1), repeats)
                for out, places in enumerate(packed.astype(np.int32))
            ]
        return list(self._tables[key])

    def first_of_unused(self, layout: Layout) -> Slots:
        """1 in slots with index 0 in every unused field, 0 elsewhere: in the slots of the one token
        of a layout, or of its sums.
        """
        unused = [field.axis == UNUSED for field in layout.fields]
        above = layout.fields[: unused.index(True)] if layout.features_low and any(unused) else ()
        repeats = layout.copies if layout.copies_first else 1 << sum(field.bits for field in above)

        def make() -> np.ndarray:
            return layout.slot_index(UNUSED)[: layout.slots // repeats] == 0

        return Slots.where(self.table("first of unused", layout, make, repeats))

    def total(self, terms: Iterable[Register]) -> Register:
        """The sum of ciphertexts."""
        return reduce(self.engine.add, terms)

    def totals(self, terms: Iterable[tuple[Key, Register]]) -> dict[Key, Register]:
        """Key -> sum of its ciphertexts."""
        sums: dict[Key, Register] = {}
        for key, term in terms:
            sums[key] = self.engine.add(sums[key], term) if key in sums else term
        return sums

    def double_and_add(self, x: Register, stride: int, bits: int) -> Register:
        """Σ over 2**bits neighbours at a stride: x[i] + x[i + stride] + …"""
        for bit in range(bits):
            x = self.engine.add(x, self.engine.rotate(x, stride << bit))
        return x


def layout_of(value: Value) -> Layout:
    """Layout of a ciphertext value."""
    return value.ciphertext.layout


def has_mask(op: Op) -> bool:
    """Whether an op has a public mask as an operand."""
    return any(not value.encrypted for value in op.operands)


def place_of(layout: Layout, index: Mapping[str, int]) -> tuple[int, int]:
    """Ciphertext and slot of an element; an axis without an index counts as index 0."""
    at = {axis: index.get(axis, 0) for axis, _ in layout.extents}
    return int(layout.ciphertext_of(at)), int(layout.slot_of(at))


def _repeats(packed: np.ndarray) -> int:
    """How often all rows of ``[rows, slots]`` repeat, a power of two."""
    slots = packed.shape[-1]
    repeats = 1
    while 2 * repeats <= slots:
        halves = packed[:, : slots // repeats].reshape(len(packed), 2, -1)
        if (halves[:, 0] != halves[:, 1]).any():
            break
        repeats *= 2
    return repeats


def blocked(vector: np.ndarray, layout: Layout) -> np.ndarray:
    """A tensor over the features ``[..., F]`` as ``[..., g, d]`` of a layout, zero-padded."""
    blocks, width = layout.extent("g"), layout.extent("d")
    padding = [(0, 0)] * (vector.ndim - 1) + [(0, blocks * width - vector.shape[-1])]
    return np.pad(vector, padding).reshape(*vector.shape[:-1], blocks, width)
