"""assign-scales: IR text in, IR text out. Without magnitudes it wishes for factors of 1."""

from __future__ import annotations

import numpy as np
import pytest
from short_text import dedent, entry, module_of, poly, short

from atlasc.analyses.observed import with_magnitudes
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Report
from atlasc.passes.lowering.assign_scales import WISHED, AssignScales

X = {"x": np.random.default_rng(0).normal(size=(1, 2, 3)), "mask": np.array([[[1.0], [0.0]]])}
ARRAYS = {"w": np.array([[1.0, 2, 3], [4, 5, 6]]), "gamma": np.array([1.0, 2, 3])}


def assigned(module: Module) -> tuple[Module, list[str]]:
    """The pass's result, which means the same, and its report."""
    report = Report()
    after = AssignScales().run(module, report)
    inputs = {op.attributes["name"]: X[op.attributes["name"]] for op in module.inputs}
    wanted, result = interpret(module, inputs), interpret(after, inputs)
    for name, array in wanted.items():
        np.testing.assert_allclose(result[name], array, atol=1e-10)
    return after, report.lines


def test_a_domain_map_vanishes_into_the_linear_layer() -> None:
    module, _ = assigned(poly("""%y = poly.linear %x {weight = @w}
        %s = poly.scale %y {factor = 0.25}
        %a = poly.add_constant %s {value = -0.5}
        %e = poly.chebyshev %a {coefficients = [1.0, 2.0], domain = [-1.0, 1.0]}
        poly.output %e {name = "y"}""", ARRAYS))  # fmt: skip
    assert short(module) == dedent("""%y = poly.linear %x {weight = @w.scaled}
        %a = poly.add_constant %y {value = -0.5}
        %e = poly.chebyshev %a {coefficients = [1.0, 2.0], domain = [-1.0, 1.0]}
        poly.output %e {name = "y", factor = 1.0}""")
    np.testing.assert_allclose(module.symbols["w.scaled"], ARRAYS["w"] / 4)


def test_factors_pass_squares_sums_and_products() -> None:
    """Of a variance, 1/n and the domain map reach the input; the client applies their root."""
    module, _ = assigned(poly("""%q = poly.square %x
        %r = poly.row_sum %q
        %s = poly.scale %r {factor = 0.0625}
        %i = poly.chebyshev %s {coefficients = [1.0, 2.0], domain = [-1.0, 1.0]}
        %y = poly.mul %x, %i
        poly.output %y {name = "y"}"""))  # fmt: skip
    assert [op.name for op in module.ops[1:]] == [
        "poly.square", "poly.row_sum", "poly.chebyshev", "poly.mul", "poly.output"
    ]  # fmt: skip
    assert module.ops[0].attributes["factor"] == pytest.approx(0.25)
    shrink = module.ops[3].attributes["coefficients"][0]
    assert module.outputs[0].attributes["factor"] == pytest.approx(4 / shrink)


def test_factors_of_masks_and_fills() -> None:
    """The scores are stored at 1/4, the weights at 1/8, and the constants of masked keys too."""
    body = """%s = poly.scale %x {factor = 0.25}
        %f = poly.mask_fill %s {causal = true, fill = -1.0}
        %e = poly.chebyshev %f {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        %z = poly.mask_zero %e {causal = true, value = 0.5}
        %h = poly.scale %z {factor = 0.125}
        %p = poly.chebyshev %h {coefficients = [0.0, 1.0], domain = [-1.0, 1.0]}
        poly.output %p {name = "y"}"""
    before = poly(body, shape=(1, 1, 3, 3))
    after = AssignScales().run(before, Report())
    _, fill, exp, zero, last, _ = after.ops
    assert [op.name for op in after.ops if op.name == "poly.scale"] == []
    assert fill.attributes["fill"] == pytest.approx(-1.0)
    assert exp.attributes["coefficients"] == pytest.approx([0.125, 0.0625])
    assert zero.attributes["value"] == pytest.approx(0.0625)
    assert last.attributes["coefficients"] == [0.0, 1.0]
    scores = {"x": np.random.default_rng(1).normal(size=(1, 1, 3, 3))}
    np.testing.assert_allclose(interpret(after, scores)["y"], interpret(before, scores)["y"])


