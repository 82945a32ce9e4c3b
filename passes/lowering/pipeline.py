"""From an nn module with approximations to a program of packed ciphertexts: the passes in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.lowering.client import client_part
from atlasc.passes.lowering.costs import critical_path
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.magnitudes import with_magnitudes
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing import least_slots
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.lowering.scales import AssignScales
from atlasc.passes.pass_base import Pass, Report, run_passes

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


ChooseParameters = Callable[[int, int], Parameters]
"""(levels of the whole program, least number of slots) to the cheapest parameter set."""


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
        inputs: raw inputs by name; with them every op learns its magnitude, which bootstraps need.
    """
    module = run_passes(module, [Canonicalise()], after_each=after_each)
    client = client_part(module)
    folding = [Expand(), NormaliseAffine(), FoldFeatures()]
    poly = run_passes(module, folding, after_each=after_each)
    if inputs is not None:
        poly = with_magnitudes(poly, {**inputs, **interpret(client, inputs)})
    return client, run_passes(poly, [AssignScales()], after_each=after_each)


def lower(
    module: Module,
    choose: ChooseParameters,
    inputs: Mapping[str, np.ndarray] | None = None,
    after_each: AfterEach | None = None,
) -> Lowered:
    """Lower a model and choose its parameters: without bootstraps when the whole program fits.

    Args:
        module: nn module with approximations.
        choose: the backend's choice of parameters.
        inputs: raw calibration inputs (see ``to_poly``).
        after_each: called after every pass with the pass, its result and its report.

    Raises:
        AtlasError: of any pass; no parameter set fits.
    """
    client, poly = to_poly(module, inputs, after_each)
    program, parameters = lower_poly(poly, choose, after_each)
    return Lowered(client, poly, program, parameters)


def lower_poly(
    poly: Module, choose: ChooseParameters, after_each: AfterEach | None = None
) -> tuple[Module, Parameters]:
    """The packed program of a folded poly module, and its parameters; see ``lower``."""
    slots = least_slots(poly)
    levels = critical_path(run_passes(poly, [Pack(slots)])).total
    parameters = choose(levels, slots)
    bootstrap = parameters.bootstrap_level is not None
    steps = [
        Pack(parameters.slots),
        PlaceBootstraps(parameters.bootstrap_level or parameters.max_level, bootstrap),
        RotationKeys(),
    ]
    return run_passes(poly, steps, after_each=after_each), parameters
