"""What a kernel needs beside its ciphertexts: the engine, the constants and the public inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, Generic, TypeVar

import numpy as np

from atlasc.ir.layout import UNUSED, Layout
from atlasc.ir.module import Op, Value
from atlasc.passes.execution.engine import Engine

Ct = TypeVar("Ct")
KEY_SWITCH = 20
"""Cost of a key switch in products with a plaintext, its encoding included, roughly: what plans of
linear transforms and of attention are chosen by."""
ROWS = ("b", "t")
"""Axes whose padding copies index 0: a padding row is then as harmless as a real one (a row of
zeros would have variance 0 and leave every calibrated range)."""


@dataclass
class Context(Generic[Ct]):
    """Execution state that kernels share.

    Attributes:
        engine: evaluates the primitives.
        symbols: the module's arrays.
        public: public inputs by name.
        dry: the engine looks at no data (counting), so that plaintexts need not be computed.
    """

    engine: Engine[Ct]
    symbols: Mapping[str, np.ndarray]
    public: Mapping[str, np.ndarray] = field(default_factory=dict)
    dry: bool = False

    @cached_property
    def blank(self) -> np.ndarray:
        """The plaintext of a dry run."""
        return np.zeros(self.engine.slots)

    def slots(self, function: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
        """The plaintext ``function(*arguments)`` ``[slots]``, which a dry run does not compute."""
        if self.dry:
            return self.blank
        found = function(*arguments)
        return found.astype(np.float64) if found.dtype == np.bool_ else found

    def total(self, terms: Iterable[Ct]) -> Ct:
        """The sum of ciphertexts."""
        return reduce(self.engine.add, terms)

    def weighted_sum(self, ciphertexts: Iterable[Ct], vectors: Iterable[np.ndarray]) -> Ct:
        """The sum of products of ciphertexts with plaintexts."""
        pairs = zip(ciphertexts, vectors, strict=True)
        return self.total([self.engine.mul_plain(*pair) for pair in pairs])

    def constant(self, op: Op, name: str) -> np.ndarray | float:
        """The constant in an attribute: a number, or the array behind a symbol."""
        value: Any = op.attributes[name]
        if isinstance(value, int | float):
            return float(value)
        return op.site(self.symbols).constant(name)


def layout_of(value: Value) -> Layout:
    """Layout of a ciphertext value."""
    return value.ciphertext.layout


def first_rows(layout: Layout) -> np.ndarray:
    """1 in the slots of token 0 and 0 elsewhere, ``[slots]``, for a layout without its tokens."""
    unused = layout.field(UNUSED)
    tokens = 1 << unused.bits if unused is not None else 1
    return (np.arange(layout.slots) % tokens == 0).astype(np.float64)


def blocked(vector: np.ndarray, layout: Layout) -> np.ndarray:
    """A tensor over the features ``[..., F]`` as ``[..., g, d]`` of a layout, zero-padded."""
    blocks, width = layout.extent("g"), layout.extent("d")
    features = vector.shape[-1]
    padding = [(0, 0)] * (vector.ndim - 1) + [(0, blocks * width - features)]
    return np.pad(vector, padding).reshape(*vector.shape[:-1], blocks, width)
