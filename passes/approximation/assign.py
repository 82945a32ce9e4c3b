"""Attach approximations to a module: a named recipe, or a setting of eight integers a layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.passes.approximation.activation import ActivationApproximation
from atlasc.passes.approximation.arithmetic import Interval
from atlasc.passes.approximation.calibration import Calibration
from atlasc.passes.approximation.chebyshev import evaluate, fit
from atlasc.passes.approximation.description import Approximation, family_of
from atlasc.passes.approximation.expand import activation_function
from atlasc.passes.approximation.functions import function
from atlasc.passes.approximation.measure import nonlinear_ops
from atlasc.passes.approximation.norm import NormApproximation
from atlasc.passes.approximation.ranges import Range
from atlasc.passes.approximation.recipes import recipe
from atlasc.passes.approximation.softmax import SoftmaxApproximation
from atlasc.passes.rewriting import Rewriter

SOFTMAX_ITERATIONS = 5
VARIABLES = 8
"""Integers of a layer: p1..p5 of the softmax, two norms, the activation."""
OUTSIDE_TOLERANCE = 1e-4
HIGHEST_EXPONENT = 9
EXP_TOLERANCE = 5e-4
SUM_ROOM = 1.5


@dataclass(frozen=True)
class LayerSetting:
    """The paper's eight integers of a layer; a Chebyshev sum of exponent p has degree 2^p - 1.

    Attributes:
        softmax: p1..p5; a zero drops that iteration and all after it.
        first_norm, second_norm: exponents of 1/sqrt.
        activation: exponent of GELU or SiLU.
    """

    softmax: tuple[int, ...]
    first_norm: int
    second_norm: int
    activation: int

    @staticmethod
    def of(integers: Sequence[int]) -> LayerSetting:
        """The setting of eight integers, in canonical form: what follows a zero is zero.

        Raises:
            AtlasError: there are not eight.
        """
        if len(integers) != VARIABLES:
            raise AtlasError(
                f"a layer has {VARIABLES} settings, not {len(integers)}",
                remedy="give p1..p5 of the softmax, two norms and the activation",
            )
        values = [int(value) for value in integers]
        iterations = values[:SOFTMAX_ITERATIONS]
        if 0 in iterations:
            end = iterations.index(0)
            iterations[end:] = [0] * (SOFTMAX_ITERATIONS - end)
        return LayerSetting(tuple(iterations), *values[SOFTMAX_ITERATIONS:])

    @property
    def integers(self) -> tuple[int, ...]:
        """The eight integers."""
        return (*self.softmax, self.first_norm, self.second_norm, self.activation)


@dataclass(frozen=True)
class Place:
    """Where a nonlinear op stands.

    Attributes:
        op: the op.
        block: position of its block among the blocks, or None outside.
        norm: 0 for the first norm of its block, 1 for every later one.
    """

    op: Op
    block: int | None
    norm: int = 0


def places(module: Module) -> list[Place]:
    """The nonlinear ops on encrypted data, each with its block."""
    layers: dict[int, int] = {}
    norms: dict[int, int] = {}
    found = []
    for op in nonlinear_ops(module):
        if op.layer is None:
            found.append(Place(op, None))
            continue
        block = layers.setdefault(op.layer, len(layers))
        position = norms.get(block, 0)
        if family_of(op.name) == "norm":
            norms[block] = position + 1
        found.append(Place(op, block, min(position, 1)))
    return found


def layer_count(module: Module) -> int:
    """Number of blocks with nonlinear ops."""
    return len({place.block for place in places(module) if place.block is not None})


def approximation_for(
    place: Place, setting: LayerSetting | None, calibration: Calibration | None
) -> Approximation:
    """The approximation of one op under its block's setting; `outside` where there is no block."""
    op = place.op
    known = None if calibration is None else calibration.of(op)
    if setting is None:
        return outside(op, calibration)
    if op.name == "nn.softmax":
        if calibration is not None and calibration.softmax_ranges == "measured":
            return measured_softmax(setting.softmax, calibration.of(op))
        shift = 0.0 if known is None else known.shift
        return SoftmaxApproximation(setting.softmax, shift=shift)
    interval = None if known is None else (known.low, known.high)
    if family_of(op.name) == "norm":
        exponent = setting.second_norm if place.norm else setting.first_norm
        return NormApproximation(2**exponent - 1, interval)
    return ActivationApproximation(2**setting.activation - 1, interval)


