"""Settings of the wide parametrisation on small Transformers: the packed program computes what the
polynomials do, and takes the levels that the search's formula says.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from packed import expanded, folded, run_packed
from small_transformers import Builder, Shape, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import apply_settings, depth_of, layer_count
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.polynomials.algorithms.chebyshev import ActivationApproximation
from atlasc.polynomials.parametrisation import DEGREES, WIDE, Parametrisation
from atlasc.program.costs import critical_path
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.targets.sim import SimEngine

Arrays = dict[str, np.ndarray]

SPACES = [
    Parametrisation("measured", fits, degrees, "any", channels)
    for fits in ("interpolated", "weighted")
    for degrees in DEGREES
    for channels in ("shared", "each")
]
ENOUGH = 32
"""Inputs that show what each channel does."""


@st.composite
def cases(draw: st.DrawFn) -> tuple[Shape, Parametrisation, list[tuple[int, ...]]]:
    shape = Shape(
        batch=draw(st.integers(1, 3)),
        tokens=draw(st.integers(1, 6)),
        heads=draw(st.integers(1, 3)),
        width=2 * draw(st.integers(1, 2)),
        hidden=draw(st.integers(1, 13)),
        layers=draw(st.integers(1, 2)),
        pre_norm=draw(st.booleans()),
        rms=draw(st.booleans()),
        causal=draw(st.booleans()),
        mask=draw(st.booleans()),
        classes=draw(st.sampled_from([0, 3])),
    )
    space = draw(st.sampled_from(SPACES))
    # From degree 13, so that values rarely explode.
    least = next(i for i, degree in enumerate(DEGREES[space.degrees], 1) if degree >= 13)
    integers = [
        st.integers(min(high, max(low, least)) if low else 0, high)
        for low, high in zip(space.lower, space.upper)
    ]
    return shape, space, [draw(st.tuples(*integers)) for _ in range(shape.layers)]


def assigned(
    shape: Shape, layers: list[tuple[int, ...]], space: Parametrisation, seed: int
) -> tuple[Module, Arrays]:
    module, inputs = Builder(shape, seed).build(), inputs_for(shape, seed + 1)
    calibration = calibrate(module, inputs, margin=0.3)
    if space.channels == "each":
        pieces = [inputs_for(shape, seed + 1 + i) for i in range(-(-ENOUGH // shape.batch))]
        many = {name: np.concatenate([piece[name] for piece in pieces]) for name in inputs}
        wide = calibrate(module, many, margin=0.3)
        pairs = zip(calibration.ranges, wide.ranges, strict=True)
        ranges = tuple(replace(known, channels=other.channels) for known, other in pairs)
        calibration = replace(calibration, ranges=ranges)
    return apply_settings(module, layers, calibration, space), inputs


@given(cases(), st.integers(0, 99))
def test_packed_equals_polynomial_and_levels_equal_the_formula(
    case: tuple[Shape, Parametrisation, list[tuple[int, ...]]], seed: int
) -> None:
    shape, space, layers = case
    module, inputs = assigned(shape, layers, space, seed)
    simulated = PolynomialSimulator(module, np.float64, threads=1, limit=1e4).run(inputs)
    assume(simulated.finite)
    poly = folded(expanded(module), {**inputs, "embedded": inputs["x"]})
    packed = run_passes(poly, [Pack(least_slots(poly))])
    path = critical_path(packed)
    assert path.nonlinear == sum(entry.levels for entry in depth_of(module).ops)
    engine = SimEngine(least_slots(poly), path.total)
    found = run_packed(packed, {**inputs, "embedded": inputs["x"]}, engine)["y"]
    scale = max(1.0, float(np.abs(simulated.outputs["y"]).max()))
    assert np.abs(found - simulated.outputs["y"]).max() < 1e-6 * scale


def test_the_levels_of_an_activation_are_those_of_its_function() -> None:
    """Of 64 terms 33 count for SiLU on this range, and 31 for GELU."""
    one = ActivationApproximation(63, (-3.1710395932197573, 3.1526368975639345))
    assert (one.levels_of("nn.silu"), one.levels_of("nn.gelu")) == (6, 5)


@pytest.mark.parametrize("algorithm", [0, 1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
def test_a_wide_setting_is_accurate_on_a_model_with_a_mask(algorithm: int, masked: bool) -> None:
    shape = Shape(layers=2, batch=4, tokens=6, mask=masked, pre_norm=False, classes=0)
    softmax = (7, 7, 0, 0, 0) if algorithm == 1 else (7, 7, 7, 0, 0)
    module, inputs = assigned(shape, [(*softmax, 7, 7, 7, algorithm)] * 2, WIDE, 3)
    assert layer_count(module) == 2
    result = PolynomialSimulator(module, np.float64, threads=1).run(inputs)
    assert result.finite
    exact = interpret(module, inputs)["y"]
    keep = inputs["mask"].astype(bool) if masked else np.ones((4, 6), dtype=bool)
    assert np.abs(result.outputs["y"] - exact)[keep].mean() < 1e-3
