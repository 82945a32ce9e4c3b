"""From an nn module with approximations to a program of packed ciphertexts: the passes in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.analyses.magnitudes import with_magnitudes
from atlasc.passes.analyses.noise_gains import with_noise_gains
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.costs.counts import critical_path
from atlasc.passes.costs.op_costs import PrimitiveCosts
from atlasc.passes.framework.pass_base import Pass, Report, run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.assign_scales import AssignScales
from atlasc.passes.lowering.client_part import client_part
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.gather_sums import GatherSums
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.select_early import SelectEarly

AfterEach = Callable[[Pass, Module, Report], None]


class Parameters(Protocol):
    """What the lowering must know of a parameter set."""

    @property
    def slots(self) -> int:
        """Slots of a ciphertext."""
        ...

    @property
    def max_level(self) -> int:
        """Levels of a fresh ciphertext."""
        ...

    @property
    def bootstrap_level(self) -> int | None:
        """Levels after a bootstrap; None where there is none."""
        ...

    @property
    def bootstrap_batch(self) -> int:
        """Ciphertexts that one bootstrap refreshes."""
        ...

    @property
    def bootstrap_errors(self) -> tuple[float, float]:
        """``error`` and ``cubic`` of `PlaceBootstraps`."""
        ...


ChooseParameters = Callable[[int, int], Parameters]
"""(levels of the whole program, least number of slots) to the cheapest parameter set."""
CostsOf = Callable[[Any], PrimitiveCosts]
"""A parameter set to the seconds of its primitives."""


@dataclass(frozen=True)
class Lowered:
    """A lowered model.

    Attributes:
        client: nn module from raw inputs to the tensors that are encrypted.
        poly: folded poly module, the program's cleartext meaning.
        program: packed ckks module with levels, bootstraps and keys.
        parameters: the chosen parameter set.
    """

    client: Module
    poly: Module
    program: Module
    parameters: Parameters


def to_poly(
    module: Module,
    inputs: Mapping[str, np.ndarray] | None = None,
    after_each: AfterEach | None = None,
) -> tuple[Module, Module]:
    """The client's part and the folded poly module of an nn module with approximations.

    Args:
        module: nn module; its nonlinear ops on the server carry approximations.
        inputs: raw inputs by name; with them every op learns its magnitude, which bootstraps need,
            and its noise gain.
    """
    module = run_passes(module, [Canonicalise()], after_each=after_each)
    client = client_part(module)
    folding = [Expand(), NormaliseAffine(), FoldFeatures()]
    poly = run_passes(module, folding, after_each=after_each)
    if inputs is None:
        return client, run_passes(poly, [AssignScales()], after_each=after_each)
    given = {**inputs, **interpret(client, inputs)}
    poly = with_magnitudes(poly, given)
    poly = run_passes(poly, [AssignScales()], after_each=after_each)
    return client, with_noise_gains(poly, given)


def lower_nn(
    module: Module,
    choose: ChooseParameters,
    inputs: Mapping[str, np.ndarray] | None = None,
    after_each: AfterEach | None = None,
    costs: CostsOf | None = None,
    fewest: bool = False,
) -> Lowered:
    """Lower a model and choose its parameters: without bootstraps when the whole program fits.

    Args:
        module: nn module with approximations.
        choose: the backend's choice of parameters.
        inputs: raw calibration inputs (see ``to_poly``).
        after_each: called after every pass with the pass, its result and its report.
        costs: of a parameter set; with them bootstraps are placed for the least predicted time.
        fewest: with costs: the fewest bootstraps are wanted, and only then the least time.

    Raises:
        AtlasError: of any pass; no parameter set fits.
    """
    client, poly = to_poly(module, inputs, after_each)
    plan = _best_plan(poly, choose, costs, fewest)
    poly = run_passes(poly, plan.first, after_each=after_each)
    program = run_passes(poly, plan.passes, after_each=after_each)
    return Lowered(client, poly, program, plan.parameters)


def lower_poly(
    poly: Module,
    choose: ChooseParameters,
    after_each: AfterEach | None = None,
    costs: CostsOf | None = None,
    fewest: bool = False,
) -> tuple[Module, Parameters]:
    """The packed program of a folded poly module, and its parameters; see ``lower_nn``."""
    plan = _best_plan(poly, choose, costs, fewest)
    return run_passes(poly, [*plan.first, *plan.passes], after_each=after_each), plan.parameters


@dataclass(frozen=True)
class _Plan:
    """A way to lower a poly module.

    Attributes:
        parameters: the parameter set.
        first: passes before packing.
        passes: from packing on.
        cost: of the placement of bootstraps, and levels.
    """

    parameters: Parameters
    first: list[Pass]
    passes: list[Pass]
    cost: tuple[float, int]

    @staticmethod
    def of(
        poly: Module,
        first: list[Pass],
        choose: ChooseParameters,
        costs: CostsOf | None,
        fewest: bool,
    ) -> _Plan:
        """The plan with some passes before packing; AtlasError where there is none."""
        slots = least_slots(poly)
        levels = critical_path(run_passes(poly, [*first, Pack(slots)])).total
        parameters = choose(levels, slots)
        place = PlaceBootstraps(
            parameters.bootstrap_level or parameters.max_level,
            parameters.bootstrap_level is not None,
            parameters.bootstrap_batch,
            None if costs is None else costs(parameters),
            fewest,
            *parameters.bootstrap_errors,
        )
        pack = Pack(parameters.slots)
        cost, gathered = _placed_cost(run_passes(poly, [*first, pack]), place)
        passes: list[Pass] = [pack, GatherSums()] if gathered else [pack]
        return _Plan(parameters, first, [*passes, place, RotationKeys()], (cost, levels))


def _best_plan(
    poly: Module, choose: ChooseParameters, costs: CostsOf | None, fewest: bool
) -> _Plan:
    """Tokens are selected early where that costs no more: fewer seconds, or fewer bootstraps."""
    plans = [_Plan.of(poly, [], choose, costs, fewest)]
    if any(op.name == "poly.select" for op in poly.ops):
        with suppress(AtlasError):  # a token that cannot be packed alone, or a level too many
            plans.append(_Plan.of(poly, [SelectEarly()], choose, costs, fewest))
    return min(reversed(plans), key=lambda plan: plan.cost)


def _placed_cost(packed: Module, place: PlaceBootstraps) -> tuple[float, bool]:
    """Cost of the bootstraps' placement, and whether sums are brought into one ciphertext for it.

    By seconds they always are, as predicted latencies have it: on BERT-base that saves 1 to 13%,
    and costs 1.5% at worst. Else where it is better.
    """
    found = math.inf
    gathered = run_passes(packed, [GatherSums()])
    if place.bootstrap and any(op.name == "ckks.gather" for op in gathered.ops):
        with suppress(AtlasError):  # two levels more are too many around an op
            found = place.solve(gathered)[0].cost
    if found < math.inf and place.costs is not None and not place.fewest:
        return found, True
    plain = place.solve(packed)[0].cost
    return min(found, plain), found < plain
