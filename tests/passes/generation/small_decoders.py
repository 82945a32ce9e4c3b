"""Small decoders of transformers with random weights, as windows of tokens."""

from __future__ import annotations

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.trace import ShapeSpec, trace

TOKENS, VOCABULARY = 12, 40
NAMES = {"eos_token_id": 1, "bos_token_id": 0}


def llama() -> PreTrainedModel:
    config = LlamaConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=32, **NAMES,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def qwen3() -> PreTrainedModel:
    """Norms of single heads between the linear layers and the rotary embeddings."""
    config = Qwen3Config(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, vocab_size=VOCABULARY, max_position_embeddings=32,
        **NAMES,
    )  # fmt: skip
    return Qwen3ForCausalLM(config)


def gpt2() -> PreTrainedModel:
    config = GPT2Config(
        n_embd=16, n_layer=2, n_head=4, n_positions=32, vocab_size=VOCABULARY, **NAMES
    )
    return GPT2LMHeadModel(config)


def mistral() -> PreTrainedModel:
    """Attention that looks back five tokens."""
    config = MistralConfig(
        hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=4, vocab_size=VOCABULARY, max_position_embeddings=32,
        sliding_window=5, **NAMES,
    )  # fmt: skip
    return MistralForCausalLM(config)


def made(kind: str) -> PreTrainedModel:
    """A small decoder whose weights are large enough for its tokens to matter."""
    torch.manual_seed(0)
    model = {"llama": llama, "qwen3": qwen3, "gpt2": gpt2, "mistral": mistral}[kind]()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.mul_(4)
    return model.eval()


def window(model: PreTrainedModel) -> Module:
    """The nn module of a model."""
    names = ("input_ids", "attention_mask")
    traced = trace(model, {name: ShapeSpec((1, TOKENS)) for name in names}, name="decoder")
    return run_passes(traced, [Canonicalise()])