def test_a_residual_between_two_ranges_is_rescaled_by_a_product() -> None:
    """x is read by a norm of its own and added to a value that another norm reads."""
    module, remarks = assigned(poly("""%s = poly.scale %x {factor = 0.25}
        %i = poly.chebyshev %s {coefficients = [1.0, 2.0], domain = [-1.0, 1.0]}
        %y = poly.add %x, %i
        %t = poly.scale %y {factor = 0.5}
        %j = poly.chebyshev %t {coefficients = [0.0, 1.0], domain = [-1.0, 1.0]}
        poly.output %j {name = "y"}"""))  # fmt: skip
    scale = [op for op in module.ops if op.name == "poly.scale"]
    assert [op.attributes["factor"] for op in scale] == [pytest.approx(2.0)]
    assert scale[0].operands[0].op.name == "poly.input"  # the operand with levels to spare
    assert [line[:40] for line in remarks] == ["operand %x of poly.add %y () is rescaled"]


def test_a_value_that_two_polynomials_read_keeps_one_product() -> None:
    module, remarks = assigned(poly("""%s = poly.scale %x {factor = 0.25}
        %i = poly.chebyshev %s {coefficients = [1.0, 2.0], domain = [-1.0, 1.0]}
        %t = poly.scale %x {factor = 0.5}
        %j = poly.chebyshev %t {coefficients = [0.0, 1.0], domain = [-1.0, 1.0]}
        %p = poly.mul %i, %j
        poly.output %p {name = "y"}"""))  # fmt: skip
    assert short(module).splitlines()[1] == "%t = poly.scale %x {factor = 2.0}"
    assert [line[:36] for line in remarks] == ["poly.scale %t () stays a product: it"]


@pytest.mark.parametrize("factor", [-2.0, 0.0])
def test_a_factor_that_has_no_logarithm_stays(factor: float) -> None:
    module, _ = assigned(
        poly(f"""%s = poly.scale %x {{factor = {factor}}}
        %y = poly.add %s, %x
        poly.output %y {{name = "y"}}""")
    )
    assert [op.name for op in module.ops].count("poly.scale") == 1


def test_a_factor_for_every_feature_stays() -> None:
    module, _ = assigned(poly("""%s = poly.scale %x {factor = @gamma}
        %h = poly.scale %s {factor = 0.5}
        %j = poly.chebyshev %h {coefficients = [0.0, 1.0], domain = [-1.0, 1.0]}
        poly.output %j {name = "y"}""", ARRAYS))  # fmt: skip
    (scale,) = [op for op in module.ops if op.name == "poly.scale"]
    factor = module.symbols[scale.attributes["factor"].name] * module.ops[0].attributes["factor"]
    np.testing.assert_allclose(factor, ARRAYS["gamma"] / 2)


def test_a_public_input_is_taken_as_it_is() -> None:
    body = f"""{entry("x", (1, 2, 3))}
        {entry("mask", (1, 2, 1), "public")}
        %p = poly.mul %x, %mask
        %s = poly.scale %p {{factor = 0.125}}
        %j = poly.chebyshev %s {{coefficients = [0.0, 1.0], domain = [-1.0, 1.0]}}
        poly.output %j {{name = "y"}}"""
    module, _ = assigned(module_of("poly", body))
    assert module.ops[0].attributes["factor"] == pytest.approx(0.125)
    assert "factor" not in module.ops[1].attributes


def test_magnitudes_come_near_one() -> None:
    module = poly("""%y = poly.linear %x {weight = @w}
        %q = poly.square %y
        poly.output %q {name = "y"}""", ARRAYS)  # fmt: skip
    after, _ = assigned(with_magnitudes(module, X))
    stored = {op.name: op.attributes["magnitude"] for op in after.ops if op.result is not None}
    assert stored["poly.input"] == pytest.approx(WISHED)
    assert stored["poly.linear"] ** 2 == pytest.approx(stored["poly.square"], rel=1e-4)
    assert max(stored.values()) < 1


def test_a_value_above_the_limit_is_stored_smaller_and_doubled_later() -> None:
    """The domain map pins the sum of squares; x itself would be 8 and not fit a bootstrap."""
    module = poly("""%q = poly.square %x
        %r = poly.row_sum %q
        %i = poly.chebyshev %r {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        poly.output %i {name = "y"}""")
    module.ops[0].attributes["magnitude"] = 8.0
    after, _ = assigned(module)
    assert after.ops[0].attributes["factor"] == pytest.approx(1 / 16)
    assert after.ops[0].attributes["magnitude"] == pytest.approx(0.5)
    assert short(after).splitlines()[2] == "%0 = poly.double %r {times = 8}"


def test_a_doubling_that_would_contradict_another_reader_is_left_out() -> None:
    module = poly("""%q = poly.square %x
        %i = poly.chebyshev %q {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        %j = poly.chebyshev %x {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]}
        %y = poly.add %i, %j
        poly.output %y {name = "y"}""")
    module.ops[0].attributes["magnitude"] = 8.0
    after, _ = assigned(module)
    assert "poly.double" not in short(after)
