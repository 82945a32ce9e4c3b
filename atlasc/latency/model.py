"""Predicted seconds of a model under any approximations, without lowering it for each.

`outline` reduces an approximation to what affects the lowering. `segments` cuts a packed program at
places where a single value crosses, and turns each segment into a (min,+) table for a parameter
set. This module chains the tables.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.calibration.measure import nonlinear_ops
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.latency.outline import Outline, outline
from atlasc.latency.segments import (
    ProgramSegment,
    SegmentedProgram,
    Tables,
    cut,
    places_of,
)
from atlasc.passes.approximation.approximate import with_approximations
from atlasc.passes.framework.pass_base import ChooseParameters, Goal, Parameters
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.pipeline import (
    PACKINGS,
    CostsOf,
    levels_and_slots,
    packed,
    select_optional,
    to_poly,
)
from atlasc.polynomials.description import Approximation
from atlasc.program.costs import Polynomial, PrimitiveCosts
from atlasc.targets.base import Target
from atlasc.targets.costs import BOOTSTRAPS, costs_of
from atlasc.targets.parameters import ParameterSet

Seconds = NDArray[np.float64]
Approximations = Mapping[str, Approximation]
"""Result name of a nonlinear op -> its approximation."""
_Key = tuple[int, tuple[int, ...]]
"""Number of a segment, and the numbers of its ops' steps."""
MORE = 2.0**-10
"""Seconds by which bootstraps are told from other work; far below the least of them."""
LOWERED = 32
"""Number of poly modules that are kept: each is packed for several parameter sets."""


class PackingChoice(NamedTuple):
    """How a program is packed, and whether sums are gathered into one ciphertext, as in one with
    bootstraps.
    """

    pack: Pack
    gathered: bool


@dataclass(frozen=True)
class LatencyTarget:
    """The target's part in latencies: its choice of parameters, and its costs for each set."""

    choose: ChooseParameters
    costs: CostsOf

    @classmethod
    def of(cls, target: Target, costs: Path | None = None, fewer_keys: int = 0) -> LatencyTarget:
        """Parameter sets and costs of a target, with a cost table; None for the table in use.
        ``fewer_keys``: a step of `ParameterSet.with_fewer_keys`.
        """

        def choose(levels: int, slots: int = 1) -> ParameterSet:
            found = target.parameters.choose(levels, slots).costed_by(costs)
            return found.with_fewer_keys(fewer_keys)

        return cls(choose, costs_of)


class LatencyModel:
    """Predicts the seconds of the lowered program with its bootstraps placed for the least time, in
    the faster packing.

    Args:
        module, target, reference: see `PackedLatency`.

    Attributes:
        packings: the model of each packing that the program has.

    Raises:
        AtlasError: the lowering fails in every packing.
    """

    def __init__(self, module: Module, target: LatencyTarget, reference: Approximations) -> None:
        self._reference = dict(reference)
        self.packings: list[PackedLatency] = []
        refused: list[AtlasError] = []
        shapes = copy.copy(module)
        shapes.symbols = {name: _shape(array) for name, array in module.symbols.items()}

        @lru_cache(LOWERED)
        def poly(approximations: frozenset[tuple[str, Approximation]]) -> Module:
            approximated = with_approximations(shapes, dict(approximations))
            return select_optional(to_poly(approximated)[1])

        for features_low in PACKINGS:
            try:
                self.packings.append(PackedLatency(module, target, poly, reference, features_low))
            except AtlasError as error:
                refused.append(error)
        if not self.packings:
            raise refused[0]

    def fastest(self, approximations: Approximations) -> tuple[float, PackedLatency]:
        """Predicted seconds, and the model of the faster packing; infinite if the program cannot be
        placed in any.

        Raises AtlasError for an op without approximation.
        """
        found: list[tuple[float, PackedLatency]] = []
        refused: list[AtlasError] = []
        for one in self.packings:
            try:
                found.append((one.seconds(approximations), one))
            except AtlasError as error:  # too many levels, or other segments
                refused.append(error)
        if not found:
            raise refused[0]
        return min(found, key=lambda pair: pair[0])

    def seconds(self, approximations: Approximations) -> float:
        """Predicted seconds in the faster packing; see `fastest`."""
        return self.fastest(approximations)[0]

    def bootstraps(self, approximations: Approximations) -> int:
        """Bootstraps of the program in the faster packing."""
        return self.fastest(approximations)[1].bootstraps(approximations)

    def levels(self, approximations: Approximations) -> int:
        """Levels of the whole program on its longest path, in the faster packing."""
        return self.fastest(approximations)[1].levels(approximations)

    def parameters(self, approximations: Approximations) -> Parameters:
        """The parameter set that the target chooses for the faster packing."""
        return self.fastest(approximations)[1].parameters(approximations)

    def digest(self) -> str:
        """SHA-256 (hex) of the costs of the reference program's parameter sets."""
        found = [one.digest(self._reference) for one in self.packings]
        return hashlib.sha256(" ".join(found).encode()).hexdigest()


