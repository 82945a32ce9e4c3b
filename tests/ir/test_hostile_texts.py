"""Texts that somebody made to break the reader: each is refused, with its place."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.compilation.single_stages import inspect_module
from atlasc.ir.bounds import as_location, as_name, as_symbol, is_location, is_name, is_symbol
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.ir.verifier import verify

INPUT = '%x = nn.input {name = "x", shape = [1, 2, 4, 4], side = "server", dtype = "f64"}'
TYPE = ": tensor<1x2x4x4xf64, server>"
END = 'nn.output %x {name = "y"}'
LONG = "9" * 5000
LAYOUT = "[d:1 g:0 b:0 t:1 |  | b=1 t=2 g=1 d=2]"
PACKED = f"""%x = ckks.input {{name = "x", layout = "{LAYOUT}", shape = [1, 2, 2], level = 3}}
  : ciphertext<{LAYOUT}, level 3, scale 1>"""


def nn(body: str, head: str = "module @m : nn") -> str:
    return f"{head} {{\n  {INPUT} {TYPE}\n  {body}\n}}\n"


def ckks(facts: str, body: str = "") -> str:
    end = 'ckks.output %x {name = "y", shape = [1, 2, 2]}'
    return f"module @m : ckks {{{facts}}} {{\n  {PACKED}\n  {body}\n  {end}\n}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (nn(END) + "}", "syntax error"),
        (nn(END) + "nn.add", "syntax error"),
        (nn(END, f"module @m : nn {{a = {LONG}}}"), "an integer of 5000 digits"),
        (nn(END, f"module @m : nn {{a = {2**63}}}"), "more than 64 bits"),
        (nn(END, "module @m : nn {a = " + "[" * 500 + "]" * 500 + "}"), "nested too deeply"),
        (nn(END, 'module @"a\\nb" : nn'), "cannot name"),
        (nn(END).replace("[1, 2, 4, 4]", f"[1, 2, {LONG}]"), "an integer of 5000 digits"),
        (nn(END).replace("[1, 2, 4, 4]", f"[1, 2, {2**62}]"), "positive extents"),
        (nn(END).replace('"x"', '"x y"'), "kind name"),
        (nn(END).replace('"x"', '"../x"'), "kind name"),
        (nn(END).replace('"x"', '"a\\nb"'), "control characters"),
        (nn(f"symbol @w : f8[{LONG}]"), "unexpected"),
        (
            nn("%y = nn.gather %x {axis = 1, elements = [2]} : tensor<1xf64, server>"),
            "only the client",
        ),
        (nn(f'%y = nn.gelu %x loc "a\\nb" {TYPE}'), "location"),
        (nn(f'%y = nn.gelu %x loc "a;b" {TYPE}'), "location"),
        (nn(f'%y = nn.gelu %x loc "{"a" * 301}" {TYPE}'), "location"),
        (nn(f'%y = nn.gelu %x {{part = "\x1b[31m"}} {TYPE}'), "control characters"),
        (nn("%y = nn.repeat %x {axis = 0, repeats = 4611686018427387904} : tensor<f64>"), "type"),
        (nn("%y = nn.reshape %x {shape = [4294967296, 4294967296]} : tensor<f64>"), "reshaped"),
    ],
)
def test_texts_that_are_refused(text: str, message: str) -> None:
    with pytest.raises(AtlasError) as caught:
        parse(text, source="m.air")
    assert caught.value.where.startswith("m.air:")
    assert message in caught.value.what


@pytest.mark.parametrize(
    "symbol",
    [f"@w : f8[{LONG}]", "@w : object[1]", "@w : V8[1]", "@w : f8[99999999999x99999999999]",
     '@"a\\nb" : f8[1]', f"@{'w' * 301} : f8[1]", "@w : f8[" + "1x" * 40 + "1]"],
)  # fmt: skip
def test_symbols_that_are_refused(symbol: str) -> None:
    with pytest.raises(AtlasError, match="m.air:1:"):
        parse(f"module @m : nn {{ symbol {symbol} }}", source="m.air")


@pytest.mark.parametrize(
    "layout",
    ["[d:10000000000000000000 |  | d=1]", "[d:63 |  | d=1]", "[d:21 |  | d=1]", "[ |  | ]",
     "[d:1 | g:30 | d=2 g=1073741824]", "[d:1 | *:2 | d=2]", f"[d:1 |  | d={LONG}]",
     "[d:1\n |  | d=2\n]\n]", "[d:1 |  | *=2 d=2]", "[d.99:1 |  | d=2]"],
)  # fmt: skip
def test_layouts_that_are_refused(layout: str) -> None:
    with pytest.raises(ValueError, match="layout|extent"):
        Layout.parse(layout)


KEYS = "rotations = [[1, 1], [2, 0], [3, 1]]"


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("slots = -4", "slots"),
        ("slots = true", "slots"),
        ('slots = "4"', "slots"),
        ("slots = 4611686018427387904", "slots"),
        ("slots = 8", "has 4 slots, but the program has 8"),
        ("slots = 4, levels = 100000000", "levels"),
        ("slots = 4, bootstrap_batch = 0", "bootstrap_batch"),
        ("slots = 4, rotations = [[{}, 1]]", "rotations"),
        ("slots = 4, rotations = [1]", "rotations"),
        ("slots = 4, rotations = [[4, 1]]", "a rotation by 4 exceeds the 4 slots"),
        ("rotations = [[1, 1]]", "not the slots"),
        ("slots = 4, composed_rotations = [[1, 2, 3], [2, 1, 1]]", "composed of itself"),
        (f"slots = 4, {KEYS}, derived_rotations = [[1, 1]]", "belong together"),
        (f"slots = 4, {KEYS}, root_levels = [1, 2]", "belong together"),
        (f"slots = 4, {KEYS}, derived_rotations = [[1, 1]], root_levels = [2, 2]", "root_levels"),
        (
            f"slots = 4, {KEYS}, derived_rotations = [[1, 1]], root_levels = [0, 2]",
            "up to its level",
        ),
        (f"slots = 4, {KEYS}, derived_rotations = [[1, 5]], root_levels = [1, 2]", "exceeds"),
        (f"slots = 4, {KEYS}, derived_rotations = [[1, 3]], root_levels = [1, 2]", "not reach it"),
        (
            f"slots = 4, {KEYS}, derived_rotations = [[1, 2], [3, 2]], root_levels = [1, 2]",
            "itself",
        ),
    ],
)
def test_facts_of_a_program_that_are_refused(facts: str, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        verify(parse(ckks(facts)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("shape = [1, 2, 2], level", "shape = [1, 2, 3], level", "fits into the layout"),
        ("shape = [1, 2, 2], level", "shape = [], level", "fits into the layout"),
        ('"y", shape = [1, 2, 2]', '"y", shape = [1, 2, 0]', "lies in the layout"),
        ('"y", shape = [1, 2, 2]', '"y", shape = [3]', "lies in the layout"),
        ('"y", shape = [1, 2, 2]', '"y", factor = @w, shape = [1, 2, 2]', "no symbol"),
    ],
)
def test_tensors_that_do_not_suit_their_layout(old: str, new: str, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        parse(ckks("slots = 4").replace(old, new))


def test_two_outputs_of_one_name() -> None:
    with pytest.raises(AtlasError, match="given twice"):
        verify(parse(nn(f"{END}\n{END}")))


def test_a_sum_of_too_many_coefficients() -> None:
    text = ckks("slots = 4", f"%y = ckks.chebyshev %x {{coefficients = @c}} {TYPE}")
    with pytest.raises(AtlasError, match="more than 4096"):
        parse(text.replace("{\n", "{ symbol @c : f8[4294967296]\n", 1))


@pytest.mark.parametrize("times", ["-1", "1000000000", "101"])
def test_doublings_that_no_number_survives(times: str) -> None:
    body = f"%y = ckks.double %x {{times = {times}}} : ciphertext<{LAYOUT}, level 3, scale 1>"
    with pytest.raises(AtlasError, match="times"):
        parse(ckks("slots = 4", body))


def test_what_has_no_costs_is_refused() -> None:
    """The client's view of a program, and a program that does not tell its slots."""
    with pytest.raises(AtlasError, match="has no attribute slots"):
        inspect_module(parse(ckks("")))
    text = ckks("slots = 4").replace("ckks.input", "ckks.result")
    with pytest.raises(AtlasError, match=r"ckks\.result cannot be run"):
        inspect_module(parse(text))


