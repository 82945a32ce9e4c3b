"""Classifiers of decoders: rerankers and reward models read the last token that is no padding."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

import atlasc
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import interpret
from atlasc.passes.frontend.trace import trace
from benchmarks.families.further import FURTHER
from benchmarks.families.models import FAMILIES, LENGTH, Family

EVERY = {**FAMILIES, **FURTHER}
DECODERS = (
    "gpt2", "gpt-neox", "opt", "bloom", "llama", "mistral", "qwen2", "qwen3", "gemma", "phi3",
    "olmo2", "smollm3", "gptj", "gpt-neo", "falcon", "mpt", "starcoder2", "gpt-bigcode", "glm",
    "helium", "stablelm", "phi", "gemma2", "olmo", "nemotron", "biogpt",
)  # fmt: skip
NAMELESS = {"pad_token_id": None}
"""Settings of a model whose config names no padding, as many decoders have them."""


def classifier(name: str, **settings: Any) -> Family:
    family = EVERY[name]
    model = f"{family.config.removesuffix('Config')}ForSequenceClassification"
    return replace(family, model=model, settings={**family.settings, **settings})


def alone(model: Any, arrays: dict[str, np.ndarray]) -> np.ndarray:
    """HuggingFace's scores of each text alone, without padding."""
    rows = zip(arrays["input_ids"], arrays["attention_mask"].astype(bool), strict=True)
    with torch.no_grad():
        found = [model(input_ids=torch.from_numpy(ids[kept])[None]).logits for ids, kept in rows]
    return torch.cat(found).numpy()


@pytest.mark.parametrize("name", DECODERS)
def test_a_shorter_text_has_the_score_that_it_has_alone(name: str) -> None:
    family = classifier(name)
    model, arrays = family.build(), family.inputs(4)
    assert arrays["attention_mask"].sum(1).min() < LENGTH
    (found,) = interpret(trace(model, arrays, name="scores"), arrays).values()
    np.testing.assert_allclose(found, alone(model, arrays), atol=1e-5)


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("name", ["gpt2", "llama", "opt"])
def test_a_config_may_name_no_padding(name: str, batch: int) -> None:
    """HuggingFace then reads the last place, and answers only one text at a time."""
    family = classifier(name, **NAMELESS)
    model, arrays = family.build(), family.inputs(4)
    module = trace(model, {key: rows[:batch] for key, rows in arrays.items()}, name="scores")
    assert all("padding" not in op.attributes for op in module.inputs)
    (found,) = interpret(module, arrays).values()
    np.testing.assert_allclose(found, alone(model, arrays), atol=1e-5)
    assert model.config.pad_token_id is None


def test_the_padding_may_be_named_after_the_model_was_made() -> None:
    """As one does with the end of a text; its embedding has no ``padding_idx`` then."""
    family = classifier("llama", **NAMELESS)
    model, arrays = family.build(), family.inputs(4)
    model.config.pad_token_id = 2
    arrays["input_ids"] = np.where(arrays["attention_mask"], arrays["input_ids"], 2)
    module = trace(model, arrays, name="scores")
    (ids,) = (op for op in module.inputs if op.attributes["side"] == "client")
    assert ids.attributes["padding"] == 2
    (found,) = interpret(module, arrays).values()
    np.testing.assert_allclose(found, alone(model, arrays), atol=1e-5)


