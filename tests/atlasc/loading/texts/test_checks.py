"""Damaged weights, names with a prefix, a tokenizer of another model, texts that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from text_models import BERT_WORDS, SIZES, WORDS, text_model, tokenizer_of

from atlasc.compilation.options import BatchOptions
from atlasc.compilation.single_stages import bare_module
from atlasc.compilation.source import load_source
from atlasc.files import claimed
from atlasc.ir.errors import AtlasError
from atlasc.loading.checks import require_finite_weights
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model, model_of
from tests.atlasc.cli.command import refused

TEXTS = ["the cat sat", "a mat", "on the mat", "a cat on a mat", "the mat sat"]
WEIGHT = "bert.encoder.layer.0.attention.self.query.weight"


@pytest.fixture(scope="module")
def bert() -> LoadedModel:
    return text_model("bert")


def classifier() -> Any:
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).eval()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    classifier().save_pretrained(place)
    tokenizer_of("bert").save_pretrained(place)
    return place


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_weight_that_is_no_number_is_named(folder: Path, value: float) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors[WEIGHT][3, 2] = value
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    kind = "NaN" if value != value else "infinite"
    with pytest.raises(AtlasError, match="1 weight holds NaN or infinity") as caught:
        load_source(folder, TEXTS)
    assert caught.value.why == f"{WEIGHT}: 1 of 256 numbers {kind}"
    module = classifier()
    module.get_parameter(WEIGHT).data[3, 2] = value
    with pytest.raises(AtlasError, match=WEIGHT):
        require_finite_weights(model_of(module, tokenizer_of("bert")))


def test_masks_may_be_infinite_and_sums_large() -> None:
    module = torch.nn.Linear(4, 4)
    module.register_buffer("mask", torch.full((2, 2), -float("inf")))
    module.weight.data[:] = 3e38  # their sum is infinite
    require_finite_weights(LoadedModel(module, "module", None, Path("here")))
    module.register_buffer("mean", torch.tensor([float("nan")]))
    with pytest.raises(AtlasError, match="mean: 1 of 1 numbers NaN"):
        require_finite_weights(LoadedModel(module, "module", None, Path("here")))


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "net.inner."])
@pytest.mark.parametrize("name", ["model.safetensors", "weights.pt"])
def test_a_prefix_is_named_as_one(folder: Path, prefix: str, name: str) -> None:
    tensors = load_file(folder / "model.safetensors")
    renamed = {prefix + key: value for key, value in tensors.items()}
    if name.endswith(".pt"):
        torch.save(renamed, folder / name)
    else:
        save_file(renamed, folder / name, {"format": "pt"})
    with pytest.raises(AtlasError, match=f"begin with {prefix}, which") as caught:
        load_model(folder / name if name.endswith(".pt") else folder)
    assert f"removeprefix({prefix!r})" in caught.value.remedy
    plain = {key.removeprefix(prefix): value for key, value in renamed.items()}
    torch.save(plain, folder / "plain.pt")
    load_model(folder / "plain.pt")


def test_unknown_tokens_are_counted(folder: Path) -> None:
    """A tokenizer that knows no word of the data makes every word one token."""
    notes: list[str] = []

    def note(headline: str, details: str = "") -> None:
        notes.append(f"{headline}\n{details}")

    load_source(folder, TEXTS, note=note)
    assert not any("does not know" in one for one in notes)
    load_source(folder, [*TEXTS, "the dog sat"], note=note)
    told = next(one for one in notes if "does not know" in one)
    assert "5.3% of the tokens" in told and "data[5]" in told
    with pytest.raises(AtlasError, match=r"does not know 100.0% of the tokens of") as caught:
        load_source(folder, ["zebras run", "dogs bark", "birds"])
    assert str(folder) in caught.value.where and "vocabulary" in caught.value.remedy
    empty = {word: at for at, word in enumerate(BERT_WORDS)}
    transformers.BertTokenizerFast(vocab=empty).save_pretrained(folder)
    with pytest.raises(AtlasError, match=r"does not know 100.0%"):
        load_source(folder, TEXTS)


def test_half_a_character_is_no_text(bert: LoadedModel, tmp_path: Path) -> None:
    for data in (["a cat", "the \ud800 mat"], [("a", "cat"), ("the", "\udcff")]):
        with pytest.raises(AtlasError, match="half a character(.|\n)*data\\[1\\]"):
            inputs_of(data, bert)
    lines = tmp_path / "t.jsonl"
    lines.write_text('{"text": "a"}\n{"text": "\\ud83d"}\n')
    with pytest.raises(AtlasError, match="not a JSON object(.|\n)*t.jsonl:2"):
        inputs_of(lines, bert)
    lines.write_text('{"text": "a"}\n{"text": "\\ud83d\\ude00"}\n')  # both halves are a character
    assert len(inputs_of(lines, bert)) == 2


def test_arrays_of_strings_are_texts(bert: LoadedModel) -> None:
    expected = inputs_of(TEXTS, bert).digest()
    for array in (np.array(TEXTS), np.array(TEXTS, object)):
        assert inputs_of(array, bert).digest() == expected
    pairs = [("a cat", "the mat"), ("a", "mat")]
    assert inputs_of(np.array(pairs), bert).digest() == inputs_of(pairs, bert).digest()
    assert inputs_of(np.array("a cat"), bert).digest() == inputs_of(["a cat"], bert).digest()


@pytest.mark.parametrize("words", [["the", "cat", "sat"], ["cat"]])
def test_words_are_joined_to_a_text(bert: LoadedModel, words: list[str], tmp_path: Path) -> None:
    lines = tmp_path / "t.jsonl"
    lines.write_text(json.dumps({"text": words}))
    for data in ([words], [("a", "cat"), words], lines, np.array([words])):
        with pytest.raises(AtlasError, match=r"' '.join\(words\)"):
            inputs_of(data, bert)


@pytest.mark.parametrize("text", ["a cat sat", "a cat sat on the mat " * 400])
def test_a_text_is_given_in_a_list(bert: LoadedModel, text: str) -> None:
    with pytest.raises(AtlasError, match=r"not found(.|\n)*in a list: \[text\]") as caught:
        inputs_of(text, bert)
    assert len(str(caught.value)) < 300


def test_missing_data_are_found_before_the_model(tmp_path: Path) -> None:
    """The model does not exist either: it would be the first fault if it were read first."""
    missing = tmp_path / ("a" * 200) / "none.txt"
    for command, out in (("compile", "out"), ("search", "out"), ("calibrate", "out.json")):
        message = refused(command, tmp_path / "model", "--data", missing, "-o", tmp_path / out)
        assert f"data {missing} not found" in message, command


def test_two_commands_for_one_folder(tmp_path: Path) -> None:
    """The second one is refused before it reads its data, which are missing here."""
    out, data = tmp_path / "out", tmp_path / "none.txt"
    for command in ("compile", "search"):
        with claimed(out):
            message = refused(command, tmp_path, "--data", data, "-o", out)
        assert f"another process is working on {out}" in message
        assert "not found" in refused(command, tmp_path, "--data", data, "-o", out)
    with claimed(tmp_path / "j"):
        message = refused("search", tmp_path, "--data", data, "--journal", tmp_path / "j")
    assert "another process is working on" in message
    assert [path.name for path in tmp_path.iterdir()] == []


@pytest.mark.parametrize(("family", "room"), [("Bert", 24), ("Roberta", 22)])
def test_a_length_that_nobody_gave_fits(family: str, room: int, tmp_path: Path) -> None:
    """RoBERTa's positions begin behind that of padding, here 1."""
    config = getattr(transformers, f"{family}Config")(**SIZES)
    config.architectures = [f"{family}Model"]
    config.save_pretrained(tmp_path)
    module = bare_module(str(tmp_path), BatchOptions())
    assert module.inputs[0].attributes["shape"] == [1, room]
    with pytest.raises(AtlasError, match="--sequence-length 25 is longer"):
        bare_module(str(tmp_path), BatchOptions(sequence_length=25))


def test_the_vocabulary_of_these_tests() -> None:
    """What the shares above count on."""
    assert len(BERT_WORDS + WORDS) == SIZES["vocab_size"]


def test_a_tokenizer_that_only_transformers_has_is_said(tmp_path: Path) -> None:
    place, told = tmp_path / "model", dict[str, str]()
    classifier().save_pretrained(place)
    (tmp_path / "vocab.txt").write_text("\n".join([*BERT_WORDS, *WORDS]))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "eos_token"), BERT_WORDS))
    transformers.EsmTokenizer(str(tmp_path / "vocab.txt"), **names).save_pretrained(place)
    load_source(place, TEXTS, note=told.setdefault)
    said = told["clients of the program need transformers to read texts"]
    assert "an EsmTokenizer" in said or "a EsmTokenizer" in said
    ids = {"input_ids": np.random.default_rng(0).integers(5, 11, (8, 6))}
    told.clear()
    load_source(classifier(), ids, note=told.setdefault)  # no tokenizer: ids alone
    assert not [what for what in told if "transformers" in what]
