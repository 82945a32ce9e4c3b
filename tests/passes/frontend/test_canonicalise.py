"""Canonical modules mean the same and have less in them."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_op
from atlasc.ir.verifier import verify
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise

FAMILIES = ("bert-classifier", "roberta", "distilbert", "vit-classifier", "llama-lm", "qwen2-lm")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_means_the_same(family, attention, tiny_inputs, tiny_trace):
    module = tiny_trace(family, attention)
    canonical = run_passes(module, [Canonicalise()])
    verify(canonical)
    names = [op.name for op in canonical.ops]
    assert not {"nn.scale", "nn.repeat"} & set(names)
    assert len(names) < len(module.ops)
    for seed in (1, 2):
        inputs = tiny_inputs(family, seed)
        before, after = interpret(module, inputs), interpret(canonical, inputs)
        for key in before:  # weights are rounded to float32 once more
            np.testing.assert_allclose(after[key], before[key], atol=2e-6, rtol=0)


def test_eager_and_sdpa_become_the_same(tiny_trace):
    texts = [
        [print_op(op) for op in run_passes(tiny_trace("llama-lm", attention), [Canonicalise()]).ops]
        for attention in ("eager", "sdpa")
    ]
    assert [t.split(" = ")[-1].split()[0] for t in texts[0]] == [
        t.split(" = ")[-1].split()[0] for t in texts[1]
    ]


def test_the_original_is_left_alone(tiny_trace):
    module = tiny_trace("llama-lm")
    before = [print_op(op) for op in module.ops], dict(module.symbols)
    run_passes(module, [Canonicalise()])
    assert [print_op(op) for op in module.ops] == before[0]
    assert module.symbols == before[1]


NOTHING = """module @nothing : nn {
  %x = nn.input {name = "x", shape = [1, 2, 3, 4], side = "server", dtype = "f64"} : tensor<1x2x3x4xf64, server>
  %0 = nn.transpose %x {permutation = [0, 2, 1, 3]} : tensor<1x3x2x4xf64, server>
  %1 = nn.transpose %0 {permutation = [0, 2, 1, 3]} : tensor<1x2x3x4xf64, server>
  %2 = nn.reshape %1 {shape = [6, 4]} : tensor<6x4xf64, server>
  %3 = nn.reshape %2 {shape = [1, 2, 3, 4]} : tensor<1x2x3x4xf64, server>
  %4 = nn.scale %3 {factor = 2.0} : tensor<1x2x3x4xf64, server>
  %5 = nn.scale %4 {factor = 0.5} : tensor<1x2x3x4xf64, server>
  %6 = nn.tanh %3 : tensor<1x2x3x4xf64, server>
  nn.output %5 {name = "y"}
}
"""  # noqa: E501


def test_ops_that_do_nothing_go():
    canonical = run_passes(parse(NOTHING), [Canonicalise()])
    assert [op.name for op in canonical.ops] == ["nn.input", "nn.output"]


LONE = """module @lone : nn {{
  %x = nn.input {{name = "x", shape = [1, 2, {keys}, 4], side = "server", dtype = "f64"}} : tensor<1x2x{keys}x4xf64, server>
  %q = nn.input {{name = "q", shape = [1, 2, {queries}, 4], side = "server", dtype = "f64"}} : tensor<1x2x{queries}x4xf64, server>
  %m = nn.input {{name = "m", shape = [1, {keys}], side = "public", dtype = "i64"}} : tensor<1x{keys}xi64, public>
  %0 = nn.matmul %q, %x {{transpose_b = true}} : tensor<1x2x{queries}x{keys}xf64, server>
  %1 = nn.softmax %0{mask} {{causal = false}} : tensor<1x2x{queries}x{keys}xf64, server>
  %2 = nn.matmul %1, %x {{transpose_b = false}} : tensor<1x2x{queries}x4xf64, server>
  nn.output %2 {{name = "y"}}
}}
"""  # noqa: E501


@pytest.mark.parametrize(
    ("queries", "keys", "mask", "stays"),
    [(1, 1, "", False), (1, 1, ", %m", True), (2, 1, "", True), (1, 2, "", True)],
)
def test_the_weight_of_a_lone_key_is_1(queries, keys, mask, stays):
    module = parse(LONE.format(queries=queries, keys=keys, mask=mask))
    canonical = run_passes(module, [Canonicalise()])
    assert ("nn.softmax" in [op.name for op in canonical.ops]) == stays
    random = np.random.default_rng(0)
    inputs = {
        "x": random.normal(size=(1, 2, keys, 4)),
        "q": random.normal(size=(1, 2, queries, 4)),
        "m": np.ones((1, keys), np.int64),
    }
    np.testing.assert_allclose(
        interpret(canonical, inputs)["y"], interpret(module, inputs)["y"], atol=1e-12
    )


MEAN = """module @mean : nn {{
  %x = nn.input {{name = "x", shape = [1, {tokens}, 4], side = "server", dtype = "f64"}} : tensor<1x{tokens}x4xf64, server>
  %0 = nn.mean %x {{axis = 1}} : tensor<1x4xf64, server>
  nn.output %0 {{name = "y"}}
}}
"""  # noqa: E501


@pytest.mark.parametrize(("tokens", "op"), [(1, "nn.reshape"), (2, "nn.mean")])
def test_the_mean_of_one_token_is_that_token(tokens, op):
    canonical = run_passes(parse(MEAN.format(tokens=tokens)), [Canonicalise()])
    assert [one.name for one in canonical.ops] == ["nn.input", op, "nn.output"]
    x = np.random.default_rng(0).normal(size=(1, tokens, 4))
    np.testing.assert_allclose(interpret(canonical, {"x": x})["y"], x.mean(1), atol=1e-12)


FEATURES = """module @features : nn {{
  %x = nn.input {{name = "x", shape = [1, 2, 4], side = "{side}", dtype = "f64"}} : tensor<1x2x4xf64, {side}>
  %0 = nn.mean %x {{axis = 2}} : tensor<1x2xf64, {side}>
  %1 = nn.reshape %0 {{shape = [1, 2, 1]}} : tensor<1x2x1xf64, {side}>
  {end}
}}
"""  # noqa: E501


def test_a_mean_of_features_is_a_linear_layer():
    module = parse(FEATURES.format(side="server", end='nn.output %1 {name = "y"}'))
    canonical = run_passes(module, [Canonicalise()])
    assert [op.name for op in canonical.ops] == ["nn.input", "nn.linear", "nn.output"]
    x = np.random.default_rng(0).normal(size=(1, 2, 4))
    found = interpret(canonical, {"x": x})["y"]
    np.testing.assert_allclose(found, x.mean(2, keepdims=True), atol=1e-7)


def test_the_client_takes_its_mean_itself():
    end = '%2 = nn.encrypt %1 : tensor<1x2x1xf64, server>\n  nn.output %2 {name = "y"}'
    canonical = run_passes(parse(FEATURES.format(side="client", end=end)), [Canonicalise()])
    assert "nn.mean" in [op.name for op in canonical.ops]


SHARED = """module @shared : nn {
  symbol @w : float32[4x4]
  %x = nn.input {name = "x", shape = [1, 4], side = "server", dtype = "f64"} : tensor<1x4xf64, server>
  %0 = nn.linear %x {weight = @w} loc "layers.0.dense" : tensor<1x4xf64, server>
  %1 = nn.scale %0 {factor = 3.0} loc "layers.0" : tensor<1x4xf64, server>
  %2 = nn.add %0, %1 loc "layers.0" : tensor<1x4xf64, server>
  nn.output %2 {name = "y"}
}
"""  # noqa: E501


def test_a_linear_layer_with_other_users_keeps_its_weight():
    module = parse(SHARED, {"w": np.eye(4, dtype=np.float32)})
    report = Report()
    canonical = Canonicalise().run(module, report)
    assert [op.name for op in canonical.ops] == [op.name for op in module.ops]
    assert report.lines == ["layers.0: scale stays, because no linear layer feeds it alone"]


def test_absent_weights_cost_nothing():
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from atlasc.passes.frontend.trace import ShapeSpec, trace

    with torch.device("meta"):
        model = LlamaForCausalLM(
            LlamaConfig(num_hidden_layers=1, num_attention_heads=32, num_key_value_heads=8)
        )
    traced = trace(model, {"input_ids": ShapeSpec((1, 8))}, name="bare")
    canonical = run_passes(traced, [Canonicalise()])
    weight = canonical.symbols["model.layers.0.self_attn.k_proj.weight.repeated"]
    assert weight.shape == (4096, 4096)
    large = [array for array in canonical.symbols.values() if array.size > 1 << 16]
    assert all(not any(array.strides) for array in large)


def test_adapters_and_chains_become_one_layer():
    """W·x + 0.5·B·A·x, of which another layer reads some features."""
    random = np.random.default_rng(0)
    shapes = {"w": (4, 6), "a": (2, 6), "b": (4, 2), "c": (3, 4), "bias": (4,)}
    arrays = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    module = Module("m", "nn")
    symbols = {name: module.constant(name, array) for name, array in arrays.items()}
    given = {"name": "x", "shape": [1, 5, 6], "side": "server", "dtype": "f64"}
    x = module.add("nn.input", [], given, name="x")
    w = module.add("nn.linear", [x], {"weight": symbols["w"], "bias": symbols["bias"]})
    a = module.add("nn.linear", [x], {"weight": symbols["a"]})
    b = module.add("nn.linear", [a], {"weight": symbols["b"]})
    y = module.add("nn.add", [w, module.add("nn.scale", [b], {"factor": 0.5})])
    z = module.add("nn.linear", [y], {"weight": symbols["c"]})
    module.add("nn.output", [z], {"name": "z"})
    merged = run_passes(module, [Canonicalise()])
    assert [op.name for op in merged.ops] == ["nn.input", "nn.linear", "nn.output"]
    inputs = {"x": random.normal(size=(2, 5, 6))}
    found, wanted = interpret(merged, inputs)["z"], interpret(module, inputs)["z"]
    np.testing.assert_allclose(found, wanted, atol=1e-5)


GROUPED = """module @grouped : nn {{
  symbol @w : float32[4x4]
  symbol @gamma : float32[{width}]
  symbol @cos : float32[3x2]
  symbol @sin : float32[3x2]
  %x = nn.input {{name = "x", shape = [1, 3, 4], side = "server", dtype = "f64"}} : tensor<1x3x4xf64, server>
  %0 = nn.linear %x {{weight = @w}} loc "key" : tensor<1x3x4xf64, server>
  {whole}
  %2 = nn.reshape %1 {{shape = [1, 3, 2, 2]}} : tensor<1x3x2x2xf64, server>
  {single}
  %4 = nn.transpose %3 {{permutation = [0, 2, 1, 3]}} : tensor<1x2x3x2xf64, server>
  {moved}
  %6 = nn.rotary %5 {{cos = @cos, sin = @sin}} : tensor<1x2x3x2xf64, server>
  {turned}
  %8 = nn.repeat %7 {{axis = 1, repeats = 2}} : tensor<1x4x3x2xf64, server>
  nn.output %8 {{name = "y"}}
}}
"""  # noqa: E501
NORMED = {"whole": "1x3x4", "single": "1x3x2x2", "moved": "1x2x3x2", "turned": "1x2x3x2"}
"""Where a norm of keys may stand -> the shape there."""


@pytest.mark.parametrize("place", NORMED)
def test_heads_are_repeated_behind_a_norm(place: str) -> None:
    """A norm of all features (OLMo2) sees each of them twice, one of single heads (Qwen3, Gemma 3,
    or HunYuan behind its rotary embedding) none.
    """
    norm = "nn.rms_norm {} {{gamma = @gamma, epsilon = 1e-3}} : tensor<{}xf64, server>"
    scale = "nn.scale {} {{factor = 1.0}} : tensor<{}xf64, server>"
    lines = {
        name: f"%{number + 1} = " + (norm if name == place else scale).format(f"%{number}", shape)
        for number, (name, shape) in zip((0, 2, 4, 6), NORMED.items(), strict=True)
    }
    width = 4 if place == "whole" else 2
    random = np.random.default_rng(0)
    arrays = {"w": (4, 4), "gamma": (width,), "cos": (3, 2), "sin": (3, 2)}
    symbols = {name: random.normal(size=s).astype(np.float32) for name, s in arrays.items()}
    module = parse(GROUPED.format(width=width, **lines), symbols)
    canonical = run_passes(module, [Canonicalise()])
    assert "nn.repeat" not in [op.name for op in canonical.ops]
    (normed,) = (op for op in canonical.ops if op.name == "nn.rms_norm")
    gamma = canonical.symbols[normed.attributes["gamma"].name]
    assert gamma.shape == ((8,) if width == 4 else (2,))
    inputs = {"x": random.normal(size=(1, 3, 4))}
    np.testing.assert_allclose(
        interpret(canonical, inputs)["y"], interpret(module, inputs)["y"], atol=1e-6
    )
