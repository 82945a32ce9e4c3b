"""A softmax over tokens that pools them is attention of one constant query, with or without a
mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace

FEATURES, TOKENS = 8, 6
WIDE = torch.finfo(torch.float32).min
Form = Callable[["Pooled", Any, Any], Any]


def _scores(m: Pooled, h: Any, mask: Any, low: float = WIDE) -> Any:
    return m.score(h).masked_fill(mask[..., None] == 0, low)


FORMS: dict[str, Form] = {
    "sum": lambda m, h, mask: (h * torch.softmax(m.score(h), 1)).sum(1),
    "sum turned": lambda m, h, mask: (torch.softmax(m.score(h), 1) * h).sum(-2),
    "of squeezed scores": lambda m, h, mask: (
        h * torch.softmax(m.score(h).squeeze(-1), -1)[..., None]
    ).sum(1),
    "bmm": lambda m, h, mask: torch.bmm(
        torch.softmax(m.score(h), 1).transpose(1, 2), h
    ).squeeze(1),
    "matmul": lambda m, h, mask: (
        torch.softmax(m.score(h).squeeze(-1), -1).unsqueeze(1) @ h
    ).squeeze(1),
    "matmul of turned scores": lambda m, h, mask: (
        torch.softmax(m.score(h).mT, -1) @ h
    ).squeeze(1),
    "of a hidden layer": lambda m, h, mask: (
        h * torch.softmax(m.score(torch.tanh(m.a(h))), 1)
    ).sum(1),
    "with a mask": lambda m, h, mask: (h * torch.softmax(_scores(m, h, mask), 1)).sum(1),
    "with an added mask": lambda m, h, mask: (
        h * torch.softmax(m.score(h) + (1 - mask[..., None].float()) * -1e9, 1)
    ).sum(1),
    "with a chosen mask": lambda m, h, mask: (
        h * torch.where(mask[..., None].bool(), m.score(h), WIDE).softmax(1)
    ).sum(1),
}  # fmt: skip


class Pooled(nn.Module):
    """A form of hidden states, behind attention if there is any."""

    def __init__(self, form: Form, attends: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.form, self.attends = form, attends
        self.table, self.a = nn.Embedding(20, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.score, self.head = nn.Linear(FEATURES, 1), nn.Linear(FEATURES, 3)
        self.layer = nn.TransformerEncoderLayer(FEATURES, 2, 16, batch_first=True)

    def forward(self, input_ids, attention_mask):
        h = self.a(self.table(input_ids))
        if self.attends:
            h = self.layer(h)
        return self.head(self.form(self, h, attention_mask))


@pytest.mark.parametrize("attends", [False, True])
@pytest.mark.parametrize("name", FORMS)
def test_a_pooling_equals_torch(name: str, attends: bool) -> None:
    model, random = Pooled(FORMS[name], attends).eval(), np.random.default_rng(0)
    inputs = {
        "input_ids": random.integers(0, 20, (3, TOKENS)),
        "attention_mask": (np.arange(TOKENS) < np.array([[6], [4], [2]])).astype(np.int64),
    }
    module = trace(model, inputs, name="pooled")
    assert sum(op.name == "nn.softmax" for op in module.ops) == 1 + attends
    with torch.no_grad():
        wanted = model(*map(torch.from_numpy, inputs.values())).numpy()
    (found,) = interpret(module, inputs).values()
    np.testing.assert_allclose(found, wanted, atol=1e-5)
