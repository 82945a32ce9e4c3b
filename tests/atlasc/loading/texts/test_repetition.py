"""Texts that repeat their ends: calibration covers the loops that a decoder writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_files import tiny_bert
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaModel,
)

from atlasc.calibration.calibrate import calibrate
from atlasc.compilation.options import CalibrationOptions
from atlasc.compilation.prepare import trace_model
from atlasc.compilation.source import Source, load_source
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import model_of
from atlasc.loading.texts.repetition import repetitions, writes_text
from tests.atlasc.cli.command import run

TEXTS, LENGTH, WORDS = 40, 16, 50
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
LLAMA = LlamaConfig(**SIZES, num_key_value_heads=1, intermediate_size=32, vocab_size=WORDS)
GPT2 = GPT2Config(n_embd=16, n_layer=1, n_head=2, n_positions=LENGTH, vocab_size=WORDS)


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def texts(
    count: int = TEXTS, length: int = LENGTH, shortest: int = LENGTH, seed: int = 1
) -> Inputs:
    """Random tokens; all texts begin with the tokens 1 and 2."""
    ids = generator(seed).integers(3, WORDS, (count, length))
    ids[:, :2] = 1, 2
    mask = np.ones_like(ids)
    mask[0, shortest:] = 0
    return Inputs({"input_ids": ids, "attention_mask": mask}, tuple(map(str, range(count))))


def source(model: Any, **options: Any) -> tuple[Source, list[str]]:
    told: list[str] = []
    chosen = CalibrationOptions(sequence_length=LENGTH, **options)
    data = texts().arrays
    found = load_source(model, data, chosen, note=lambda what, details="": told.append(what))
    return found, told


def test_a_repetition_is_a_beginning_whose_last_tokens_repeat() -> None:
    model, given = model_of(LlamaForCausalLM(LLAMA)), texts(2000, 258)
    found = repetitions(given, model, generator(), 2)
    ids = found.arrays["input_ids"]
    assert ids.shape == (2000, 258) and (found.arrays["attention_mask"] == 1).all()
    ends, loops = [], []
    for name, row, text in zip(found.names, ids, given.arrays["input_ids"], strict=True):
        words = name.replace(",", "").split()
        end, loop = int(words[2]), int(words[6])
        assert name == f"{words[0]}, first {end} tokens, the last {loop} repeated"
        np.testing.assert_array_equal(row[:end], text[:end])
        np.testing.assert_array_equal(row[end:], row[end - loop : -loop])
        ends.append(end - 2)
        loops.append(loop)
    # The logarithms of both numbers are uniform; the program has room for a token of the loop.
    assert (min(ends), max(ends), min(loops)) == (1, 255, 1)
    assert all(loop <= end for loop, end in zip(loops, ends, strict=True))
    for bits in range(1, 8):
        assert (np.array(ends) < 1 << bits).mean() == pytest.approx(bits / 8, abs=0.03)
    again, other = (repetitions(given, model, generator(seed), 2) for seed in (0, 1))
    assert again.digest() == found.digest() != other.digest()


def test_padding_and_texts_without_tokens_of_their_own_are_left_out() -> None:
    model = model_of(LlamaForCausalLM(LLAMA))
    found = repetitions(texts(6, shortest=2), model, generator(), 2)
    assert len(found) == 5 and found.names[0].startswith("1,")
    short = repetitions(texts(1, shortest=3), model, generator(), 2)
    ids = texts(1).arrays["input_ids"][0]
    assert short.arrays["input_ids"].tolist() == [[1, 2, *[ids[2]] * (LENGTH - 2)]]


@pytest.mark.parametrize("decoder", [LlamaForCausalLM(LLAMA), GPT2LMHeadModel(GPT2)])
def test_a_model_that_writes_text_is_calibrated_on_repetitions(decoder: Any) -> None:
    found, told = source(decoder)
    own, held = len(found.inputs), len(found.held_back)
    assert (own, held, found.repetitions) == (32, 8, 32)
    assert (len(found.measured), len(found.validated)) == (3 * own, 3 * held)
    names = [name.partition(",")[0] for name in found.measured.names]
    assert names == 3 * names[:own]  # so nothing is made of a held-back text
    assert all("repeated" in name for name in found.measured.names[2 * own :])
    assert "calibration adds 32 texts with repeated ends" in told
    assert sum("first" in name for name in found.few(10).names) == 5
    plain, told = source(decoder, repetitions=False)
    assert plain.repetitions == 0 and len(plain.measured) == 2 * own
    assert plain.measured.digest() == found.measured.take(range(2 * own)).digest()
    assert not any("repeated" in one for one in told)
    alone, _ = source(decoder, prefixes=False)
    assert len(alone.measured) == 2 * own and alone.repetitions == own


@pytest.mark.parametrize(
    "model", [LlamaForSequenceClassification(LLAMA), LlamaModel(LLAMA), tiny_bert()]
)
def test_other_models_have_none(model: Any) -> None:
    assert not writes_text(model_of(model))
    found, told = source(model)
    assert found.repetitions == 0 and len(found.measured) == 2 * len(found.inputs)
    assert not any("repeated" in one for one in told)


def test_ranges_hold_for_loops_of_other_texts() -> None:
    """Keys of a loop are alike, so that a row sums more than in any text of the data."""
    torch.manual_seed(0)
    size = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 32, "vocab_size": WORDS}
    decoder = GPT2LMHeadModel(GPT2Config(**size, bos_token_id=None, eos_token_id=None)).eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            if weight.ndim > 1:
                weight.mul_(8)  # so that tokens matter
    data = texts(length=32).arrays
    loops = repetitions(texts(length=32, seed=3), model_of(decoder), generator(4), 2).arrays
    found = {}
    for wanted in (False, True):
        given = load_source(decoder, data, CalibrationOptions(repetitions=wanted))
        module = trace_model(given.model, 1, 32, given.inputs)
        found[wanted] = calibrate(module, given.measured.arrays, held_back=loops, margin=None)
    assert found[False].leaving > 0
    assert {one.kind for one in found[False].violations} == {"log sum"}
    assert found[True].leaving == 0


def test_the_command_line_says_how_many_there_are(tmp_path: Path) -> None:
    LlamaForCausalLM(LLAMA).save_pretrained(tmp_path / "model")
    rows = ({"input_ids": row} for row in texts().arrays["input_ids"].tolist())
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ("calibrate", tmp_path / "model", "--data", tmp_path / "texts.jsonl")
    told = run(*call, "--sequence-length", LENGTH)
    assert "32 inputs and prefixes of 32 of these texts and repetitions of 32 of them" in told.out
    assert "of 24 held-back inputs" in told.out and "--without repetitions" in told.err
    told = run(*call, "--sequence-length", LENGTH, "--without", "prefixes,repetitions")
    assert "32 inputs, margins" in told.out and "repeat" not in told.err
