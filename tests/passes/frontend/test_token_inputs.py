"""Segments, positions and padding anywhere: what HuggingFace computes, computed by the client."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.passes.frontend.trace import ShapeSpec, trace
from atlasc.passes.pipeline import client_module

COUNTING = ("roberta", "xlm-roberta", "camembert")
"""Families whose positions count the tokens that are not padding."""
ABSOLUTE = ("bert-classifier", "albert", "electra", "distilbert")
SEGMENTS = ("bert-classifier", "albert", "electra")
PAD = 1  # of RoBERTa; an ordinary token of the others
LENGTH, VOCABULARY = 8, 50
LAYOUTS = {
    "right": [1, 1, 1, 1, 1, 0, 0, 0],
    "left": [0, 0, 0, 1, 1, 1, 1, 1],
    "holes": [1, 0, 1, 1, 0, 0, 1, 1],
    "both ends": [0, 1, 1, 1, 0, 1, 0, 0],
}


def rows(layout: list[int], seed: int = 0) -> dict[str, np.ndarray]:
    """Two texts: one of the layout, and one without padding."""
    random = np.random.default_rng(seed)
    mask = np.array([layout, [1] * LENGTH])
    ids = random.integers(3, VOCABULARY, size=mask.shape)
    return {"input_ids": np.where(mask, ids, PAD), "attention_mask": mask}


def assert_as_torch(module, model, inputs, torch_outputs):
    """Of tokens that are masked, nobody reads what a model says."""
    expected = torch_outputs(model, inputs)
    kept = inputs.get("attention_mask", np.ones_like(inputs["input_ids"])).astype(bool)
    for name, found in interpret(module, inputs).items():
        own, wanted = (x[kept] if x.shape[1] == LENGTH else x for x in (found, expected[name]))
        np.testing.assert_allclose(own, wanted, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", [*COUNTING, *ABSOLUTE])
def test_padding_may_be_anywhere(family, tiny_model, tiny_trace, torch_outputs):
    for seed, layout in enumerate(LAYOUTS.values()):
        inputs = rows(layout, seed)
        assert_as_torch(tiny_trace(family), tiny_model(family), inputs, torch_outputs)


def test_positions_that_count_the_mask(tiny_model, tiny_trace, torch_outputs):
    """OPT's, of which the client computes the embedding too."""
    module = tiny_trace("opt-lm")
    (counted,) = (op for op in module.ops if op.name == "nn.position_ids")
    assert counted.operands[0].tensor.side == "public" and counted.value.tensor.side == "client"
    assert [op.attributes["name"] for op in client_module(module).inputs] == [
        "input_ids", "attention_mask",
    ]  # fmt: skip
    assert [op.attributes["name"] for op in client_module(tiny_trace("gpt2-lm")).inputs] == [
        "input_ids"
    ]
    for seed, layout in enumerate(LAYOUTS.values()):
        inputs = rows(layout, seed)
        given = {**inputs, **interpret(client_module(module), inputs)}
        assert_as_torch(module, tiny_model("opt-lm"), inputs, torch_outputs)
        (embedded,) = (op.value.name for op in module.ops if op.name == "nn.encrypt")
        assert given[embedded].shape == (2, LENGTH, 16)


def test_an_index_that_depends_on_the_mask_is_refused():
    import torch

    class Backwards(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = torch.nn.Embedding(9, 4), torch.nn.Embedding(20, 4)

        def forward(self, input_ids, attention_mask):
            return self.words(input_ids) + self.places(attention_mask.flip(1).cumsum(1))

    shapes = dict.fromkeys(["input_ids", "attention_mask"], ShapeSpec((1, 4)))
    with pytest.raises(AtlasError, match="an index depends on the mask") as caught:
        trace(Backwards(), shapes, name="backwards")
    assert "position_ids" in caught.value.remedy


@pytest.mark.parametrize("family", COUNTING)
def test_padding_that_is_typed_and_ids_without_a_mask(
    family, tiny_model, tiny_trace, torch_outputs
):
    """A padding token inside a text that its mask keeps, and texts of padding alone."""
    for layout in ([1, 1, 0, 1, 1, 1, 0, 1], [0] * LENGTH):
        inputs = rows(layout)
        for mask in (None, np.ones_like(inputs["attention_mask"])):
            given = {"input_ids": inputs["input_ids"]}
            given |= {} if mask is None else {"attention_mask": mask}
            module = tiny_trace(family, mask=mask is not None)
            assert_as_torch(module, tiny_model(family), given, torch_outputs)


@pytest.mark.parametrize("family", [*SEGMENTS, *COUNTING])
def test_segments_and_positions_are_inputs(family, tiny_model, torch_outputs):
    random, module = np.random.default_rng(3), None
    for layout in LAYOUTS.values():
        inputs = rows(layout)
        shape = inputs["input_ids"].shape
        inputs["token_type_ids"] = random.integers(0, 2, shape) * (family in SEGMENTS)
        inputs["position_ids"] = random.integers(0, 16, shape)
        module = module or trace(tiny_model(family), inputs, name="inputs")
        assert_as_torch(module, tiny_model(family), inputs, torch_outputs)
    assert module is not None
    ops = [op for op in module.ops if op.name == "nn.input"]
    sides = {op.attributes["name"]: op.attributes["side"] for op in ops}
    assert sides.pop("attention_mask") == "public"
    assert set(sides.values()) == {"client"} and len(sides) == 3
    assert "nn.position_ids" not in {op.name for op in module.ops}
    assert sum(op.name == "nn.encrypt" for op in module.ops) == 1


@pytest.mark.parametrize("family", COUNTING)
def test_positions_are_counted_by_the_client(family, tiny_trace):
    module = tiny_trace(family)
    (counted,) = (op for op in module.ops if op.name == "nn.position_ids")
    assert counted.attributes == {"padding": 1} and counted.value.tensor.side == "client"
    text = print_module(module)
    assert print_module(parse(text, module.symbols)) == text


@pytest.mark.parametrize("segments", [False, True])
def test_more_tokens_than_positions_are_refused(segments, tiny_model):
    inputs = dict.fromkeys(["input_ids", "token_type_ids"][: 1 + segments], ShapeSpec((1, 15)))
    with pytest.raises(AtlasError, match="sequence length 15 is more") as caught:
        trace(tiny_model("roberta"), inputs, name="long")
    assert "--sequence-length" in caught.value.remedy
    fitting = dict.fromkeys(inputs, ShapeSpec((1, 14)))
    assert trace(tiny_model("roberta"), fitting, name="fitting")


def test_an_index_that_depends_on_tokens_is_refused():
    import torch

    class Reversed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places = torch.nn.Embedding(9, 4), torch.nn.Embedding(20, 4)

        def forward(self, input_ids):
            kept = input_ids.ne(1).long()
            return self.words(input_ids) + self.places(kept.flip(1).cumsum(1))

    with pytest.raises(AtlasError, match="depends on which tokens") as caught:
        trace(Reversed(), {"input_ids": ShapeSpec((1, 4))}, name="reversed")
    assert "position_ids" in caught.value.remedy
