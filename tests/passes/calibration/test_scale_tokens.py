"""A token that stands out is multiplied before norms: outputs stay, ranges shrink."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel, LlamaConfig, LlamaForCausalLM

import atlasc
from atlasc.calibration.calibrate import calibrate, read_calibration
from atlasc.calibration.streams import measured_streams, rescaled, streams_of
from atlasc.compilation.prepare import trace_model
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.loading.models import model_of
from atlasc.passes.calibration.scale_tokens import ScaleTokens, token_factors, with_scaled_tokens
from atlasc.passes.framework.pass_base import Report
from atlasc.passes.frontend.trace import trace

TOKENS, SINK = 6, 1
WIDE = {34: 3.0, 35: 5.0, 36: 9.0, 37: 16.0, 38: 30.0, 39: 60.0}
"""Tokens of padding -> the length of their embeddings, by that of others."""
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "vocab_size": 40}  # fmt: skip


@cache
def decoder(times: float = 100.0) -> Any:
    """A LLaMA whose embedding of the token SINK is ``times`` as long as those of others."""
    torch.manual_seed(0)
    config = LlamaConfig(**TINY, num_key_value_heads=1, max_position_embeddings=16)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.embed_tokens.weight.normal_()
        model.model.embed_tokens.weight[SINK] *= times
    return model


def inputs(count: int = 12, place: int = 0) -> dict[str, np.ndarray]:
    """Texts with the token SINK at one place; some end with padding."""
    rng = np.random.default_rng(0)
    ids = rng.integers(2, 40, (count, TOKENS))
    ids[:, place] = SINK
    mask = np.ones_like(ids)
    mask[::3, -1] = 0
    return {"input_ids": ids, "attention_mask": mask}


def traced(model: Any) -> Module:
    return trace_model(model_of(model), 1, TOKENS)


def outputs(module: Module, arrays: dict[str, np.ndarray]) -> np.ndarray:
    rows = [
        interpret(module, {name: array[row : row + 1] for name, array in arrays.items()})
        for row in range(len(arrays["input_ids"]))
    ]
    return np.concatenate([next(iter(row.values())) for row in rows])


@pytest.mark.parametrize("place", [0, 2])
def test_the_token_that_stands_out_is_found(place: int) -> None:
    module, arrays = traced(decoder()), inputs(place=place)
    factors = token_factors(module, streams_of(module, arrays))
    assert len(factors) == 5  # two norms of each layer, and the last one
    for factor in factors.values():
        others = np.delete(factor, place)
        assert (others == 1).all() and factor[place] <= 1 / 16
        assert np.log2(factor[place]).is_integer()
    scaled = with_scaled_tokens(module, factors)
    assert with_scaled_tokens(scaled, factors).ops == scaled.ops
    kept = arrays["attention_mask"].astype(bool)
    difference = outputs(scaled, arrays) - outputs(module, arrays)
    assert np.abs(difference[kept]).max() < 1e-5
    before, after = calibrate(module, arrays), calibrate(scaled, arrays)
    for old, new in zip(before.ranges, after.ranges, strict=True):
        if old.op == "nn.rms_norm":
            assert old.high / old.low > 1000 > 50 > new.high / new.low
    extremes = [r for r in after.ranges if r.op != "nn.rms_norm"]
    assert [r.value for r in extremes] == [r.value for r in before.ranges if r.op != "nn.rms_norm"]


def test_where_no_token_is_multiplied() -> None:
    arrays = inputs()
    module, small = traced(decoder()), traced(decoder(times=1.5))
    notes: list[str] = []

    def note(what: str, details: str) -> None:
        notes.append(what)

    few = streams_of(module, inputs(count=7))
    assert token_factors(module, few, note) == {}  # too few
    assert token_factors(small, streams_of(small, arrays), note) == {}  # it does not stand out
    assert token_factors(module, streams_of(module, arrays), note)
    assert notes == []
    some = {name: array.copy() for name, array in arrays.items()}
    some["input_ids"][3] = 5  # one text without the token
    assert token_factors(module, streams_of(module, some), note) == {}
    (said,) = notes
    assert said.startswith("before 5 norms one of the first tokens stands out on some inputs alone")


def with_wide_padding() -> tuple[Any, dict[str, np.ndarray]]:
    """A decoder whose padding reaches far, too, and 60 texts; only the last 6 have padding."""
    model, arrays = copy.deepcopy(decoder()), inputs(count=60)
    arrays["input_ids"] = np.minimum(arrays["input_ids"], min(WIDE) - 1)
    arrays["attention_mask"][:] = 1
    for row, (token, times) in enumerate(WIDE.items(), 54):
        with torch.no_grad():
            model.model.embed_tokens.weight[token] *= times
        arrays["attention_mask"][row, -1], arrays["input_ids"][row, -1] = 0, token
    return model, arrays


def test_a_token_stays_where_the_tail_of_the_others_is_wider_than_the_token() -> None:
    """A few inputs whose padding reaches far: the margin follows from them alone, if the token
    above them is multiplied."""
    model, arrays = with_wide_padding()
    module = traced(model)
    streams, measured = measured_streams(module, arrays)
    assert len(token_factors(module, streams, margin=0.05)) == 5  # seen values alone gain
    factors = token_factors(module, streams, margin=None)
    changed = with_scaled_tokens(module, factors)
    plain, scaled = (calibrate(m, arrays, margin=None).ranges for m in (module, changed))
    for before, after in zip(plain, scaled, strict=True):
        assert after.widest_factor <= before.widest_factor + 1e-4
    known = rescaled(measured, changed, streams, factors)
    assert calibrate(changed, arrays, margin=None, known=known).ranges == scaled
    everything = with_scaled_tokens(module, token_factors(module, streams, margin=0.05))
    widths = [one.widest_factor for one in calibrate(everything, arrays, margin=None).ranges]
    assert max(widths) > 1.5 * max(one.widest_factor for one in scaled)


def test_a_program_is_right_where_padding_and_a_token_stand_out() -> None:
    model, arrays = with_wide_padding()
    program = atlasc.compile(
        model, data=arrays, sequence_length=TOKENS, recipe="is", target="sim",
        fill_padding=False, prefixes=False,
    )  # fmt: skip
    few = {name: array[:3] for name, array in arrays.items()}
    with torch.no_grad():
        given = {name: torch.as_tensor(array) for name, array in few.items()}
        expected = model(**given).logits.numpy()
    np.testing.assert_allclose(program.run(few).outputs["logits"], expected, atol=1e-2)


def test_layer_norms_too() -> None:
    torch.manual_seed(0)
    config = BertConfig(**TINY, max_position_embeddings=16)
    model = BertModel(config, add_pooling_layer=False).eval()
    module, arrays = traced(model), inputs()
    arrays["token_type_ids"] = np.zeros_like(arrays["input_ids"])
    assert token_factors(module, streams_of(module, arrays)) == {}
    name = next(op.value.name for op in module.ops if op.name == "nn.layer_norm"
                and op.value.tensor.side == "server")  # fmt: skip
    scaled = with_scaled_tokens(module, {name: np.array([1 / 8, 1, 1, 1, 1, 1])})
    np.testing.assert_allclose(outputs(scaled, arrays), outputs(module, arrays), atol=1e-5)


def test_a_program_with_factors_answers_as_the_model(tmp_path: Path) -> None:
    """Without the factors, the recipe's polynomials explode on the first token."""
    model, arrays = decoder(times=3000.0), inputs(count=24)
    options: dict[str, Any] = {"sequence_length": TOKENS, "recipe": "is", "target": "sim"}
    program = atlasc.compile(model, data=arrays, **options)
    few = {name: array[:3] for name, array in arrays.items()}
    found = program.run(few).outputs["logits"]
    with torch.no_grad():
        expected = model(**{k: torch.as_tensor(v) for k, v in few.items()}).logits.numpy()
    kept = few["attention_mask"].astype(bool)
    np.testing.assert_allclose(found[kept], expected[kept], atol=1e-2)
    with pytest.raises(AtlasError, match="values explode|of no use"):
        atlasc.compile(model, data=arrays, scale_tokens=False, **options)


