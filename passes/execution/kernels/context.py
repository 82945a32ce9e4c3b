"""What all kernels share: engine and constants of a program, and how tensors become slots."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import reduce
from typing import Any, Generic, TypeVar, cast

import numpy as np

from atlasc.ir.layout import UNUSED, Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.passes.execution.counting_engine import CountingEngine
from atlasc.passes.execution.engine import Ct, Engine
from atlasc.passes.execution.rotation_plan import PlannedEngine, RotationPlan

Key = TypeVar("Key", bound=Hashable)

KEY_SWITCH = 20
"""Rough cost of a key switch, in products with a plaintext (its encoding included). Plans of linear
transforms and of attention are chosen by it."""
ROWS = ("b", "t")
"""Axes whose padding copies index 0. A padding row is then as harmless as a real one; a row of
zeros would have variance 0 and leave every calibrated range."""


class Context(Generic[Ct]):
    """The engine and the constants that the kernels of a program compute with.

    Attributes:
        engine: evaluates the primitives; its rotations follow the plan of the program.
        symbols: the module's arrays.
        dry: the engine only counts, so that plaintexts need not be computed.
        blank: the plaintext of a dry run.
    """

    def __init__(self, engine: Engine[Ct], module: Module) -> None:
        self.symbols, self.dry = module.symbols, isinstance(engine, CountingEngine)
        self.blank = np.zeros(engine.slots)
        plan = RotationPlan.of(module)
        if plan is not None:
            engine = cast("Engine[Ct]", PlannedEngine(engine, plan))
        self.engine = engine

    def slots(self, function: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
        """The plaintext ``function(*arguments)`` ``[slots]``, which a dry run does not compute."""
        if self.dry:
            return self.blank
        found = function(*arguments)
        return found.astype(np.float64) if found.dtype == np.bool_ else found

    def plaintexts(self, op: Op, tensor: Callable[[], np.ndarray]) -> list[np.ndarray]:
        """A tensor in the layout of an op's result, one plaintext a ciphertext; the flags of the op
        say what its padding holds. A dry run does not compute the tensor.
        """
        layout, flags = layout_of(op.value), op.attributes
        if self.dry:
            return [self.blank] * layout.ciphertexts
        repeat = () if flags.get("zero_padding") else ROWS
        packed = layout.pack(tensor(), (*ROWS, "g") if flags.get("copy_padding") else repeat)
        return list(packed * first_rows(layout) if flags.get("first_row") else packed)

    def total(self, terms: Iterable[Ct]) -> Ct:
        """The sum of ciphertexts."""
        return reduce(self.engine.add, terms)

    def totals(self, terms: Iterable[tuple[Key, Ct]]) -> dict[Key, Ct]:
        """The sum of the ciphertexts of each key."""
        sums: dict[Key, Ct] = {}
        for key, term in terms:
            sums[key] = self.engine.add(sums[key], term) if key in sums else term
        return sums

    def double_and_add(self, x: Ct, stride: int, bits: int) -> Ct:
        """Σ over 2**bits neighbours at a stride: x[i] + x[i + stride] + …"""
        for bit in range(bits):
            x = self.engine.add(x, self.engine.rotate(x, stride << bit))
        return x


def layout_of(value: Value) -> Layout:
    """Layout of a ciphertext value."""
    return value.ciphertext.layout


def place_of(layout: Layout, index: Mapping[str, int]) -> tuple[int, int]:
    """Ciphertext and slot of an element; along axes without an index, of the first one."""
    at = {axis: index.get(axis, 0) for axis, _ in layout.extents}
    return int(layout.ciphertext_of(at)), int(layout.slot_of(at))


def first_rows(layout: Layout) -> np.ndarray:
    """1 in the slots of token 0 and 0 elsewhere, ``[slots]``, for a layout without its tokens."""
    unused = layout.field(UNUSED)
    tokens = 1 << unused.bits if unused is not None else 1
    return (np.arange(layout.slots) % tokens == 0).astype(np.float64)


def blocked(vector: np.ndarray, layout: Layout) -> np.ndarray:
    """A tensor over the features ``[..., F]`` as ``[..., g, d]`` of a layout, zero-padded."""
    blocks, width = layout.extent("g"), layout.extent("d")
    padding = [(0, 0)] * (vector.ndim - 1) + [(0, blocks * width - vector.shape[-1])]
    return np.pad(vector, padding).reshape(*vector.shape[:-1], blocks, width)
