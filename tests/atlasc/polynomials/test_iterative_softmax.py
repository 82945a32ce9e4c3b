"""Iterative softmax, Chebyshev norms and activations against the exact functions."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import FUNCTIONS
from atlasc.ir.text.approximations import read_approximation
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    DirectSoftmax,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.polynomials.arithmetic import DepthArithmetic, NumpyArithmetic
from tests.atlasc.polynomials.exact import exact_softmax

NUMPY = NumpyArithmetic(threads=1)
FULL = SoftmaxApproximation((5, 5, 5, 5, 7))


def test_softmax_of_the_paper_against_mpmath():
    # Scores 40 wide, rows with greatest scores 20 below the shift: what the paper's ranges are for.
    rng = np.random.default_rng(1)
    scores = rng.uniform(-40, 0, (24, 64))
    scores[:12] -= 20
    error = np.abs(NUMPY.run(FULL.apply, scores) - exact_softmax(scores))
    assert error.max() < 1e-6
    assert error.mean() < 1e-8


def test_float32_stays_float32_and_loses_no_more_than_rounding():
    scores = np.random.default_rng(2).uniform(-30, 0, (4, 3, 32, 32)).astype(np.float32)
    single = NumpyArithmetic(np.float32).run(FULL.apply, scores)
    assert single.dtype == np.float32
    assert np.abs(single - NUMPY.run(FULL.apply, scores.astype(np.float64))).max() < 5e-6


def test_the_shift_moves_the_scores():
    scores = np.random.default_rng(3).uniform(-30, 0, (8, 16))
    moved = NUMPY.run(SoftmaxApproximation((5, 5, 5, 5, 7), shift=17.0).apply, scores + 17.0)
    np.testing.assert_allclose(moved, NUMPY.run(FULL.apply, scores), atol=1e-13)


def test_masked_scores_get_no_weight():
    scores = np.random.default_rng(4).uniform(-30, 0, (8, 32))
    scores[:, 20:] = FULL.mask_fill
    probabilities = NUMPY.run(FULL.apply, scores)
    assert np.abs(probabilities[:, 20:]).max() < 1e-9
    assert np.abs(probabilities[:, :20] - exact_softmax(scores[:, :20])).max() < 1e-6


def test_masked_scores_take_no_room_of_a_bootstrap():
    """Mapped to [-1, 1], as they are where they are bootstrapped, they are 0."""
    iterative = SoftmaxApproximation((5, 3), shift=4.0, exp_range=(-3.0, 0.0))
    direct = DirectSoftmax(15, (0.1, 9.0), 4.0, 15, (-6.0, 0.0))
    assert iterative.mask_fill == sum(iterative.score_range) / 2 == 4.0 - 6.0
    assert direct.mask_fill == 4.0 - 3.0
    keep = np.arange(16) < 9
    arithmetic = NumpyArithmetic(keep=keep[None])
    for softmax in (iterative, direct):
        scores = np.random.default_rng(6).uniform(-1, 3, (8, 16))
        weights = arithmetic.run(lambda x, one=softmax: one.apply(one.visible(x)), scores)
        assert np.abs(weights[:, 9:]).max() < 1e-12


@given(st.lists(st.integers(1, 7), min_size=1, max_size=5))
def test_depth_formula_equals_the_count(iterations):
    approximation = SoftmaxApproximation(tuple(iterations))
    assert approximation.depth == 5 + sum(p + 5 for p in iterations)
    assert approximation.levels == 4 + sum(p + 3 for p in iterations)


def test_zero_drops_an_iteration_and_all_after_it():
    assert SoftmaxApproximation((5, 3, 0, 4, 7)).iterations == (5, 3)
    assert len(SoftmaxApproximation((5, 3, 0, 4, 7)).sum_ranges) == 2


def test_every_iteration_more_lowers_the_error():
    scores = np.random.default_rng(5).uniform(-15, 0, (16, 32))
    exact = exact_softmax(scores)
    errors = [
        np.abs(NUMPY.run(SoftmaxApproximation((7,) * k).apply, scores) - exact).mean()
        for k in (1, 5)
    ]
    assert errors[1] < errors[0] / 100


# degree, range of the variance, bound on the error of normalised values of size about 3. 1/sqrt of
# degree 511 is right to 1e-13 over 400 to 1.
@pytest.mark.parametrize(
    ("degree", "value_range", "bound"), [(511, (0.003, 1.3), 1e-11), (31, (0.1, 1.3), 1e-4)]
)
@pytest.mark.parametrize("op_name", ["nn.layer_norm", "nn.rms_norm"])
def test_norms_against_mpmath(op_name, degree, value_range, bound):
    rng = np.random.default_rng(6)
    x = rng.standard_normal((20, 48))
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    spread = np.geomspace(value_range[0] * 1.3, value_range[1] / 1.3, 20)
    x = x * np.sqrt(spread)[:, None] + 0.05 * np.sqrt(spread)[:, None]
    gamma, beta = rng.uniform(0.5, 1.5, 48), rng.standard_normal(48)
    epsilon = 1e-5
    approximation = NormApproximation(degree, value_range)
    given = x - x.mean(-1, keepdims=True) if op_name == "nn.layer_norm" else x
    y = NUMPY.run(approximation.apply, given, 48, epsilon, gamma, beta)
    with mpmath.workdps(40):
        for row, result in zip(x, y, strict=True):
            values = [mpmath.mpf(float(v)) for v in row]
            mean = mpmath.fsum(values) / 48 if op_name == "nn.layer_norm" else mpmath.mpf(0)
            centred = [v - mean for v in values]
            root = mpmath.sqrt(mpmath.fsum(v * v for v in centred) / 48 + epsilon)
            exact = [float(v / root) * g + b for v, g, b in zip(centred, gamma, beta, strict=True)]
            assert np.abs(result - exact).max() < bound


@pytest.mark.parametrize("p", range(1, 10))
def test_depth_of_norms_and_activations(p):
    norm = NormApproximation(2**p - 1, (0.1, 1.0))
    assert (norm.depth_of("nn.layer_norm"), norm.depth_of("nn.rms_norm")) == (p + 8, p + 6)
    assert 7 + DepthArithmetic().run(norm.inverse_sqrt, 0) == p + 8
    activation = ActivationApproximation(2**p - 1, (-3.0, 3.0))
    assert activation.depth == p + 1 == DepthArithmetic().run(activation.apply, 0, "gelu")
    assert activation.levels <= p and norm.levels <= p + 2
    norm, activation = NormApproximation(2**p - 1), ActivationApproximation(2**p - 1)
    assert (norm.levels, activation.levels) == (p + 2, p)
    unit = ActivationApproximation(2**p - 1, (-1.0, 1.0))
    assert unit.depth == p + 1


@pytest.mark.parametrize("function", ["gelu", "gelu_tanh", "silu", "tanh"])
def test_activations_of_degree_511(function):
    x = np.linspace(-30, 20, 4001)
    y = NUMPY.run(ActivationApproximation(511, (-31.0, 21.0)).apply, x, function)
    assert np.abs(y - FUNCTIONS[function].numpy(x)).max() < 2**-40 * 21


def test_relu_converges_like_one_over_the_degree():
    x = np.linspace(-1, 1, 4001)
    y = NUMPY.run(ActivationApproximation(511, (-1.0, 1.0)).apply, x, "relu")
    assert np.abs(y - np.maximum(x, 0)).max() < 1 / 511


@pytest.mark.parametrize(
    ("op_name", "approximation"),
    [
        ("nn.softmax", SoftmaxApproximation((5, 4, 3), shift=3.5)),
        ("nn.layer_norm", NormApproximation(63, (0.25, 9.5))),
        ("nn.rms_norm", NormApproximation(63)),
        ("nn.silu", ActivationApproximation(127, (-9.0, 4.0))),
    ],
)
def test_attributes_round_trip(op_name, approximation):
    attribute = approximation.entries()
    assert read_approximation(op_name, attribute) == approximation
    assert not any(isinstance(value, tuple) for value in attribute.values())


def test_the_attribute_is_that_of_the_ir_reference():
    attribute = SoftmaxApproximation((5, 5, 5, 5, 7)).entries()
    assert attribute == {
        "algorithm": "iterative",
        "iterations": [5, 5, 5, 5, 7],
        "shift": 0.0,
        "exp_range": [-8.0, 0.0],
        "exp_degree": 15,
        "sum_ranges": [
            [0.085, 256.0], [0.003, 1.238], [0.003, 1.238], [0.003, 1.238], [0.0036, 1.0816]
        ],
    }  # fmt: skip
    assert NormApproximation(511, (1, 2)).entries() == {
        "algorithm": "chebyshev",
        "degree": 511,
        "range": [1.0, 2.0],
    }


@pytest.mark.parametrize(
    ("op_name", "attribute", "text"),
    [
        ("nn.softmax", {"algorithm": "magic"}, "knows no approximation algorithm"),
        ("nn.softmax", {"iterations": [5]}, "knows no approximation algorithm"),
        ("nn.softmax", {"algorithm": "iterative", "iterations": [0, 5]}, "cannot have"),
        ("nn.softmax", {"algorithm": "iterative", "iterations": [5] * 6}, "5 ranges|but 5"),
        ("nn.softmax", {"algorithm": "iterative"}, "not complete"),
        ("nn.gelu", {"algorithm": "chebyshev", "degree": 7, "width": 3}, "no entry 'width'"),
        ("nn.gelu", {"algorithm": "chebyshev", "degree": 7, "range": [2, 1]}, "low < high"),
        ("nn.linear", {"algorithm": "chebyshev"}, "takes no approximation"),
    ],
)
def test_bad_attributes_are_refused(op_name, attribute, text):
    with pytest.raises(AtlasError, match=text):
        read_approximation(op_name, attribute)


def test_without_a_range_the_depth_is_known_but_nothing_is_evaluated():
    assert NormApproximation(511).depth_of("nn.layer_norm") == 17
    with pytest.raises(AtlasError, match="no range yet"):
        NUMPY.run(NormApproximation(511).apply, np.ones((1, 4)), 4, 0.0)
    with pytest.raises(AtlasError, match="no range yet"):
        NUMPY.run(ActivationApproximation(511).apply, np.ones(3), "gelu")


def test_a_renormalisation_squares_the_error_of_row_sums() -> None:
    scores = np.random.default_rng(0).uniform(-6, 0, (50, 8))
    errors = []
    for steps in (None, 1, 2):
        coarse = NUMPY.run(
            SoftmaxApproximation((2,), sum_ranges=((0.02, 8.0),), renormalisations=steps).apply,
            scores,
        )
        errors.append(np.abs(1 - coarse.sum(axis=-1)).max())
    assert 0.05 < errors[0] < 1
    assert errors[1] == pytest.approx(errors[0] ** 2, rel=1e-6)
    assert errors[2] == pytest.approx(errors[0] ** 4, rel=1e-6)


def test_a_renormalisation_costs_one_level_and_two_of_depth() -> None:
    plain, twice = SoftmaxApproximation((5, 5)), SoftmaxApproximation((5, 5), renormalisations=2)
    assert twice.depth - plain.depth == 4
    assert twice.depth == DepthArithmetic().run(twice.apply, 0)
    assert twice.levels - plain.levels == 2
    assert read_approximation("nn.softmax", twice.entries()) == twice
    with pytest.raises(AtlasError, match="cannot have 0 renormalisations"):
        SoftmaxApproximation((5,), renormalisations=0)
