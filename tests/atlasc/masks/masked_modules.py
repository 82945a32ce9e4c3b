"""Random modules with a mask of padding, written in the ways that users write them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, FEATURES, TOKENS = 40, 16, 6

FROM_IDS: dict[str, Callable[[Any, int], Any]] = {
    "ids == pad": lambda ids, pad: ids == pad,
    "not (ids != pad)": lambda ids, pad: ~(ids != pad),
    "a tensor": lambda ids, pad: ids.eq(torch.tensor(pad)),
    "pad == ids": lambda ids, pad: torch.full_like(ids, pad) == ids,
    "through integers": lambda ids, pad: (1 - (ids != pad).long()) == 1,
    "through floats": lambda ids, pad: (1.0 - ids.ne(pad).float()) > 0.5,
    "a long copy": lambda ids, pad: ids.long().clone() == pad,
    "where": lambda ids, pad: torch.where(ids == pad, 1, 0).bool(),
}
FROM_ZERO: dict[str, Callable[[Any, int], Any]] = {
    "bool": lambda ids, pad: ~ids.bool(),
    "above": lambda ids, pad: ~(ids > 0),
    "logical not": lambda ids, pad: ids.logical_not(),
    "below": lambda ids, pad: ids < 1,
}
"""Padding [batch, tokens], true at padding, from ids; the last four where its id is 0."""
GIVEN: dict[str, tuple[Callable[[Any], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "bool, padding": (lambda mask: mask, lambda keep: keep == 0),
    "bool, tokens": (lambda mask: ~mask, lambda keep: keep != 0),
    "integers, tokens": (lambda mask: mask == 0, lambda keep: keep),
    "integers, padding": (lambda mask: mask.bool(), lambda keep: 1 - keep),
    "floats, tokens": (lambda mask: (1.0 - mask) > 0.5, lambda keep: keep.astype(np.float32)),
    "-inf": (
        lambda mask: torch.isinf(mask),
        lambda keep: np.where(keep, 0, -np.inf).astype(np.float32),
    ),
    "-1e9": (lambda mask: mask < -1, lambda keep: np.where(keep, 0, -1e9).astype(np.float32)),
}
"""Padding from an argument, and the argument from 1 for each token."""
NAMES = ("mask", "padding_mask", "src_key_padding_mask", "valid", "m")


class Masked(nn.Module):
    """Attention or a mean that drops padding, in a form of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        draw = random.Random(seed)
        self.pad = draw.choice((0, 0, 1, 3))
        self.form = draw.choice(("encoder", "attention", "added", "filled", "sdpa", "mean"))
        self.low = draw.choice((float("-inf"), -1e9, torch.finfo(torch.float32).min))
        self.pooled = draw.choice(("first", "mean"))
        named = draw.random() < 0.5
        self.table = nn.Embedding(VOCABULARY, FEATURES, padding_idx=self.pad if named else None)
        layer = nn.TransformerEncoderLayer(FEATURES, 2, 24, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=draw.random() < 0.5)
        self.attention = nn.MultiheadAttention(FEATURES, 2, batch_first=True)
        self.q, self.k, self.v = (nn.Linear(FEATURES, FEATURES) for _ in range(3))
        self.head = nn.Linear(FEATURES, 3)

    def answer(self, ids, padding):
        h = self.hidden(self.table(ids), padding)
        if self.pooled == "mean" or self.form == "mean":
            keep = padding.logical_not().float().unsqueeze(-1)
            return self.head((h * keep).sum(1) / keep.sum(1))
        return self.head(h[:, 0])

    def hidden(self, h, padding):
        if self.form == "encoder":
            return self.encoder(h, src_key_padding_mask=padding)
        if self.form == "attention":
            return self.attention(h, h, h, key_padding_mask=padding, need_weights=False)[0]
        if self.form == "mean":
            return torch.tanh(self.q(h))
        q, k, v = self.q(h), self.k(h), self.v(h)
        if self.form == "sdpa":
            keep = padding.logical_not()[:, None, None, :]
            q, k, v = (x.unflatten(-1, (2, 8)).transpose(1, 2) for x in (q, k, v))
            return (
                F.scaled_dot_product_attention(q, k, v, attn_mask=keep).transpose(1, 2).flatten(2)
            )
        scores = q @ k.transpose(1, 2) / FEATURES**0.5
        if self.form == "filled":
            return torch.softmax(scores.masked_fill(padding[:, None], self.low), -1) @ v
        added = torch.zeros_like(padding, dtype=h.dtype).masked_fill(padding, self.low)
        return torch.softmax(scores + added[:, None], -1) @ v


def from_ids(seed: int) -> tuple[Masked, str]:
    """A module that computes its mask from ids, and how."""

    class Own(Masked):
        def forward(self, input_ids):
            return self.answer(input_ids, written(input_ids, self.pad))

    model = Own(seed).eval()
    forms = FROM_IDS | (FROM_ZERO if model.pad == 0 else {})
    name = random.Random(seed + 1).choice(list(forms))
    written = forms[name]
    return model, name


def from_argument(seed: int) -> tuple[Masked, str, str, Callable[[np.ndarray], np.ndarray]]:
    """A module that takes its mask, how, under which name, and the argument from 1 for tokens."""
    draw = random.Random(seed + 1)
    how, argument = draw.choice(list(GIVEN)), draw.choice(NAMES)
    written, given = GIVEN[how]
    scope: dict[str, Any] = {"written": written}
    exec(f"def forward(self, input_ids, {argument}):\n"
         f"    return self.answer(input_ids, written({argument}))", scope)  # fmt: skip

    class Own(Masked):
        forward = scope["forward"]

    return Own(seed).eval(), how, argument, given


def texts(seed: int, pad: int, count: int = 8) -> np.ndarray:
    """Ids [count, tokens] of texts of several lengths, padded on the right."""
    draw = np.random.default_rng(seed)
    ids = draw.choice([i for i in range(VOCABULARY) if i != pad], size=(count, TOKENS))
    lengths = np.r_[TOKENS, draw.integers(2, TOKENS + 1, count - 1)]
    return np.where(np.arange(TOKENS) < lengths[:, None], ids, pad)
