"""Reasons that are true, and remedies that work when they are followed to the letter."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.loading.data import inputs_of
from atlasc.loading.models import load_model, model_of
from atlasc.passes.frontend.trace import trace

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)


class Places(nn.Module):
    def forward(self, x, latlons, months, weights=None):
        return x + latlons + months


def test_all_required_arguments_are_named_at_once() -> None:
    with pytest.raises(AtlasError, match="lacks latlons, months") as caught:
        inputs_of({"x": X}, model_of(Places()))
    assert "required: x, latlons, months, weights may be left out" in caught.value.remedy
    with pytest.raises(AtlasError, match="does not have the model's inputs") as caught:
        inputs_of({"y": X}, model_of(Places()))
    assert "required: x, latlons, months, weights may be left out" in caught.value.remedy


def test_a_branch_on_values_names_the_line_and_no_dump_of_torch() -> None:
    class Branch(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x
            return -x

    with pytest.raises(AtlasError, match="cannot trace Branch") as caught:
        trace(Branch(), {"x": X}, name="m")
    assert "test_reasons.py:" in caught.value.where and "decides by values" in caught.value.why
    assert caught.value.__suppress_context__ and len(str(caught.value).splitlines()) < 10


def test_attention_of_constants_draws_nothing() -> None:
    class Queries(nn.Module):
        """Learned tokens that attend to each other, before they meet the input."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.tokens = nn.Parameter(torch.randn(1, 2, 4, 4))
            self.drop, self.layer = nn.Dropout(0.1), nn.Linear(8, 8)

        def forward(self, x):
            h = nn.functional.scaled_dot_product_attention(*3 * (self.drop(self.tokens),))
            return self.layer(x) + h.transpose(1, 2).flatten(2)

    model = Queries().eval()
    (found,) = interpret(trace(model, {"x": X}, name="m"), {"x": X}).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, model(torch.from_numpy(X)).numpy(), atol=1e-5)


def test_an_op_with_a_rule_is_not_to_be_replaced_by_itself() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.layer = nn.Embedding(40, 8), nn.Linear(8, 8)

        def forward(self, input_ids, attention_mask):
            h = torch.tanh(self.layer(self.table(input_ids)))
            return h * attention_mask[..., None]

    ids = np.ones((1, 4), np.int64)
    with pytest.raises(AtlasError, match="aten.mul") as caught:
        trace(Product(), {"input_ids": ids, "attention_mask": ids}, name="m")
    assert "supported ones" not in caught.value.remedy and "reason" in caught.value.remedy


def test_an_unknown_architecture_is_compiled_in_memory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["Own"]}')
    with pytest.raises(AtlasError, match="unknown architecture Own") as caught:
        load_model(tmp_path)
    assert "atlasc.compile(model, data, tokenizer=tokenizer)" in caught.value.remedy
