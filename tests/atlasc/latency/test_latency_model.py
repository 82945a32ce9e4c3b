"""Predicted seconds against the lowered, placed and counted program, for random settings."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_transformers import Builder, Shape, approximate, inputs_for

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyModel, LatencyTarget
from atlasc.passes.approximation.approximate import recipe_approximations, with_approximations
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.pipeline import lower_nn, to_poly
from atlasc.polynomials.algorithms.chebyshev import (
    ChannelActivation,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.polynomials.description import Approximation, carried_by
from atlasc.program.costs import Polynomial, op_profiles, program_costs
from atlasc.targets.costs import costs_of
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED, DesiloParameters


def choose(levels: int, slots: int) -> Any:
    return DesiloParameters.choose(levels, slots)


def always_bootstrapped(levels: int, slots: int) -> Any:
    return BOOTSTRAPPED


TARGET = LatencyTarget(choose, costs_of)
POST_NORM = Shape(layers=2, batch=3, mask=True, pre_norm=False, classes=0)


def model_of(shape: Shape, seed: int) -> tuple[Module, dict[str, Approximation]]:
    """A random small Transformer and the approximations of its ops."""
    module, inputs = Builder(shape, seed).build(), inputs_for(shape, seed + 1)
    approximate(module, inputs)
    chosen = {op.value.name: carried_by(op) for op in module.ops if op.definition.nonlinear}
    return module, chosen


def varied(chosen: dict[str, Approximation], rng: np.random.Generator) -> dict[str, Approximation]:
    """Other numbers of iterations and other degrees, each op on its own."""

    def vary(one: Approximation) -> Approximation:
        if isinstance(one, SoftmaxApproximation):
            count = int(rng.integers(1, 4))
            exponents = tuple(int(p) for p in rng.integers(1, 8, count))
            return replace(one, iterations=exponents, sum_ranges=((0.1, 9.0),) * count)
        return replace(one, degree=int(rng.integers(1, 512)))  # type: ignore[call-arg]

    return {name: vary(one) for name, one in chosen.items()}


def lowered_seconds(
    module: Module, chosen: dict[str, Approximation], target: LatencyTarget = TARGET
) -> tuple[float, int, Any]:
    """Seconds and levels counted from the lowered program, and its parameters."""
    module = with_approximations(module, chosen)
    lowered = lower_nn(module, target.choose, costs=target.costs)
    costs = program_costs(lowered.program)
    primitive_costs = target.costs(lowered.parameters)
    return costs.total.seconds(primitive_costs), costs.path.total, lowered.parameters


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    rms = draw(st.booleans())
    return Shape(
        batch=draw(st.integers(1, 3)),
        tokens=draw(st.integers(1, 9)),
        heads=draw(st.integers(1, 5)),
        width=2 * draw(st.integers(1, 3)),
        hidden=draw(st.integers(1, 39)),
        layers=draw(st.integers(1, 3)),
        pre_norm=draw(st.booleans()),
        rms=rms,
        causal=draw(st.booleans()),
        mask=draw(st.booleans()),
        classes=draw(st.sampled_from([0, 1, 3])),
    )


@settings(max_examples=8, deadline=None)
@given(shapes(), st.integers(0, 999))
def test_predicted_seconds_are_those_of_the_lowered_program(shape: Shape, seed: int) -> None:
    module, reference = model_of(shape, seed)
    model, rng = LatencyModel(module, TARGET, reference), np.random.default_rng(seed)
    for _ in range(2):
        chosen = varied(reference, rng)
        seconds, levels, parameters = lowered_seconds(module, chosen)
        assert model.levels(chosen) == levels
        assert model.parameters(chosen) == parameters
        # A sum with coefficients that happen to vanish costs a little less.
        assert model.seconds(chosen) == pytest.approx(seconds, rel=1e-2)


def test_predicted_bootstraps_are_those_of_the_lowered_program() -> None:
    module, reference = model_of(POST_NORM, 0)
    target = LatencyTarget(always_bootstrapped, costs_of)
    model, rng = LatencyModel(module, target, reference), np.random.default_rng(0)
    counted = set()
    for chosen in (reference, varied(reference, rng), varied(reference, rng)):
        lowered = lower_nn(with_approximations(module, chosen), target.choose, costs=target.costs)
        counted.add(program_costs(lowered.program).total.bootstraps)
        assert model.bootstraps(chosen) == program_costs(lowered.program).total.bootstraps
    assert len(counted) > 1 and min(counted) > 0


@pytest.mark.parametrize("degree", [7, pytest.param(31, marks=pytest.mark.deep("recipes"))])
def test_polynomials_by_channel_are_predicted(degree: int) -> None:
    """Their coefficients are vectors, which cost more than numbers and no level more."""
    module, reference = model_of(POST_NORM, 0)
    rng, channels = np.random.default_rng(0), POST_NORM.hidden
    each = ChannelActivation(
        degree, np.tile([-9.0, 9.0], (channels, 1)), rng.normal(size=(channels, degree + 1))
    )
    gelus = [op.value.name for op in module.ops if op.name == "nn.gelu"]
    chosen = {**reference, **dict.fromkeys(gelus, each)}
    shared = {**reference, **{name: _with_degree(reference[name], degree) for name in gelus}}
    seconds, levels, _ = lowered_seconds(module, chosen)
    model = LatencyModel(module, TARGET, reference)
    assert model.levels(chosen) == model.levels(shared) == levels
    assert model.seconds(chosen) == pytest.approx(seconds, rel=1e-2)
    assert model.seconds(chosen) > model.seconds(shared)


@pytest.mark.parametrize(
    "recipe",
    [
        "is",
        *(
            pytest.param(name, marks=pytest.mark.deep("recipes"))
            for name in ("nexus", "thor", "moai", "arion", "polaris")
        ),
    ],
)
def test_any_algorithm_is_predicted(recipe: str) -> None:
    """Whatever the steps of an algorithm are: the model has seen none of them before."""
    module, reference = model_of(POST_NORM, 0)
    chosen = recipe_approximations(module, recipe, nominal_calibration(module))
    seconds, levels, _ = lowered_seconds(module, chosen)
    model = LatencyModel(module, TARGET, reference)
    assert model.levels(chosen) == levels
    assert model.seconds(chosen) == pytest.approx(seconds, rel=1e-2)


@pytest.mark.parametrize("low", [False, True])
def test_the_faster_packing_is_taken(low: bool) -> None:
    """Features lie in the low bits where a transform is cheap beside the products of another
    packing.
    """

    def costs(parameters: Any) -> dict[Any, float]:
        known = costs_of(parameters)
        dear = "mul_plain" if low else "transform"
        return {key: 1e3 if key[0].startswith(dear) else known[key] for key in known}

    module, reference = model_of(POST_NORM, 0)
    target = LatencyTarget(always_bootstrapped, costs)
    seconds, _, _ = lowered_seconds(module, reference, target)
    lowered = lower_nn(with_approximations(module, reference), target.choose, costs=target.costs)
    layouts = [op.attributes["layout"] for op in lowered.program.inputs if op.value.encrypted]
    assert [layout.features_low for layout in layouts] == [low]
    model = LatencyModel(module, target, reference)
    assert model.fastest(reference)[1] is model.packings[low]
    assert model.seconds(reference) == pytest.approx(seconds, rel=1e-3)


def test_programs_with_and_without_bootstraps_have_their_own_costs() -> None:
    module, reference = model_of(replace(POST_NORM, layers=1), 0)
    cheap = {name: _with_degree(one, 3) for name, one in reference.items()}
    dear = {name: _with_degree(one, 255) for name, one in reference.items()}
    model = LatencyModel(module, TARGET, reference)
    assert model.parameters(cheap).bootstrap_level is None
    assert model.parameters(dear).bootstrap_level == 14
    for chosen in (cheap, dear):
        seconds, _, _ = lowered_seconds(module, chosen)
        assert model.seconds(chosen) == pytest.approx(seconds, rel=1e-3)
    for packing in model.packings:
        sets = packing.parameters_from(packing.levels(cheap))
        assert sets[-1] == BOOTSTRAPPED and len(sets) > 2
        assert all(one.bootstrap_level is None for one in sets[:-1])


def _with_degree(one: Approximation, degree: int) -> Approximation:
    if isinstance(one, SoftmaxApproximation):
        count = 1 if degree < 15 else 2
        exponents = ((degree + 1).bit_length() - 1,) * count
        return replace(one, iterations=exponents, sum_ranges=((0.1, 9.0),) * count)
    return replace(one, degree=degree)  # type: ignore[call-arg]


def test_equal_layers_share_their_tables() -> None:
    found = []
    for layers in (3, 6):
        module, reference = model_of(replace(POST_NORM, layers=layers), 0)
        model = LatencyModel(module, LatencyTarget(always_bootstrapped, costs_of), reference)
        model.seconds(reference)
        chains = [packing.chain(BOOTSTRAPPED) for packing in model.packings]
        assert len(chains) == 2
        tables = [chain.table(n, reference) for chain in chains for n in range(len(chain.names))]
        found.append(len({id(table) for table in tables}))
    assert found[0] == found[1]


def test_an_op_without_an_approximation_is_named() -> None:
    module, reference = model_of(POST_NORM, 0)
    model = LatencyModel(module, TARGET, reference)
    name = next(n for n, one in reference.items() if isinstance(one, NormApproximation))
    with pytest.raises(AtlasError, match="no approximation"):
        model.seconds({n: one for n, one in reference.items() if n != name})


def test_what_a_kernel_does_does_not_depend_on_the_level(monkeypatch: pytest.MonkeyPatch) -> None:
    module, reference = model_of(replace(POST_NORM, tokens=9, heads=5), 0)
    poly = to_poly(with_approximations(module, reference))[1]
    packed = run_passes(poly, [Pack(1 << 10)])
    profiles = []
    for top in (64, 41):
        monkeypatch.setattr("atlasc.program.costs._TOP", top)
        known = op_profiles(packed)
        ops = [op for op in packed.ops if op.operands and op.result is not None]
        profiles.append([known(op) for op in ops])
    assert profiles[0] == profiles[1]


def test_coefficients_that_vanish_cost_nothing() -> None:
    dense, even = np.ones(32), np.tile([1.0, 0.0], 16)
    calls = [
        sum(n for (kind, _), n in Polynomial.of(c).profile() if kind in ("mul", "square"))
        for c in (dense, even)
    ]
    assert calls[1] < calls[0]
    assert Polynomial.of(dense).depth == Polynomial.of(even).depth == 5


def test_ops_of_one_kind_may_have_different_widths() -> None:
    """The steps of one GELU are lowered on GELUs of its own width alone."""
    rng = np.random.default_rng(0)
    module = Module("two_widths", "nn")
    client = {"name": "x", "shape": [1, 2, 4], "side": "client", "dtype": "f64"}
    value = module.add("nn.encrypt", [module.add("nn.input", [], client)])
    for name, shape in (("wide", (6, 4)), ("narrow", (5, 6))):
        weight = module.constant(name, rng.standard_normal(shape))
        value = module.add(
            "nn.gelu", [module.add("nn.linear", [value], {"weight": weight})], {}, name
        )
    module.add("nn.output", [value], {"name": "y"})
    reference = recipe_approximations(module, "is", nominal_calibration(module))
    model = LatencyModel(module, TARGET, reference)
    for some in itertools.product([False, True], repeat=2):
        chosen = dict(reference)
        for name, width, change in zip(reference, (6, 5), some, strict=True):
            if change:
                ranges, coefficients = np.tile([-1.0, 2.0], (width, 1)), rng.random((width, 8))
                chosen[name] = ChannelActivation(7, ranges, coefficients)
        seconds, levels, _ = lowered_seconds(module, chosen)
        assert model.levels(chosen) == levels
        assert model.seconds(chosen) == pytest.approx(seconds, rel=1e-2)


def test_several_selected_tokens_have_a_prediction() -> None:
    """As in DeiT with a teacher and AST: the last norm is computed for each of two tokens. The
    prediction counts both copies; the lowering drops ``select-early`` where it does not pay.
    """
    shape = Shape(layers=1, tokens=9, classes=0)
    module = Builder(shape, 0).build()
    hidden = module.ops.pop().operands[0]
    rows = [module.add("nn.select", [hidden], {"axis": 1, "index": n}, "head") for n in (0, 1)]
    module.add("nn.output", [module.add("nn.add", rows, {}, "head")], {"name": "y"})
    approximate(module, inputs_for(shape, 1))
    reference = {op.value.name: carried_by(op) for op in module.ops if op.definition.nonlinear}
    model, rng = LatencyModel(module, TARGET, reference), np.random.default_rng(0)
    for chosen in (reference, varied(reference, rng)):
        seconds, _, _ = lowered_seconds(module, chosen)
        assert 0.99 * seconds < model.seconds(chosen) < 2 * seconds
