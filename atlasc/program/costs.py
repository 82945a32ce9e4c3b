"""Costs of a lowered program, counted on the functions that its ops call.

Equal ops are counted once, because the blocks of a model are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import symbols_in
from atlasc.program.counting_engine import (
    CostKind,
    Counted,
    CountingEngine,
    Counts,
    counts_of,
)
from atlasc.program.execute import Functions, execute
from atlasc.program.function import EngineParameters, Function
from atlasc.program.live_engine import LiveEngine, Peaks
from atlasc.program.paterson_stockmeyer import evaluate_plan, plan_chebyshev, sum_of_parts
from atlasc.program.rotation_plan import RotationPlan

PrimitiveCosts = Mapping[tuple[CostKind, int], float]
"""(primitive, level) -> seconds of one call; see `CountingEngine` for the meaning of the level."""
Profile = frozenset[tuple[tuple[CostKind, int], int]]
"""Pairs ((primitive, levels below the entry), calls) of an op."""
Layer = int | None
"""Index of a block; None for ops outside of all blocks."""
Key = TypeVar("Key")
Engine = TypeVar("Engine", bound=CountingEngine)
_TOP = 64
"""A level that is high enough for every kernel."""


@dataclass
class ProgramCosts:
    """Counts of a ckks module by op."""

    module: Module
    per_op: dict[Op, Counts]

    @cached_property
    def total(self) -> Counts:
        """Counts of the whole program."""
        return merged(self.per_op.values())

    def by(self, key: Callable[[Op], Key]) -> dict[Key, Counts]:
        """Counts of the ops with equal keys, in the order of the program."""
        groups: dict[Key, Counts] = {}
        for op, counts in self.per_op.items():
            groups.setdefault(key(op), Counts()).merge(counts)
        return groups

    def rotation_keys(self, counts: Counts | None = None) -> dict[int, int]:
        """Amount -> level of the keys behind the rotations of some counts, by default of all."""
        used = dict(sorted((self.total if counts is None else counts).rotation_levels.items()))
        plan = RotationPlan.of(self.module)
        return used if plan is None else plan.used(used)

    @cached_property
    def path(self) -> CriticalPath:
        """The path that consumes most levels."""
        return critical_path(self.module)

    @cached_property
    def live(self) -> Peaks:
        """The ciphertexts when memory peaks."""
        return live_ciphertexts(self.module)

    @cached_property
    def constants(self) -> int:
        """Bytes of the program's arrays."""
        return sum(array.nbytes for array in self.module.arrays_used().values())

    @cached_property
    def copied(self) -> int:
        """Most bytes of the arrays of one op, of which a device has copies: in 32 bits or more."""
        arrays = self.module.symbols
        used = ({one.name for one in symbols_in(op.attributes)} for op in self.module.ops)
        sums = (
            sum(arrays[name].size * max(arrays[name].dtype.itemsize, 4) for name in names)
            for names in used
        )
        return max(sums, default=0)


def live_ciphertexts(module: Module) -> Peaks:
    """The ciphertexts when memory peaks, for a ckks module with levels.

    Inputs and outputs are held to the end, every other value until its last use. Ciphertexts inside
    an op are those that its kernel holds.
    """
    engine = LiveEngine(*shape_of(module))
    inputs = {
        op.attributes["name"]: [
            engine.encrypt(None, op.attributes.get("level"))
            for _ in range(op.value.ciphertext.ciphertexts)
        ]
        for op in module.inputs
    }
    execute(engine, module, inputs)
    return engine.peaks


def shape_of(module: Module) -> EngineParameters:
    """The smallest shape of engines for a ckks module, with or without levels."""
    attributes = module.attributes
    levels = attributes.get("levels") or 0
    given = [op.attributes.get("level", 0) for op in module.inputs]
    top = max(levels, *given, *module.depths().values())
    return EngineParameters(
        attributes["slots"], top, levels or None, attributes.get("bootstrap_batch", 1)
    )


def merged(parts: Iterable[Counts]) -> Counts:
    """Sum of counts."""
    result = Counts()
    for counts in parts:
        result.merge(counts)
    return result


def program_costs(module: Module) -> ProgramCosts:
    """Count a ckks module (with or without levels), whose arrays may be missing.

    Each op is counted as if no earlier op had rescaled its operands, so that its counts depend only
    on the op itself.
    """
    functions = Functions(module, shape_of(module), costs_only=True)
    per_op = {op: Counts() for op in module.ops}
    return ProgramCosts(
        module, per_op | {op: counts_of(function) for op, function in functions.calls()}
    )


class CriticalPath(NamedTuple):
    """Levels along the deepest path: of nonlinear ops, of all ops, and both by layer."""

    nonlinear: int
    total: int
    per_layer: dict[Layer, tuple[int, int]]