class PackedLatency:
    """Predicts the seconds of the lowered program in one packing.

    A program is lowered once for each kind of steps of its approximations (for an iterative
    softmax: once for each number of iterations and of renormalisations), with weights that have
    shapes but no values. All values count as lying in a bootstrap's range.

    Args:
        module: nn module.
        target: parameters and costs of the target.
        poly: the folded poly module under approximations, before it is packed.
        reference: approximations of all nonlinear ops, for the first lowering.
        features_low: whether features lie in the low slot bits.

    Attributes:
        chain: parameters -> the program under this set, as a `TimedChain`.

    Raises:
        AtlasError: the lowering fails, or the program has several encrypted inputs.
    """

    def __init__(
        self,
        module: Module,
        target: LatencyTarget,
        poly: Callable[[frozenset[tuple[str, Approximation]]], Module],
        reference: Approximations,
        features_low: bool,
    ) -> None:
        self._features_low = features_low
        self._ops = {op.value.name: op for op in nonlinear_ops(module)}
        self._target, self._reference = target, dict(reference)
        self._poly, self._choose = poly, cache(target.choose)
        self._places = places_of(module)
        self._outlines: dict[tuple[str, Approximation], tuple[int, Outline]] = {}
        self._steps: dict[tuple[Any, ...], int] = {}
        self._segments: dict[PackingChoice, dict[_Key, ProgramSegment]] = {}
        self._programs: dict[PackingChoice, SegmentedProgram] = {}
        self._same: dict[tuple[Any, ...], ProgramSegment] = {}
        self._asked: dict[tuple[Any, ...], tuple[ProgramSegment, tuple[Polynomial, ...]]] = {}
        self._depth = cache(ProgramSegment.depth)
        self.chain: Callable[[Any], TimedChain] = cache(
            lambda parameters: TimedChain(self, parameters, target)
        )
        slower = LatencyTarget(target.choose, lambda parameters: _longer(target.costs(parameters)))
        self._longer: Callable[[Any], TimedChain] = cache(
            lambda parameters: TimedChain(self, parameters, slower)
        )
        self._first = self._poly(frozenset(self._reference.items()))
        levels, self._least_slots = levels_and_slots(self._first, features_low)
        chosen = self._choose(levels, self._least_slots)
        self._without_bootstraps = PackingChoice(Pack.of(chosen, features_low), False)

    def seconds(self, approximations: Approximations) -> float:
        """Predicted seconds; infinite if the program cannot be placed.

        Raises AtlasError for an op without approximation.
        """
        return self.chain(self.parameters(approximations)).seconds(approximations)

    def bootstraps(self, approximations: Approximations) -> int:
        """Bootstraps of the fastest placement.

        The tables have seconds alone. If each bootstrap takes `MORE` seconds more, the program
        takes that much longer for each of its bootstraps.
        """
        parameters = self.parameters(approximations)
        if parameters.bootstrap_level is None:
            return 0
        longer = self._longer(parameters).seconds(approximations)
        return round((longer - self.chain(parameters).seconds(approximations)) / MORE)

    def levels(self, approximations: Approximations) -> int:
        """Levels of the whole program on its longest path."""
        packing = self._without_bootstraps
        numbers = range(len(self.program(packing).cuts))
        return sum(self._depth(*self.segment(packing, n, approximations)) for n in numbers)

    def parameters(self, approximations: Approximations) -> Parameters:
        """The parameter set that the target chooses."""
        return self._choose(self.levels(approximations), self._least_slots)

    def parameters_from(self, levels: int) -> list[Parameters]:
        """All sets that the target chooses for programs of `levels` levels or more."""
        found: list[Parameters] = []
        while not found or found[-1].bootstrap_level is None:
            try:
                parameters = self._choose(levels, self._least_slots)
            except AtlasError:  # a target without bootstraps has a last set
                break
            if parameters not in found:
                found.append(parameters)
            levels += 1
        return found

    def digest(self, approximations: Approximations) -> str:
        """SHA-256 (hex) of the costs of a program's parameter set."""
        parameters = self.parameters(approximations)
        costs = sorted(self._target.costs(parameters).items())
        return hashlib.sha256(f"{parameters} {costs}".encode()).hexdigest()

    def packing(self, parameters: Parameters) -> PackingChoice:
        """The packing for a parameter set."""
        gathered = parameters.bootstrap_level is not None
        return PackingChoice(Pack.of(parameters, self._features_low), gathered)

    def program(self, packing: PackingChoice) -> SegmentedProgram:
        """The reference program in a packing."""
        if packing not in self._programs:
            self._programs[packing] = self._cut(self._first, packing, self._reference)
            self._register(packing, self._programs[packing], self._reference)
        return self._programs[packing]

    def segment(
        self, packing: PackingChoice, number: int, approximations: Approximations
    ) -> tuple[ProgramSegment, tuple[Polynomial, ...]]:
        """A segment under approximations, and the polynomials for its open sums."""
        names = self.program(packing).cuts[number].names
        # A search asks for a few choices of each segment, a hundred thousand times.
        asked = (packing, number, *map(approximations.get, names))
        if asked not in self._asked:
            self._asked[asked] = self._found(packing, number, names, approximations)
        return self._asked[asked]

    def _found(
        self,
        packing: PackingChoice,
        number: int,
        names: Sequence[str],
        approximations: Approximations,
    ) -> tuple[ProgramSegment, tuple[Polynomial, ...]]:
        outlines = [self._outline(name, approximations) for name in names]
        key = (number, tuple(steps for steps, _ in outlines))
        known = self._segments[packing]
        if key not in known:
            self._learn(packing, names, approximations)
        if key not in known:
            raise AtlasError(
                "the latency of these approximations cannot be predicted",
                why="with them the program falls into other segments",
                remedy="use --cost levels",
            )
        return known[key], tuple(p for _, one in outlines for p in one.polynomials)

    def _outline(self, name: str, approximations: Approximations) -> tuple[int, Outline]:
        op = self._ops[name]
        if name not in approximations:
            raise AtlasError(
                f"{op.name} has no approximation, so its latency is not known", where=op.location
            )
        key = (op.name, approximations[name])
        if key not in self._outlines:
            found = outline(op, approximations[name])
            steps = self._steps.setdefault(found.steps, len(self._steps))
            self._outlines[key] = (steps, found)
        return self._outlines[key]

    def _learn(self, packing: PackingChoice, names: Sequence[str], given: Approximations) -> None:
        """Lower a program in which all ops like the named ones have their steps.

        Two ops are alike if they apply the same function to arguments of the same shape: an
        approximation may have one constant for each channel.
        """
        like = {_alike(self._ops[name]): given[name] for name in names}
        chosen = {
            name: like.get(_alike(op), self._reference[name]) for name, op in self._ops.items()
        }
        chosen |= {name: given[name] for name in names}
        poly = self._poly(frozenset(chosen.items()))
        self._register(packing, self._cut(poly, packing, chosen), chosen)

    def _register(
        self, packing: PackingChoice, found: SegmentedProgram, given: Approximations
    ) -> None:
        known = self._segments.setdefault(packing, {})
        if [one.names for one in found.cuts] != [one.names for one in self._programs[packing].cuts]:
            return
        for number, one in enumerate(found.cuts):
            key = (number, tuple(self._outline(name, given)[0] for name in one.names))
            content = (one.segment.pieces, one.segment.last)
            known.setdefault(key, self._same.setdefault(content, one.segment))

    def _cut(self, poly: Module, packing: PackingChoice, given: Approximations) -> SegmentedProgram:
        sums = {
            place: sum(len(self._outline(name, given)[1].polynomials) for name in names)
            for place, names in self._places.items()
        }
        return cut(packed(poly, *packing), self._places, sums)


