"""Recipes: depths as published, and every algorithm against mpmath where it is meant to be used."""

from __future__ import annotations

import json
import re
from pathlib import Path

import mpmath
import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import FUNCTIONS
from atlasc.ir.text.approximations import read_approximation
from atlasc.polynomials.algorithms.chebyshev import (
    ChebyshevNewtonNorm,
    ChebyshevSoftmax,
)
from atlasc.polynomials.arithmetic import DepthArithmetic, NumpyArithmetic
from atlasc.polynomials.description import Norm
from atlasc.polynomials.recipes import OpFacts, recipe, recipe_names
from atlasc_comparisons.nexus import (
    LineNewtonNorm,
    PowerSoftmax,
    SignPiecewiseActivation,
)
from atlasc_comparisons.thor import (
    AdaptiveNorm,
    AdaptiveSoftmax,
    CompositeActivation,
)
from tests.atlasc.polynomials.exact import exact_softmax

ROOT = Path(__file__).resolve().parents[2]
NUMPY = NumpyArithmetic(threads=1)
ATTENTION_NORM = "encoder.layer.3.attention.output.LayerNorm"
OUTPUT_NORM = "encoder.layer.3.output.LayerNorm"
VIT_NORMS = ("layernorm_before", "layernorm_after")
LLAMA_NORMS = ("input_layernorm", "post_attention_layernorm")


def depth(name, op_name, location=""):
    """Of one op under a recipe without calibration."""
    return recipe(name).approximation(OpFacts(op_name, location)).depth_of(op_name)


def bert_layer(name):
    norms = [depth(name, "nn.layer_norm", place) for place in (ATTENTION_NORM, OUTPUT_NORM)]
    return [depth(name, "nn.softmax"), *norms, depth(name, "nn.gelu")]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("is", [57, 17, 17, 10]),  # 12 layers: 1212, as the paper reports
        ("nexus", [17, 22, 22, 18]),  # 948, as the paper reports
        ("thor", [41, 17, 19, 12]),  # 1068, where the paper reports 1070
        ("moai", [19, 22, 22, 6]),
        ("arion", [22, 17, 17, 9]),
        ("polaris", [18, 14, 14, 7]),
    ],
)
def test_depth_of_a_bert_layer(name, parts):
    assert bert_layer(name) == parts


def test_totals_of_the_paper():
    assert 12 * sum(bert_layer("is")) == 1212
    assert 12 * sum(bert_layer("nexus")) == 948
    layer = depth("is", "nn.softmax") + depth("is", "nn.silu") + 2 * depth("is", "nn.rms_norm")
    assert 32 * layer == 3104


def test_the_depths_on_the_page_of_the_paper():
    text = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    table = text.partition("<!-- depths: begin -->")[2].partition("<!-- depths: end -->")[0]
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \|", table, re.MULTILINE)
    assert {name for name, *_ in rows} == {*recipe_names()}
    for name, *depths in rows:
        vit = [depth(name, "nn.layer_norm", f"vit.layers.3.{side}") for side in VIT_NORMS]
        rms = [depth(name, "nn.rms_norm", f"model.layers.3.{side}") for side in LLAMA_NORMS]
        assert list(map(int, depths)) == [
            12 * sum(bert_layer(name)),
            12 * (depth(name, "nn.softmax") + sum(vit) + depth(name, "nn.gelu")),
            32 * (depth(name, "nn.softmax") + sum(rms) + depth(name, "nn.silu")),
        ], name


def test_an_unknown_recipe_is_refused():
    with pytest.raises(AtlasError, match="no recipe 'best'"):
        recipe("best")


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_makes_descriptions_that_survive_json(name):
    chosen = recipe(name)
    scores, sums = (np.float64(-20.0), np.float64(9.0)), (np.float32(0.25), np.float32(30.0))
    made = [
        OpFacts("nn.softmax", "", scores, sums, 64),
        OpFacts("nn.layer_norm", ATTENTION_NORM, (0.25, 9.0)),
        OpFacts("nn.rms_norm", "", (0.25, 9.0)),
        *[OpFacts(op, "", (-9.0, 5.0)) for op in ("nn.gelu", "nn.silu", "nn.tanh")],
    ]
    for facts in made:
        op_name, approximation = facts.op, chosen.approximation(facts)
        attribute = json.loads(json.dumps(approximation.entries()))
        again = read_approximation(op_name, attribute)
        assert again.entries() == attribute
        assert again.depth_of(op_name) == approximation.depth_of(op_name) > 0


def scores_with_sums(low, high, spread, keys=64, rows=20):
    """Scores whose rows, each `spread` wide, have sums of exponentials from low to high."""
    scores = np.random.default_rng(7).uniform(-spread, 0, (rows, keys))
    sums = np.geomspace(low, high, rows)
    return scores + np.log(sums / np.exp(scores).sum(-1))[:, None]


# Each bound is relative to the exact probability, on the row sums that the settings are meant for.
@pytest.mark.parametrize(
    ("approximation", "sums", "spread", "bound"),
    [
        # exp is (1 + x/128)^128, off by x^2/256 for scores 4 and less from 0; inverse 0.8^32.
        (PowerSoftmax(), (20, 180), 3.0, 0.1),
        (PowerSoftmax(squarings=14, steps=6), (20, 180), 3.0, 1e-3),
        (PowerSoftmax(steps=8, divisor=1.0), (0.05, 1.9), 1.0, 0.2),
        (AdaptiveSoftmax(width=64, score_range=(-20.0, 4.0)), (1, 100), 6.0, 2e-3),
        (AdaptiveSoftmax(width=64, score_range=(-20.0, 4.0), rounds=2), (1, 100), 6.0, 3e-3),
        (ChebyshevSoftmax(0.0, 63, (-60.0, 15.0), 255, (0.02, 400.0), 2), (1, 400), 6.0, 2e-5),
        (ChebyshevSoftmax(0.0, 31, (-40.0, 1.0), 511, (0.1, 256.0)), (1, 40), 4.0, 1e-4),
    ],
)
def test_softmax_against_mpmath(approximation, sums, spread, bound):
    scores = scores_with_sums(*sums, spread)
    exact = exact_softmax(scores)
    assert np.abs(NUMPY.run(approximation.apply, scores) / exact - 1).max() < bound


