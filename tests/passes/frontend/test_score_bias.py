"""Constants that a model adds to attention scores: relative positions, alone or in a mask."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch

from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module, Op
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.frontend.canonicalise import Canonicalise
from atlasc.passes.frontend.rules.masks import Meaning, meaning, probe_masks
from atlasc.passes.frontend.trace import ShapeSpec, trace

BATCH, HEADS, TOKENS, WIDTH = 2, 2, 5, 4
X = np.random.default_rng(0).normal(size=(BATCH, TOKENS, HEADS * WIDTH)).astype(np.float32)
LOW = torch.finfo(torch.float32).min
SCORES = (BATCH, HEADS, TOKENS, TOKENS)
BIAS = np.random.default_rng(1).normal(size=(1, HEADS, TOKENS, TOKENS)).astype(np.float32)


def biases(module: Module) -> list[tuple[int, ...]]:
    """Shapes of the constants that are added to scores."""
    added = [op for op in module.ops if op.name == "nn.add_constant" and _of_scores(op)]
    return [module.symbols[op.attributes["value"].name].shape for op in added]


def _of_scores(op: Op) -> bool:
    return op.value.tensor.shape[-1:] == op.value.tensor.shape[-2:-1]


@pytest.mark.parametrize("family", ["t5", "mpnet"])
@pytest.mark.parametrize("layout", ["11111000", "00011111", "10110011"])
def test_relative_positions(family, layout, tiny_model, tiny_trace, torch_outputs):
    """T5's bias comes with the mask, MPNet's alone; both have one a head."""
    attention = "sdpa" if family == "t5" else "eager"
    module = tiny_trace(family, attention)
    mask = np.array([[int(kept) for kept in layout], [1] * 8])
    ids = np.random.default_rng(3).integers(3, 50, size=mask.shape)
    inputs = {"input_ids": np.where(mask, ids, 1), "attention_mask": mask}
    # In float64: T5 does not divide scores by a root, and a float32 softmax errs by 1e-5.
    wanted = torch_outputs(deepcopy(tiny_model(family, attention)).double(), inputs)
    for written in (module, run_passes(module, [Canonicalise()])):
        assert [len(shape) - shape.count(1) for shape in biases(written)] == [3, 3]
        (name, found), *_ = interpret(written, inputs).items()
        kept = mask.astype(bool)
        np.testing.assert_allclose(found[kept], wanted[name][kept], atol=1e-5, rtol=0)


@pytest.mark.parametrize("layout", ["11111000", "00011111", "10110011"])
def test_slopes_by_the_place_among_kept_keys(layout, tiny_model, tiny_trace, torch_outputs):
    """Bloom's, which count the mask: also where it has holes."""
    module = tiny_trace("bloom-lm", "eager")
    mask = np.array([[int(kept) for kept in layout], [1] * 8])
    ids = np.random.default_rng(3).integers(3, 50, size=mask.shape)
    inputs = {"input_ids": np.where(mask, ids, 1), "attention_mask": mask}
    wanted = torch_outputs(tiny_model("bloom-lm", "eager"), inputs)["logits"]
    canonical = run_passes(module, [Canonicalise()])
    kept = mask.astype(bool)
    for written in (module, canonical):
        found = interpret(written, inputs)["logits"]
        np.testing.assert_allclose(found[kept], wanted[kept], atol=1e-5, rtol=0)
    names = [op.name for op in canonical.ops]
    assert names.count("nn.add_positions") == names.count("nn.gelu_tanh") == 2
    assert "nn.scale" not in names


def test_slopes_without_a_mask_are_constants(tiny_trace, tiny_model, tiny_inputs, torch_outputs):
    module = tiny_trace("bloom-lm", "eager", mask=False)
    assert len(biases(module)) == 2
    inputs = tiny_inputs("bloom-lm", 3, mask=False)
    wanted = torch_outputs(tiny_model("bloom-lm", "eager"), inputs)["logits"]
    np.testing.assert_allclose(interpret(module, inputs)["logits"], wanted, atol=1e-5, rtol=0)