def test_the_pass_takes_the_factors_of_a_calibration(tmp_path: Path) -> None:
    module, arrays = traced(decoder()), inputs()
    factors = token_factors(module, streams_of(module, arrays))
    scaled = with_scaled_tokens(module, factors)
    tokens = {name: tuple(one.tolist()) for name, one in factors.items()}
    calibration = replace(calibrate(scaled, arrays), tokens=tokens)
    file = tmp_path / "ranges.json"
    file.write_text(json.dumps(calibration.to_dict()))
    assert read_calibration(file) == calibration
    result = ScaleTokens(str(file)).run(module, Report())
    np.testing.assert_array_equal(outputs(result, arrays), outputs(scaled, arrays))
    assert ScaleTokens().run(module, Report()) is module
    with pytest.raises(AtlasError, match="belongs to another model"):
        with_scaled_tokens(module, {"another": np.ones(TOKENS)})


def test_norms_of_two_sequences_of_other_lengths() -> None:
    """Both have ranges; tokens are multiplied before those of the first alone."""

    class Two(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.other, self.head = (torch.nn.LayerNorm(8), torch.nn.LayerNorm(8),
                                               torch.nn.Linear(8, 3))  # fmt: skip

        def forward(self, x, y):
            return self.head(self.one(x).mean(1) + self.other(y).mean(1))

    x = np.random.default_rng(0).normal(size=(12, 6, 8)).astype(np.float32)
    given = {"x": x, "y": x[:, :4]}
    module = trace(Two().eval(), {name: array[:1] for name, array in given.items()}, name="two")
    streams = streams_of(module, given)
    assert [squares.shape for squares in streams.squares.values()] == [(12, 6)]
    assert token_factors(module, streams) == {} and len(calibrate(module, given).ranges) == 2
