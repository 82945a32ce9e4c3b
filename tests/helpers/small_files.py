"""Small models and hostile files for the tests of loading."""

from __future__ import annotations

import io
from pathlib import Path

import torch
from transformers import BertConfig, BertForSequenceClassification

TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def tiny_bert(**options: int) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, max_position_embeddings=16, **(TINY | options))
    return BertForSequenceClassification(config).eval()


class Payload:
    """An object whose unpickling writes a file: what an attacker would put into a model."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.path), "w"))


def pickled(path: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"x": Payload(path)}, buffer)
    return buffer.getvalue()
