"""Levels counted on an algorithm are those that its lowered program consumes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate, nominal_calibration
from atlasc.ir.scalar_functions import ACTIVATIONS
from atlasc.ir.scalar_functions import function as named_function
from atlasc.passes.approximation.approximate import apply_recipe, depth_of
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.assign_scales import AssignScales
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.normalise_affine import NormaliseAffine
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.packing.geometry import least_slots
from atlasc.polynomials.arithmetic import StepRecorder, Term, levels_of_steps
from atlasc.polynomials.fits.chebyshev import evaluate, fit, levels_of_degree
from atlasc.polynomials.fits.chebyshev_sum import NEGLIGIBLE, ChebyshevSum
from atlasc.polynomials.recipes import recipe_names
from atlasc.program.costs import critical_path

LAYER = {"is": 77, "nexus": 62, "thor": 61, "moai": 54, "arion": 49, "polaris": 37}
"""Levels of a post-norm layer by degrees alone: softmax, two norms and a GELU."""


@pytest.mark.parametrize(
    "name",
    [
        name if name in ("is", "polaris") else pytest.param(name, marks=pytest.mark.deep("recipes"))
        for name in recipe_names()
    ],
)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("measured", [False, True])
def test_every_recipe_consumes_the_levels_that_are_counted(
    name: str, shape: str, measured: bool
) -> None:
    module = Builder(SHAPES[shape], 1).build()
    calibration = nominal_calibration(module)
    if measured:
        calibration = calibrate(module, inputs_for(SHAPES[shape], 2), margin=0.3)
    module = apply_recipe(module, name, calibration)
    poly = run_passes(module, [Expand(), NormaliseAffine(), FoldFeatures(), AssignScales()])
    packed = run_passes(poly, [Pack(least_slots(poly))])
    depth = depth_of(module)
    assert critical_path(packed).nonlinear == sum(op.levels for op in depth.ops)
    assert depth.levels == sum(op.levels for op in depth.ops if op.layer is not None) > 0
    if shape == "encoder":  # on a known range fewer terms may count, and never more
        assert depth.levels <= 2 * LAYER[name]


def levels(algorithm: Any) -> int:
    recorder = StepRecorder()
    recorder.run(algorithm, 0)
    return levels_of_steps(recorder.steps)


def two_sums(x: Term, second: tuple[float, float]) -> Term:
    one = x.chebyshev(ChebyshevSum.of(np.ones(8), (-3.0, 5.0)))
    return one + x.chebyshev(ChebyshevSum.of(np.ones(8), second))


def test_a_factor_costs_a_level_where_other_readers_want_another_one() -> None:
    assert levels(lambda x: two_sums(x, (-3.0, 5.0))) == 3
    assert levels(lambda x: two_sums(x, (-2.0, 6.0))) == 3  # the constant is an addition
    assert levels(lambda x: two_sums(x, (-4.0, 6.0))) == 4
    assert levels(lambda x: x * 0.5 * (x * 3.0)) == 1
    assert levels(lambda x: x * 0.5 + x) == 1
    assert levels(lambda x: x * 0.5 + x.square()) == 1
    assert levels(lambda x: x + x.square().square()) == 2
    assert levels(lambda x: x * -1.0) == 1


@given(
    name=st.sampled_from(["gelu", "silu", "tanh", "relu", "invsqrt", "inverse", "exp"]),
    degree=st.sampled_from([3, 15, 63, 255, 511]),
    low=st.floats(0.01, 5.0),
    width=st.floats(0.1, 40.0),
)
def test_omitted_terms_cannot_be_seen(name: str, degree: int, low: float, width: float) -> None:
    interval = (low, low + width) if name in ("invsqrt", "inverse") else (low - width, low)
    total = ChebyshevSum.fitted(name, degree, interval)
    whole = fit(name, degree, interval)
    kept = np.zeros(degree + 1)
    kept[: len(total.coefficients)] = total.coefficients
    x = np.linspace(*interval, 2001)
    values = np.abs(named_function(name).numpy(x))
    size = np.abs(whole).max() * (1 if name in ACTIVATIONS else values.min() / values.max())
    change = np.abs(evaluate(x, kept - whole, interval)).max()
    assert change <= NEGLIGIBLE * size + 1e-17 * np.abs(whole).max()
    assert total.levels == levels_of_degree(len(total.coefficients) - 1) <= levels_of_degree(degree)


def test_every_term_counts_where_the_degree_is_low_or_the_range_reaches_zero() -> None:
    for name, degree, interval in (("gelu", 7, (-6.0, 9.0)), ("invsqrt", 255, (0.0, 1.0))):
        given = tuple(1.0 / n for n in range(1, degree + 2))
        total = ChebyshevSum.fitted(name, degree, interval, given)
        np.testing.assert_array_equal(total.coefficients, given)
