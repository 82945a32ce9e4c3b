"""PyTorch's own modules, as its documentation writes them: equal to eager, or refused with the
user's line and what to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(2, 6, 8)).astype(np.float32)
IDS = np.where(np.arange(6) < np.array([[6], [4]]), RANDOM.integers(1, 40, (2, 6)), 0)
KEEP = (IDS != 0).astype(np.int64)


class Parts(nn.Module):
    """Modules that a form puts together."""

    def __init__(self, form: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, activation="gelu", batch_first=True)
        decoder = nn.TransformerDecoderLayer(8, 2, 16, activation="gelu", batch_first=True)
        self.encoder, self.nested = (nn.TransformerEncoder(layer, 1, enable_nested_tensor=nested)
                                     for nested in (False, True))  # fmt: skip
        self.decoder, self.attention = decoder, nn.MultiheadAttention(8, 2, batch_first=True)
        self.tokens_first = nn.MultiheadAttention(8, 2)
        self.table, self.a, self.b = nn.Embedding(40, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.bag, self.sums = nn.EmbeddingBag(40, 8), nn.EmbeddingBag(40, 8, mode="sum")
        self.head, self.form = nn.Linear(8, 3), form
        self.bias = nn.Parameter(torch.randn(6, 6))
        self.by_head = nn.Parameter(torch.randn(2, 6, 6))
        self.wide, self.norm = nn.Conv1d(8, 8, 1), nn.LayerNorm(8)

    def attend(self, x, bias):
        q, k = (one(x).unflatten(-1, (2, 4)).transpose(1, 2) for one in (self.a, self.b))
        weights = torch.softmax(q @ k.transpose(-1, -2) / 2 + bias, -1)
        return (weights @ x.unflatten(-1, (2, 4)).transpose(1, 2)).transpose(1, 2).flatten(2)


class Vectors(Parts):
    def forward(self, x):
        return self.form(self, x)


class Tokens(Parts):
    def forward(self, input_ids, attention_mask):
        return self.form(self, input_ids, attention_mask)


def _apart(m: Parts, x: Any) -> Any:
    q = m.a(x)
    return nn.functional.scaled_dot_product_attention(
        *(y.unflatten(-1, (2, 4)).transpose(1, 2) for y in (q, m.b(x), x)),
        attn_mask=m.by_head,
    )


def _turned(m: Parts, x: Any) -> Any:
    """Convolutions of width 1 on [batch, features, tokens], as SqueezeBERT has them."""
    h = torch.relu(m.wide(m.a(x).transpose(1, 2)))
    q, k, v = (m.wide(h).unflatten(1, (2, 4)).transpose(2, 3) for _ in range(3))
    mixed = (torch.softmax(q @ k.transpose(-1, -2), -1) @ v).transpose(2, 3).flatten(1, 2)
    return m.norm((m.wide(mixed) + h).transpose(1, 2))


def _activated(m: Parts, x: Any) -> Any:
    """What attention gives goes through an activation before its heads are merged, as in LeViT."""
    q, k, v = (one(x).unflatten(-1, (2, 4)).transpose(1, 2) for one in (m.a, m.b, m.a))
    mixed = torch.softmax(q @ k.transpose(-1, -2) / 2, -1) @ v
    return m.a(nn.functional.hardswish(mixed).transpose(1, 2).flatten(2))


def _zeroed(m: Parts, ids: Any, mask: Any) -> Any:
    """Two blocks that write zeros into padding at their ends, as Flaubert's do."""
    h = m.table(ids) * mask[..., None]
    for _ in range(2):
        h = m.norm(h + m.attention(h, h, h, key_padding_mask=mask == 0)[0]) * mask[..., None]
    return m.a(h)