class TimedChain:
    """A program under one parameter set: seconds from the fresh input through all segments.

    Attributes:
        names: result names of the nonlinear ops of each segment.
        start: [L] seconds by level of the input.
    """

    def __init__(self, model: PackedLatency, parameters: Parameters, target: LatencyTarget) -> None:
        self.parameters, self._model = parameters, model
        costs = target.costs(parameters)
        self._tables = Tables(PlaceBootstraps.for_goal(Goal(parameters, costs)).chain, costs)
        self._packing = model.packing(parameters)
        program = model.program(self._packing)
        self.names = tuple(one.names for one in program.cuts)
        self.start = self._tables.start(program.width)

    def table(self, number: int, approximations: Approximations) -> Seconds:
        """Seconds of a segment, [level before, level after]; of the last segment [level before]."""
        return self._tables.of(*self._model.segment(self._packing, number, approximations))

    def seconds(self, approximations: Approximations) -> float:
        """Least seconds of the program; infinite if it cannot be placed."""
        reached = self.start
        for number in range(len(self.names) - 1):
            reached = (reached[:, None] + self.table(number, approximations)).min(axis=0)
        return float((reached + self.table(len(self.names) - 1, approximations)).min())


def _longer(costs: PrimitiveCosts) -> PrimitiveCosts:
    """Costs under which each bootstrap takes `MORE` seconds more."""
    return {key: cost + MORE * (key[0] in BOOTSTRAPS) for key, cost in costs.items()}


def _alike(op: Op) -> tuple[str, tuple[int, ...]]:
    return op.name, op.operands[0].tensor.shape


def _shape(array: np.ndarray) -> np.ndarray:
    """An array of the same shape that stores only one number."""
    if not array.ndim or not np.issubdtype(array.dtype, np.floating):
        return array
    return np.broadcast_to(array.dtype.type(0.01), array.shape)
