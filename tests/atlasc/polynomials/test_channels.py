"""Activations whose polynomial differs from channel to channel."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import Calibration, calibrate, read_calibration
from atlasc.calibration.measure import Reached, nonlinear_ops
from atlasc.calibration.ranges import ChannelRanges, channel_ranges
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.scalar_functions import function
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module, stored_arrays
from atlasc.passes.approximation.approximate import (
    apply_settings,
    depth_of,
    settings_approximations,
)
from atlasc.polynomials.algorithms.chebyshev import (
    ActivationApproximation,
    ChannelActivation,
)
from atlasc.polynomials.description import carried_by
from atlasc.polynomials.fits.weighted import OF_CHANNEL, channel_fits, weighted_fit
from atlasc.polynomials.fitted import fitted_activation
from atlasc.polynomials.parametrisation import Parametrisation
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.simulation.torch_simulator import TorchSimulator

EACH = Parametrisation("measured", "weighted", "powers", "any", "each")
Arrays = dict[str, np.ndarray]


def many_inputs(name: str, count: int = 40) -> Arrays:
    pieces = [inputs_for(SHAPES[name], seed) for seed in range(-(-count // SHAPES[name].batch))]
    return {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0]}


@pytest.fixture(scope="module", params=sorted(SHAPES))
def calibrated(request: pytest.FixtureRequest) -> tuple[Module, Arrays, Calibration]:
    name = request.param
    module = Builder(SHAPES[name], 1).build()
    arrays = many_inputs(name)
    calibration = calibrate(module, arrays, margin=None)
    return module, {key: array[:3] for key, array in arrays.items()}, calibration


LAYER = (7, 7, 0, 0, 0, 7, 7, 4, 0)


def channels(low: list[float], high: list[float]) -> ChannelRanges:
    seen = [np.linspace(a, b, 17).tolist() for a, b in zip(low, high, strict=True)]
    return ChannelRanges(tuple(low), tuple(high), tuple(map(tuple, seen)))


@given(
    name=st.sampled_from(["gelu", "silu", "tanh", "relu"]),
    degree=st.sampled_from([1, 3, 7, 15, 31, 63]),
    ends=st.lists(st.tuples(st.floats(-20, 5), st.floats(0.01, 30)), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_a_fit_is_no_worse_than_the_interpolant_where_it_counts_and_bounded_elsewhere(
    name, degree, ends, seed
) -> None:
    generator = np.random.default_rng(seed)
    low, high = (np.array(end) for end in zip(*((a, a + width) for a, width in ends), strict=True))
    inner = np.sort(generator.beta(2, 5, (len(low), 17)), axis=1)
    seen = low[:, None] + (high - low)[:, None] * inner
    known = ChannelRanges(tuple(low), tuple(high), tuple(map(tuple, seen.tolist())))
    fits, plain = (channel_fits(name, degree, known, weighted) for weighted in (True, False))
    exact = function(name).numpy
    for a, b, points, fit, interpolant in zip(low, high, seen, fits, plain, strict=True):
        grid = np.cos(np.pi * np.linspace(0, 1, 257))

        def errors(c: np.ndarray, t: np.ndarray, a: float = a, b: float = b) -> np.ndarray:
            return np.polynomial.chebyshev.chebval(t, c) - exact((a + b) / 2 + (b - a) / 2 * t)

        size = np.abs(exact((a + b) / 2 + (b - a) / 2 * grid)).max()
        worst, usual = (np.abs(errors(c, grid)).max() for c in (fit, interpolant))
        bound = min(OF_CHANNEL.error * size, OF_CHANNEL.times * usual) * (1 + 1e-6) + 1e-14 * size
        assert worst <= bound or np.array_equal(fit, interpolant)
        cells = points[:-1, None] + np.diff(points)[:, None] * (np.arange(4) + 0.5) / 4
        t = (2 * cells.ravel() - a - b) / (b - a)
        mean = [np.square(errors(c, t)).mean() for c in (fit, interpolant)]
        assert mean[0] <= mean[1] * (1 + 1e-6) + 1e-28 * size**2


def test_a_fit_agrees_with_the_weighted_one_of_a_single_range() -> None:
    known = channels([-3.0, -19.0], [2.0, 26.0])
    fits = channel_fits("gelu", 15, known)
    for low, high, quantiles, fit in zip(known.low, known.high, known.quantiles, fits, strict=True):
        one = weighted_fit("gelu", 15, (low, high), quantiles, OF_CHANNEL)
        assert np.abs(fit - one.coefficients).max() < 1e-3 * np.abs(one.coefficients).max()


def test_ranges_hold_what_was_seen_and_no_more_than_the_op() -> None:
    generator = np.random.default_rng(0)
    scale = np.array([0.0, 0.1, 1.0, 5.0])
    high = generator.exponential(1.0, (400, 4)) * scale
    samples = generator.normal(0, 0.2, (100, 4)) * scale
    found = channel_ranges(Reached(-high, high, samples), 0.05, 10, (-60.0, 70.0))
    assert found is not None
    low, top = np.array(found.low), np.array(found.high)
    assert (low <= -high.max(axis=0)).all() and (top >= high.max(axis=0)).all()
    assert (low < top).all() and (low >= -60).all() and (top <= 70).all()
    assert (np.diff(top[1:]) > 0).all()
    new = generator.exponential(1.0, (4000, 4)) * scale
    assert (new > top).mean() < 1e-3
    quantiles = np.array(found.quantiles)
    assert (np.diff(quantiles, axis=1) >= 0).all()
    np.testing.assert_allclose(quantiles[:, -1], high.max(axis=0), rtol=1e-5)


def test_few_inputs_show_no_tail_and_share_a_polynomial() -> None:
    module, arrays = Builder(SHAPES["encoder"], 1).build(), many_inputs("encoder", 12)
    known = [r for r in calibrate(module, arrays, margin=None).ranges if r.op == "nn.gelu"]
    assert all(r.channels is None for r in known)
    assert isinstance(fitted_activation("gelu", 15, known[0], EACH), ActivationApproximation)


def test_high_degrees_share_a_polynomial(calibrated) -> None:
    known = next(r for r in calibrated[2].ranges if r.channels is not None)
    name = known.op.removeprefix("nn.")
    assert isinstance(fitted_activation(name, 63, known, EACH), ChannelActivation)
    assert isinstance(fitted_activation(name, 127, known, EACH), ActivationApproximation)


def test_a_calibration_reads_back(calibrated, tmp_path) -> None:
    calibration = calibrated[2]
    (tmp_path / "calibration.json").write_text(json.dumps(calibration.to_dict()))
    assert read_calibration(tmp_path / "calibration.json") == calibration


def test_they_are_nearer_than_one_polynomial_for_all(calibrated) -> None:
    module, arrays, calibration = calibrated
    simulator = PolynomialSimulator(module, np.float64, threads=1)
    exact = simulator.cleartext(arrays)["y"]
    errors = []
    for space in (Parametrisation("measured", "weighted", "powers", "any"), EACH):
        chosen = settings_approximations(module, [LAYER] * 2, calibration, space)
        others = {op.value.name for op in nonlinear_ops(module) if "lu" not in op.name}
        chosen = {name: one for name, one in chosen.items() if name not in others}
        errors.append(np.abs(simulator.run(arrays, chosen).outputs["y"] - exact).mean())
    assert errors[1] < errors[0]


def test_text_and_arrays_are_all_of_it(calibrated) -> None:
    module, arrays, calibration = calibrated
    module = apply_settings(module, [LAYER] * 2, calibration, EACH)
    again = parse(print_module(module), stored_arrays(module))
    assert print_module(again) == print_module(module)
    assert "chebyshev by channel" in print_module(module)
    assert depth_of(again) == depth_of(module)
    for op, other in zip(nonlinear_ops(module), nonlinear_ops(again), strict=True):
        one, two = carried_by(op), carried_by(other)
        assert one == two and hash(one) == hash(two)
    first, second = (PolynomialSimulator(m, threads=1).run(arrays).outputs for m in (module, again))
    np.testing.assert_array_equal(first["y"], second["y"])


def test_torch_agrees(calibrated) -> None:
    module, arrays, calibration = calibrated
    chosen = settings_approximations(module, [LAYER] * 2, calibration, EACH)
    expected = PolynomialSimulator(module, threads=1).run(arrays, chosen).outputs["y"]
    torch = TorchSimulator(module, "cpu")
    found = torch.run(torch.prepare(arrays), chosen).outputs["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("ranges", "coefficients"),
    [
        ([[0, 1]], [[1.0, 2.0], [1.0, 2.0]]),
        ([[0, 1]], [[1.0, 2.0, 3.0]]),
        ([[1, 1]], [[1.0, 2.0]]),
        ([[0, np.nan]], [[1.0, 2.0]]),
    ],
)
def test_what_does_not_fit_together_is_refused(ranges, coefficients) -> None:
    with pytest.raises(AtlasError):
        ChannelActivation(1, np.array(ranges), np.array(coefficients))
