"""``approximate``: attach approximations to the nonlinear ops of an nn module, those of a named
recipe or of a setting of a few integers a layer; and count their depth.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atlasc.calibration.calibrate import Calibration, nominal_calibration, read_calibration
from atlasc.calibration.measure import nonlinear_ops
from atlasc.calibration.ranges import Range
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.ir.rewriting import Rewriter
from atlasc.ir.scalar_functions import function
from atlasc.passes.calibration.adjusted import adjusted
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    NormApproximation,
)
from atlasc.polynomials.description import Approximation, carried_by
from atlasc.polynomials.fits.chebyshev import evaluate, fit
from atlasc.polynomials.fitted import fitted_activation, fitted_norm, fitted_softmax
from atlasc.polynomials.parametrisation import (
    ACTIVATION,
    ALGORITHM,
    EXACT,
    FIRST_NORM,
    PAPER,
    SECOND_NORM,
    SOFTMAX,
    Parametrisation,
)
from atlasc.polynomials.recipes import OpFacts, iterative_softmax, recipe

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
            module = adjusted(module, calibration)
        else:
            calibration = nominal_calibration(module)
            report.say("nominal ranges: the result has costs, but must not be run")
        return apply_recipe(module, self.recipe, calibration)


@dataclass(frozen=True)
class NonlinearPlace:
    """Where a nonlinear op stands.

    Attributes:
        block: position of its block among the blocks, or None outside.
        norm: 0 for the first norm of its block, 1 for every later one.
    """

    op: Op
    block: int | None
    norm: int = 0

    @property
    def integers(self) -> tuple[int, ...]:
        """Positions of its degrees among the integers of its block."""
        if self.op.definition.family == "softmax":
            return SOFTMAX
        if self.op.definition.family == "activation":
            return ACTIVATION
        return SECOND_NORM if self.norm else FIRST_NORM


def places(module: Module) -> list[NonlinearPlace]:
    """The nonlinear ops on encrypted data, each with its block."""
    blocks: dict[int, int] = {}
    norms: Counter[int] = Counter()
    found = []
    for op in nonlinear_ops(module):
        block = None if op.layer is None else blocks.setdefault(op.layer, len(blocks))
        found.append(NonlinearPlace(op, block, 0 if block is None else min(norms[block], 1)))
        if block is not None and op.definition.family == "norm":
            norms[block] += 1
    return found


def layer_count(module: Module) -> int:
    """Number of blocks with nonlinear ops."""
    return len({place.block for place in places(module) if place.block is not None})


def approximation_for(
    place: NonlinearPlace,
    layer: Sequence[int] | None,
    calibration: Calibration | None,
    parametrisation: Parametrisation = PAPER,
) -> Approximation | None:
    """The approximation of one op under its block's integers in canonical form; `outside` where
    there is no block, and None for an op that the integers leave exact.

    Raises:
        AtlasError: an integer for which there is no degree, a range on which there is no fit, or a
            calibration of another module.
    """
    known = None if calibration is None else calibration.of(place.op)
    with _at(place.op, known):
        return _fitted(place, layer, known, parametrisation)


@contextmanager
def _at(op: Op, known: Range | None) -> Iterator[None]:
    """Errors of a fit with the op's place and range."""
    try:
        yield
    except AtlasError as error:
        if error.where or known is None:
            raise
        raise AtlasError(
            f"{op.name} cannot be approximated: {error.what}",
            where=op.location,
            why=f"calibration saw {known.kind} in ({known.seen_low:.4g}, {known.seen_high:.4g})",
            remedy="search for settings (leave --recipe out), or check for inputs that stand out",
        ) from error


def _fitted(
    place: NonlinearPlace,
    layer: Sequence[int] | None,
    known: Range | None,
    parametrisation: Parametrisation,
) -> Approximation | None:
    op, family = place.op, place.op.definition.family
    if layer is None:
        return outside(op, known)
    if family == "softmax":
        if layer[0] == EXACT:
            return None
        degrees = [parametrisation.degree(layer[i]) for i in SOFTMAX if layer[i]]
        return fitted_softmax(degrees, sum(layer[ALGORITHM[0] :]), known, parametrisation)
    number = layer[place.integers[0]]
    if number == EXACT:
        return None
    degree = parametrisation.degree(number)
    if family == "norm":
        return fitted_norm(degree, known, parametrisation)
    return fitted_activation(op.name.removeprefix("nn."), degree, known, parametrisation)