def measured_softmax(exponents: Sequence[int], known: Range) -> SoftmaxApproximation:
    """An iterative softmax on the ranges that calibration measured, not on the paper's.

    The exponential gets the least degree that is right to `EXP_TOLERANCE` on the scores' range, and
    the sums of later iterations room for the errors of the iterations before.
    """
    iterations = tuple(exponents[: exponents.index(0)] if 0 in exponents else exponents)
    count = len(iterations)
    exp_range = ((known.low - known.shift) / 2**count, 0.0)
    first, *later = known.sum_ranges(count)
    return SoftmaxApproximation(
        iterations,
        shift=known.shift,
        exp_range=exp_range,
        exp_degree=2 ** _least_exponent("exp", exp_range, EXP_TOLERANCE) - 1,
        sum_ranges=(first, *((low / SUM_ROOM, high * SUM_ROOM) for low, high in later)),
    )


def outside(op: Op, calibration: Calibration | None) -> Approximation:
    """A fixed setting for an op outside the blocks (a final norm, a pooler's tanh).

    The paper's settings do not cover these ops. They get the least exponent whose fit is within
    1e-4 of the function's greatest value on the calibrated range, so that they add nothing visible
    to an error worth searching for; without a calibration they get the exponent 9, as `is` does.
    """
    if op.name == "nn.softmax":
        shift = 0.0 if calibration is None else calibration.of(op).shift
        return SoftmaxApproximation((5, 5, 5, 5, 7), shift=shift)
    is_norm = family_of(op.name) == "norm"
    kind = NormApproximation if is_norm else ActivationApproximation
    if calibration is None:
        return kind(2**HIGHEST_EXPONENT - 1)
    known = calibration.of(op)
    name = "invsqrt" if is_norm else activation_function(op)
    return kind(2 ** _least_exponent(name, (known.low, known.high)) - 1, (known.low, known.high))


def _least_exponent(name: str, interval: Interval, tolerance: float = OUTSIDE_TOLERANCE) -> int:
    x = np.linspace(*interval, 4097)
    exact = function(name).double(x)
    for exponent in range(1, HIGHEST_EXPONENT):
        error = np.abs(evaluate(x, fit(name, 2**exponent - 1, interval), interval) - exact).max()
        if error <= tolerance * np.abs(exact).max():
            return exponent
    return HIGHEST_EXPONENT


def recipe_approximations(
    module: Module, name: str, calibration: Calibration | None
) -> dict[str, Approximation]:
    """The approximations of a recipe by result name; see `apply_recipe`."""
    chosen = recipe(name)
    found: dict[str, Approximation] = {}
    for op in nonlinear_ops(module):
        known = None if calibration is None else calibration.of(op)
        interval = None if known is None else (known.low, known.high)
        family = family_of(op.name)
        if family == "softmax":
            width = int(op.operands[0].type.shape[-1])  # type: ignore[union-attr]
            found[op.value.name] = chosen.softmax(
                op.layer,
                shift=None if known is None else known.shift,
                scores=interval,
                width=width,
                sums=None if known is None else known.row_sums,
            )
        elif family == "norm":
            found[op.value.name] = chosen.norm(op.name, interval, op.location)
        else:
            found[op.value.name] = chosen.activation(op.name, interval)
    return found


def settings_approximations(
    module: Module, settings: Sequence[Sequence[int]], calibration: Calibration | None
) -> dict[str, Approximation]:
    """The approximations of settings by result name; see `apply_settings`."""
    count = layer_count(module)
    if len(settings) != count:
        raise AtlasError(
            f"the settings are for {len(settings)} layers, but the model has {count}",
            remedy="give eight integers for each layer",
        )
    layers = [LayerSetting.of(integers) for integers in settings]
    return {
        place.op.value.name: approximation_for(
            place, None if place.block is None else layers[place.block], calibration
        )
        for place in places(module)
    }


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
    module: Module, settings: Sequence[Sequence[int]], calibration: Calibration | None = None
) -> Module:
    """A new module whose nonlinear ops carry the approximations of a setting.

    Args:
        settings: eight integers for each block, in order (see `LayerSetting`). Norms of a block
            after its second share the second's exponent; ops outside blocks get `outside`.

    Raises:
        AtlasError: the wrong number of layers or integers, an exponent out of bounds, or a
            calibration of another module.
    """
    return with_approximations(module, settings_approximations(module, settings, calibration))


def with_approximations(module: Module, approximations: dict[str, Approximation]) -> Module:
    """A new module with these approximations attached, by result name."""
    rewriter = Rewriter(module)
    for op in module.ops:
        attributes = op.attributes
        if op.result is not None and op.result.name in approximations:
            described = approximations[op.result.name].to_attribute()
            attributes = {**attributes, "approximation": described}
        rewriter.copy(op, attributes=attributes)
    return rewriter.module
