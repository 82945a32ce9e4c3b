"""A text model that compiles in seconds, with bootstraps, embedding on the client and a mask."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tiny_model import approximate_all

LENGTH = 6


def make_text_bundle(root: Path) -> Path:
    """A random BERT of two layers, compiled for token ids of length 6."""
    import torch
    from transformers import BertConfig, BertModel

    from atlasc.compilation.compile import Chosen, write_program
    from atlasc.compilation.lowering import MAGNITUDE_INPUTS, lower_module
    from atlasc.compilation.options import CalibrationOptions, TargetOptions
    from atlasc.compilation.prepare import calibrate_source, load_source, trace_model

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=40, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16, attn_implementation="sdpa",
    )  # fmt: skip
    BertModel(config, add_pooling_layer=False).save_pretrained(root / "model")
    write_ids(root / "data.jsonl", [3, 4, 5, 6] * 5)
    options = CalibrationOptions(sequence_length=LENGTH)
    source = load_source(str(root / "model"), root / "data.jsonl", options)
    module = trace_model(source.model, 2, LENGTH)
    approximate_all(module, calibrate_source(module, source, margin=0.5))
    found, target = calibrate_source(module, source), TargetOptions(target="sim")
    lowered = lower_module(module, source.few(MAGNITUDE_INPUTS).arrays, target)
    return write_program(root / "bundle", source, Chosen(module, {}), found, lowered, target).folder


def write_ids(path: Path, lengths: list[int]) -> None:
    """Texts of random ids, as many as lengths."""
    rng = np.random.default_rng(len(lengths))
    rows = [{"input_ids": rng.integers(1, 40, size=length).tolist()} for length in lengths]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
