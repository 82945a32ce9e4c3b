"""A lowered module still says which functions its Chebyshev sums stand for."""

from __future__ import annotations

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, Shape, approximate, inputs_for

from atlasc.ir.interpreter import interpret
from atlasc.passes.pipeline import lower_nn
from atlasc.simulation.agreement import UNKNOWN, compared
from atlasc.simulation.poly_values import interpret_poly
from atlasc.simulation.watch import both_answers, function_values, knows_model
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_the_functions_answer_as_the_model_does(shape: Shape) -> None:
    """Whatever the passes did to scales and domains."""
    module, inputs = Builder(shape, 3).build(), inputs_for(shape, 4)
    approximate(module, inputs)
    exact = interpret(module, inputs)
    poly = lower_nn(module, lambda levels, slots: BOOTSTRAPPED, inputs).poly
    sums = [op for op in poly.ops if op.name == "poly.chebyshev"]
    assert sums and all("function" in op.attributes for op in sums)
    inputs["embedded"] = inputs["x"]
    errors = compared(UNKNOWN, poly, inputs, interpret_poly(poly, inputs), exact).errors
    found = compared(UNKNOWN, poly, inputs, *both_answers(poly, inputs)).errors
    assert knows_model(poly)
    assert (found > 1e-6).all()
    assert found == pytest.approx(errors, rel=0.02)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_every_sum_is_close_to_its_function_on_its_domain(shape: Shape) -> None:
    module, inputs = Builder(shape, 3).build(), inputs_for(shape, 4)
    approximate(module, inputs, degree=31)
    poly = lower_nn(module, lambda levels, slots: BOOTSTRAPPED, inputs).poly
    x = np.linspace(-1.0, 1.0, 101)
    for op in poly.ops:
        if op.name == "poly.chebyshev":
            site = op.site(poly.symbols)
            sums = np.polynomial.chebyshev.chebval(x, site.constant("coefficients"))
            values = function_values(op, site, x)
            assert values is not None
            assert np.abs(sums - values).max() <= 0.05 * np.abs(values).max()