def outside(op: Op, known: Range | None) -> Approximation:
    """A fixed approximation for an op outside the blocks (a final norm, a pooler's tanh).

    The paper's settings do not cover these ops. They get the least exponent whose fit is within
    1e-4 of the function's greatest value on the calibrated range, so that they add nothing visible
    to an error worth searching for; without a calibration they get the exponent 9, as `is` does.
    """
    if op.name == "nn.softmax":
        return iterative_softmax(known)
    norm, highest = op.definition.family == "norm", 2**HIGHEST_EXPONENT - 1
    kind = NormApproximation if norm else ActivationApproximation
    if known is None:
        return kind(highest)
    name, interval = "invsqrt" if norm else op.name.removeprefix("nn."), (known.low, known.high)
    x = np.linspace(*interval, 4097)
    exact = function(name).numpy(x)
    for degree in (2**exponent - 1 for exponent in range(1, HIGHEST_EXPONENT)):
        error = np.abs(evaluate(x, fit(name, degree, interval), interval) - exact).max()
        if error <= OUTSIDE_TOLERANCE * np.abs(exact).max():
            return kind(degree, interval)
    return kind(highest, interval)


def recipe_approximations(
    module: Module, name: str, calibration: Calibration | None
) -> dict[str, Approximation]:
    """The approximations of a recipe by result name; see `apply_recipe`."""
    chosen, found = recipe(name), {}
    for op in nonlinear_ops(module):
        known = None if calibration is None else calibration.of(op)
        with _at(op, known):
            found[op.value.name] = chosen.approximation(OpFacts.of(op, known))
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
    layers = [parametrisation.canonical(integers) for integers in settings]
    found = {}
    for place in places(module):
        layer = None if place.block is None else layers[place.block]
        chosen = approximation_for(place, layer, calibration, parametrisation)
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
    return with_approximations(
        module, recipe_approximations(module, name, calibration), calibration
    )


def apply_settings(
    module: Module,
    settings: Sequence[Sequence[int]],
    calibration: Calibration | None = None,
    parametrisation: Parametrisation = PAPER,
) -> Module:
    """A new module whose nonlinear ops carry the approximations of a setting.

    Args:
        settings: integers for each block, in order. Norms of a block after its second share the
            second's; ops outside blocks get `outside`.
        parametrisation: what the integers stand for.

    Raises:
        AtlasError: the wrong number of layers or integers, an integer out of bounds, or a
            calibration of another module.
    """
    found = settings_approximations(module, settings, calibration, parametrisation)
    return with_approximations(module, found, calibration)


def with_approximations(
    module: Module,
    approximations: Mapping[str, Approximation],
    calibration: Calibration | None = None,
) -> Module:
    """A new module with these approximations attached, by result name, and with what their ranges
    rest on, where a calibration is given.
    """
    rewriter = Rewriter(module)
    for op in module.ops:
        name = op.result.name if op.result is not None else ""
        if name in approximations:
            basis = {} if calibration is None else {"basis": calibration.of(op).basis}
            carried = {"approximation": approximations[name]}
            rewriter.copy(op, attributes={**op.attributes, **carried, **basis})
        else:
            rewriter.copy(op)
    return rewriter.module


@dataclass(frozen=True)
class OpDepth:
    """Depth of one nonlinear op in the paper's convention, and levels as compiled.

    Source: the paper's section on depth. ``exp`` 5, a softmax iteration p + 5, LayerNorm p + 8,
    RMSNorm p + 6, activation p + 1.

    Attributes:
        layer: index of its block, None outside the blocks.
        levels: that it consumes in a lowered program.
    """

    op: str
    location: str
    layer: int | None
    depth: int
    levels: int


@dataclass(frozen=True)
class Depth:
    """Depth of a module's nonlinear ops, in order of execution.

    The paper counts the blocks; ops outside them (a final norm, a pooler) are counted apart.
    """

    ops: tuple[OpDepth, ...]

    @property
    def per_layer(self) -> dict[int, int]:
        """Depth by index of the block."""
        layers: Counter[int] = Counter()
        for entry in self.ops:
            if entry.layer is not None:
                layers[entry.layer] += entry.depth
        return dict(layers)

    @property
    def blocks(self) -> int:
        """Total over the blocks: the figure that the paper reports."""
        return sum(self.per_layer.values())

    @property
    def outside(self) -> int:
        """Total over the ops outside the blocks."""
        return sum(entry.depth for entry in self.ops if entry.layer is None)

    @property
    def levels(self) -> int:
        """Levels that the blocks consume in a lowered program."""
        return sum(entry.levels for entry in self.ops if entry.layer is not None)


def depth_of(module: Module) -> Depth:
    """Depth of a module whose nonlinear ops carry approximations; no calibration is needed.

    Raises:
        AtlasError: an op has no approximation.
    """
    carried = [(op, carried_by(op)) for op in nonlinear_ops(module)]
    return Depth(tuple(
        OpDepth(op.name, op.location, op.layer, one.depth_of(op.name), one.levels_of(op.name))
        for op, one in carried
    ))  # fmt: skip
