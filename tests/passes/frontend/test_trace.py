"""The traced module means what the torch model means."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.passes.frontend.trace import ShapeSpec, trace

FAMILIES = (
    "bert", "bert-classifier", "bert-mlm", "roberta", "distilbert", "vit", "vit-classifier",
    "llama", "llama-lm", "qwen2-lm", "gpt2-lm", "gpt-neox-lm", "phi3-lm", "opt-lm", "modernbert",
)  # fmt: skip


def assert_equal(module: Module, inputs: dict, expected: dict, tolerance: float = 1e-5) -> None:
    results = interpret(module, inputs)
    assert list(results)
    for name, array in results.items():
        assert array.shape == expected[name].shape
        np.testing.assert_allclose(array, expected[name], atol=tolerance, rtol=0)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_equals_torch(family, attention, tiny_model, tiny_inputs, tiny_trace, torch_outputs):
    module = tiny_trace(family, attention)
    for seed in (1, 2):
        inputs = tiny_inputs(family, seed)
        assert_equal(module, inputs, torch_outputs(tiny_model(family, attention), inputs))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["bert", "llama-lm"])
def test_without_mask(family, attention, tiny_model, tiny_inputs, tiny_trace, torch_outputs):
    module = tiny_trace(family, attention, mask=False)
    assert [op.attributes["name"] for op in module.inputs] == ["input_ids"]
    assert all(len(op.operands) == 1 for op in module.ops if op.name == "nn.softmax")
    inputs = tiny_inputs(family, 3, mask=False)
    assert_equal(module, inputs, torch_outputs(tiny_model(family, attention), inputs))


@pytest.mark.parametrize("family", ["bert-classifier", "vit", "llama-lm"])
def test_embeddings_alone_are_on_the_client(family, tiny_trace):
    module = tiny_trace(family)
    encrypted = [op for op in module.ops if op.name == "nn.encrypt"]
    assert len(encrypted) == 1
    for op in module.ops:
        if op.layer is not None:
            assert op.value.tensor.side == "server", op
            assert all(v.tensor.side != "client" for v in op.operands), op
        if op.result is not None and op.value.tensor.side == "client":
            assert op.name in (
                "nn.input", "nn.embedding", "nn.convolution", "nn.reshape", "nn.transpose",
                "nn.gather", "nn.add_constant", "nn.add", "nn.layer_norm",
            )  # fmt: skip
    assert {op.layer for op in module.ops} == {None, 0, 1}


def test_text_round_trip(tiny_trace):
    module = tiny_trace("llama-lm")
    text = print_module(module)
    assert print_module(parse(text, module.symbols)) == text


def test_padding_on_the_left(tiny_model, tiny_inputs, tiny_trace, torch_outputs):
    """Queries before the first token see no key; that must not reach the tokens."""
    inputs = tiny_inputs("llama", 8)
    inputs["attention_mask"] = inputs["attention_mask"][:, ::-1].copy()
    inputs["attention_mask"][0, 0] = 0
    kept = inputs["attention_mask"].astype(bool)
    expected = torch_outputs(tiny_model("llama", "eager"), inputs)["last_hidden_state"]
    result = interpret(tiny_trace("llama", "eager"), inputs)["last_hidden_state"]
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result[kept], expected[kept], atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["roberta", "vit", "llama-lm"])
def test_single_precision_stays_single(family, tiny_inputs, tiny_trace):
    results = interpret(tiny_trace(family), tiny_inputs(family, 9), np.float32)
    assert {array.dtype for array in results.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("written", "op_name"),
    [
        ("gelu_new", "nn.gelu_tanh"),
        ("gelu_pytorch_tanh", "nn.gelu_tanh"),
        ("silu", "nn.silu"),
        ("gelu_python", "nn.gelu"),
        ("quick_gelu", "nn.quick_gelu"),
        ("mish", "nn.mish"),
        ("sigmoid", "nn.sigmoid"),
        ("relu", "nn.relu"),
        ("tanh", "nn.tanh"),
    ],
)
def test_activations_of_huggingface(written, op_name):
    import torch
    from transformers.activations import ACT2FN

    net = torch.nn.Sequential(torch.nn.Linear(4, 4), ACT2FN[written], torch.nn.Linear(4, 4))
    x = np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    module = trace(net, {"input": x}, name="activation")
    assert [op.name for op in module.ops][2:] == ["nn.linear", op_name, "nn.linear", "nn.output"]
    with torch.no_grad():
        assert_equal(module, {"input": x}, {"output": net(torch.from_numpy(x)).numpy()})


def test_sigmoid_gate_is_silu():
    import torch

    class Gate(torch.nn.Module):
        def forward(self, x):
            return torch.sigmoid(x) * x

    x = np.linspace(-4, 4, 8, dtype=np.float32).reshape(1, 8)
    module = trace(Gate(), {"x": x}, name="gate")
    assert [op.name for op in module.ops][2:] == ["nn.silu", "nn.output"]
    assert_equal(module, {"x": x}, {"output": x / (1 + np.exp(-x))})


def test_a_model_without_blocks_is_encrypted_at_once():
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

        def forward(self, x):
            return self.second(torch.nn.functional.gelu(self.first(x), approximate="tanh"))

    net, x = Net(), np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32)
    module = trace(net, {"x": x}, name="net")
    names = ["nn.input", "nn.encrypt", "nn.linear", "nn.gelu_tanh", "nn.linear", "nn.output"]
    assert [op.name for op in module.ops] == names
    with torch.no_grad():
        assert_equal(module, {"x": x}, {"output": net(torch.from_numpy(x)).numpy()})


def test_masks_are_recognised(tiny_trace):
    for family, attention, causal in (
        ("bert", "eager", False), ("bert", "sdpa", False), ("llama", "eager", True),
        ("llama", "sdpa", True),
    ):  # fmt: skip
        softmaxes = [op for op in tiny_trace(family, attention).ops if op.name == "nn.softmax"]
        assert len(softmaxes) == 2
        for op in softmaxes:
            assert op.attributes.get("causal", False) is causal
            assert op.operands[1].op.attributes["name"] == "attention_mask"
            assert op.operands[1].tensor.side == "public"


def test_weights_are_views_named_by_their_parameter(tiny_model, tiny_trace):
    module, model = tiny_trace("bert-classifier"), tiny_model("bert-classifier")
    name = "bert.encoder.layer.1.attention.self.query.weight"
    parameter = model.get_parameter(name).detach().numpy()
    assert np.shares_memory(module.symbols[name], parameter)
    assert "bert.embeddings.word_embeddings.weight" in module.symbols


def test_chosen_output_leaves_the_pooler_out(tiny_model, tiny_inputs, tiny_trace, torch_outputs):
    assert not any("pooler" in op.location for op in tiny_trace("bert").ops)
    inputs = tiny_inputs("bert", 4)
    pooled = trace(tiny_model("bert"), inputs, name="pooled", outputs="pooler_output")
    assert any(op.name == "nn.tanh" for op in pooled.ops)
    assert_equal(pooled, inputs, torch_outputs(tiny_model("bert"), inputs))


def test_token_types_can_be_an_input(tiny_model, tiny_inputs, torch_outputs):
    inputs = tiny_inputs("bert", 5)
    inputs["token_type_ids"] = np.random.default_rng(0).integers(0, 2, inputs["input_ids"].shape)
    module = trace(tiny_model("bert"), inputs, name="pairs")
    assert_equal(module, inputs, torch_outputs(tiny_model("bert"), inputs))


def test_exported_program_and_shapes(tiny_model, tiny_inputs, torch_outputs):
    import torch

    inputs = tiny_inputs("vit-classifier", 6)
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    program = torch.export.export(tiny_model("vit-classifier"), (), tensors, strict=False)
    module = trace(program, {"pixel_values": ShapeSpec((2, 2, 8, 8), "f32")}, name="program")
    assert_equal(module, inputs, torch_outputs(tiny_model("vit-classifier"), inputs))


def test_llama_exported_with_grad_mode_region(tiny_model, tiny_inputs, torch_outputs):
    """Exported outside no_grad, the rotary tables sit in a region of their own."""
    import torch

    inputs, model = tiny_inputs("llama", 7), tiny_model("llama")
    tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
    program = torch.export.export(model, (), {**tensors, "use_cache": False}, strict=False)
    assert any("set_grad" in str(node.target) for node in program.graph.nodes)
    assert_equal(trace(program, {}, name="llama"), inputs, torch_outputs(model, inputs))


@settings(max_examples=6, deadline=None)
@given(
    heads=st.sampled_from([(1, 1), (4, 1), (4, 2)]),
    length=st.integers(2, 9),
    batch=st.integers(1, 3),
    attention=st.sampled_from(["eager", "sdpa"]),
    seed=st.integers(0, 99),
)
def test_random_decoders(heads, length, batch, attention, seed):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            hidden_size=8 * heads[0], num_attention_heads=heads[0], num_key_value_heads=heads[1],
            num_hidden_layers=1, intermediate_size=12, vocab_size=20,
            attn_implementation=attention,
        )
    ).eval()  # fmt: skip
    random = np.random.default_rng(seed)
    kept = random.integers(1, length + 1, size=(batch, 1))
    inputs = {
        "input_ids": random.integers(0, 20, size=(batch, length)),
        "attention_mask": (np.arange(length) < kept).astype(np.int64),
    }
    module = trace(model, inputs, name="random")
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in inputs.items()}
        expected = model(**tensors).logits.numpy()
    assert_equal(module, inputs, {"logits": expected})


def test_a_model_may_call_its_parts_anything():
    """A line break and C++ in the name of a module; what is emitted has neither."""
    import torch

    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.add_module('x\n}; int main() { "\x1b[31m', torch.nn.Linear(3, 2))
            self.add_module("a" * 400, torch.nn.Linear(2, 2))

        def forward(self, x):
            for layer in self.children():
                x = layer(x)
            return x

    module = trace(Odd(), {"x": ShapeSpec((1, 3), "f32")}, name="odd\n")
    assert module.name == "odd_"
    assert [op.location for op in module.ops if op.name == "nn.linear"] == [
        "x___ int main() _ __[31m",
        "a" * 300,
    ]
    assert all(name.isprintable() for name in module.symbols)
    assert print_module(parse(print_module(module), module.symbols)) == print_module(module)
