"""normalise-affine and fold-features: IR text in, IR text out."""

from __future__ import annotations

import numpy as np
from short_text import dedent, poly, short

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Pass, Report, run_passes
from atlasc.passes.lowering.fold_features import FoldFeatures
from atlasc.passes.lowering.normalise_affine import NormaliseAffine

X = {"x": np.random.default_rng(0).normal(size=(1, 2, 3))}
ARRAYS = {
    "w": np.array([[1.0, 2, 3], [4, 5, 6]]),
    "v": np.array([[1.0, 2], [3, 4], [5, 7]]),
    "bias": np.array([10.0, 20]),
    "gamma": np.array([1.0, 2, 3]),
    "beta": np.array([0.5, 1, 0]),
    "token": np.array([[1.0], [2]]),
}


def check(step: Pass, body: str, expected: str, *, inputs: bool = False) -> Module:
    """Run a pass, compare the text, and the meaning before and after."""
    before = poly(body, ARRAYS)
    after = run_passes(before, [step])
    assert short(after, inputs=inputs) == dedent(expected)
    wanted, result = interpret(before, X), interpret(after, X)
    assert wanted.keys() == result.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(result[name], array, atol=1e-12)
    return after


def test_affine_maps_and_domains_become_factors_and_constants() -> None:
    check(
        NormaliseAffine(),
        """%a = poly.affine %x {scale = 2.0, shift = @beta}
        %b = poly.chebyshev %a {coefficients = [1.0, 0.5], domain = [-10.0, 6.0]} loc "layer.0"
        %c = poly.chebyshev %b {coefficients = [1.0], domain = [-1.0, 1.0]}
        %d = poly.chebyshev %c {coefficients = [1.0], domain = [-4.0, 4.0]}
        poly.output %d {name = "y"}""",
        """%0 = poly.scale %x {factor = 2.0}
        %1 = poly.add_constant %0 {value = @beta}
        %2 = poly.scale %1 {factor = 0.125} loc "layer.0"
        %3 = poly.add_constant %2 {value = 0.25} loc "layer.0"
        %b = poly.chebyshev %3 {coefficients = [1.0, 0.5], domain = [-1.0, 1.0]} loc "layer.0"
        %c = poly.chebyshev %b {coefficients = [1.0], domain = [-1.0, 1.0]}
        %4 = poly.scale %c {factor = 0.25}
        %d = poly.chebyshev %4 {coefficients = [1.0], domain = [-1.0, 1.0]}
        poly.output %d {name = "y"}""",
    )


def test_scale_and_shift_go_into_the_linear_layers_that_read_them() -> None:
    """γ and β of a norm; the residual, which is not linear, still reads them."""
    module = check(
        FoldFeatures(),
        """%n = poly.scale %x {factor = @gamma}
        %m = poly.add_constant %n {value = @beta}
        %y = poly.linear %m {weight = @w} loc "query"
        %z = poly.linear %m {weight = @w, bias = @bias} loc "key"
        %r = poly.square %m
        poly.output %y {name = "y"}
        poly.output %z {name = "z"}
        poly.output %r {name = "r"}""",
        """%n = poly.scale %x {factor = @gamma}
        %m = poly.add_constant %n {value = @beta}
        %0 = poly.linear %x {weight = @w.folded, bias = @w.bias.folded} loc "query"
        %1 = poly.linear %x {weight = @w.folded.1, bias = @bias.folded} loc "key"
        %r = poly.square %m
        poly.output %0 {name = "y"}
        poly.output %1 {name = "z"}
        poly.output %r {name = "r"}""",
    )
    assert module.symbols["w.folded"].tolist() == [[1, 4, 9], [4, 10, 18]]
    assert module.symbols["w.bias.folded"].tolist() == [2.5, 7]
    assert module.symbols["bias.folded"].tolist() == [12.5, 27]


