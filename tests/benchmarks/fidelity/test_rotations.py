"""A rotation of the residual stream leaves the outputs of a model as they are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from benchmarks.fidelity.rotated import (
    MATRICES,
    gpt2_layers,
    llama_layers,
    rotate,
    vit_layers,
)
from benchmarks.fidelity.rotations import asked, plant

SIZE = 24
WIDE: dict[str, Any] = {
    "hidden_size": SIZE, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
}  # fmt: skip
IDS = {"input_ids": np.arange(10).reshape(2, 5), "attention_mask": np.ones((2, 5), np.int64)}
PIXELS = {"pixel_values": np.random.default_rng(1).normal(size=(2, 1, 8, 8)).astype(np.float32)}
MODELS: dict[str, Any] = {
    "llama": (
        lambda: LlamaForCausalLM(LlamaConfig(vocab_size=16, tie_word_embeddings=False, **WIDE)),
        llama_layers, IDS,
    ),
    "gpt2": (
        lambda: GPT2LMHeadModel(GPT2Config(
            vocab_size=16, n_embd=SIZE, n_layer=2, n_head=2, tie_word_embeddings=False,
            bos_token_id=1, eos_token_id=2,
        )),
        gpt2_layers, IDS,
    ),
    "vit": (
        lambda: ViTForImageClassification(ViTConfig(
            image_size=8, patch_size=4, num_channels=1, **WIDE
        )),
        vit_layers, PIXELS,
    ),
}  # fmt: skip


def uneven(module: Any, layers: Any) -> Any:
    """The layers of a module whose gains and biases differ from feature to feature, so that each
    of them has to move.
    """
    torch.manual_seed(0)
    for norm, readers in layers(module).norms.items():
        torch.nn.init.uniform_(norm.weight, 0.5, 2.0)
        if getattr(norm, "bias", None) is not None and all(one.bias is not None for one in readers):
            torch.nn.init.normal_(norm.bias)
    for layer in layers(module).writers:
        if layer.bias is not None:
            torch.nn.init.normal_(layer.bias)
    return layers(module)


@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("name", MODELS)
def test_outputs_stay_the_same(name: str, matrix: str) -> None:
    make, layers, inputs = MODELS[name]
    module = make().eval()
    stream = uneven(module, layers)
    before, _ = asked(module, stream, inputs)
    norm = next(iter(stream.norms))
    gain = norm.weight.detach().clone()
    rotate(stream, MATRICES[matrix])
    after, _ = asked(module, layers(module), inputs)
    assert np.abs(after - before).max() < 1e-5 * np.abs(before).max()
    assert not torch.equal(norm.weight, gain)


@pytest.mark.parametrize("size", [16, 24, 9])
@pytest.mark.parametrize("keeps_mean", [False, True])
@pytest.mark.parametrize("matrix", MATRICES)
def test_the_matrices_are_orthogonal(matrix: str, keeps_mean: bool, size: int) -> None:
    turn = MATRICES[matrix](size, keeps_mean)
    assert turn.T @ turn == pytest.approx(np.eye(size), abs=1e-12)
    if keeps_mean:
        assert np.ones(size) @ turn == pytest.approx(np.ones(size))


def test_planted_features_are_spread() -> None:
    """A Hadamard matrix spreads two large features over all."""
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=16, tie_word_embeddings=False, **{**WIDE, "hidden_size": 64})
    module = LlamaForCausalLM(config).eval()
    plant(llama_layers(module), 100.0)
    _, planted = asked(module, llama_layers(module), IDS)
    rotate(llama_layers(module), MATRICES["hadamard"])
    _, spread = asked(module, llama_layers(module), IDS)
    assert planted > 90 and spread < planted / 3