OF_VECTORS: dict[str, Callable[..., Any]] = {
    "a learned bias of scores": lambda m, x: m.head(m.attend(x, m.bias).mean(1)),
    "a learned bias by head": lambda m, x: m.head(m.attend(x, m.by_head).mean(1)),
    "a learned bias in one op": lambda m, x: m.head(_apart(m, x).transpose(1, 2).flatten(2)),
    "attention, batch of two": lambda m, x: m.attention(x, x, x, need_weights=False)[0],
    "attention with weights": lambda m, x: m.attention(x, x, x)[0],
    "attention, tokens first": lambda m, x: m.tokens_first(*3 * (x.transpose(0, 1),))[0].mean(0),
    "features before tokens": lambda m, x: m.head(_turned(m, x).mean(1)),
    "an activation of heads": lambda m, x: m.head(_activated(m, x).mean(1)),
    "attention that is causal": lambda m, x: m.attention(
        x, x, x, attn_mask=nn.Transformer.generate_square_subsequent_mask(6), is_causal=True
    )[0],
    "attention with a bool mask": lambda m, x: m.attention(
        x, x, x, attn_mask=torch.ones(6, 6, dtype=torch.bool).triu(1)
    )[0],
    "a decoder layer": lambda m, x: m.decoder(m.a(x), x),
    "a decoder layer that is causal": lambda m, x: m.decoder(
        m.a(x), x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(6), tgt_is_causal=True
    ),
}
OF_TOKENS: dict[str, Callable[..., Any]] = {
    "an encoder": lambda m, ids, mask: m.encoder(m.table(ids), src_key_padding_mask=mask == 0),
    "a nested encoder": lambda m, ids, mask: m.nested(m.table(ids), src_key_padding_mask=mask == 0)[
        :, 0
    ],
    "attention": lambda m, ids, mask: m.attention(
        *3 * (m.table(ids),), key_padding_mask=~mask.bool()
    )[0],
    "a decoder of a masked memory": lambda m, ids, mask: m.decoder(
        m.table(ids), m.a(m.table(ids)), memory_key_padding_mask=mask == 0
    ),
    "zeros in padding": lambda m, ids, mask: _zeroed(m, ids, mask)[:, 0],
    "zeros in padding, a masked mean": lambda m, ids, mask: (
        (_zeroed(m, ids, mask) * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    ),
    "zeros in padding that a mean reads": lambda m, ids, mask: _zeroed(m, ids, mask).mean(1),
    "a bag of embeddings": lambda m, ids, mask: m.head(m.bag(ids)),
    "a bag that sums": lambda m, ids, mask: m.head(m.sums(ids)),
}


def _check(model: nn.Module, arrays: dict[str, np.ndarray]) -> None:
    refused: AtlasError | None = None
    try:
        module = trace(model, arrays, name="parts")
    except AtlasError as error:
        refused = error
    if refused is not None:
        assert "test_torch_modules.py:" in str(refused), refused
        assert refused.why and refused.remedy and "report" not in refused.remedy
        return
    (found,) = interpret(module, arrays).values()
    with torch.no_grad():
        wanted = model(**{name: torch.from_numpy(array) for name, array in arrays.items()}).numpy()
    kept = KEEP[..., None] if "attention_mask" in arrays and wanted.ndim == 3 else 1
    np.testing.assert_allclose(found * kept, wanted * kept, atol=1e-5)


@pytest.mark.parametrize("name", OF_VECTORS)
def test_of_vectors(name: str) -> None:
    _check(Vectors(OF_VECTORS[name]).eval(), {"x": X})


@pytest.mark.parametrize("name", OF_TOKENS)
def test_of_tokens(name: str) -> None:
    _check(Tokens(OF_TOKENS[name]).eval(), {"input_ids": IDS, "attention_mask": KEEP})


COMPILED = [
    *(name for name in OF_VECTORS if "decoder" not in name),
    "an encoder", "a nested encoder", "attention",
    "zeros in padding", "zeros in padding, a masked mean",
]  # fmt: skip


@pytest.mark.parametrize("name", COMPILED)
def test_these_are_compiled(name: str) -> None:
    form = OF_VECTORS.get(name)
    if form is not None:
        module = trace(Vectors(form).eval(), {"x": X}, name="parts")
        heads = ([0, 2, 1, 3], [0, 1, 3, 2])
        turned = [op.attributes["permutation"] for op in module.ops if op.name == "nn.transpose"]
        assert all(one in heads for one in turned), "other transpositions have no packed form"
    else:
        model = Tokens(OF_TOKENS[name]).eval()
        trace(model, {"input_ids": IDS, "attention_mask": KEEP}, name="parts")


def test_zeros_that_are_read_are_refused() -> None:
    model = Tokens(OF_TOKENS["zeros in padding that a mean reads"]).eval()
    with pytest.raises(AtlasError) as caught:
        trace(model, {"input_ids": IDS, "attention_mask": KEEP}, name="parts")
    assert "zeros that a model writes into padding are read" in str(caught.value)
    assert "test_torch_modules.py:" in str(caught.value)


def test_multiple_choice() -> None:
    import transformers

    config = transformers.BertConfig(vocab_size=40, hidden_size=8, num_hidden_layers=1,
                                     num_attention_heads=2, intermediate_size=16)  # fmt: skip
    model = transformers.BertForMultipleChoice(config).eval()
    ids = RANDOM.integers(1, 40, (1, 2, 6))
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    with pytest.raises(AtlasError) as caught:
        trace(model, arrays, name="choice")
    assert "modeling_bert.py:" in str(caught.value) and caught.value.remedy
