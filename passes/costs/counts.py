"""What a lowered program costs, read off the program itself by running it without data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.execution.counting_engine import Counted, CountingEngine, Counts
from atlasc.passes.execution.dry_runs import dry_engine, dry_inputs, live_ciphertexts
from atlasc.passes.execution.execute import Execution
from atlasc.passes.execution.kernels.context import Context
from atlasc.passes.execution.rotation_plan import RotationPlan
from atlasc.passes.framework.analysis import OBSERVED


@dataclass
class ProgramCosts:
    """Counts of a ckks module.

    Attributes:
        module: the program.
        per_op: counts by op.
        levels: levels of the nonlinear ops on the critical path.
        levels_total: levels of all ops on the critical path.
        levels_per_layer: (nonlinear, all) levels on the critical path by layer index.
    """

    module: Module
    per_op: dict[Op, Counts]
    levels: int
    levels_total: int
    levels_per_layer: dict[int | None, tuple[int, int]] = field(default_factory=dict)

    @property
    def total(self) -> Counts:
        """Counts of the whole program."""
        return merged(self.per_op.values())

    def per_layer(self) -> dict[int | None, Counts]:
        """Counts by layer index; None is what lies outside the blocks."""
        layers: dict[int | None, list[Counts]] = {}
        for op, counts in self.per_op.items():
            layers.setdefault(op.layer, []).append(counts)
        return {layer: merged(parts) for layer, parts in layers.items()}

    def rotation_keys(self, counts: Counts | None = None) -> dict[int, int]:
        """Keys behind the rotations of some counts, by default of all: amount and level."""
        used = dict(sorted((self.total if counts is None else counts).rotation_levels.items()))
        plan = RotationPlan.of(self.module)
        return used if plan is None else plan.used(used)

    @cached_property
    def live(self) -> Counter[int]:
        """Ciphertexts by level at the moment that needs most memory."""
        return live_ciphertexts(self.module)

    @cached_property
    def constants(self) -> int:
        """Bytes of the program's arrays."""
        return sum(array.nbytes for array in self.module.arrays_used().values())


def merged(parts: Any) -> Counts:
    """Sum of counts."""
    result = Counts()
    for counts in parts:
        result.merge(counts)
    return result


def program_costs(module: Module) -> ProgramCosts:
    """Count a ckks module (with or without levels placed)."""
    depth = critical_path(module)
    engine = dry_engine(module, CountingEngine)
    labels = {op: f"{position}" for position, op in enumerate(module.ops)}

    def enter(op: Op) -> None:
        engine.scope = labels[op]

    inputs = dry_inputs(module, engine)
    _CountingExecution(module, engine, before=enter).run(inputs)
    per_op = {op: engine.counts[label] for op, label in labels.items() if label in engine.counts}
    return ProgramCosts(module, per_op, depth.nonlinear, depth.total, depth.per_layer)


@dataclass
class _CountingExecution(Execution[Counted]):
    """Counts an op once, however many equal ones there are: the blocks of a model are equal.

    Each op is counted as if nothing before it had rescaled its operands, so that its counts depend
    on nothing but itself.
    """

    known: dict[tuple[Any, ...], tuple[list[int], Counts]] = field(default_factory=dict)

    def _result(
        self,
        ctx: Context[Counted],
        op: Op,
        values: Mapping[Value, Any],
        encrypted: Mapping[str, list[Counted]],
    ) -> Any:
        assert isinstance(self.engine, CountingEngine)
        operands = {value: values[value] for value in op.operands}
        if not operands or any(not isinstance(value, list) for value in operands.values()):
            return super()._result(ctx, op, values, encrypted)
        levels = [tuple(ct.level for ct in operands[value]) for value in op.operands]
        key = (op.name, str(op.value.type), shapes_key(op, ctx.symbols), *levels)
        key += tuple(str(value.type) for value in op.operands)
        counts = self.engine.counts[self.engine.scope]
        if key not in self.known:
            fresh = {value: [Counted(ct.level) for ct in cts] for value, cts in operands.items()}
            result = super()._result(ctx, op, fresh, encrypted)
            self.known[key] = ([ct.level for ct in result], counts)
        else:
            counts.merge(self.known[key][1])
        return [Counted(level) for level in self.known[key][0]]


def shapes_key(op: Op, symbols: Mapping[str, np.ndarray]) -> str:
    """All attributes, with a symbol's shape (for coefficients its values) in place of its name."""
    parts = []
    for name, value in sorted(op.attributes.items()):
        if name in OBSERVED:
            continue
        if isinstance(value, Symbol):
            array = symbols[value.name]
            value = array.tobytes() if name == "coefficients" else array.shape
        parts.append(f"{name}={value!r}")
    return ";".join(parts)


@dataclass
class CriticalPath:
    """Levels along the deepest path: of the nonlinear ops, of all ops, and both by layer."""

    nonlinear: int
    total: int
    per_layer: dict[int | None, tuple[int, int]]


def critical_path(module: Module) -> CriticalPath:
    """The path that consumes most levels from an input to an output.

    An op counts as nonlinear when it was expanded from a nonlinear function (``part``).
    """
    deepest = module.depths()
    ends = [op.operands[0] for op in module.outputs]
    value: Value | None = max(ends, key=lambda end: deepest[end])
    nonlinear = total = 0
    per_layer: dict[int | None, tuple[int, int]] = {}
    while value is not None:
        op = value.op
        consumed = op.levels(module.symbols)
        counted = consumed if "part" in op.attributes else 0
        nonlinear, total = nonlinear + counted, total + consumed
        so_far = per_layer.get(op.layer, (0, 0))
        per_layer[op.layer] = (so_far[0] + counted, so_far[1] + consumed)
        value = max(op.operands, key=lambda operand: deepest[operand], default=None)
    return CriticalPath(nonlinear, total, per_layer)
