"""A classifier of pairs, compiled: answered on the simulator and on ciphertexts."""

from __future__ import annotations

import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
from text_models import WORDS, logits, text_model

import atlasc
from atlasc.ir.errors import AtlasError

LENGTH = 8
TEXTS = [" ".join(words) for words in itertools.product(WORDS[:4], WORDS[4:])]
PAIRS = [(a, b) for a in TEXTS[:6] for b in ("a", "cat", "on")]


@pytest.fixture(scope="module")
def program() -> atlasc.Program:
    model = text_model("bert")
    return atlasc.compile(
        model.module, PAIRS, tokenizer=model.tokenizer, sequence_length=LENGTH,
        recipe="is", target="sim",
    )  # fmt: skip


def test_pairs_are_answered(program: atlasc.Program) -> None:
    model = text_model("bert")
    assert model.tokenizer is not None
    names = [op.attributes["name"] for op in program.bundle.client.embed.inputs]
    assert names == ["input_ids", "token_type_ids", "attention_mask"]  # the mask fills padding
    result = program.run(PAIRS[:2])
    assert not result.refused
    expected = [logits(model, model.tokenizer(*pair, return_tensors="pt")) for pair in PAIRS[:2]]
    allowed = program.bundle.manifest.settings["error"] * 10 + 1e-3
    (found,) = result.outputs.values()
    np.testing.assert_allclose(found, np.concatenate(expected), atol=allowed)


def test_a_row_without_a_second_text_is_named_and_the_others_are_answered(
    program: atlasc.Program,
) -> None:
    rows = [{"text": a, "text_pair": b} for a, b in PAIRS[:3]]
    del rows[1]["text_pair"]
    result = program.run(rows)
    assert list(result.refused) == [1] and "text_pair" in result.refused[1]
    assert "data[1]" in "\n".join(result.warnings)
    (found,) = result.outputs.values()
    assert np.isfinite(found[[0, 2]]).all() and np.isnan(found[1]).all()
    assert [verdict.safe for verdict in program.check(rows)] == [True, False, True]
    with pytest.raises(AtlasError, match="text_pair"):
        program.inputs(rows)


def test_a_client_says_that_a_text_is_cut(program: atlasc.Program, tmp_path: Path) -> None:
    atlasc.keygen(program, tmp_path / "keys")
    client = atlasc.Client(program, tmp_path / "keys")
    with pytest.warns(UserWarning, match="1 of 1 texts is cut to 8 tokens"):
        client.encrypt(["a cat sat on " * 9])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "the target sim is a simulation")
        client.encrypt([PAIRS[0]])


def test_a_decoder_refuses_padding_in_front_of_a_text() -> None:
    """Its first queries see no key; that ended in a manifest with NaN, after a whole compile."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    model = LlamaForCausalLM(LlamaConfig(**sizes, intermediate_size=24, vocab_size=30)).eval()
    ids = np.random.default_rng(0).integers(3, 30, (12, 8))
    mask = (np.arange(8) >= np.where(np.arange(12) == 3, 3, 0)[:, None]).astype(int)
    data = {"input_ids": ids, "attention_mask": mask}
    with pytest.raises(AtlasError, match="padding in front") as caught:
        atlasc.compile(model, data, recipe="is", target="sim")
    assert caught.value.where == "data[3]" and "padding_side" in caught.value.remedy