def critical_path(module: Module) -> CriticalPath:
    """The path that consumes most levels from an input to an output.

    An op counts as nonlinear if it was expanded from a nonlinear function (``part``). The level
    that copies take to share a sum does not count, because the placement had it to spare.
    """

    def needed(op: Op) -> int:
        shared = op.name == "ckks.chebyshev" and "copies" in op.attributes
        return op.levels(module.symbols) - shared

    deepest = module.depths(needed)
    ends = [op.operands[0] for op in module.outputs]
    value: Value | None = max(ends, key=lambda end: deepest[end])
    per_layer: dict[Layer, tuple[int, int]] = {}
    while value is not None:
        op = value.op
        consumed = needed(op)
        nonlinear, total = per_layer.get(op.layer, (0, 0))
        counted = consumed if "part" in op.attributes else 0
        per_layer[op.layer] = (nonlinear + counted, total + consumed)
        value = max(op.operands, key=lambda operand: deepest[operand], default=None)
    nonlinear, total = (sum(column) for column in zip(*per_layer.values(), strict=True))
    return CriticalPath(nonlinear, total, per_layer)


def op_profiles(module: Module) -> Callable[[Op], Profile]:
    """Function that gives the primitives of an op of a packed module, by levels below its entry
    level.

    All operands of an op arrive at one level, and a kernel never depends on this level: a primitive
    that runs d levels below the entry does so for every entry level. So the module may have levels
    or not.
    """
    functions = Functions(
        module, EngineParameters(module.attributes["slots"], _TOP), costs_only=True
    )

    @cache
    def below_top(function: Function) -> Profile:
        counted = counts_of(function).primitives.items()
        return frozenset(((name, _TOP - level), n) for (name, level), n in counted)

    def profile(op: Op) -> Profile:
        encrypted = [value.ciphertext for value in op.operands if value.encrypted]
        return below_top(functions.of(op, [[_TOP] * kind.ciphertexts for kind in encrypted]))

    return profile


def seconds_by_level(
    profile: Profile, depth: int, costs: PrimitiveCosts, levels: int
) -> tuple[float, ...]:
    """Seconds of an op by entry level 0..levels; infinite below its depth."""
    total = np.zeros(levels + 1)
    total[:depth] = np.inf
    for (primitive, below), calls in profile:
        for level in range(max(depth, below), levels + 1):
            total[level] += calls * costs[primitive, level - below]
    return tuple(total.tolist())


def op_costs(
    module: Module, costs: PrimitiveCosts, levels: int
) -> Callable[[Op], tuple[float, ...]]:
    """Seconds of the ops of a ckks module without levels, by entry level 0..levels."""
    profile = op_profiles(module)
    table = cache(lambda profile, depth: seconds_by_level(profile, depth, costs, levels))
    return lambda op: table(profile(op), op.levels(module.symbols))


@dataclass(frozen=True)
class Polynomial:
    """A Chebyshev sum, as far as it affects costs: ``pattern`` has a 1 for each non-zero
    coefficient; ``channels`` says whether coefficients are vectors with one element per channel.
    """

    pattern: bytes
    channels: bool = False

    @staticmethod
    def of(coefficients: NDArray[np.float64]) -> Polynomial:
        """The polynomial of coefficients [degree + 1], or [C, degree + 1] if channels differ."""
        present = np.atleast_2d(np.asarray(coefficients) != 0.0).any(axis=0)
        return Polynomial(present.tobytes(), np.ndim(coefficients) > 1)

    @property
    def depth(self) -> int:
        """Number of levels that the polynomial takes."""
        return (len(self.pattern) - 1).bit_length()

    def profile(self, copies: int = 1) -> Profile:
        """Primitives by levels below the entry, for one ciphertext whose copies share the sum."""
        return _polynomial_profile(self, copies)

    def shared(self, most: int, costs: PrimitiveCosts, levels: int) -> Shared | None:
        """The number of copies, ``most`` or less, that share the sum at the least cost, if this
        costs less than the whole sum in every copy; None if it does not.

        The highest of ``levels`` decides, because all costs grow with the level in the same way.
        """
        depth, one = self.depth + 1, seconds_by_level(self.profile(), self.depth, costs, levels)
        if self.channels or depth > levels:
            return None
        least = min(most, 1 << max(self.depth - 1, 0))
        found = [
            Shared(copies, depth, seconds_by_level(self.profile(copies), depth, costs, levels))
            for copies in (2**bits for bits in range(1, least.bit_length()))
        ]
        best = min(found, key=lambda shared: shared.seconds[levels], default=None)
        return best if best is not None and best.seconds[levels] < one[levels] else None


class Shared(NamedTuple):
    """A Chebyshev sum that copies of its argument share: levels, and seconds by entry level."""

    copies: int
    depth: int
    seconds: tuple[float, ...]

    def times(self, ciphertexts: int) -> tuple[float, ...]:
        """Seconds of several ciphertexts."""
        return tuple(ciphertexts * one for one in self.seconds)


@lru_cache(maxsize=4096)
def _polynomial_profile(polynomial: Polynomial, copies: int) -> Profile:
    # No two coefficients are equal, as in real sums, so that no difference vanishes.
    kept = np.frombuffer(polynomial.pattern, dtype=np.bool_)
    coefficients = kept / np.arange(1, len(kept) + 1)
    plan = plan_chebyshev(coefficients[None] if polynomial.channels else coefficients, copies)
    engine = CountingEngine(2 * copies, plan.levels)
    sum_of_parts(engine, evaluate_plan(engine, Counted(plan.levels), plan), copies, 1)
    counted = engine.counts[engine.scope].primitives
    return frozenset(
        ((primitive, plan.levels - level), calls) for (primitive, level), calls in counted.items()
    )