def test_a_bias_and_causality_in_one_constant():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            later = torch.ones(TOKENS, TOKENS).triu(1).bool()
            self.register_buffer("mask", torch.from_numpy(BIAS).masked_fill(later, LOW))

        def forward(self, x):
            heads = x.view(BATCH, TOKENS, HEADS, WIDTH).transpose(1, 2)
            context = (heads @ heads.transpose(2, 3) + self.mask).softmax(-1) @ heads
            return context.transpose(1, 2).reshape(x.shape)

    model = Model()
    module = trace(model, {"x": X}, name="both")
    (softmax,) = (op for op in module.ops if op.name == "nn.softmax")
    assert softmax.attributes["causal"] is True
    assert biases(module) == [(HEADS, TOKENS, TOKENS)]
    (found,) = interpret(module, {"x": X}).values()
    with torch.no_grad():
        np.testing.assert_allclose(found, model(torch.from_numpy(X)).numpy(), atol=1e-6)


def test_meaning_of_a_mask_with_a_bias():
    def masked(probe: np.ndarray) -> torch.Tensor:
        dropped = torch.from_numpy(1 - probe)[:, None, None, :].float() * LOW
        return torch.from_numpy(BIAS) + dropped

    found = meaning(masked, probe_masks(BATCH, TOKENS), SCORES, "here")
    assert found[:2] == (True, False) and found.bias is not None
    np.testing.assert_array_equal(found.bias, BIAS[0])


@pytest.mark.parametrize("low", [LOW, -1e9, -1e4])
def test_an_additive_mask_drops_keys(low: float):
    """-10,000 is what the first BERT and GPT-2 add."""

    def masked(probe: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(1 - probe)[:, None, None, :].float() * low

    assert meaning(masked, probe_masks(BATCH, TOKENS), SCORES, "here") == Meaning(True, False)


@pytest.mark.parametrize("shape", [(1, 1, TOKENS, 1), (1, 1, 1, 1)])
def test_what_all_keys_of_a_query_get_changes_nothing(shape):
    added = torch.rand(shape)
    assert meaning(lambda probe: added, [], SCORES, "here") == Meaning(False, False)


def test_a_mask_with_slopes_times_the_places_of_keys():
    """Falcon RW adds its positions (ALiBi) together with the mask."""
    slopes = np.array([0.5, 0.3], np.float32)[:HEADS]

    def masked(probe: np.ndarray) -> torch.Tensor:
        mask = torch.from_numpy(probe)
        places = ((mask.cumsum(1) - 1) * mask)[:, None, None, :]
        added = torch.from_numpy(slopes)[:, None, None] * places
        return added.masked_fill(mask[:, None, None, :] == 0, LOW)

    found = meaning(masked, probe_masks(BATCH, TOKENS), SCORES, "here")
    assert found[:2] == (True, False) and found.bias is None and found.slopes is not None
    np.testing.assert_allclose(found.slopes, slopes, rtol=1e-6)


def test_a_bias_that_depends_on_the_mask_is_refused():
    def masked(probe: np.ndarray) -> torch.Tensor:
        count = torch.from_numpy(probe.cumsum(1).astype(np.float32))
        dropped = torch.from_numpy(1 - probe).float() * LOW
        return (count * count + dropped)[:, None, None, :]

    with pytest.raises(AtlasError) as caught:
        meaning(masked, probe_masks(BATCH, TOKENS), SCORES, "here")
    assert "what it adds to the scores of kept keys depends on the mask" in caught.value.why


def test_a_bias_of_a_bare_config(tiny_model):
    """Its values are unknown, but it is there."""
    from transformers import T5EncoderModel

    with torch.device("meta"):
        model = T5EncoderModel(tiny_model("t5").config)
    shapes = {name: ShapeSpec((1, 8)) for name in ("input_ids", "attention_mask")}
    module = trace(model.eval(), shapes, name="bare")
    assert len([op for op in module.ops if op.name == "nn.softmax"]) == 2
