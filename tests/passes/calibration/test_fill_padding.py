"""Padding becomes copies of a real token: outputs of real tokens stay, ranges shrink."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from short_text import module_of
from transformers import (
    BertConfig,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    RobertaConfig,
    RobertaModel,
)

import atlasc
from atlasc.calibration.calibrate import calibrate, read_calibration
from atlasc.compilation.prepare import trace_model
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.ir.module import Module
from atlasc.loading.models import model_of
from atlasc.passes.calibration.fill_padding import (
    FillPadding,
    padding_to_fill,
    with_filled_padding,
)
from atlasc.passes.framework.pass_base import Report

TOKENS, PADDING = 8, 0
TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "vocab_size": 40, "pad_token_id": PADDING}  # fmt: skip
MODELS = {
    "bert": (BertModel, BertConfig, {}),
    "roberta": (RobertaModel, RobertaConfig, {"max_position_embeddings": 20}),
    "llama": (LlamaForCausalLM, LlamaConfig, {"num_key_value_heads": 1}),
}
MASK = '%mask = nn.input {name = "mask", shape = [1, 4], side = "public", dtype = "i64"}'
BODY = """%x = nn.input {name = "x", shape = [1, 4, 2], side = "client", dtype = "f64"}
    %e = nn.encrypt %x
    %g = nn.gelu %e"""
TO_ALL = '%y = nn.mean %g {axis = 1}\n    nn.output %y {name = "y"}'
TO_REAL = '%y = nn.mean %g, %mask {axis = 1}\n    nn.output %y {name = "y"}'


@cache
def model(name: str, times: float = 1.0) -> Any:
    """A model whose embedding of padding is ``times`` as long as those of others."""
    torch.manual_seed(0)
    kind, config, more = MODELS[name]
    given = {**TINY, **more}
    made = (kind(config(**given)) if name == "llama" else kind(config(**given), False)).eval()
    with torch.no_grad():
        table = made.get_input_embeddings().weight
        table.normal_()
        table[PADDING] *= times
    return made


def inputs(count: int = 24) -> dict[str, np.ndarray]:
    """Texts of two to eight tokens."""
    rng = np.random.default_rng(0)
    ids, kept = rng.integers(2, 40, (count, TOKENS)), rng.integers(2, TOKENS + 1, (count, 1))
    mask = (np.arange(TOKENS) < kept).astype(np.int64)
    return {"input_ids": np.where(mask, ids, PADDING), "attention_mask": mask}


def traced(name: str, times: float = 1.0) -> Module:
    return trace_model(model_of(model(name, times)), 1, TOKENS)


@pytest.mark.parametrize("padding", ["first", "last"])
@pytest.mark.parametrize("name", MODELS)
def test_outputs_of_real_tokens_stay(name: str, padding: Any) -> None:
    module, arrays = traced(name), inputs()
    if "token_type_ids" in {op.attributes["name"] for op in module.inputs}:
        arrays["token_type_ids"] = np.zeros_like(arrays["input_ids"])
    filled = with_filled_padding(module, padding)
    assert with_filled_padding(filled, padding) is filled
    assert with_filled_padding(module, "") is module
    kept = arrays["attention_mask"].astype(bool)
    (before,), (after,) = (interpret(one, arrays).values() for one in (module, filled))
    np.testing.assert_allclose(after[kept], before[kept], atol=1e-12)
    assert np.abs(after - before)[~kept].max() > 1e-3
    if name != "llama":  # a copy in an encoder takes the values of its token
        source = np.zeros(len(kept), int) if padding == "first" else kept.sum(axis=1) - 1
        copied = after[np.arange(len(kept)), source][:, None] + np.zeros_like(after)
        np.testing.assert_allclose(after[~kept], copied[~kept], atol=1e-9)


def test_padding_that_reaches_far_is_filled() -> None:
    module, arrays = traced("llama", 30.0), inputs()
    report = Report()
    choice = padding_to_fill(module, arrays, report=report)
    assert choice in ("first", "last") and len(report.lines) == 3
    before, after = (calibrate(m, arrays) for m in (module, with_filled_padding(module, choice)))
    norms = [(a, b) for a, b in zip(before.ranges, after.ranges) if a.op == "nn.rms_norm"]
    assert norms[0][0].high / norms[0][0].low > 100 > norms[0][1].high / norms[0][1].low


def test_where_padding_stays() -> None:
    module, report = traced("llama"), Report()
    whole = inputs()
    whole["attention_mask"][:-7] = 1
    assert padding_to_fill(module, whole, report=report) == ""
    assert "inputs have any" in report.lines[0]
    without = module_of("nn", f'{BODY}\nnn.output %g {{name = "y"}}')
    assert padding_to_fill(without, {}, report=report) == ""
    assert report.lines[1] == "the model has no padding"
    with pytest.raises(AtlasError, match="has none"):
        with_filled_padding(without, "first")


def test_a_model_that_reads_its_padding_keeps_it() -> None:
    """The mean over all tokens, not only over those that the mask keeps."""
    rng = np.random.default_rng(0)
    mask = (np.arange(4) < rng.integers(1, 4, (12, 1))).astype(np.int64)
    x = rng.normal(size=(12, 4, 2)) * np.where(mask, 1.0, 20.0)[:, :, None]
    for mean, expected in ((TO_ALL, False), (TO_REAL, True)):
        report, module = Report(), module_of("nn", f"{BODY}\n{MASK}\n{mean}")
        assert bool(padding_to_fill(module, {"x": x, "mask": mask}, report=report)) is expected
        assert ("depend on it" in report.lines[0]) is not expected


def test_the_padding_of_a_calibration_is_read_back(tmp_path: Path) -> None:
    module = module_of("nn", f"{BODY}\n{MASK}\n{TO_REAL}")
    file, arrays = tmp_path / "ranges.json", {"x": np.ones((2, 4, 2)), "mask": np.ones((2, 4), int)}
    calibration = replace(calibrate(module, arrays), padding="last")
    file.write_text(json.dumps(calibration.to_dict()))
    assert read_calibration(file) == calibration
    assert FillPadding().run(module, Report()) is module


def test_a_program_with_filled_padding_answers_as_the_model() -> None:
    """With padding as it is, no polynomial of a norm covers what it reaches."""
    arrays, options = inputs(40), {"sequence_length": TOKENS, "recipe": "is", "target": "sim"}
    program = atlasc.compile(model("llama", 3000.0), data=arrays, **options)
    few = {name: array[:3] for name, array in arrays.items()}
    found = program.run(few).outputs["logits"]
    with torch.no_grad():
        given = {name: torch.as_tensor(array) for name, array in few.items()}
        expected = model("llama", 3000.0)(**given).logits.numpy()
    kept = few["attention_mask"].astype(bool)
    np.testing.assert_allclose(found[kept], expected[kept], atol=1e-2)
    with pytest.raises(AtlasError, match="values explode|of no use"):
        atlasc.compile(model("llama", 3000.0), data=arrays, fill_padding=False, **options)