@pytest.mark.parametrize("name", recipe_names())
def test_masked_scores_get_no_weight(name):
    scores = scores_with_sums(20, 60, 2.0)
    measured, sums = (float(scores.min()), float(scores.max())), (15.0, 70.0)
    top = measured[1]
    sums = tuple(s * np.exp(-top) for s in sums)
    approximation = recipe(name).approximation(OpFacts("nn.softmax", "", measured, sums, 80))
    filled = np.concatenate([scores, np.full((20, 16), approximation.mask_fill)], axis=1)
    if name in ("is", "nexus", "moai"):
        # Only these reach far enough below the measured scores for a mask to vanish.
        assert np.abs(NUMPY.run(approximation.apply, filled)[:, 64:]).max() < 1e-6
    assert approximation.mask_fill <= measured[0] or name in ("thor", "arion", "polaris")


def test_nexus_masks_to_exactly_zero():
    approximation = PowerSoftmax(shift=3.25)
    filled = np.full((1, 4), approximation.mask_fill)
    filled[0, 0] = 5.0
    assert not NUMPY.run(approximation.apply, filled)[0, 1:].any()


# argument range of 1/sqrt, bound on its relative error there.
@pytest.mark.parametrize(
    ("approximation", "value_range", "bound"),
    [
        (LineNewtonNorm(), (4.0, 800.0), 4e-4),
        (LineNewtonNorm((0.02, 1.5)), (0.02, 1.5), 1e-4),
        (LineNewtonNorm((0.5, 2500.0)), (12.5, 2500.0), 4e-4),
        (AdaptiveNorm((0.15, 10.0)), (0.15, 10.0), 5.1e-4),
        (AdaptiveNorm((0.75, 2500.0)), (0.75, 2500.0), 5.1e-4),
        # A fit of degree 31 is off by half at 0.5; two Newton steps help where it is off by less.
        (ChebyshevNewtonNorm(31, 2, (0.5, 2500.0)), (25.0, 2500.0), 1e-2),
        (ChebyshevNewtonNorm(31, 2, (0.1, 10.0)), (0.1, 10.0), 1e-9),
    ],
)
def test_inverse_square_roots_against_mpmath(approximation, value_range, bound):
    points = np.geomspace(*value_range, 400)
    unit = approximation.unit
    result = NUMPY.run(approximation.inverse_sqrt, points * unit) * np.sqrt(unit)
    with mpmath.workdps(30):
        exact = np.array([float(1 / mpmath.sqrt(mpmath.mpf(float(v)))) for v in points])
    assert np.abs(result / exact - 1).max() < bound


@pytest.mark.parametrize("name", recipe_names())
@pytest.mark.parametrize("op_name", ["nn.layer_norm", "nn.rms_norm"])
def test_whole_norms(name, op_name):
    rng = np.random.default_rng(8)
    x = rng.standard_normal((64, 96)) * np.sqrt(np.geomspace(0.2, 4.0, 64))[:, None] + 0.1
    gamma, beta, epsilon = rng.uniform(0.5, 2, 96), rng.standard_normal(96), 1e-6
    centred = x - x.mean(-1, keepdims=True) if op_name == "nn.layer_norm" else x
    variance = np.square(centred).mean(-1, keepdims=True) + epsilon
    exact = centred / np.sqrt(variance) * gamma + beta
    measured = float(variance.min()) * 0.9, float(variance.max()) * 1.1
    approximation = recipe(name).approximation(OpFacts(op_name, "", measured))
    assert isinstance(approximation, Norm)
    y = NUMPY.run(approximation.apply, centred, 96, epsilon, gamma, beta)
    assert np.abs(y - exact).max() < 5e-3


@pytest.mark.parametrize(
    ("approximation", "function", "bound"),
    [
        (SignPiecewiseActivation(), "gelu", 1e-3),
        (SignPiecewiseActivation((-12.0, 10.0)), "gelu", 1e-3),
        (SignPiecewiseActivation((-12.0, 10.0)), "silu", 1e-2),
        (CompositeActivation(), "gelu", 1e-7),
        (CompositeActivation(), "gelu_tanh", 1e-5),
        (CompositeActivation((-20.0, 13.0)), "silu", 1e-5),
    ],
)
def test_activations_against_mpmath(approximation, function, bound):
    points = np.linspace(*approximation.range, 701)
    y = NUMPY.run(approximation.apply, points, function)
    with mpmath.workdps(30):
        exact = [
            float(FUNCTIONS[function].precise(mpmath.mp, mpmath.mpf(float(x)))) for x in points
        ]
    assert np.abs(y - exact).max() < bound


@pytest.mark.parametrize("kind", [SignPiecewiseActivation, CompositeActivation])
def test_activations_that_are_not_covered_are_refused(kind):
    with pytest.raises(AtlasError, match="does not cover tanh"):
        NUMPY.run(kind().apply, np.zeros(3), "tanh")


def test_thor_counts_the_product_with_an_encryption_of_one():
    approximation = AdaptiveNorm((0.15, 10.0))
    steps = len(approximation.factors)
    assert (steps, approximation.depth_of("nn.layer_norm")) == (5, 17)
    assert DepthArithmetic().run(approximation.inverse_sqrt, 0) == 2 * steps - 1
