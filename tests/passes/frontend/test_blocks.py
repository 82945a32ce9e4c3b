"""Bare configurations: three equal blocks are traced, the result is that of all of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from atlasc.ir.text.storage import print_module
from atlasc.passes.frontend import blocks, trace

CONFIGS = Path(__file__).parents[3] / "examples" / "configs"
COMMON = {
    "hidden_size": 16, "num_hidden_layers": 5, "num_attention_heads": 2, "intermediate_size": 24,
}  # fmt: skip


def _bare(family: str, **settings):
    import torch
    import transformers

    config = getattr(transformers, f"{family}Config")(**COMMON, **settings)
    with torch.device("meta"):
        return getattr(transformers, f"{family}Model")(config)


def _inputs(family: str):
    if family == "ViT":
        return {"pixel_values": trace.ShapeSpec((1, 3, 32, 32), "f32")}
    return {name: trace.ShapeSpec((1, 8)) for name in ("input_ids", "attention_mask")}


@pytest.mark.parametrize("family", ["Bert", "ViT", "Llama"])
def test_equal_to_tracing_every_block(family):
    model = _bare(family, **({"image_size": 32} if family == "ViT" else {}))
    found = blocks.repeated_blocks(model)
    assert found is not None
    assert found.number == 5
    short = trace.trace(model, _inputs(family), name="bare")
    program = trace.export(model, _inputs(family))
    assert len([n for n in program.graph.nodes if "softmax" in n.name or "dot" in n.name]) == 5
    whole = trace.trace(program, _inputs(family), name="bare")
    assert sorted(print_module(short).split("\n")) == sorted(print_module(whole).split("\n"))
    assert [op.name for op in short.ops] == [op.name for op in whole.ops]


def test_blocks_that_differ_are_all_traced():
    import torch

    model = _bare("Llama")
    model.layers[3].mlp.act_fn = torch.nn.GELU()
    assert blocks.repeated_blocks(model) is None
    module = trace.trace(model, _inputs("Llama"), name="bare")
    assert [op.layer for op in module.ops if op.name == "nn.gelu"] == [3]
    assert [op.layer for op in module.ops if op.name == "nn.silu"] == [0, 1, 2, 4]


def test_a_model_with_weights_is_traced_whole(tiny_model):
    assert blocks.repeated_blocks(tiny_model("bert")) is None


SCRIPT = """
import re, sys
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from atlasc.passes.frontend.trace import ShapeSpec, trace
config = AutoConfig.from_pretrained(sys.argv[1])
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(config)
inputs = {name: ShapeSpec((1, 128)) for name in ("input_ids", "attention_mask")}
module = trace(model, inputs, name="llama3")
layers = {op.layer for op in module.ops if op.name == "nn.softmax"}
# Of this process alone: getrusage counts what its parent held when it was started.
peak = re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read()).group(1)
print(len(layers), int(peak) * 1024)
"""


@pytest.mark.deep("recipes")
def test_llama3_8b_from_its_configuration_alone():
    command = [sys.executable, "-c", SCRIPT, str(CONFIGS / "llama3-8b")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    layers, peak = map(int, done.stdout.split())
    assert layers == 32
    assert peak < 4e9, "the weights, of 30 GB, were made"
