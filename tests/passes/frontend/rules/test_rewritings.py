"""Each rewriting that a refusal names is compiled, and equals the op that was refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.rules.rewritings import REWRITINGS
from atlasc.passes.frontend.trace import trace

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)
Form = Callable[["Parts", Any, Any], Any]


class Parts(nn.Module):
    """A form of two hidden states."""

    def __init__(self, form: Form) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.a, self.b = form, nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("kept", torch.ones(8).index_fill_(0, torch.tensor([1, 3]), 0.0))

    def forward(self, x):
        return self.form(self, self.a(x), self.b(x))


def _put(h: Any) -> Any:
    h = h.clone()
    h[:, :, [1, 3]] = 0
    return h


PAIRS: dict[str, tuple[Form, Form]] = {
    "index_put": (lambda m, h, k: _put(h), lambda m, h, k: h * m.kept),
}
ELSEWHERE = {"embedding_bag", "cos", "sin", "masked_fill"}
"""Tried below, or about other inputs."""


def test_every_rewriting_is_tried() -> None:
    assert set(PAIRS) | ELSEWHERE == set(REWRITINGS)


@pytest.mark.parametrize("name", PAIRS)
def test_a_rewriting_equals_the_op(name: str) -> None:
    op, written = PAIRS[name]
    refused, taken = Parts(op).eval(), Parts(written).eval()
    with torch.no_grad():
        wanted = refused(torch.from_numpy(X)).numpy()
    (found,) = interpret(trace(taken, {"x": X}, name="m"), {"x": X}).values()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(AtlasError, match="cannot be compiled") as caught:
        trace(refused, {"x": X}, name="m")
    assert REWRITINGS[name] in caught.value.remedy
    assert "test_rewritings.py:" in caught.value.where


def test_a_bag_of_embeddings() -> None:
    class Bag(nn.Module):
        def __init__(self, whole: bool) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.whole, weight = whole, torch.randn(40, 8)
            self.bag = nn.EmbeddingBag.from_pretrained(weight, mode="mean")
            self.table, self.head = nn.Embedding.from_pretrained(weight), nn.Linear(8, 3)

        def forward(self, input_ids):
            return self.head(self.bag(input_ids) if self.whole else self.table(input_ids).mean(1))

    ids = {"input_ids": np.random.default_rng(0).integers(0, 40, (2, 6))}
    with pytest.raises(AtlasError, match="embedding_bag") as caught:
        trace(Bag(True).eval(), ids, name="m")
    assert REWRITINGS["embedding_bag"] in caught.value.remedy
    (found,) = interpret(trace(Bag(False).eval(), ids, name="m"), ids).values()
    with torch.no_grad():
        wanted = Bag(True)(torch.from_numpy(ids["input_ids"])).numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