def test_scale_and_shift_pass_a_selected_token() -> None:
    check(
        FoldFeatures(),
        """%n = poly.scale %x {factor = @gamma}
        %m = poly.add_constant %n {value = 0.5}
        %s = poly.select %m {axis = 1, index = 1}
        %y = poly.linear %s {weight = @w}
        poly.output %y {name = "y"}""",
        """%0 = poly.select %x {axis = 1, index = 1}
        %1 = poly.linear %0 {weight = @w.folded, bias = @w.bias.folded}
        poly.output %1 {name = "y"}""",
    )


def test_scale_and_shift_pass_a_mean_with_a_factor() -> None:
    check(
        FoldFeatures(),
        """%n = poly.scale %x {factor = @gamma}
        %m = poly.add_constant %n {value = @beta}
        %s = poly.mean %m {axis = 1, factor = 3.0}
        %y = poly.linear %s {weight = @w}
        poly.output %y {name = "y"}""",
        """%0 = poly.mean %x {axis = 1, factor = 3.0}
        %1 = poly.linear %0 {weight = @w.folded, bias = @w.bias.folded}
        poly.output %1 {name = "y"}""",
    )


def test_what_an_output_lacks_is_left_to_the_client() -> None:
    module = check(
        FoldFeatures(),
        """%n = poly.scale %x {factor = @gamma}
        %m = poly.add_constant %n {value = @beta}
        poly.output %m {name = "y"}
        poly.output %n {name = "z"}""",
        """poly.output %x {name = "y", factor = @output.y.factor, shift = @output.y.shift}
        poly.output %x {name = "z", factor = @output.z.factor}""",
    )
    assert module.symbols["output.y.shift"].tolist() == [0.5, 1, 0]


def test_numbers_that_differ_by_token_stay() -> None:
    check(
        FoldFeatures(),
        """%n = poly.scale %x {factor = @token}
        %y = poly.linear %n {weight = @w}
        %z = poly.add_constant %y {value = @token}
        poly.output %z {name = "y"}""",
        """%n = poly.scale %x {factor = @token}
        %y = poly.linear %n {weight = @w}
        %z = poly.add_constant %y {value = @token}
        poly.output %z {name = "y"}""",
    )


def test_a_constant_behind_a_linear_layer_is_a_bias() -> None:
    check(
        FoldFeatures(),
        """%y = poly.linear %x {weight = @w} loc "dense"
        %z = poly.add_constant %y {value = @bias}
        %q = poly.square %z
        poly.output %q {name = "y"}""",
        """%0 = poly.linear %x {weight = @w.folded, bias = @w.bias.folded} loc "dense"
        %q = poly.square %0
        poly.output %q {name = "y"}""",
    )


def test_factors_and_constants_behind_a_linear_layer_go_into_its_rows() -> None:
    """As the ranges of channels before a Chebyshev sum of each."""
    module = check(
        FoldFeatures(),
        """%y = poly.linear %x {weight = @w, bias = @bias} loc "dense"
        %s = poly.scale %y {factor = @bias}
        %z = poly.add_constant %s {value = @bias}
        %q = poly.square %z
        poly.output %q {name = "y"}""",
        """%1 = poly.linear %x {weight = @w.folded.1, bias = @bias.folded.1} loc "dense"
        %q = poly.square %1
        poly.output %q {name = "y"}""",
    )
    assert module.symbols["bias.folded.1"].tolist() == [110, 420]


def test_a_linear_layer_with_two_readers_keeps_its_bias() -> None:
    body = """%y = poly.linear %x {weight = @w}
        %z = poly.add_constant %y {value = @bias}
        %q = poly.mul %y, %z
        poly.output %q {name = "y"}"""
    check(FoldFeatures(), body, body)