def test_declared_arrays_take_no_memory() -> None:
    """A table of 2³⁶ numbers that nobody stored."""
    module = parse("""module @m : nn {
      symbol @table : i1[34359738368x2]
      %x = nn.input {name = "x", shape = [1, 3], side = "client", dtype = "i64"} : tensor<1x3xi64, client>
      %y = nn.embedding %x {table = @table} : tensor<1x3x2xf64, client>
      nn.output %y {name = "y"}
    }""")  # noqa: E501
    assert interpret(module, {"x": np.full((1, 3), 7)})["y"].shape == (1, 3, 2)


def test_what_a_model_calls_its_parts_becomes_what_they_may_be_called() -> None:
    for text in ("a\nb;c\u202e" * 90, "layer.3/attn", "", "é", "x" * 1000, "../x", "a//b"):
        assert is_location(as_location(text))
        assert is_symbol(as_symbol(text))
        assert is_name(as_name(text))
    assert as_location("encoder.layer.3") == "encoder.layer.3"
    assert as_name("past_key_values.0") == "past_key_values.0"


def test_a_module_that_is_built_has_the_same_bounds() -> None:
    module = Module("m", "nn")
    shape = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    with pytest.raises(AtlasError, match="location"):
        module.add("nn.input", [], shape, "// */\nint main")
    with pytest.raises(AtlasError, match="cannot name"):
        module.constant("a\nb", np.ones(2))
    with pytest.raises(AtlasError, match="cannot name"):
        Module("a\x1bb", "nn")
    module.attributes["note"] = "a\x07"
    with pytest.raises(AtlasError, match="cannot be printed"):
        print_module(module)
