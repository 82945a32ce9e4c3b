"""Seconds of an op of a packed module as a function of the level at which it is entered.

All operands of an op arrive at one level, and a kernel never looks at which one it is: what runs d
levels below the entry does so wherever the entry is. One dry run of the kernel therefore tells the
primitives by (primitive, d), and costs turn them into seconds at every level.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from atlasc.ir.module import Module, Op
from atlasc.ir.types import CiphertextType
from atlasc.passes.costs.counts import shapes_key
from atlasc.passes.execution.counting_engine import Counted, CountingEngine, Primitive
from atlasc.passes.execution.kernels import KERNELS
from atlasc.passes.execution.kernels.context import Context

PrimitiveCosts = Mapping[tuple[Primitive, int], float]
"""Seconds of one call by (primitive, level); see `CountingEngine` for what the level is of."""
Profile = frozenset[tuple[tuple[Primitive, int], int]]
"""((primitive, levels below the entry), calls) of an op."""


class OpProfiles:
    """Profiles of the ops of a module; equal ops are counted once.

    Args:
        module: ckks module, with or without levels.
    """

    def __init__(self, module: Module) -> None:
        self._module = module
        self._engine = CountingEngine(module.attributes["slots"], _TOP, None)
        self._context = Context(self._engine, module.symbols, {}, True)
        self._known: dict[tuple[Any, ...], Profile] = {}

    def of(self, op: Op) -> Profile:
        """The profile of an op that has a kernel."""
        types = tuple(str(value.type) for value in (op.value, *op.operands))
        key = (op.name, shapes_key(op, self._module.symbols), types)
        if key not in self._known:
            self._known[key] = self._count(op)
        return self._known[key]

    def _count(self, op: Op) -> Profile:
        engine, counts = self._engine, Counter[tuple[Primitive, int]]()
        engine.scope = f"profile {len(self._known)}"
        operands = [
            [Counted(_TOP) for _ in range(value.ciphertext.ciphertexts)]
            if isinstance(value.type, CiphertextType)
            else self._context.blank
            for value in op.operands
        ]
        KERNELS[op.name](self._context, op, operands)
        for (primitive, level), calls in engine.counts[engine.scope].primitives.items():
            counts[primitive, _TOP - level] += calls
        return frozenset(counts.items())


_TOP = 64
"""A level that no kernel runs out of."""


def seconds_by_level(
    profile: Iterable[tuple[tuple[Primitive, int], int]],
    depth: int,
    costs: PrimitiveCosts,
    levels: int,
) -> tuple[float, ...]:
    """Seconds of an op by entry level 0..levels; infinite below its depth."""
    total = np.zeros(levels + 1)
    total[:depth] = np.inf
    for (primitive, below), calls in profile:
        for level in range(max(depth, below), levels + 1):
            total[level] += calls * costs[primitive, level - below]
    return tuple(total.tolist())


class OpCosts:
    """Seconds of the ops of a module at every level.

    Args:
        module: ckks module without levels.
        costs: seconds of the primitives.
        levels: the highest entry level.
    """

    def __init__(self, module: Module, costs: PrimitiveCosts, levels: int) -> None:
        self._module, self._costs, self._levels = module, costs, levels
        self._profiles = OpProfiles(module)
        self._known: dict[tuple[Profile, int], tuple[float, ...]] = {}

    def by_level(self, op: Op) -> tuple[float, ...]:
        """Seconds of an op by entry level 0..levels."""
        key = (self._profiles.of(op), op.levels(self._module.symbols))
        if key not in self._known:
            self._known[key] = seconds_by_level(*key, self._costs, self._levels)
        return self._known[key]