def test_centring_rises_through_additions_into_linear_layers() -> None:
    """The sum is read by the residual too, so both stay; the input, read as it is, is centred."""
    module = check(
        FoldFeatures(),
        """%h = poly.linear %x {weight = @w}
        %o = poly.linear %h {weight = @v, bias = @beta} loc "output"
        %a = poly.add %o, %x
        %b = poly.add_constant %a {value = @beta}
        %c = poly.center %b loc "norm"
        %p = poly.mul %c, %b
        poly.output %p {name = "y"}""",
        """%h = poly.linear %x {weight = @w}
        %o = poly.linear %h {weight = @v, bias = @beta} loc "output"
        %a = poly.add %o, %x
        %b = poly.add_constant %a {value = @beta}
        %0 = poly.linear %h {weight = @v.folded, bias = @beta.folded} loc "output"
        %1 = poly.center %x loc "norm"
        %2 = poly.add %0, %1
        %3 = poly.add_constant %2 {value = @beta.1}
        %p = poly.mul %3, %b
        poly.output %p {name = "y"}""",
    )
    assert np.allclose(module.symbols["v.folded"].sum(axis=0), 0)
    assert np.allclose(module.symbols["beta.1"], [0, 0.5, -0.5])


def test_an_input_that_is_only_read_centred_is_centred_by_the_client() -> None:
    check(
        FoldFeatures(),
        """%c = poly.center %x
        %d = poly.center %x
        %p = poly.mul %c, %d
        poly.output %p {name = "y"}""",
        """%x = poly.input {name = "x", shape = [1, 2, 3], side = "server", dtype = "f64", centred = true}
        %p = poly.mul %x, %x
        poly.output %p {name = "y"}""",  # noqa: E501
        inputs=True,
    )


def test_a_centre_that_cannot_rise_says_why() -> None:
    module = poly("""%q = poly.square %x
        %c = poly.center %q loc "layer.0.norm"
        poly.output %c {name = "y"}""")
    report = Report()
    after = FoldFeatures().run(module, report)
    assert short(after).splitlines()[1] == '%0 = poly.center %q loc "layer.0.norm"'
    assert report.lines == ["center at layer.0.norm stays behind poly.square"]


def test_factors_of_heads_go_into_the_tables_of_a_rotary_embedding() -> None:
    """Each table has the factor of the feature that it meets: sine that of the other half."""
    arrays = {
        "pair": np.array([2.0, 10.0]),
        "cos": np.array([[1.0, 1.0], [0.8, 0.8]]),
        "sin": np.array([[0.0, 0.0], [0.6, 0.6]]),
    }
    body = """%h = poly.reshape %x {shape = [1, 2, 2, 2]}
        %g = poly.scale %h {factor = @pair}
        %t = poly.transpose %g {permutation = [0, 2, 1, 3]}
        %r = poly.repeat %t {axis = 1, repeats = 2}
        %y = poly.rotary %r {cos = @cos, sin = @sin}
        poly.output %y {name = "y"}"""
    before = poly(body, arrays, (1, 2, 4))
    after = run_passes(before, [FoldFeatures()])
    assert "poly.scale" not in [op.name for op in after.ops]
    assert after.symbols["rotary.sin.folded"][1].tolist() == [6.0, 1.2]
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 2, 4))}
    np.testing.assert_allclose(interpret(after, inputs)["y"], interpret(before, inputs)["y"])


def test_a_constant_added_to_scores_joins_their_mask() -> None:
    scores = np.arange(4.0).reshape(2, 2)
    module = poly(
        """%s = poly.matmul %x, %x {transpose_b = true}
        %b = poly.add_constant %s {value = @scores}
        %f = poly.mask_fill %b {fill = -1.0, causal = true}
        poly.output %f {name = "y"}""",
        {"scores": scores},
        (1, 2, 2, 2),
    )
    after = run_passes(module, [NormaliseAffine()])
    assert [op.name for op in after.ops[1:]] == ["poly.matmul", "poly.mask_fill", "poly.output"]
    assert after.symbols[after.ops[2].attributes["bias"].name].shape == (1, 2, 2)
    inputs = {"x": np.random.default_rng(0).normal(size=(1, 2, 2, 2))}
    np.testing.assert_allclose(interpret(after, inputs)["y"], interpret(module, inputs)["y"])
