"""Direct softmax, the exponential that it shares, and coefficients that an op carries."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.ir.errors import AtlasError
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.passes.approximation.approximate import apply_settings, settings_approximations
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    DirectSoftmax,
    NormApproximation,
    SoftmaxApproximation,
)
from atlasc.polynomials.arithmetic import DepthArithmetic, NumpyArithmetic
from atlasc.polynomials.description import carried_by
from atlasc.polynomials.fits.weighted import exponential, least_exponential
from atlasc.polynomials.parametrisation import Parametrisation

NUMPY = NumpyArithmetic(threads=1)
MIXED = ((5, 6, 0, 0, 0, 5, 6, 7, 1), (6, 7, 0, 0, 0, 7, 5, 6, 0))


def exact(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def softmax(degree: int, scores: np.ndarray, shift: float = 0.0) -> DirectSoftmax:
    sums = np.exp(scores - shift).sum(axis=-1)
    low = float(scores.min()) - shift
    return DirectSoftmax(degree, (0.9 * sums.min(), 1.1 * sums.max()), shift, 31, (low, 0.0))


def test_it_is_a_softmax_and_the_shift_moves_the_scores() -> None:
    scores = np.random.default_rng(0).uniform(-8, 0, (20, 16))
    direct = softmax(63, scores)
    assert np.abs(NUMPY.run(direct.apply, scores) - exact(scores)).max() < 1e-9
    moved = softmax(63, scores + 5, shift=5.0)
    assert NUMPY.run(moved.apply, scores + 5) == pytest.approx(exact(scores), abs=1e-9)


def test_masked_keys_weigh_nothing() -> None:
    scores = np.random.default_rng(1).uniform(-8, 0, (20, 16))
    keep = np.random.default_rng(2).uniform(size=scores.shape) < 0.7
    keep[:, 0] = True
    sums = np.where(keep, np.exp(scores), 0).sum(axis=-1)
    direct = replace(softmax(63, scores), sum_range=(0.9 * sums.min(), 1.1 * sums.max()))
    filled = np.where(keep, scores, direct.mask_fill)
    found = NumpyArithmetic(threads=1, keep=keep).run(direct.apply, filled)
    assert np.abs(found - exact(np.where(keep, scores, -np.inf))).max() < 1e-9
    assert (found[~keep] == 0).all()


@pytest.mark.parametrize(("degree", "exp_degree", "levels"), [(7, 15, 8), (27, 31, 11), (5, 3, 6)])
def test_depth_and_levels(degree: int, exp_degree: int, levels: int) -> None:
    direct = DirectSoftmax(degree, (0.5, 2.0), exp_degree=exp_degree)
    assert direct.depth == levels + 3 == DepthArithmetic().run(direct.apply, 0)
    assert direct.levels == levels
    assert DirectSoftmax(degree, exp_degree=exp_degree).depth == direct.depth


def test_mistakes() -> None:
    with pytest.raises(AtlasError, match="no range yet"):
        NUMPY.run(DirectSoftmax(7).apply, np.zeros((1, 2)))
    with pytest.raises(AtlasError, match="sum range must be positive"):
        DirectSoftmax(7, (0.0, 1.0))
    with pytest.raises(AtlasError, match="cannot have degree 0"):
        DirectSoftmax(0)
    with pytest.raises(AtlasError, match="degree 7 has 8 finite coefficients"):
        DirectSoftmax(7, (0.5, 1.0), coefficients=(1.0,) * 7)
    with pytest.raises(AtlasError, match="degree 1 has 2 finite"):
        NormApproximation(1, (0.5, 1.0), (1.0, float("nan")))
    with pytest.raises(AtlasError, match="coefficients for 2"):
        SoftmaxApproximation((1,), coefficients=((1.0, 2.0), (1.0, 2.0)))
    with pytest.raises(AtlasError, match="do not have the levels"):
        SoftmaxApproximation((3,), degrees=(8,))


def test_given_coefficients_are_used() -> None:
    x = np.linspace(0.5, 1.0, 9)
    norm = NormApproximation(1, (0.5, 1.0), (2.0, 0.0))
    assert (NUMPY.run(norm.inverse_sqrt, x) == 2).all()
    activation = ActivationApproximation(1, (-1.0, 1.0), (0.0, 3.0))
    assert NUMPY.run(activation.apply, x, "gelu") == pytest.approx(3 * x)
    flat = SoftmaxApproximation((1,), coefficients=((0.5, 0.0),), exp_degree=1,
                                exp_coefficients=(1.0, 0.0))  # fmt: skip
    assert NUMPY.run(flat.apply, x[None] - 1) == pytest.approx(np.full((1, 9), 0.25))


@pytest.mark.parametrize("name", ["encoder", "decoder"])
@pytest.mark.parametrize("fits", ["interpolated", "weighted"])
def test_a_wide_setting_is_accurate_and_reads_back_from_text(name: str, fits: str) -> None:
    module, arrays = Builder(SHAPES[name], 1).build(), inputs_for(SHAPES[name], 2)
    space = Parametrisation("measured", fits, "powers", "any")
    calibration = calibrate(module, arrays, margin=0.1)
    assigned = apply_settings(module, MIXED, calibration, space)
    again = parse(print_module(assigned), assigned.symbols)
    chosen = settings_approximations(module, MIXED, calibration, space)
    for op in again.ops:
        if op.definition.nonlinear:
            assert carried_by(op) == chosen[op.value.name]
    algorithms = {a.algorithm for a in chosen.values() if a.family == "softmax"}
    assert algorithms == {"direct", "iterative"}
    weighted = [a for a in chosen.values() if getattr(a, "coefficients", None)]
    assert bool(weighted) == (fits == "weighted")


def test_the_exponential_is_as_good_as_probabilities_need() -> None:
    """Rows whose sums lie far below the shift need a better exponential than others."""
    degrees = (3, 7, 15, 31, 63)
    near, far = tuple(np.linspace(-1, 3, 129)), tuple(np.linspace(-12, 3, 129))
    for weighted in (False, True):
        for halvings in (0, 1, 3):
            interval = (-16.0 / 2**halvings, 0.0)
            least = [
                len(least_exponential(degrees, 1e-3, interval, halvings, s, 1.0, weighted)[0]) - 1
                for s in (near, far)
            ]
            assert least[0] < least[1] if halvings == weighted == 0 else least[0] <= least[1]
    for degree in degrees[1:]:
        one, other = (
            exponential(degree, (-16.0, 0.0), 0, far, 1.0, weighted=w) for w in (True, False)
        )
        assert one.error <= other.error + 1e-10
    strict, loose = (
        len(least_exponential(degrees, 1.0, (-4.0, 0.0), 2, near, allowed, True)[0]) - 1
        for allowed in (1e-6, 1.0)
    )
    assert strict > loose
