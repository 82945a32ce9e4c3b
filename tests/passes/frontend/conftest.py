"""Tiny random models of all families, traced once for each attention implementation."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

VOCABULARY, LENGTH, BATCH = 50, 8, 2
TEXT = {"vocab_size": VOCABULARY, "max_position_embeddings": 16}
IMAGE = {"image_size": 8, "patch_size": 4, "num_channels": 2, "num_labels": 10}
COMMON = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
DISTIL = {"vocab_size": VOCABULARY, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
LLAMA = {**TEXT, **COMMON, "num_attention_heads": 4, "num_key_value_heads": 2}
WORDS = {"vocab_size": VOCABULARY, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}
NEO = {**TEXT, **COMMON, **WORDS, "rotary_pct": 0.5}
GPT2 = {**WORDS, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
PHI3 = {**TEXT, **WORDS, **COMMON, "num_attention_heads": 2, "num_key_value_heads": 1,
        "partial_rotary_factor": 0.5}  # fmt: skip
OPT = {**TEXT, **WORDS, **COMMON, "ffn_dim": 24, "word_embed_proj_dim": 16}
T5 = {"vocab_size": VOCABULARY, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2,
      "num_heads": 2}  # fmt: skip
BLOOM = {**WORDS, "hidden_size": 16, "n_layer": 2, "n_head": 2}
# family: (configuration class, model class, settings)
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertConfig", "BertModel", {**TEXT, **COMMON}),
    "bert-classifier": ("BertConfig", "BertForSequenceClassification", {**TEXT, **COMMON}),
    "bert-mlm": ("BertConfig", "BertForMaskedLM", {**TEXT, **COMMON}),
    "roberta": ("RobertaConfig", "RobertaForSequenceClassification", {**TEXT, **COMMON}),
    "xlm-roberta": ("XLMRobertaConfig", "XLMRobertaModel", {**TEXT, **COMMON}),
    "camembert": ("CamembertConfig", "CamembertForSequenceClassification", {**TEXT, **COMMON}),
    "albert": (
        "AlbertConfig",
        "AlbertForSequenceClassification",
        {**TEXT, **COMMON, "embedding_size": 12},
    ),
    "electra": (
        "ElectraConfig",
        "ElectraForSequenceClassification",
        {**TEXT, **COMMON, "embedding_size": 12},
    ),
    "distilbert": ("DistilBertConfig", "DistilBertForSequenceClassification", DISTIL),
    "vit": ("ViTConfig", "ViTModel", {**IMAGE, **COMMON}),
    "vit-classifier": ("ViTConfig", "ViTForImageClassification", {**IMAGE, **COMMON}),
    "llama": ("LlamaConfig", "LlamaModel", LLAMA),
    "llama-lm": ("LlamaConfig", "LlamaForCausalLM", LLAMA),
    "qwen2-lm": ("Qwen2Config", "Qwen2ForCausalLM", LLAMA),
    "gpt2-lm": ("GPT2Config", "GPT2LMHeadModel", GPT2),
    "gpt-neox-lm": ("GPTNeoXConfig", "GPTNeoXForCausalLM", NEO),
    "phi3-lm": ("Phi3Config", "Phi3ForCausalLM", PHI3),
    "opt-lm": ("OPTConfig", "OPTForCausalLM", OPT),
    "t5": ("T5Config", "T5EncoderModel", T5),
    "mpnet": ("MPNetConfig", "MPNetModel", {**TEXT, **COMMON}),
    "bloom-lm": ("BloomConfig", "BloomForCausalLM", BLOOM),
    "modernbert": ("ModernBertConfig", "ModernBertModel", {**TEXT, **WORDS, **COMMON}),
}


def build(family: str, attention: str = "sdpa") -> Any:
    """A model with weights large enough that every part of it matters; built once."""
    return _build(family, attention)


@cache
def _build(family: str, attention: str) -> Any:
    import torch
    import transformers

    config, model, settings = FAMILIES[family]
    torch.manual_seed(0)
    built = getattr(transformers, model)(
        getattr(transformers, config)(attn_implementation=attention, **settings)
    ).eval()
    for parameter in built.parameters():
        noise = torch.randn_like(parameter)
        parameter.data = 0.3 * noise if parameter.ndim > 1 else parameter.data + 0.1 * noise
    return built


def sample(family: str, seed: int, *, mask: bool = True) -> dict[str, np.ndarray]:
    """Random inputs; sentences of different lengths when there is a mask."""
    random = np.random.default_rng(seed)
    if family.startswith("vit"):
        return {"pixel_values": random.normal(size=(BATCH, 2, 8, 8)).astype(np.float32)}
    inputs = {"input_ids": random.integers(3, VOCABULARY, size=(BATCH, LENGTH))}
    if mask:
        kept = random.integers(2, LENGTH + 1, size=(BATCH, 1))
        inputs["attention_mask"] = (np.arange(LENGTH) < kept).astype(np.int64)
        inputs["input_ids"][inputs["attention_mask"] == 0] = 1  # RoBERTa's padding
    return inputs


def traced(family: str, attention: str = "sdpa", mask: bool = True) -> Any:
    """The nn module of a model; traced once."""
    return _traced(family, attention, mask)


@cache
def _traced(family: str, attention: str, mask: bool) -> Any:
    from atlasc.passes.frontend.trace import trace

    return trace(build(family, attention), sample(family, 0, mask=mask), name="tiny")


def reference(model: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of the torch model."""
    import torch

    with torch.no_grad():
        outputs = model(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    return {k: v.numpy() for k, v in outputs.items() if isinstance(v, torch.Tensor)}


@pytest.fixture(name="tiny_model")
def _tiny_model() -> Callable[..., Any]:
    return build


@pytest.fixture(name="tiny_inputs")
def _tiny_inputs() -> Callable[..., dict[str, np.ndarray]]:
    return sample


@pytest.fixture(name="tiny_trace")
def _tiny_trace() -> Callable[..., Any]:
    return traced


@pytest.fixture(name="torch_outputs")
def _torch_outputs() -> Callable[..., dict[str, np.ndarray]]:
    return reference
