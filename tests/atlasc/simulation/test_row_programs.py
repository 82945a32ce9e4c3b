"""Row programs compute what the algorithms say, with NumPy's arithmetic as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.ir.ops.masks import log_hidden
from atlasc.passes.approximation.approximate import apply_settings
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    ChannelActivation,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.polynomials.arithmetic import NumpyArithmetic, Term
from atlasc.polynomials.description import Activation, Norm, Softmax
from atlasc.polynomials.recipes import OpFacts, recipe
from atlasc.simulation import row_programs
from atlasc.simulation.blockwise import BlockArithmetic
from atlasc.simulation.row_programs import NotRecordable, RowProgram
from atlasc.simulation.simulate import PolynomialSimulator

PRECISION = {np.float32: 25 * 2**-23, np.float64: 1e-13}
"""A sum of 512 terms rounds by some sqrt(512) units; exact functions were seen to round by 17."""
EXPLODED = 10.0
"""A softmax is at most 1. Far beyond its ranges it multiplies what it rounds."""


def centred_norm(norm: Norm, gamma: np.ndarray, beta: np.ndarray) -> Any:
    return lambda x: norm.apply(x.centred(len(gamma)), len(gamma), 1e-5, gamma, beta)


def compare(
    algorithm: Any,
    x: np.ndarray,
    keep: np.ndarray | None = None,
    fill: float = 0.0,
    dtype: Any = np.float64,
    most: float = np.inf,
) -> None:
    def filled(term: Term) -> Term:
        return algorithm(term.filled(fill, 2.0))

    x = x.astype(dtype)
    start = x.astype(np.float64)
    if keep is not None:
        start = np.where(keep, start + 2.0 * log_hidden(start, keep), fill)
    expected = NumpyArithmetic(np.float64, 1, keep).run(algorithm, start)
    assume(np.isfinite(expected).all() and np.abs(expected).max() < most)
    scale = max(1.0, np.abs(expected).max())
    result = np.empty_like(x)
    assert RowProgram(dtype, filled).run(x, keep, result, 1e30)
    assert np.abs(result - expected).max() <= PRECISION[dtype] * scale


@given(
    exponents=st.lists(st.integers(3, 7), min_size=1, max_size=5),
    width=st.integers(4, 70),  # sums of fewer terms lie below the paper's ranges
    rows=st.integers(1, 150),
    masked=st.booleans(),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_softmax(exponents, width, rows, masked, dtype, seed) -> None:
    generator = np.random.default_rng(seed)
    softmax = SoftmaxApproximation(tuple(exponents), shift=3.0)
    x = generator.uniform(-1.0, 3.0, (rows, width))
    keep = generator.random((rows, width)) < 0.7 if masked else None
    if keep is not None:
        keep[:, 0] = True
    compare(softmax.apply, x, keep, softmax.mask_fill, dtype, EXPLODED)


@given(
    degree=st.sampled_from([1, 3, 7, 31, 127, 511]),
    width=st.integers(2, 400),
    rows=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_norm(degree, width, rows, dtype, seed) -> None:
    generator = np.random.default_rng(seed)
    x = generator.normal(0.5, 1.0, (rows, width))
    algorithm = centred_norm(
        NormApproximation(degree, (1e-3, 8.0)),
        generator.normal(1, 0.1, width),
        generator.normal(0, 0.1, width),
    )
    compare(algorithm, x, dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("degree", [1, 15, 511])
def test_activation(degree: int, dtype: type) -> None:
    x = np.random.default_rng(0).uniform(-12, 15, (7, 1000))
    activation = ActivationApproximation(degree, (-12.0, 15.0))
    compare(lambda term: activation.apply(term, "gelu"), x, dtype=dtype)


@given(
    degree=st.sampled_from([1, 2, 7, 31, 63]),
    width=st.integers(1, 70),
    rows=st.integers(1, 40),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 1000),
)
def test_activation_by_channel(degree, width, rows, dtype, seed) -> None:
    generator = np.random.default_rng(seed)
    low = generator.uniform(-3, 1, width)
    ranges = np.column_stack([low, low + generator.uniform(0.5, 4, width)])
    activation = ChannelActivation(degree, ranges, generator.normal(0, 1, (width, degree + 1)))
    x = ranges[:, 0] + np.diff(ranges).T * generator.uniform(0, 1, (rows, width))
    x = x.astype(dtype)
    result, exploded = np.empty_like(x), np.zeros(rows, np.bool_)
    program = RowProgram(dtype, lambda term: activation.apply(term, "gelu"))
    assert program.run(x, None, result, np.inf, exploded)
    expected = NumpyArithmetic(np.float64, 1).run(activation.apply, x.astype(np.float64), "gelu")
    # The map to (-1, 1) is rounded, and a polynomial of degree d has slopes up to d squared.
    tolerance = 4 * np.finfo(dtype).eps * (degree + 1) ** 3
    assert np.abs(result - expected).max() <= tolerance
    assert not exploded.any()
    greatest = np.abs(result).max(axis=1)
    limit = float(np.median(greatest))
    assert program.run(x, None, result, limit, exploded) == (greatest <= limit).all()
    assert exploded.tolist() == (greatest > limit).tolist()


@pytest.mark.parametrize("name", ["is", "nexus", "thor", "arion"])
def test_every_published_algorithm(name: str) -> None:
    chosen, generator = recipe(name), np.random.default_rng(1)
    softmax = chosen.approximation(OpFacts("nn.softmax", "", (-4.0, 4.0), (0.01, 32.0), 32))
    norm = chosen.approximation(OpFacts("nn.layer_norm", "", (0.3, 3.0)))
    activation = chosen.approximation(OpFacts("nn.gelu", "", (-6.0, 6.0)))
    assert isinstance(softmax, Softmax)
    assert isinstance(norm, Norm)
    assert isinstance(activation, Activation)
    scores = generator.uniform(-4, 4, (20, 32))
    compare(softmax.apply, scores, scores > -3.5, softmax.mask_fill)
    ones = np.ones(64)
    compare(centred_norm(norm, ones, 0 * ones), generator.normal(0, 1, (20, 64)))
    x = generator.uniform(-6, 6, (5, 64))
    compare(lambda term: activation.apply(term, "gelu"), x)


def test_it_ends_at_the_first_explosion() -> None:
    softmax = SoftmaxApproximation((5, 5), shift=0.0)
    program = RowProgram(np.float64, softmax.apply)
    x = np.zeros((4096, 64))
    x[200] = 1e3
    result = np.full_like(x, np.nan)
    assert not program.run(x, None, result, 1e6)
    assert np.isfinite(result[:128]).all()
    assert np.isnan(result[-1]).all(), "what comes later is not computed"
    x[200] = np.nan
    assert not program.run(x, None, result, 1e6)


def test_an_element_does_not_depend_on_its_neighbours() -> None:
    activation = ActivationApproximation(511, (-12.0, 15.0))
    program = RowProgram(np.float32, lambda term: activation.apply(term, "gelu"))
    inside = np.linspace(-12, 15, 300, dtype=np.float32).reshape(1, -1)
    alone, beside = np.empty_like(inside), np.empty((1, 301), np.float32)
    assert program.run(inside, None, alone, np.inf)
    program.run(np.append(inside, np.float32([[15.1]]), axis=1), None, beside, np.inf)
    np.testing.assert_array_equal(alone[0], beside[0, :-1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_explode_are_named(dtype: Any) -> None:
    softmax = SoftmaxApproximation((4, 5), shift=2.0)
    x = np.random.default_rng(2).normal(size=(1200, 8)).astype(dtype)  # three blocks
    x[[3, 77, 800, 1199], 5] = 60.0, np.nan, 60.0, -60.0
    exploded, result = np.zeros(len(x), dtype=np.bool_), np.empty_like(x)
    program = RowProgram(dtype, softmax.apply)
    assert not program.run(x, None, result, 1e6, exploded)
    with np.errstate(all="ignore"):
        expected = BlockArithmetic(dtype, 1).run(softmax.apply, x)
        lost = ~(np.abs(expected) <= 1e6).all(axis=1)
    np.testing.assert_array_equal(exploded, lost)
    assert lost[77] and not lost.all(), "a run goes on after an explosion"
    np.testing.assert_allclose(result[~lost], expected[~lost], rtol=1e-4, atol=1e-6)


def test_what_cannot_be_recorded_is_refused() -> None:
    with pytest.raises(NotRecordable):
        RowProgram(np.float64, lambda x: x.row_sum())
    with pytest.raises(NotRecordable):
        RowProgram(np.float64, lambda x: x)
    with pytest.raises(NotRecordable):
        RowProgram(np.float64, lambda x: x * np.ones((2, 3)))


@pytest.mark.parametrize("name", SHAPES)
def test_a_model_without_the_native_library_gives_the_same(name: str, monkeypatch) -> None:
    module, arrays = Builder(SHAPES[name], 1).build(), inputs_for(SHAPES[name], 2)
    layer = (7, 7, 0, 0, 0, 7, 7, 7)
    module = apply_settings(module, (layer, layer), calibrate(module, arrays, margin=0.1))
    native = PolynomialSimulator(module, np.float64, threads=1).run(arrays).outputs["y"]
    monkeypatch.setattr(row_programs, "native_library", lambda: None)
    without = PolynomialSimulator(module, np.float64, threads=1).run(arrays).outputs["y"]
    assert 0 < np.abs(native - without).max() < 1e-11
