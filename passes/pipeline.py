"""The pipeline: one list of passes, which takes a model from nn to ciphertexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from atlasc.analyses.bounds import INPUTS, with_bounds
from atlasc.analyses.observed import with_magnitudes, with_noise_gains
from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS, Analysis
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.approximation.approximate import Approximate
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.calibration.centre_keys import CentreKeys
from atlasc.passes.calibration.fill_padding import FillPadding
from atlasc.passes.calibration.scale_tokens import ScaleTokens
from atlasc.passes.framework.pass_base import (
    ChooseParameters,
    Cost,
    Goal,
    Parameters,
    Pass,
    Report,
    run_passes,
)
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.assign_scales import AssignScales
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.merge_equal_ops import MergeEqualOps
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import is_step, least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.select_early import SelectEarly
from atlasc.program.costs import PrimitiveCosts

PIPELINE: tuple[type[Pass], ...] = (
    Canonicalise,
    FillPadding,
    CentreKeys,
    ScaleTokens,
    Approximate,
    Expand,
    NormaliseAffine,
    FoldFeatures,
    MergeEqualOps,
    AssignScales,
    SelectEarly,
    Pack,
    GatherSums,
    PlaceBootstraps,
    RotationKeys,
)
"""The passes in the order in which they run. Each class declares what its pass takes and keeps."""

AfterEach = Callable[[Pass, Module, Report], None]
CostsOf = Callable[[Any], PrimitiveCosts]
"""Maps a parameter set to the seconds of its primitives."""
PassKinds = Sequence[type[Pass]]

PACKINGS = (False, True)
"""Packings of a program: features in the top slot bits, and in the low ones."""
COMPUTE: dict[Analysis, Callable[[Module, Mapping[str, np.ndarray]], Module]] = {
    MAGNITUDES: with_magnitudes,
    NOISE_GAINS: with_noise_gains,
}
"""Analysis -> function from a module and calibration inputs to a copy with the analysis's
result.
"""

_RUNS = [kind for kind in PIPELINE if kind.when != "settings"]
_CHOICE = next(position for position, kind in enumerate(_RUNS) if kind.when == "cheaper")
STEPS = tuple(kind.name for kind in _RUNS)
"""Classes of the passes that a program goes through, in order; some may be left out."""
FOLDING, LOWERING = _RUNS[:_CHOICE], _RUNS[_CHOICE:]
"""Passes whose result does not depend on the target, and the passes from the first ``cheaper``
on.
"""


@dataclass(frozen=True)
class Lowered:
    """A lowered model.

    Attributes:
        client: nn module from raw inputs to the tensors that are encrypted.
        poly: folded poly module: the program in the clear; with ``bound`` at bootstrapped values.
        program: packed ckks module with levels, bootstraps and keys.
        parameters: the chosen parameter set.
        head: nn module from the program's outputs to those of the model, which the client computes
            in the clear; None if they are the same.
    """

    client: Module
    poly: Module
    program: Module
    parameters: Parameters
    head: Module | None = None


def client_module(module: Module) -> Module:
    """The client's part of an nn module, from raw inputs to the tensors that it encrypts.

    Every ``nn.encrypt`` becomes an output of the same name: the outputs are the inputs of the poly
    module that ``expand`` makes from the same module.
    """
    rewriter, users = Rewriter(module), module.users()
    for op in module.ops:
        if op.name == "nn.encrypt":
            rewriter.module.add(
                "nn.output", rewriter.operands(op), {"name": op.value.name}, op.location
            )
        elif op.result is not None and (
            op.result.tensor.side == "client"
            # a mask that the client counts positions by
            or any(u.result and u.value.tensor.side == "client" for u in users[op.result])
        ):
            rewriter.copy(op)
    return without_dead_ops(rewriter.module)


def to_poly(
    module: Module,
    inputs: Mapping[str, np.ndarray] | None = None,
    after_each: AfterEach | None = None,
) -> tuple[Module, Module]:
    """The client's part and the folded poly module of an nn module with approximations.

    Args:
        module: nn module whose nonlinear ops on the server have approximations.
        inputs: raw inputs by name; with them, the analyses that later passes need are computed.
        after_each: called after every pass with the pass, its result and its report.
    """
    client = module
    for position, kind in enumerate(FOLDING):
        if kind.gives == "poly":
            client = client_module(module)
            inputs = None if inputs is None else {**inputs, **interpret(client, inputs)}
        module = run_passes(module, [kind()], after_each=after_each)
        for analysis, compute in COMPUTE.items():
            missing = module.level == analysis.level and not analysis.is_known(module)
            if inputs and missing and _reaches(analysis, _RUNS[position + 1 :]):
                module = compute(module, inputs)
    return client, module


def require_kept() -> None:
    """Refuse a pipeline in which a pass loses statistics of the calibration that nothing computes
    again: bootstraps would be placed, and errors bounded, without them.
    """
    for kind in LOWERING:
        for analysis in COMPUTE:
            if analysis not in kind.keeps:
                raise AtlasError(
                    f"the pass {kind.name} does not keep the {analysis.name}",
                    why="later passes and the noise bound read this analysis, and nothing computes "
                    "it again after the pass",
                    remedy=f"set keeps = ({', '.join(a.symbol for a in COMPUTE)}) in the class, "
                    "and give each new op the attributes observed(op) of the op that it replaces",
                )


def _reaches(analysis: Analysis, following: PassKinds) -> bool:
    """Whether a later pass needs an analysis, and all passes before that pass keep it."""
    first = next((k for k in following if analysis in k.needs or analysis not in k.keeps), None)
    return first is not None and analysis in first.needs


def lower_nn(
    module: Module,
    choose: ChooseParameters,
    inputs: Mapping[str, np.ndarray] | None = None,
    after_each: AfterEach | None = None,
    costs: CostsOf | None = None,
    packings: Sequence[bool] = PACKINGS,
) -> Lowered:
    """Lower a model and choose its parameters: without bootstraps if the whole program fits.

    Args:
        module, inputs: see ``to_poly``.
        choose: the backend's choice of parameters.
        after_each: called after every pass with the pass, its result and its report.
        costs: gives the costs of a parameter set; with them bootstraps are placed for the least
            predicted time.
        packings: those of `PACKINGS` that may be chosen; without costs the first one is taken.

    Raises:
        AtlasError: a pass fails, no parameter set fits, or a pass loses what later passes need.
    """
    require_kept()
    client, poly = to_poly(module, inputs, after_each)
    poly, program, parameters = lower_poly(poly, choose, after_each, costs, packings)
    if inputs:
        some = {name: array[:INPUTS] for name, array in inputs.items()}
        some |= interpret(client, some)
        poly = with_bounds(poly, program, some, *parameters.bootstrap_errors)
    return Lowered(client, poly, program, parameters)


def lower_poly(
    poly: Module,
    choose: ChooseParameters,
    after_each: AfterEach | None = None,
    costs: CostsOf | None = None,
    packings: Sequence[bool] = PACKINGS,
) -> tuple[Module, Module, Parameters]:
    """The poly module that is packed, its program, and its parameters; see ``lower_nn``."""
    tried = packings if costs is not None else packings[:1]
    found = _Choice(choose, costs, tried).best(poly, LOWERING)
    packs = next(at for at, step in enumerate(found.passes) if step.gives == "ckks")
    poly = run_passes(poly, found.passes[:packs], after_each=after_each)
    program = run_passes(poly, found.passes[packs:], after_each=after_each)
    return poly, program, found.parameters


def select_optional(poly: Module) -> Module:
    """A folded poly module after all passes before packing, also those kept only if cheaper."""
    return run_passes(poly, [kind() for kind in LOWERING[: LOWERING.index(Pack)]])


def packed(poly: Module, pack: Pack, optional: bool = True) -> Module:
    """A poly module in ciphertexts, with all passes before levels are placed.

    Args:
        poly: from ``to_poly``, or after ``select_optional``.
        pack: how it is packed.
        optional: whether to run passes that are otherwise kept only if cheaper.
    """
    kinds = LOWERING[LOWERING.index(Pack) + 1 : LOWERING.index(PlaceBootstraps)]
    chosen = [kind() for kind in kinds if optional or kind.when == "always"]
    return run_passes(poly, [pack, *chosen])


def levels_and_slots(poly: Module, features_low: bool = False) -> tuple[int, int]:
    """The facts that parameters are chosen by: the program's levels, and the slots that it
    needs.
    """
    slots = least_slots(poly)
    # Copies of a row that do more than repeat it take levels, and only more slots bring copies.
    several = max(slots, Pack.slots) if is_step(poly) else slots
    module = packed(poly, Pack(several, features_low), False)
    depths, ends = module.depths(), module.outputs
    # What another program reads leaves at a level of its own.
    levels = max(depths[end.operands[0]] + end.attributes.get("level", 0) for end in ends)
    return levels, slots


class _Found(NamedTuple):
    """A way to lower a poly module: its passes, its parameters and its cost."""

    passes: list[Pass]
    parameters: Parameters
    cost: Cost


@dataclass(frozen=True)
class _Choice:
    """Decides which passes are kept; see ``lower_nn`` for the attributes."""

    choose: ChooseParameters
    costs: CostsOf | None
    packings: Sequence[bool]

    def best(
        self, module: Module, kinds: PassKinds, goal: Goal | None = None, levels: int = 0
    ) -> _Found:
        """The cheapest way through these passes.

        Raises AtlasError if no way leads to a program, even without the optional passes.
        """
        kind, *rest = kinds
        if kind is Pack:
            return self._packed(module, rest)
        step = kind() if goal is None else kind.for_goal(goal)
        if isinstance(step, PlaceBootstraps):
            assert goal is not None, "levels are placed before a program is packed"
            placement, _ = step.solve(module)
            steps = [step, *(k.for_goal(goal) for k in rest)]
            return _Found(steps, goal.parameters, (placement.cost, levels))
        if step.when == "always":
            found = self.best(run_passes(module, [step]), rest, goal, levels)
            return found._replace(passes=[step, *found.passes])
        taken: _Found | None = None
        if step.applies(module, goal):
            with suppress(AtlasError):  # it cannot be packed, or needs too many levels
                taken = self.best(run_passes(module, [step]), rest, goal, levels)
        without = cache(lambda: self.best(module, rest, goal, levels))
        if taken is not None and step.pays(taken.cost, lambda: without().cost, goal):
            return taken._replace(passes=[step, *taken.passes])
        return without()

    def _packed(self, module: Module, rest: PassKinds) -> _Found:
        """The faster packing, and the cheapest way through the passes after it."""

        def way(features_low: bool) -> _Found:
            levels, slots = levels_and_slots(module, features_low)
            parameters = self.choose(levels, slots)
            costs = None if self.costs is None else self.costs(parameters)
            goal = Goal(parameters, costs)
            step = Pack.of(parameters, features_low)
            found = self.best(run_passes(module, [step]), rest, goal, levels)
            return found._replace(passes=[step, *found.passes])

        ways, refused = list[_Found](), list[AtlasError]()
        for features_low in self.packings[:1] if is_step(module) else self.packings:
            try:
                ways.append(way(features_low))
            except AtlasError as error:  # too large, or too many levels
                refused.append(error)
        if not ways:
            raise refused[0]
        return min(ways, key=lambda found: found.cost[0])
