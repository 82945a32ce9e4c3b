"""``approximate``: attach approximations to the nonlinear ops of an nn module, those of a named
recipe or of a setting of a few integers a layer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.ir.scalar_functions import function
from atlasc.passes.approximation.algorithms.chebyshev import (
    ActivationApproximation,
    DirectSoftmax,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.approximation.fits.chebyshev import evaluate, fit
from atlasc.passes.approximation.fitted import (
    fitted_activation,
    fitted_direct,
    fitted_norm,
    measured_softmax,
    paper_shift,
)
from atlasc.passes.approximation.parametrisation import (
    DIRECT,
    EXACT,
    PAPER,
    LayerSetting,
    Parametrisation,
)
from atlasc.passes.approximation.recipes import Facts, recipe
from atlasc.passes.calibration.calibrate import Calibration, nominal_calibration, read_calibration
from atlasc.passes.calibration.centre_keys import with_centred_keys
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.calibration.ranges import Range
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter

OUTSIDE_TOLERANCE = 1e-4
HIGHEST_EXPONENT = 9


@dataclass(frozen=True)
class Approximate(Pass):
    """Attach the approximations of a recipe to the nonlinear ops on encrypted data.

    Attributes:
        recipe: its name.
        ranges: JSON file of a calibration; without it the ranges are nominal, which is right for
            costs alone.
    """

    name = "approximate"
    takes = "nn"
    when = "settings"
    recipe: str = "is"
    ranges: str = ""

    def run(self, module: Module, report: Report) -> Module:
        """Nn module to nn module.

        Raises:
            AtlasError: no such recipe, or ranges that cannot be read or are of another module.
        """
        if self.ranges:
            calibration = read_calibration(Path(self.ranges))
            module = with_centred_keys(module, calibration.keys)
        else:
            calibration = nominal_calibration(module)
            report.say("nominal ranges: the result has costs, but must not be run")
        return apply_recipe(module, self.recipe, calibration)


@dataclass(frozen=True)
class Place:
    """Where a nonlinear op stands.

    Attributes:
        block: position of its block among the blocks, or None outside.
        norm: 0 for the first norm of its block, 1 for every later one.
    """

    op: Op
    block: int | None
    norm: int = 0


def places(module: Module) -> list[Place]:
    """The nonlinear ops on encrypted data, each with its block."""
    blocks: dict[int, int] = {}
    norms: Counter[int] = Counter()
    found = []
    for op in nonlinear_ops(module):
        block = None if op.layer is None else blocks.setdefault(op.layer, len(blocks))
        found.append(Place(op, block, 0 if block is None else min(norms[block], 1)))
        if block is not None and op.definition.family == "norm":
            norms[block] += 1
    return found


def layer_count(module: Module) -> int:
    """Number of blocks with nonlinear ops."""
    return len({place.block for place in places(module) if place.block is not None})


def approximation_for(
    place: Place,
    setting: LayerSetting | None,
    calibration: Calibration | None,
    parametrisation: Parametrisation = PAPER,
) -> Approximation | None:
    """The approximation of one op under its block's setting; `outside` where there is no block.

    None for an op that the setting leaves exact.

    Raises:
        AtlasError: an integer for which there is no degree, or a calibration of another module.
    """
    op = place.op
    if setting is None:
        return outside(op, calibration)
    known = None if calibration is None else calibration.of(op)
    if op.name == "nn.softmax":
        return _softmax(setting, known, parametrisation)
    norm = op.definition.family == "norm"
    number = setting.activation
    if norm:
        number = setting.second_norm if place.norm else setting.first_norm
    if number == EXACT:
        return None
    degree = parametrisation.degree(number)
    if known is None:
        return NormApproximation(degree) if norm else ActivationApproximation(degree)
    if norm:
        return fitted_norm(degree, known, parametrisation)
    return fitted_activation(op.name.removeprefix("nn."), degree, known, parametrisation)


def _softmax(
    setting: LayerSetting, known: Range | None, parametrisation: Parametrisation
) -> Approximation | None:
    if setting.softmax[0] == EXACT:
        return None
    degrees = tuple(parametrisation.degree(number) for number in setting.iterations)
    if setting.algorithm == DIRECT:
        degree, exp_degree = degrees
        if known is None:
            return DirectSoftmax(degree, exp_degree=exp_degree)
        return fitted_direct(degree, exp_degree, known, parametrisation)
    steps = setting.renormalisations or None
    if known is not None and parametrisation.softmax_ranges == "measured":
        return measured_softmax(degrees, known, parametrisation, steps)
    shift = 0.0 if known is None else paper_shift(known, len(degrees))
    return SoftmaxApproximation.of_degrees(degrees, shift=shift, renormalisations=steps)


def outside(op: Op, calibration: Calibration | None) -> Approximation:
    """A fixed setting for an op outside the blocks (a final norm, a pooler's tanh).

    The paper's settings do not cover these ops. They get the least exponent whose fit is within
    1e-4 of the function's greatest value on the calibrated range, so that they add nothing visible
    to an error worth searching for; without a calibration they get the exponent 9, as `is` does.
    """
    known = None if calibration is None else calibration.of(op)
    if op.name == "nn.softmax":
        return SoftmaxApproximation((5, 5, 5, 5, 7), shift=0.0 if known is None else known.shift)
    norm = op.definition.family == "norm"
    kind = NormApproximation if norm else ActivationApproximation
    if known is None:
        return kind(2**HIGHEST_EXPONENT - 1)
    name, interval = "invsqrt" if norm else op.name.removeprefix("nn."), (known.low, known.high)
    x = np.linspace(*interval, 4097)
    exact = function(name).numpy(x)
    for exponent in range(1, HIGHEST_EXPONENT):
        error = np.abs(evaluate(x, fit(name, 2**exponent - 1, interval), interval) - exact).max()
        if error <= OUTSIDE_TOLERANCE * np.abs(exact).max():
            return kind(2**exponent - 1, interval)
    return kind(2**HIGHEST_EXPONENT - 1, interval)


def recipe_approximations(
    module: Module, name: str, calibration: Calibration | None
) -> dict[str, Approximation]:
    """The approximations of a recipe by result name; see `apply_recipe`."""
    chosen, found = recipe(name), {}
    for op in nonlinear_ops(module):
        facts = Facts.of(op, None if calibration is None else calibration.of(op))
        found[op.value.name] = chosen.approximation(facts)
    return found


def settings_approximations(
    module: Module,
    settings: Sequence[Sequence[int]],
    calibration: Calibration | None,
    parametrisation: Parametrisation = PAPER,
) -> dict[str, Approximation]:
    """The approximations of settings by result name; see `apply_settings`."""
    count = layer_count(module)
    if len(settings) != count:
        raise AtlasError(
            f"the settings are for {len(settings)} layers, but the model has {count}",
            remedy=f"give {parametrisation.variables} integers for each layer",
        )
    layers = [LayerSetting.of(integers, parametrisation) for integers in settings]
    found = {}
    for place in places(module):
        setting = None if place.block is None else layers[place.block]
        chosen = approximation_for(place, setting, calibration, parametrisation)
        if chosen is None:
            raise AtlasError(
                f"the settings leave {place.op.name} exact",
                where=place.op.location,
                why="only a search computes single ops exactly, to see what the others do",
                remedy="give all integers of the layer",
            )
        found[place.op.value.name] = chosen
    return found


def apply_recipe(module: Module, name: str, calibration: Calibration | None = None) -> Module:
    """A new module whose nonlinear ops carry the approximations of a recipe.

    Args:
        name: "is", "nexus", ... (see `recipes`).
        calibration: None leaves ranges open: the depth can be counted, nothing can be evaluated.

    Raises:
        AtlasError: no such recipe, or a calibration of another module.
    """
    return with_approximations(module, recipe_approximations(module, name, calibration))


def apply_settings(
    module: Module,
    settings: Sequence[Sequence[int]],
    calibration: Calibration | None = None,
    parametrisation: Parametrisation = PAPER,
) -> Module:
    """A new module whose nonlinear ops carry the approximations of a setting.

    Args:
        settings: integers for each block, in order (see `LayerSetting`). Norms of a block after
            its second share the second's; ops outside blocks get `outside`.
        parametrisation: what the integers stand for.

    Raises:
        AtlasError: the wrong number of layers or integers, an integer out of bounds, or a
            calibration of another module.
    """
    found = settings_approximations(module, settings, calibration, parametrisation)
    return with_approximations(module, found)


def with_approximations(module: Module, approximations: Mapping[str, Approximation]) -> Module:
    """A new module with these approximations attached, by result name."""
    rewriter = Rewriter(module)
    for op in module.ops:
        attributes = op.attributes
        if op.result is not None and op.result.name in approximations:
            name = op.result.name
            described = approximations[name].to_attribute()
            for entry, value in described.items():
                if isinstance(value, np.ndarray):
                    described[entry] = rewriter.module.constant(f"{name}.{entry}", value)
            attributes = {**attributes, "approximation": described}
        rewriter.copy(op, attributes=attributes)
    return rewriter.module
