"""Small LLaMA models in `.gguf` files, written as llama.cpp's converter writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY = ["<s>", "</s>", *"abcdefghijklmnopqrstuvwxyzĠ.", "ca", "cat", "Ġs", "at"]
MERGES = ["c a", "ca t", "Ġ s", "a t"]
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": VOCABULARY,
    "tokenizer.ggml.token_type": [3, 3] + [1] * (len(VOCABULARY) - 2),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.bos_token_id": 0,
    "tokenizer.ggml.eos_token_id": 1,
    "tokenizer.ggml.padding_token_id": 1,
}


def small_llama(**options: Any) -> LlamaForCausalLM:
    """One block, four heads of queries, two of keys; widths are whole blocks of quantised types."""
    torch.manual_seed(0)
    config = LlamaConfig(
        **{
            "vocab_size": len(VOCABULARY),
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "max_position_embeddings": 32,
            "rope_theta": 5000.0,
            "bos_token_id": 0,
            "eos_token_id": 1,
            **options,
        }
    )
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(1.0 if parameter.ndim == 1 else 0.0, 0.1)
    return model


def settings_of(config: Any) -> dict[str, Any]:
    """The settings of a LLaMA, by llama.cpp's names."""
    return {
        "general.name": "a small model",
        "llama.block_count": config.num_hidden_layers,
        "llama.context_length": config.max_position_embeddings,
        "llama.embedding_length": config.hidden_size,
        "llama.feed_forward_length": config.intermediate_size,
        "llama.attention.head_count": config.num_attention_heads,
        "llama.attention.head_count_kv": config.num_key_value_heads,
        "llama.attention.layer_norm_rms_epsilon": config.rms_norm_eps,
        "llama.rope.freq_base": config.rope_parameters["rope_theta"],
        "llama.rope.dimension_count": config.head_dim,
        "llama.vocab_size": config.vocab_size,
        **TOKENIZER,
    }


def write_gguf(
    path: Path,
    model: LlamaForCausalLM,
    kind: str = "F32",
    extra: dict[str, np.ndarray] | None = None,
    architecture: str = "llama",
    **settings: Any,
) -> Path:
    """Write a model. With another ``kind`` than F32 the matrices are quantised, and the model gets
    the numbers that they then stand for.

    Args:
        extra: further tensors.
        settings: replace the model's; None leaves one out. "__" stands for a dot.
    """
    import gguf

    quantised = gguf.GGMLQuantizationType[kind]
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.num_hidden_layers)
    writer = gguf.GGUFWriter(str(path), architecture)
    given = settings_of(model.config) | {k.replace("__", "."): v for k, v in settings.items()}
    for name, value in given.items():
        if value is not None:
            _add(writer, name, value)
    for name, parameter in model.named_parameters():
        base, _, suffix = name.rpartition(".")
        array = parameter.detach().numpy()
        if array.ndim == 2 and kind != "F32":
            packed = gguf.quants.quantize(array, quantised)
            array = gguf.quants.dequantize(packed, quantised)
            parameter.data = torch.from_numpy(array.copy())
        array = _rotary_order(array, name, model.config)
        stored = f"{names.get_name(base)}.{suffix}"
        if array.ndim == 2 and kind != "F32":
            writer.add_tensor(stored, gguf.quants.quantize(array, quantised), raw_dtype=quantised)
        else:
            writer.add_tensor(stored, np.ascontiguousarray(array))
    for name, array in (extra or {}).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, name: str, value: Any) -> None:
    kinds = {bool: "bool", int: "uint32", float: "float32", str: "string", list: "array"}
    getattr(writer, f"add_{kinds[type(value)]}")(name, value)


def _rotary_order(array: np.ndarray, name: str, config: Any) -> np.ndarray:
    """The rows of queries and keys in llama.cpp's order: pairs of the rotation side by side."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = next((n for part, n in heads.items() if part in name), None)
    if count is None:
        return array
    split = array.reshape(count, 2, array.shape[0] // count // 2, *array.shape[1:])
    return split.swapaxes(1, 2).reshape(array.shape)
