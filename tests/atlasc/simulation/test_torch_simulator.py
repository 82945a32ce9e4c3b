"""The simulator on torch agrees with the one on NumPy. On the CPU: it has not seen a GPU here."""

from __future__ import annotations

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.passes.approximation.approximate import recipe_approximations, settings_approximations
from atlasc.polynomials.arithmetic import NumpyArithmetic
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum
from atlasc.simulation.simulate import PolynomialSimulator
from atlasc.simulation.torch_simulator import TorchArithmetic, TorchSimulator

LAYER = (7, 7, 0, 0, 0, 7, 7, 7)
OTHERS = [
    (LAYER, LAYER),
    (LAYER, (6, 7, 0, 0, 0, 6, 7, 5)),
    (LAYER, (7, 7, 0, 0, 0, 7, 7, 5)),
    ((7, 7, 0, 0, 0, 6, 7, 6), LAYER),
    ((1, 1, 1, 1, 1, 1, 1, 1), LAYER),
]


@pytest.mark.parametrize("name", SHAPES)
def test_it_agrees_with_numpy_setting_by_setting(name: str) -> None:
    module, arrays = Builder(SHAPES[name], 1).build(), inputs_for(SHAPES[name], 2)
    calibration = calibrate(module, arrays, margin=0.1)
    batch = [settings_approximations(module, s, calibration) for s in OTHERS] + [{}]
    numpy, torch = PolynomialSimulator(module, threads=1), TorchSimulator(module, "cpu")
    uploaded = torch.prepare(arrays)
    for approximations, found in zip(batch, torch.run_all(uploaded, batch), strict=True):
        expected = numpy.run(arrays, approximations)
        assert found.exploded_at == expected.exploded_at
        assert found.outputs.keys() == expected.outputs.keys()
        for key, output in expected.outputs.items():
            assert found.outputs[key].dtype == np.float32
            np.testing.assert_allclose(found.outputs[key], output, rtol=0, atol=1e-5)
    first = torch.run(uploaded, batch[0], layers=1).outputs
    expected = numpy.run(arrays, batch[0], layers=1).outputs
    assert first.keys() == expected.keys()
    for key, output in expected.items():
        np.testing.assert_allclose(first[key], output, rtol=0, atol=1e-5)
    exact = torch.cleartext(uploaded)["y"]
    np.testing.assert_allclose(exact, numpy.cleartext(arrays)["y"], rtol=0, atol=1e-5)


def test_some_explode_and_some_do_not() -> None:
    module, arrays = Builder(SHAPES["encoder"], 1).build(), inputs_for(SHAPES["encoder"], 2)
    calibration = calibrate(module, arrays, margin=0.1)
    batch = [settings_approximations(module, s, calibration) for s in OTHERS]
    simulator = TorchSimulator(module, "cpu")
    finite = [s.finite for s in simulator.run_all(simulator.prepare(arrays), batch)]
    assert any(finite)
    assert not all(finite)


@pytest.mark.parametrize("name", ["is", "thor"])
def test_other_algorithms(name: str) -> None:
    module, arrays = Builder(SHAPES["vision"], 1).build(), inputs_for(SHAPES["vision"], 2)
    chosen = recipe_approximations(module, name, calibrate(module, arrays, margin=0.1))
    simulator = TorchSimulator(module, "cpu")
    found = simulator.run(simulator.prepare(arrays), chosen).outputs["y"]
    expected = PolynomialSimulator(module, threads=1).run(arrays, chosen).outputs["y"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_a_beginning_that_settings_share_is_evaluated_once(monkeypatch) -> None:
    module, arrays = Builder(SHAPES["encoder"], 1).build(), inputs_for(SHAPES["encoder"], 2)
    calibration = calibrate(module, arrays, margin=0.1)
    batch = [settings_approximations(module, s, calibration) for s in OTHERS[:3]]
    simulator, sizes = TorchSimulator(module, "cpu"), []
    evaluate = TorchSimulator._evaluate
    monkeypatch.setattr(
        TorchSimulator,
        "_evaluate",
        lambda self, op, inputs, x, chosen: (
            sizes.append((op.name, op.layer, len(x))) or evaluate(self, op, inputs, x, chosen)
        ),
    )
    uploaded = simulator.prepare(arrays)
    together = [s.outputs["y"] for s in simulator.run_all(uploaded, batch)]
    assert {size for _, layer, size in sizes if layer == 0} == {1}
    little = TorchSimulator(module, "cpu", memory=1)
    for one, output in zip(little.run_all(uploaded, batch), together, strict=True):
        np.testing.assert_allclose(one.outputs["y"], output, rtol=0, atol=1e-6)
    assert simulator.prefix(batch[0])[:4] == simulator.prefix(batch[1])[:4]


@pytest.mark.parametrize("degree", [0, 1, 2, 3, 7, 27, 31, 127, 511])
def test_chebyshev_sums(degree: int) -> None:
    import torch

    x, domain = np.linspace(-9.0, 9.0, 301), (-8.0, 8.0)
    total = ChebyshevSum.of(fit("gelu", degree, domain), domain)
    inside = np.abs(x) <= 8
    found = TorchArithmetic(torch.zeros(1)).step("chebyshev", torch.tensor(x), constant=total)
    expected = NumpyArithmetic(np.float64, 1).step("chebyshev", x, constant=total)
    np.testing.assert_allclose(found.numpy()[inside], expected[inside], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found.numpy()[~inside], expected[~inside], rtol=1e-9, atol=1e-11)
