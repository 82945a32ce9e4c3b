"""The verifier finds what a pass could break."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Value
from atlasc.ir.opdef import OPS, Symbol
from atlasc.ir.types import TensorType
from atlasc.ir.verifier import verify


def build() -> tuple[Module, Value, Value]:
    module = Module("m", "nn")
    attributes = {"name": "x", "shape": [1, 2], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], attributes)
    weight = module.constant("w", np.ones((3, 2)))
    y = module.add("nn.linear", [x], {"weight": weight}, "encoder.layer.3.output")
    module.add("nn.output", [y], {"name": "y"})
    return module, x, y


def fault(module: Module) -> AtlasError:
    with pytest.raises(AtlasError) as caught:
        verify(module)
    return caught.value


def test_a_module_that_was_built_verifies() -> None:
    verify(build()[0])


def test_use_before_definition() -> None:
    module, _, _ = build()
    module.ops[0], module.ops[1] = module.ops[1], module.ops[0]
    error = fault(module)
    assert error.what == "nn.linear: %0 is used before it is defined"
    assert error.where == "encoder.layer.3.output"


def test_value_of_another_module() -> None:
    module, _, _ = build()
    module.ops[1].operands = (build()[1],)
    assert "used before it is defined" in fault(module).what


def test_one_name_twice() -> None:
    module, x, y = build()
    y.name = x.name
    assert "defined twice" in fault(module).what


def test_type_that_is_not_the_rule_s() -> None:
    module, _, y = build()
    y.type = TensorType((1, 4))
    assert "has type tensor<1x4xf64, server>, but its rule gives tensor<1x3" in fault(module).what


def test_attribute_that_was_spoiled() -> None:
    module, _, _ = build()
    module.ops[1].attributes["bias"] = 1.0
    assert "must be of kind symbol" in fault(module).what
    module.ops[1].attributes["bias"] = Symbol("gone")
    assert "has no symbol @gone" in fault(module).what
    module.ops[1].attributes["bias"] = module.constant("bias", np.ones(2))
    assert "bias has shape (2,)" in fault(module).what


def test_array_that_was_replaced() -> None:
    module, _, _ = build()
    module.symbols["w"] = np.ones((3, 5))
    assert "weight takes 5 features" in fault(module).what


def test_op_of_another_level() -> None:
    module, _, _ = build()
    module.ops[1].definition = OPS["poly.linear"]
    assert "another level" in fault(module).what


def test_a_program_has_an_output() -> None:
    module, _, _ = build()
    module.ops.pop()
    assert "has no nn.output" in fault(module).what


def test_an_encrypted_mask_is_refused() -> None:
    module = Module("m", "nn")
    shape = {"shape": [1, 1, 2, 2], "side": "server", "dtype": "f64"}
    scores = module.add("nn.input", [], {"name": "s", **shape})
    mask = module.add("nn.input", [], {"name": "m", **shape, "shape": [1, 2]})
    with pytest.raises(AtlasError, match="not encrypted"):
        module.add("nn.softmax", [scores, mask])


def test_only_client_values_are_encrypted() -> None:
    module, _, y = build()
    with pytest.raises(AtlasError, match="only a client value"):
        module.add("nn.encrypt", [y])


def test_an_output_map_fits_the_output() -> None:
    module, _, y = build()
    with pytest.raises(AtlasError, match="do not broadcast"):
        module.add("nn.output", [y], {"name": "z", "factor": module.constant("f", np.ones(2))})


def test_layer_index_of_a_location() -> None:
    module, x, _ = build()
    for place, layer in [("encoder.layer.3.output", 3), ("layers.11", 11), ("0.w", 0),
                         ("embeddings.norm", None), ("", None), ("conv2d.w", None)]:  # fmt: skip
        assert module.add("nn.add", [x, x], {}, place).op.layer == layer


def test_accessors_give_the_type_that_is_meant() -> None:
    x = build()[1]
    assert x.tensor.shape == (1, 2)
    with pytest.raises(AtlasError, match="%0: tensor<1x2xf64, server> is a tensor, not a cipher"):
        _ = x.ciphertext
    layout = Layout.parse("[d:2 g:0 b:0 t:1 | | b=1 t=2 g=1 d=4]")
    attributes = {"name": "x", "shape": [1, 2, 4], "layout": layout}
    packed = Module("m", "ckks").add("ckks.input", (), attributes, "layer.0")
    assert packed.ciphertext.ciphertexts == 1
    with pytest.raises(AtlasError, match=r"is a ciphertext, not a tensor\n  where: layer.0"):
        _ = packed.tensor


def test_state_needs_an_output_of_its_name_and_type() -> None:
    module = Module("m", "poly")
    entry = {"name": "s", "shape": [1, 2], "side": "server", "dtype": "f64", "state": True}
    x = module.add("poly.input", [], entry)
    y = module.add("poly.square", [x])
    module.add("poly.output", [y], {"name": "t"})
    assert fault(module).what == "the state 's' has no output of its name and type"
    z = module.add("poly.row_sum", [x])
    module.add("poly.output", [z], {"name": "s"})
    assert "tensor<1x2xf64, server>, the output tensor<1x1xf64" in fault(module).why
    module.ops[-1].operands = (y,)
    verify(module)


def test_only_the_server_keeps_state() -> None:
    entry = {"name": "s", "shape": [1, 2], "side": "client", "dtype": "f64", "state": True}
    with pytest.raises(AtlasError, match="only what is encrypted"):
        Module("m", "nn").add("nn.input", [], entry)
