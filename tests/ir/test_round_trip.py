"""parse ∘ print is the identity, on random modules of every level and on chosen texts."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from random_modules import modules

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import load_module, print_module, save_module, stored_arrays
from atlasc.ir.verifier import verify
from atlasc.polynomials.algorithms.chebyshev import (
    ChannelActivation,
    NormApproximation,
    SoftmaxApproximation,
)


def assert_equal(one: Module, other: Module) -> None:
    assert (one.name, one.level, one.attributes) == (other.name, other.level, other.attributes)
    assert len(one.ops) == len(other.ops)
    number = {op.result: n for n, op in enumerate(one.ops)}
    number |= {op.result: n for n, op in enumerate(other.ops)}
    for a, b in zip(one.ops, other.ops, strict=True):
        assert (a.name, a.attributes, a.location) == (b.name, b.attributes, b.location)
        # 1 == 1.0 == True, but each has its own text.
        assert repr(a.attributes) == repr(b.attributes)
        assert [number[v] for v in a.operands] == [number[v] for v in b.operands]
        assert (a.result is None) == (b.result is None)
        if a.result is not None and b.result is not None:
            assert (a.result.name, a.result.type) == (b.result.name, b.result.type)


@given(modules())
def test_print_then_parse_gives_the_module_back(module: Module) -> None:
    verify(module)
    text = print_module(module)
    again = parse(text, module.symbols)
    assert_equal(module, again)
    assert print_module(again) == text
    for name in module.arrays_used():
        assert np.array_equal(again.symbols[name], module.symbols[name])


@given(modules())
def test_a_module_survives_pickling(module: Module) -> None:
    again = pickle.loads(pickle.dumps(module))
    assert_equal(module, again)
    assert print_module(again) == print_module(module)
    assert again.symbols.keys() == module.arrays_used().keys()


@given(modules())
def test_a_text_is_complete_without_its_arrays(module: Module) -> None:
    text = print_module(module)
    assert print_module(parse(text)) == text


def test_layout_of_a_text() -> None:
    """White space and comments do not matter; the printed form is one op a line."""
    text = """
    // a classifier
    module @m:nn{symbol @w : float32 [ 3x2 ] symbol @s : float64[] // two arrays
      %x=nn.input{name="x",shape=[1,2],side="server",dtype="f64"}:tensor<1x2xf64, server>
      %y = nn.linear %x { weight = @w } loc "head" : tensor<1x3xf64, server>
      %z = nn.scale %y {factor = @s} : tensor<1x3xf64, server>  nn.output %z {name="y"} }"""
    assert print_module(parse(text)) == (
        "module @m : nn {\n"
        "  symbol @w : float32[3x2]\n"
        "  symbol @s : float64[]\n"
        '  %x = nn.input {name = "x", shape = [1, 2], side = "server", dtype = "f64"}'
        " : tensor<1x2xf64, server>\n"
        '  %y = nn.linear %x {weight = @w} loc "head" : tensor<1x3xf64, server>\n'
        "  %z = nn.scale %y {factor = @s} : tensor<1x3xf64, server>\n"
        '  nn.output %z {name = "y"}\n'
        "}\n"
    )


def test_spaces_within_a_type_do_not_matter() -> None:
    """An empty field of a layout is printed as two spaces, and is written with one."""
    layout = "[d:2 | | d=3]"
    text = f"""module @m : ckks {{slots = 4}} {{
      %x = ckks.input {{name = "x", layout = "{layout}", shape = [3]}}
        : ciphertext<{layout}, level ?, scale 1>
      ckks.output %x {{name = "y", shape = [3]}} }}"""
    assert "ciphertext<[d:2 |  | d=3], level ?, scale 1>" in print_module(parse(text))


def test_a_module_without_ops() -> None:
    for text in ("module @m : poly {\n}\n", "module @m : nn {slots = 8} {\n}\n"):
        assert print_module(parse(text)) == text


def test_parameter_paths_of_any_spelling() -> None:
    module = Module("m", "nn")
    shape = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], shape, name="model.layers.0/x y")
    assert x.name == "model_layers_0_x_y"
    for name in ("0.weight", "a b", 'q"', "back\\slash", "é.weight", "@w", ""):
        weight = module.constant(name, np.ones((2, 2)))
        x = module.add("nn.linear", [x], {"weight": weight})
    module.add("nn.output", [x], {"name": "y"})
    again = parse(print_module(module), module.symbols)
    assert_equal(module, again)
    assert set(again.symbols) == set(module.symbols)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_refused(value: float) -> None:
    module = Module("m", "nn")
    shape = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], shape)
    endless = SoftmaxApproximation((5,), shift=value)
    for op, attributes in (
        ("nn.gelu", {"magnitude": value}),
        ("nn.softmax", {"approximation": endless}),
    ):
        with pytest.raises(AtlasError, match="only finite numbers"):
            module.add(op, [x], attributes, "encoder")
    module.attributes["seconds"] = [value]
    with pytest.raises(AtlasError, match="only finite numbers"):
        print_module(module)


@pytest.mark.parametrize("value", [None, (1, 2), np.zeros(2), np.int64(3), {"a b": 1}, {1: 2}])
def test_attributes_without_a_text_form_are_refused(value: object) -> None:
    module = Module("m", "nn")
    module.attributes["facts"] = {"range": value}
    with pytest.raises(AtlasError, match="cannot be printed"):
        print_module(module)


def test_arrays_of_approximations_are_symbols_of_the_text() -> None:
    module = Module("m", "nn")
    shape = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], shape)
    module.constant("y.coefficients", np.zeros(3))
    ranges, coefficients = np.array([[-1.0, 1.0], [-2.0, 3.0]]), np.arange(8.0).reshape(2, 4)
    carried = ChannelActivation(3, ranges, coefficients)
    weight = module.constant("y.ranges", np.eye(2))  # the name is taken
    x = module.add("nn.linear", [x], {"weight": weight})
    y = module.add("nn.gelu", [x], {"approximation": carried}, "", "y")
    module.add("nn.output", [y], {"name": "y"})
    stored = stored_arrays(module)
    assert list(stored) == ["y.ranges", "y.ranges_", "y.coefficients_"]
    again = parse(print_module(module), stored)
    assert_equal(module, again)
    assert again.ops[2].attributes["approximation"] == carried
    with pytest.raises(AtlasError, match="not complete, or not right") as caught:
        parse(print_module(module), {"y.ranges": np.eye(2)})
    assert "the array @y.ranges_ is missing" in caught.value.why


def test_an_approximation_of_another_family_is_refused() -> None:
    module = Module("m", "nn")
    shape = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], shape)
    with pytest.raises(AtlasError, match="'chebyshev' is for the family norm, not activation"):
        module.add("nn.gelu", [x], {"approximation": NormApproximation(3)})


def test_module_on_disk(tmp_path: Path) -> None:
    module = Module("m", "nn")
    shape = {"name": "a.b", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], shape)
    weight = module.constant("0.weight", np.arange(6, dtype=np.float32).reshape(2, 3).T)
    module.constant("unused", np.ones(3))
    y = module.add("nn.linear", [x], {"weight": weight})
    module.add("nn.output", [y], {"name": "y"})
    save_module(module, tmp_path / "m.air")
    again = load_module(tmp_path / "m.air")
    assert_equal(module, again)
    assert set(again.symbols) == {"0.weight"}
    assert np.array_equal(again.symbols["0.weight"], module.symbols["0.weight"])
    (tmp_path / "m.safetensors").unlink()
    assert not load_module(tmp_path / "m.air").symbols["0.weight"].any()
    (tmp_path / "m.safetensors").write_bytes(b"no arrays")
    with pytest.raises(AtlasError, match="safetensors"):
        load_module(tmp_path / "m.air")
    with pytest.raises(AtlasError, match="cannot be read"):
        load_module(tmp_path / "absent.air")


def test_a_text_of_two_thousand_ops() -> None:
    """As long as a BERT-base program."""
    module = Module("long", "poly")
    shape = {"name": "x", "shape": [1, 128, 768], "side": "server", "dtype": "f64"}
    x = module.add("poly.input", [], shape)
    weight = module.constant("weight", np.broadcast_to(np.float32(0), (768, 768)))
    for n in range(1000):
        place = f"encoder.layer.{n // 90}.attention.output"
        x = module.add("poly.linear", [x], {"weight": weight, "part": "softmax"}, place)
        attributes = {"coefficients": [0.1 * k for k in range(16)], "domain": [-1.0, 1.0]}
        x = module.add("poly.chebyshev", [x], attributes, place)
    module.add("poly.output", [x], {"name": "y"})
    text = print_module(module)
    assert print_module(parse(text)) == text
