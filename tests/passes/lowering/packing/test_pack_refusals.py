"""What has no packed form is refused by name, above all where slots would mix silently."""

from __future__ import annotations

import numpy as np
import pytest
from short_text import ATTENTION, MERGE, SPLIT, poly

from atlasc.ir.errors import AtlasError
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.pack import Pack

ARRAYS = {
    "head": np.ones((3, 3)),
    "token": np.ones((3, 1)),
    "scores": np.ones((2, 3, 3)),
}


def refused(body: str, slots: int = 64) -> AtlasError:
    with pytest.raises(AtlasError) as caught:
        run_passes(poly(body, ARRAYS, (1, 3, 6)), [Pack(slots)])
    return caught.value


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("poly.select %x {axis = 2, index = 0}", "only a token"),
        ("poly.select %x {axis = 0, index = 0}", "only a token"),
        ("poly.mean %x {axis = 2}", "over the tokens"),
        ("poly.repeat %x {axis = 1, repeats = 2}", "poly.repeat has no packed form"),
        ("poly.affine %x {scale = 1.0, shift = 0.0}", "poly.affine has no packed form"),
        ("poly.reshape %x {shape = [1, 18]}", "merging of attention heads"),
        ("poly.reshape %x {shape = [1, 2, 9]}", "merging of attention heads"),
        ("poly.transpose %x {permutation = [0, 2, 1]}", "merging of attention heads"),
        ("poly.row_sum %x", "poly.output has no packed form on %y"),
    ],
)
def test_ops_without_a_packed_form(op: str, message: str) -> None:
    assert message in str(refused(f'%y = {op} loc "here"\npoly.output %y {{name = "y"}}'))


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("%n = poly.center %t", "poly.center has no packed form on %t [batch, heads, tokens"),
        ("%n = poly.add_constant %t {value = 1.0}", "poly.add_constant has no packed form"),
        ("%n = poly.linear %t {weight = @head}", "poly.linear has no packed form"),
        ("%n = poly.chebyshev %t {coefficients = [1.0], domain = [-1.0, 1.0]}", "chebyshev has no"),
    ],
)
def test_ops_that_would_mix_heads(op: str, message: str) -> None:
    body = ATTENTION.replace("%s = poly.matmul %t,", f"{op}\n%s = poly.matmul %n,")
    assert message in str(refused(body))


def test_a_head_cannot_be_selected() -> None:
    body = f"""{SPLIT}
        %n = poly.select %t {{axis = 1, index = 1}}
        poly.output %n {{name = "y"}}"""
    assert "poly.select has no packed form on %t [batch, heads, tokens" in str(refused(body))


@pytest.mark.parametrize("op", ["add_constant %f {value", "scale %f {factor"])
def test_a_bias_of_positions_has_no_place_among_diagonals(op: str) -> None:
    body = ATTENTION.replace(
        "%o = poly.matmul %f", f"%g = poly.{op} = @scores}}\n%o = poly.matmul %g"
    )
    assert "on %f [batch, heads, queries, keys]" in str(refused(body))


def test_a_constant_on_row_sums_must_be_a_number() -> None:
    body = """%r = poly.row_sum %x
        %a = poly.add_constant %r {value = @token}
        %y = poly.mul %x, %a
        poly.output %y {name = "y"}"""
    assert "poly.add_constant has no packed form on %r" in str(refused(body))


def test_attention_over_heads_is_not_attention_over_tokens() -> None:
    """Here with as many heads as tokens: the shapes fit, the meaning does not."""
    body = """%t = poly.reshape %x {shape = [1, 3, 3, 2]}
        %s = poly.matmul %t, %t {transpose_b = true}
        %f = poly.mask_fill %s {fill = -1.0}
        %o = poly.matmul %f, %t {transpose_b = false}
        %y = poly.reshape %o {shape = [1, 3, 6]}
        poly.output %y {name = "y"}"""
    error = refused(body)
    assert "poly.matmul has no packed form on %t [batch, tokens, heads, width]" in str(error)


def test_scores_need_the_mask_that_fills_their_padding() -> None:
    body = ATTENTION.replace("%f = poly.mask_fill %s {causal = true, fill = -1.0}\n", "")
    assert "poly.matmul reads poly.matmul, which has no packed form there" in str(
        refused(body.replace("%f", "%s"))
    )
    scaled = ATTENTION.replace("%f = poly.mask_fill %s", "%n = poly.double %s {times = 1}\n"
                               "%f = poly.mask_fill %n")  # fmt: skip
    assert "which has no packed form there" in str(refused(scaled))


def test_a_domain_is_normalised_before() -> None:
    body = """%e = poly.chebyshev %x {coefficients = [1.0], domain = [0.0, 1.0]}
        poly.output %e {name = "y"}"""
    assert "run normalise-affine first" in refused(body).remedy


def test_a_query_of_one_token_comes_from_a_linear_layer() -> None:
    body = f"""{SPLIT}
        %e = poly.select %x {{axis = 1, index = 0}}
        %c = poly.square %e
        %q = poly.reshape %c {{shape = [1, 1, 2, 3]}}
        %u = poly.transpose %q {{permutation = [0, 2, 1, 3]}}
        %s = poly.matmul %u, %t {{transpose_b = true}}
        %f = poly.mask_fill %s {{fill = -1.0}}
        %o = poly.matmul %f, %t {{transpose_b = false}}
        %v = poly.transpose %o {{permutation = [0, 2, 1, 3]}}
        %y = poly.reshape %v {{shape = [1, 6]}}
        poly.output %y {{name = "y"}}"""
    assert "must come from a linear layer" in str(refused(body))


def test_attention_to_another_number_of_tokens_is_called_so() -> None:
    body = f"""{SPLIT}
        %m = poly.input {{name = "m", shape = [1, 4, 6], side = "server", dtype = "f64"}}
        %g = poly.reshape %m {{shape = [1, 4, 2, 3]}}
        %k = poly.transpose %g {{permutation = [0, 2, 1, 3]}}
        %s = poly.matmul %t, %k {{transpose_b = true}}
        %f = poly.mask_fill %s {{fill = -1.0}}
        %o = poly.matmul %f, %k {{transpose_b = false}}
        {MERGE}"""
    error = refused(body)
    assert "attention to another number of tokens" in error.what
    assert "3 queries attend to 4 keys" in error.why
