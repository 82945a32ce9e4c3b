"""Every fault of a text is reported with its line and column."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.text.parser import parse

GOOD = """module @m : nn {
  symbol @w : float64[3x2]
  %x = nn.input {name = "x", shape = [1, 2], side = "server", dtype = "f64"} : tensor<1x2xf64, server>
  %y = nn.linear %x {weight = @w} : tensor<1x3xf64, server>
  nn.output %y {name = "y"}
}
"""  # noqa: E501
LINEAR = "  %y = nn.linear %x {weight = @w} : tensor<1x3xf64, server>"


def fault(text: str, symbols: dict[str, np.ndarray] | None = None) -> AtlasError:
    with pytest.raises(AtlasError) as caught:
        parse(text, symbols, "m.air")
    return caught.value


def test_the_text_that_the_cases_change_is_right() -> None:
    assert len(parse(GOOD).ops) == 3


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("  %y = nn.linear %x weight = @w}", "4:21", "syntax error: unexpected 'weight'"),
        ("  %y nn.linear %x", "4:6", "unexpected 'nn.linear'"),
        ("  %y = nn.linear $x", "4:18", "syntax error: unexpected '$'"),
        ("  %y = nn.linear %x {weight = [1, 2}", "4:36", "unexpected '}'"),
        ("  %y = nn.linear %x {weight = \"a\nb\"}", "4:31", "unexpected '\"'"),
        ("  %y = nn.linaer %x {weight = @w}", "4:8", "there is no op nn.linaer at the nn level"),
        ("  %y = poly.square %x", "4:8", "there is no op poly.square at the nn level"),
        ("  %y = torch.linear %x", "4:8", "there is no op torch.linear"),
        ("  %y = nn.linear %x {weight = @w}", "4:8", "type is missing; it is tensor<1x3xf64"),
        (LINEAR.replace("1x3", "1x4"), "4:37", "gives tensor<1x3xf64, server>, the text says"),
        (LINEAR.replace("server", "client"), "4:37", "nn.linear gives tensor<1x3xf64, server>"),
        (LINEAR.replace("weight", "wieght"), "4:8", "unknown attribute 'wieght'"),
        (LINEAR.replace("weight = @w", ""), "4:8", "attribute 'weight' (symbol) is missing"),
        (LINEAR.replace("@w", "3.0"), "4:8", "attribute 'weight' must be of kind symbol, not 3.0"),
        (LINEAR.replace("@w", "@v"), "4:8", "the module has no symbol @v"),
        (LINEAR.replace("@w", "@w, weight = @w"), "4:35", "attribute 'weight' is given twice"),
        (LINEAR.replace("%x", "%z"), "4:18", "%z is used before it is defined"),
        (LINEAR.replace("%x", "%x, %x"), "4:8", "takes 1 operands, not 2"),
        (LINEAR.replace("%x", ""), "4:8", "takes 1 operands, not 0"),
        (LINEAR.replace("%y", "%x"), "4:3", "%x is defined twice"),
        (f"{LINEAR}\n{LINEAR}", "5:3", "%y is defined twice"),
        (LINEAR.replace("%y = ", ""), "4:3", "nn.linear has a result: write %name = before it"),
        ('  %y = nn.output %x {name = "z"}', "4:8", "nn.output has no result"),
        ('  nn.output %x {name = "z"} : tensor<1x2xf64, server>', "4:31", "and so no type"),
        ("  %y = nn.scale %x {factor = 1e999} : tensor<1x2xf64, server>", "4:8", "only finite"),
    ],
)  # fmt: skip
def test_faults_of_an_op(line: str, place: str, message: str) -> None:
    error = fault(GOOD.replace(LINEAR, line))
    assert error.where == f"m.air:{place}"
    assert message in error.what


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        ("  symbol @w : float64[3x]", "2:24", "unexpected 'x'"),
        ("  symbol @w : float64[-3]", "2:23", "unexpected '-3'"),
        ("  symbol @w : float7[3x2]", "2:15", "unknown dtype 'float7'"),
        ("  symbol @w : float64[3x3]", "4:8", "weight takes 3 features, the operand has 2"),
        ("  symbol @w : float64[3]", "4:8", "weight must be a matrix"),
        ("  symbol @w : f4[1]\n  symbol @w : f4[1]", "3:10", "symbol @w is declared twice"),
        ("  symbol @w : f4[99999999999999999999x2]", "2:18", "no array has the extents"),
    ],
)
def test_faults_of_a_symbol(line: str, place: str, message: str) -> None:
    error = fault(GOOD.replace("  symbol @w : float64[3x2]", line))
    assert error.where == f"m.air:{place}"
    assert message in error.what


@pytest.mark.parametrize("array", [np.zeros((2, 3)), np.zeros((3, 2), np.float32)])
def test_a_stored_array_must_be_as_declared(array: np.ndarray) -> None:
    error = fault(GOOD, {"w": array})
    assert error.where == "m.air:2:10"
    assert "declared as float64[3, 2], but the stored array is" in error.what


@pytest.mark.parametrize(
    ("text", "place"),
    [("", "1:1"), ("\n\n", "3:1"), ("// nothing", "1:11"), ("module", "1:7"), (GOOD[:-2], "6:1")],
)
def test_a_text_that_ends_too_early(text: str, place: str) -> None:
    error = fault(text)
    assert error.what == "syntax error: the text ends here"
    assert error.where == f"m.air:{place}"


def test_every_prefix_is_a_syntax_error() -> None:
    for length in range(len(GOOD) - 2):
        assert fault(GOOD[:length]).where.startswith("m.air:")


def test_faults_of_a_module() -> None:
    error = fault(GOOD.replace(": nn", ": onnx"))
    assert (error.where, error.what[:27]) == ("m.air:1:13", "unknown IR level 'onnx', ex")
    assert fault(GOOD + "}").where == "m.air:7:1"
    deep = "module @m : nn {a = " + "[" * 5000 + "]" * 5000 + "} {}"
    assert "nested too deeply" in fault(deep).what


def test_an_error_says_what_is_expected() -> None:
    error = fault(GOOD.replace("[1, 2]", "[1 2]"))
    assert error.where == "m.air:3:41"
    assert "']'" in error.why
    assert "','" in error.why
    assert "shape = [1 2]" in error.why


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("poly.chebyshev %x {coefficients = [], domain = [0, 1]}", "one vector, or one a channel"),
        ("poly.chebyshev %x {coefficients = @s, domain = [0, 1]}", "one vector, or one a channel"),
        ("poly.chebyshev %x {coefficients = [1.0], domain = [0, 1, 2]}", "not [low, high]"),
        ("poly.chebyshev %x {coefficients = [1.0], domain = [1, 1]}", "low < high"),
        ("poly.double %x {times = -1}", "is not from 0 to 100"),
        ("poly.select %x {axis = 2, index = 0}", "axis = 2 is not among the 2 axes"),
        ("poly.select %x {axis = 1, index = -1}", "index -1 is outside"),
        ("poly.mean %x {axis = -1}", "axis = -1 is not among"),
        ("poly.mean %x {axis = 1, last = true}", "the last token is that of a mask"),
        ("poly.reshape %x {shape = [3]}", "cannot be reshaped"),
        ("poly.transpose %x {permutation = [0, 0]}", "does not permute"),
        ("poly.repeat %x {axis = 0, repeats = 0}", "must be at least 1"),
        ("poly.rotary %x {cos = @s, sin = @s}", "cos has shape ()"),
        ("poly.add_constant %x {value = @v}", "does not broadcast"),
        ("poly.scale %x {factor = true}", "kind scalar or symbol"),
        ("poly.matmul %x, %x {transpose_b = false}", "inner extents 2 and 1 differ"),
        ("poly.mask_fill %x {fill = 0.0}", "scores must be [batch, heads, queries, keys]"),
    ],
)
def test_rules_of_ops(op: str, message: str) -> None:
    text = f"""module @m : poly {{
      symbol @s : float64[]
      symbol @v : float64[3x2]
      %x = poly.input {{name = "x", shape = [1, 2], side = "server", dtype = "f64"}} : tensor<1x2xf64, server>
      %y = {op} : tensor<1x2xf64, server>
    }}"""  # noqa: E501
    error = fault(text)
    assert error.where == "m.air:5:12"
    assert message in error.what


def test_ops_on_a_value_without_axes() -> None:
    head = """module @m : poly {
      symbol @s : float64[1x1]
      %x = poly.input {name = "x", shape = [1], side = "server", dtype = "f64"} : tensor<1xf64, server>
      %y = poly.mean %x {axis = 0} : tensor<f64, server>
    """  # noqa: E501
    for op in (
        "linear %y {weight = @s}",
        "center %y",
        "row_sum %y",
        "rotary %y {cos = @s, sin = @s}",
    ):
        error = fault(head + f"%z = poly.{op} : tensor<f64, server>\n}}")
        assert error.where == "m.air:5:10"


TRANSFORM = "ckks.linear_transform %x"
LAYOUT = "[d:2 g:1 b:0 t:1 |  | b=1 t=2 g=2 d=3]"


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        ("[d:2]", "a layout is [slot fields"),
        ("[d2 |  | d=3]", "axis[.low]:bits"),
        ("[d:2 g:1 |  | d=3]", "no extent for axis g"),
        ("[d:2 |  | d=5]", "do not number 5 elements"),
        ("[d:2 | d.3:1 | d=5]", "do not number 5 elements"),
        ("[d:2 |  | d=0]", "positive extent"),
        ("[d:2 |  | d=2 d=3]", "one positive extent"),
        ("[d:2 |  | d=x]", "an extent is axis=count"),
    ],
)
def test_faults_of_a_layout(layout: str, message: str) -> None:
    text = f"""module @m : ckks {{
      %x = ckks.input {{name = "x", layout = "{layout}", shape = [1]}} : ciphertext<, level ?>
    }}"""
    error = fault(text)
    assert error.where == "m.air:2:12"
    assert message in error.what


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("ckks.bootstrap %x {level = -1}", "no level -1"),
        ("ckks.drop %x {level = 5}", "cannot drop from level 4 to 5"),
        ("ckks.chebyshev %x {coefficients = @c}", "consumes 5 levels, its operands have 4"),
        ("ckks.rotate_sum %x {axes = [\"s\"]}", "has no axis s"),
        ("ckks.select %x {layout_axis = \"t\", index = 2}", "axis t has no index 2"),
        ("ckks.add %x, %m", "operand 1 must be a ciphertext"),
        ("ckks.mul_plain %x {value = 1.0, layout = \"[d:2 |  | d=3]\"}", "does not cover"),
        (f"{TRANSFORM} {{weight = @w, baby_steps = 1, layout = \"{LAYOUT}\"}}",
         "weight is [7, 6], but 2 blocks of 3 features cannot be 7 features"),
        (f"{TRANSFORM} {{weight = @v, baby_steps = 0, layout = \"{LAYOUT}\"}}",
         "baby_steps must be at least 1"),
        (f"{TRANSFORM} {{weight = @v, bias = @c, baby_steps = 1, layout = \"{LAYOUT}\"}}",
         "bias has shape (31,), not (6,)"),
        (f"{TRANSFORM} {{weight = @v, cos = @v, baby_steps = 1, layout = \"{LAYOUT}\"}}",
         "needs cos and sin"),
        (f"ckks.ct_matmul_qk %x, %x {{fill = 0.0, layout = \"{LAYOUT}\"}}", "have an axis s"),
        (f"ckks.ct_matmul_pv %x, %x {{layout = \"{LAYOUT}\"}}", "weights with an axis s"),
        ("ckks.mask_zero %x {value = 1.0}", "have an axis s"),
    ],
)  # fmt: skip
def test_rules_of_packed_ops(op: str, message: str) -> None:
    text = f"""module @m : ckks {{
      symbol @c : float64[31]
      symbol @w : float64[7x6]
      symbol @v : float64[6x6]
      %x = ckks.input {{name = "x", layout = "{LAYOUT}", shape = [1, 2, 6], level = 4}} : ciphertext<{LAYOUT}, level 4, scale 1>
      %m = ckks.public_input {{name = "m", shape = [1, 2]}} : tensor<1x2xf64, public>
      %y = {op} : ciphertext<{LAYOUT}, level 4, scale 1>
    }}"""  # noqa: E501
    error = fault(text)
    assert error.where == "m.air:7:12"
    assert message in error.what


def test_a_bias_must_fit_the_scores() -> None:
    text = """module @m : poly {
      symbol @v : float64[3x2]
      %x = poly.input {name = "x", shape = [1, 2, 2, 2], side = "server", dtype = "f64"} : tensor<1x2x2x2xf64, server>
      %y = poly.mask_fill %x {fill = 0.0, bias = @v} : tensor<1x2x2x2xf64, server>
    }"""  # noqa: E501
    assert "bias of shape (3, 2) does not broadcast to scores (2, 2, 2)" in fault(text).what
    without_mask = text.replace("bias = @v", "slopes = @v").replace("[3x2]", "[2]")
    assert "slopes count the tokens of a public mask" in fault(without_mask).what
    assert "are not one for each of 2 heads" in fault(text.replace("bias", "slopes")).what