def test_holes_in_a_text() -> None:
    family = classifier("llama")
    model, arrays = family.build(), family.inputs(2)
    arrays["attention_mask"] = np.array([[1, 0, 1, 1, 0, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0, 1]])
    arrays["input_ids"] = np.where(arrays["attention_mask"], arrays["input_ids"][:1], 0)
    with torch.no_grad():
        wanted = model(**{key: torch.from_numpy(rows) for key, rows in arrays.items()}).logits
    (found,) = interpret(trace(model, arrays, name="scores"), arrays).values()
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2", NAMELESS),
        pytest.param("llama", {}, marks=pytest.mark.deep("recipes")),
        pytest.param("qwen3", {}, marks=pytest.mark.deep("recipes")),
        pytest.param("gemma2", {"num_labels": 1}, marks=pytest.mark.deep("recipes")),
    ],
)
def test_a_program_scores_as_huggingface(name: str, settings: dict[str, Any]) -> None:
    family = classifier(name, **settings)
    model, arrays = family.build(), family.inputs(8, 1)
    program = atlasc.compile(
        model, family.inputs(), recipe="is", max_error=1e9, target="sim", sequence_length=LENGTH
    )
    ran = program.run(arrays)
    answered = [row for row in range(8) if row not in ran.unanswered]
    assert len(answered) > 4 and ran.max_error < 1e-9
    wanted = alone(model, arrays)
    np.testing.assert_allclose(ran.outputs["logits"][answered], wanted[answered], atol=1e-4)


class Reward(torch.nn.Module):
    """A decoder with a layer that gives one number for each token, as reward models have it."""

    def __init__(self, form: Any) -> None:
        super().__init__()
        self.body = replace(EVERY["llama"], model="LlamaModel").build()
        torch.manual_seed(0)
        self.head, self.form = torch.nn.Linear(16, 1), form

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.body(input_ids, attention_mask=attention_mask).last_hidden_state
        places = (attention_mask * torch.arange(LENGTH)).argmax(1)
        found: torch.Tensor = self.form(self.head(hidden), places)
        return found


REWARDS: dict[str, Any] = {
    "index": lambda v, last: v.squeeze(-1)[torch.arange(len(v)), last],
    "index, then squeeze": lambda v, last: v[torch.arange(len(v)), last].squeeze(-1),
    "gather": lambda v, last: v.squeeze(-1).gather(1, last[:, None]).squeeze(1),
    "gather, as a column": lambda v, last: v[..., 0].gather(1, last[:, None]),
    "a function": lambda v, last: torch.sigmoid(2 * v.squeeze(-1)[torch.arange(len(v)), last]),
    "a constant place": lambda v, last: v.squeeze(-1)[torch.arange(len(v)), 2],
}


@pytest.mark.parametrize("name", REWARDS)
def test_one_number_for_a_text(name: str) -> None:
    model, arrays = Reward(REWARDS[name]).eval(), EVERY["llama"].inputs(4)
    module = trace(model, arrays, name="reward")
    (op,) = module.outputs
    with torch.no_grad():
        wanted = model(**{key: torch.from_numpy(rows) for key, rows in arrays.items()}).numpy()
    found = finished(op.attributes.get("function"), interpret(module, arrays)["output"])
    np.testing.assert_allclose(found, wanted, atol=1e-5)


@pytest.mark.deep("recipes")
@pytest.mark.parametrize("name", ["index", "gather", "gather, as a column", "a function"])
def test_a_program_gives_one_number(name: str) -> None:
    model, arrays = Reward(REWARDS[name]).eval(), EVERY["llama"].inputs(4)
    program = atlasc.compile(
        model, EVERY["llama"].inputs(), recipe="is", max_error=1e9, target="sim",
        sequence_length=LENGTH,
    )  # fmt: skip
    ran = program.run(arrays)
    assert not ran.unanswered
    with torch.no_grad():
        wanted = model(**{key: torch.from_numpy(rows) for key, rows in arrays.items()}).numpy()
    np.testing.assert_allclose(ran.outputs["output"], wanted, atol=1e-4)


@pytest.mark.deep("engines")
def test_a_score_on_ciphertexts() -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=16,
        pad_token_id=0, num_labels=1,
    )  # fmt: skip
    model = LlamaForSequenceClassification(config).eval()
    texts = [np.random.default_rng(row).integers(1, 16, 2 + row % 3) for row in range(20)]
    program = atlasc.compile(model, texts, recipe="is", max_error=1e9, sequence_length=4)
    found = program.run(texts[:1]).outputs["logits"][0]
    with torch.no_grad():
        wanted = model(torch.from_numpy(texts[0])[None]).logits[0].numpy()
    np.testing.assert_allclose(found, wanted, atol=1e-3)
