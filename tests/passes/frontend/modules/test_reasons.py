"""Reasons that are true, and remedies that work when they are followed to the letter."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.loading.data import inputs_of
from atlasc.loading.models import load_model, model_of
from atlasc.passes.frontend.exported.failures import without_dumps
from atlasc.passes.frontend.trace import trace

X = np.random.default_rng(0).normal(size=(2, 4, 8)).astype(np.float32)


class Places(nn.Module):
    def forward(self, x, latlons, months, weights=None):
        return x + latlons + months


def test_all_required_arguments_are_named_at_once() -> None:
    with pytest.raises(AtlasError, match="lacks latlons, months") as caught:
        inputs_of({"x": X}, model_of(Places()))
    assert "required: x, latlons, months; weights may be left out" in caught.value.remedy
    with pytest.raises(AtlasError, match="does not have the model's inputs") as caught:
        inputs_of({"y": X}, model_of(Places()))
    assert "required: x, latlons, months; weights may be left out" in caught.value.remedy


def test_a_branch_on_values_names_the_line_and_no_dump_of_torch(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Branch(nn.Module):
        def forward(self, x):
            if x.sum() > 0:
                return x
            return -x

    with pytest.raises(AtlasError, match="cannot trace Branch") as caught:
        trace(Branch(), {"x": X}, name="m")
    assert "test_reasons.py:" in caught.value.where and "decides by values" in caught.value.why
    assert caught.value.__suppress_context__ and len(str(caught.value).splitlines()) < 10
    assert capfd.readouterr() == ("", "")


def test_what_torch_logs_outside_of_a_trace_is_seen(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    logger.addHandler(caplog.handler)
    try:
        with without_dumps():
            logger.warning("a graph of a hundred lines")
        logger.warning("something else")
    finally:
        logger.removeHandler(caplog.handler)
    assert {one.message for one in caplog.records} == {"something else"}


def test_a_weight_that_is_written_past_torch_names_the_forward() -> None:
    class Drifting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x):
            self.layer.weight.data.mul_(1.01)
            return self.layer(x)

    with pytest.raises(AtlasError, match="cannot trace Drifting") as caught:
        trace(Drifting().eval(), {"x": X}, name="m")
    assert "test_reasons.py:" in caught.value.where and ".data" in caught.value.why
    assert "torch.no_grad()" in caught.value.remedy


def _rotary(rope: dict[str, Any]) -> nn.Module:
    import transformers

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=32, pad_token_id=0, bos_token_id=1,
        eos_token_id=2, rope_parameters={"rope_theta": 1e4, **rope},
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config).eval()


@pytest.mark.parametrize("tokens", [6, 32])
def test_a_rotary_embedding_that_follows_the_longest_text_stays_as_it_was_trained(
    tokens: int,
) -> None:
    ids = {"input_ids": np.random.default_rng(0).integers(3, 40, (2, tokens))}
    dynamic = _rotary({"rope_type": "dynamic", "factor": 2.0})
    (found,) = interpret(trace(dynamic, ids, name="m"), ids).values()
    with torch.no_grad():
        wanted = dynamic(torch.tensor(ids["input_ids"])).logits.numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(("tokens", "read"), [(33, 8), (6, 33)])
def test_a_rotary_embedding_behind_the_longest_text_of_training_is_named(
    tokens: int, read: int
) -> None:
    """For longer texts its frequencies follow the text, or the longest one that it has read."""
    dynamic = _rotary({"rope_type": "dynamic", "factor": 2.0})
    with torch.no_grad():
        dynamic(torch.ones(1, read, dtype=torch.long))
    with pytest.raises(AtlasError, match="cannot trace LlamaForCausalLM") as caught:
        trace(dynamic, {"input_ids": np.ones((2, tokens), int)}, name="m")
    assert "rope_type dynamic" in caught.value.why and len(str(caught.value).splitlines()) < 6
    assert "--sequence-length 32" in caught.value.remedy


@pytest.mark.parametrize("longest", [4, 16])
def test_a_rotary_embedding_with_two_tables_is_that_of_the_compiled_length(longest: int) -> None:
    ids = {"input_ids": np.arange(3, 15).reshape(2, 6), "attention_mask": np.ones((2, 6), int)}
    tables = {"short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    model = _rotary(
        {"rope_type": "longrope", **tables, "original_max_position_embeddings": longest}
    )
    (found,) = interpret(trace(model, ids, name="m"), ids).values()
    with torch.no_grad():
        wanted = model(torch.tensor(ids["input_ids"])).logits.numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


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
            return h / (1 + h * h)

    ids = np.ones((1, 4), np.int64)
    with pytest.raises(AtlasError, match="aten.div") as caught:
        trace(Product(), {"input_ids": ids, "attention_mask": ids}, name="m")
    assert "supported ones" not in caught.value.remedy and "reason" in caught.value.remedy


def test_an_unknown_architecture_is_compiled_in_memory(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "architectures": ["Own"]}')
    with pytest.raises(AtlasError, match="unknown architecture Own") as caught:
        load_model(tmp_path)
    assert "atlasc.compile(model, data, tokenizer=tokenizer)" in caught.value.remedy


FORMS: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "numbers like an input": (
        lambda x, kinds: x + torch.rand_like(x), "draws random numbers", "evaluation mode",
    ),
    "a softmax with noise": (
        lambda x, kinds: nn.functional.gumbel_softmax(x), "draws random numbers", "in a buffer",
    ),
    "an activation with noise": (
        lambda x, kinds: torch.bernoulli(x.sigmoid()), "draws random numbers", "in a buffer",
    ),
    "a dropout without a switch": (
        lambda x, kinds: nn.functional.dropout(x, 0.5), "a dropout is active", "self.training",
    ),
    "a number of Python": (
        lambda x, kinds: x * x.mean().item(), "let it stay a tensor", "each reason",
    ),
    "a list of numbers": (
        lambda x, kinds: x * sum(x[0, 0].tolist()), "1 op|let it stay a tensor", "each reason",
    ),
    "numpy": (
        lambda x, kinds: x * float(x.numpy().mean()), "numpy sees no tensor", "compute with torch",
    ),
    "integers as numbers": (
        lambda x, kinds: x + kinds[..., None].float(), "computes with integers", "each reason",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_the_reason_is_that_of_the_line(name: str) -> None:
    class Model(nn.Module):
        def forward(self, x, kinds):
            return form(x, kinds)

    form, reason, remedy = FORMS[name]
    with pytest.raises(AtlasError, match=reason) as caught:
        trace(Model().eval(), {"x": X, "kinds": np.ones((2, 4), np.int64)}, name="m")
    assert "test_reasons.py:" in caught.value.where and remedy in caught.value.remedy
    assert "built-in" not in str(caught.value) and "aten_rules" not in caught.value.remedy


def test_data_that_cannot_be_read_has_a_remedy() -> None:
    class Words(nn.Module):
        def forward(self, words):
            return words

    class Choice(nn.Module):
        def forward(self, input_ids):
            return input_ids

    model, ids = model_of(Words()), np.ones((4, 3), np.int64)
    with pytest.raises(AtlasError, match="cannot be turned into an array") as caught:
        inputs_of([[1, 2], [1, 2, 3]], model)
    assert "token ids where forward takes input_ids" in caught.value.remedy
    with pytest.raises(AtlasError, match="does not have the model's inputs") as caught:
        inputs_of({"words": ids, "attention_mask": ids}, model)
    assert "leave attention_mask out" in caught.value.remedy
    with pytest.raises(AtlasError, match="list of 64-bit integers") as caught:
        inputs_of({"input_ids": ids[:, None].tolist()}, model_of(Choice()))
    assert "an input is one text" in caught.value.why and "reads one" in caught.value.remedy
