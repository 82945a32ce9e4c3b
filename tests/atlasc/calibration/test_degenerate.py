"""Degenerate and extreme models: compiled right, or refused with the op, its range and a remedy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_transformers import Builder, Shape, inputs_for

from atlasc.calibration.calibrate import Calibration, calibrate, require_coverable
from atlasc.calibration.ranges import WIDEST
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import apply_recipe, apply_settings
from atlasc.passes.calibration.centre_keys import key_shifts, with_centred_keys
from atlasc.polynomials.fitted import fitted_softmax
from atlasc.polynomials.parametrisation import PAPER, SOFTMAX_ALGORITHMS, WIDE
from atlasc.polynomials.recipes import recipe_names
from atlasc.simulation.simulate import PolynomialSimulator

SHAPE = Shape(layers=2, batch=40, mask=True, pre_norm=False, classes=0)


def scaled(part: str, factor: float) -> tuple[Module, dict[str, np.ndarray]]:
    """A model with some weights and biases multiplied."""
    module, inputs = Builder(SHAPE, 0).build(), inputs_for(SHAPE, 1)
    names = [name for name in module.symbols if part in name]
    assert names
    for name in names:
        module.symbols[name] = module.symbols[name] * factor
    return module, inputs


def test_queries_of_zero_predict_nothing() -> None:
    module, inputs = scaled("query", 0.0)
    assert key_shifts(module, inputs) == {}


@pytest.mark.parametrize("part", ["query", "key", "value", "norm", "out", "up"])
def test_what_is_constant_is_compiled(part: str) -> None:
    module, inputs = scaled(part, 0.0)
    module = with_centred_keys(module, key_shifts(module, inputs))
    module = apply_recipe(module, "is", calibrate(module, inputs))
    simulator = PolynomialSimulator(module)
    prepared = simulator.prepare(inputs)
    simulated, exact = simulator.run(prepared), simulator.cleartext(prepared)
    for name, array in exact.items():
        np.testing.assert_allclose(simulated.outputs[name], array, atol=1e-3)


@pytest.mark.parametrize("factor", [1e3, 1e4])
def test_scores_that_no_polynomial_covers_are_refused_at_once(factor: float) -> None:
    module, inputs = scaled("query", factor)
    with pytest.raises(AtlasError, match="no polynomial covers the scores of nn.softmax") as caught:
        require_coverable(calibrate(module, inputs).ranges)
    assert caught.value.where.startswith("layer.0")
    assert "the inputs reach (" in caught.value.why and "smaller" in caught.value.remedy


def wide(factor: float) -> tuple[Module, Calibration]:
    """A model whose scores reach hundreds."""
    module, inputs = scaled("query", factor)
    calibration = calibrate(module, inputs, margin=0.05)
    first = next(known for known in calibration.ranges if known.kind == "scores")
    assert first.high - first.low > 100
    return module, calibration


@pytest.mark.parametrize("space", [PAPER, WIDE])
def test_wide_scores_have_fits_of_every_kind(space) -> None:
    """Sums of rows over e^100 apart: nothing underflows, and no 1/sqrt goes beyond what a
    ciphertext holds, so the values before it need no hundred doublings.
    """
    _, calibration = wide(60.0)
    known = next(known for known in calibration.ranges if known.kind == "scores")
    kinds = len(SOFTMAX_ALGORITHMS) if space is WIDE else 1
    for algorithm in range(kinds):
        for degrees in ((31, 31),) if algorithm == 1 else ((31,) * count for count in range(1, 6)):
            found = fitted_softmax(degrees, algorithm, known, space)
            for low, high in getattr(found, "sum_ranges", None) or [found.sum_range]:
                assert 0 < low < high <= low * WIDEST * (1 + 1e-9)
            for part in (found.coefficients, found.exp_coefficients):
                for row in part or ():
                    assert np.isfinite(row).all()


@pytest.mark.parametrize("recipe", recipe_names())
def test_recipes_have_fits_for_wide_scores(recipe: str) -> None:
    module, calibration = wide(60.0)
    assert apply_recipe(module, recipe, calibration).ops


def test_a_fit_that_is_not_possible_names_the_place() -> None:
    module, calibration = wide(60.0)
    norm = next(known for known in calibration.ranges if known.kind == "variance")
    ranges = tuple(replace(r, low=0.0) if r is norm else r for r in calibration.ranges)
    with pytest.raises(AtlasError, match="nn.layer_norm cannot be approximated") as caught:
        apply_settings(module, [[3] * 8 + [0]] * 2, replace(calibration, ranges=ranges), WIDE)
    assert caught.value.where == norm.location and "calibration saw" in caught.value.why


def test_a_query_that_sees_no_key_is_refused() -> None:
    """Texts padded on the left, under a causal mask."""
    shape = Shape(layers=1, batch=4, mask=True, causal=True, classes=0)
    module, inputs = Builder(shape, 0).build(), inputs_for(shape, 1)
    inputs["mask"] = np.ones_like(inputs["mask"])
    inputs["mask"][1:3, 0] = 0
    with pytest.raises(AtlasError, match="sees no key") as caught:
        calibrate(module, inputs)
    assert "number 1 of the inputs of calibration and in 1 others" in caught.value.why
    good = {name: array[:1] for name, array in inputs.items()}
    with pytest.raises(AtlasError, match="sees no key") as caught:
        calibrate(module, good, held_back=inputs)
    assert "number 1 of the held-back inputs" in caught.value.why


def test_values_that_are_not_finite_are_refused() -> None:
    module, inputs = scaled("value", np.inf)
    with pytest.raises(AtlasError, match="not finite") as caught:
        calibrate(module, inputs)
    assert caught.value.where.startswith("layer.0")
