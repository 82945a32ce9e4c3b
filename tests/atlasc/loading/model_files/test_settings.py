"""Settings of a model's folder: applied as the library of the folder applies them, or said."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from text_models import SIZES, tokenizer_of
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerBase

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import interpret
from atlasc.loading.checks import tell_unknown
from atlasc.loading.data import inputs_of
from atlasc.loading.generation.folder import settings_of
from atlasc.loading.model_files import members
from atlasc.loading.models import load_model
from atlasc.passes.frontend.trace import trace
from tests.atlasc.cli.command import ROOT, run
from tests.atlasc.loading.model_files.test_sentences import TEXTS, embeddings, folder_of, write

SETTINGS = "config_sentence_transformers.json"
PACKAGE = "sentence_transformers.base.modules"
PAIRS = [("a cat", "the mat"), ("the cat sat", "a mat"), ("on the mat", "a"), ("sat", "a cat sat")]
KNOWN = ["a cat sat", "the mat", "on a cat", "sat on the mat", "mat", "a the cat on"]


def classifier(place: Path, labels: int, **config: object) -> Path:
    torch.manual_seed(1)
    found = BertConfig(**SIZES, num_labels=labels, **config)
    model = BertForSequenceClassification(found).eval()
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    model.save_pretrained(place)
    tokenizer_of("bert").save_pretrained(place)
    return place


def answers_of(folder: Path, data: Any) -> tuple[str, np.ndarray]:
    model = load_model(folder)
    arrays = inputs_of(data, model).arrays
    module = trace(model.module, {n: array[:2] for n, array in arrays.items()}, name="m")
    (op,) = module.outputs
    (found,) = interpret(module, arrays).values()
    return op.attributes["name"], finished(op.attributes.get("function"), found)


def notes_of(folder: Path) -> str:
    return "\n".join("\n".join(note) for note in load_model(folder).notes)


@pytest.mark.parametrize("kinds", [(), ("Dense",), ("Dense", "LayerNorm")])
@pytest.mark.parametrize("width", [1, 3, 99])
def test_truncate_dim_is_that_of_encode(tmp_path: Path, kinds: tuple[str, ...], width: int) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = folder_of(tmp_path / "m", *kinds, do_lower_case=True)
    write(folder / SETTINGS, {"truncate_dim": width})
    wanted = library.SentenceTransformer(str(folder)).encode(TEXTS)
    assert not notes_of(folder)
    np.testing.assert_allclose(embeddings(load_model(folder)), wanted, atol=1e-6)


def test_truncate_dim_after_a_normalisation_is_said(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = folder_of(tmp_path / "m", "Normalize", do_lower_case=True)
    write(folder / SETTINGS, {"truncate_dim": 3})
    wanted = library.SentenceTransformer(str(folder)).encode(TEXTS)
    assert "take the first 3 numbers of each embedding" in notes_of(folder)
    np.testing.assert_allclose(embeddings(load_model(folder))[:, :3], wanted, atol=1e-6)


@pytest.mark.parametrize("width", [0, -1, "8", 2.5])
def test_truncate_dim_is_a_size(tmp_path: Path, width: object) -> None:
    folder = folder_of(tmp_path / "m")
    write(folder / SETTINGS, {"truncate_dim": width})
    with pytest.raises(AtlasError, match="truncate_dim is"):
        load_model(folder)


def test_a_default_prompt_is_written_before_each_text(tmp_path: Path) -> None:
    """Also before a text with a special token, and by the client of a saved program."""
    library = pytest.importorskip("sentence_transformers")
    folder = folder_of(tmp_path / "m", do_lower_case=True)
    prompts = {"query": "Red mat ", "document": "the "}
    write(folder / SETTINGS, {"prompts": prompts, "default_prompt_name": "query"})
    oracle, model = library.SentenceTransformer(str(folder)), load_model(folder)
    assert "the prompt 'query' is written before each text" in notes_of(folder)
    np.testing.assert_allclose(embeddings(model), oracle.encode(TEXTS), atol=1e-6)
    odd = ["a [MASK] cat", "[SEP] dog"]
    wanted = oracle.tokenize(["Red mat " + text for text in odd])["input_ids"]
    arrays = inputs_of(odd, model).arrays
    kept = zip(arrays["input_ids"], arrays["attention_mask"] > 0, strict=True)
    found = [row[mask].tolist() for row, mask in kept]
    assert found == [[one for one in row.tolist() if one] for row in wanted]
    tell_unknown(inputs_of(TEXTS, model), model, lambda *_: None)
    with pytest.raises(AtlasError, match="does not know"):
        tell_unknown(inputs_of(["zebras and whales"], model), model, lambda *_: None)
    program = atlasc.compile(folder, TEXTS, target="sim", recipe="is", max_error=1e9)
    program.save(tmp_path / "program")
    found = atlasc.load(tmp_path / "program").run(TEXTS[:3], unchecked=True)
    difference = np.abs(found.outputs["sentence_embedding"] - oracle.encode(TEXTS[:3])).max()
    assert difference < 1e-4


def test_prompts_without_a_default_are_said(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = folder_of(tmp_path / "m", do_lower_case=True)
    write(folder / SETTINGS, {"prompts": {"query": "red ", "document": ""}})
    said = notes_of(folder)
    assert "the model has 1 prompt, none is the default" in said and "query: 'red '" in said
    wanted = library.SentenceTransformer(str(folder)).encode(TEXTS)
    np.testing.assert_allclose(embeddings(load_model(folder)), wanted, atol=1e-6)
    for wrong in ({"default_prompt_name": "query"}, {"prompts": ["red "]}):
        write(folder / SETTINGS, wrong)
        with pytest.raises(AtlasError, match="is not among the prompts"):
            load_model(folder)


def test_a_slow_tokenizer_and_a_prompt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path / "m")
    write(folder / SETTINGS, {"prompts": {"query": "red "}, "default_prompt_name": "query"})
    monkeypatch.setattr("atlasc.loading.texts.tokenizer.copied", lambda _: None)
    with pytest.raises(AtlasError, match="cannot be written before texts by this tokenizer"):
        inputs_of(["a"], load_model(folder))


ENDS = ["Sigmoid", "Tanh", "Identity"]
ALONE = [{"idx": 0, "name": "0", "path": "", "type": f"{PACKAGE}.transformer.Transformer"}]
OF_SCORES = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


@pytest.mark.parametrize("labels", [1, 3])
@pytest.mark.parametrize("end", [None, *ENDS])
@pytest.mark.parametrize("place", ["folder", "config", "older"])
def test_scores_are_those_of_predict(
    tmp_path: Path, labels: int, end: str | None, place: str
) -> None:
    """A CrossEncoder ends with a sigmoid if it has one label, or with the folder's function."""
    library = pytest.importorskip("sentence_transformers")
    folder = classifier(tmp_path, labels)
    name = None if end is None else f"torch.nn.modules.activation.{end}"
    name = name and name.replace("activation.Identity", "linear.Identity")
    if place == "folder":
        write(folder / SETTINGS, {"model_type": "CrossEncoder", "activation_fn": name})
        write(folder / "modules.json", ALONE)
        write(folder / "sentence_bert_config.json", OF_SCORES)
    else:
        config = json.loads((folder / "config.json").read_text())
        inner = {"version": "4.0.0"} | ({} if name is None else {"activation_fn": name})
        known: dict[str, object] = {"sentence_transformers": inner}
        if place == "older":
            if name is None:
                return  # the library did not write it then
            known = {"sbert_ce_default_activation_function": name}
        write(folder / "config.json", config | known)
    wanted = library.CrossEncoder(str(folder)).predict(PAIRS).reshape(len(PAIRS), labels)
    called, found = answers_of(folder, PAIRS)
    # The library computes in float32: on some processors the two differ by 1.2e-6.
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    plain = end == "Identity" or (end is None and labels == 3)
    assert called == ("logits" if plain else "scores")


def test_an_unknown_end_of_a_cross_encoder_is_said(tmp_path: Path) -> None:
    folder = classifier(tmp_path, 1)
    write(folder / "modules.json", ALONE)
    write(folder / "sentence_bert_config.json", OF_SCORES)
    for name, shown in (("torch.nn.Softmax", "Softmax"), ("torch.cos", "torch.cos")):
        write(folder / SETTINGS, {"model_type": "CrossEncoder", "activation_fn": name})
        assert f"the program computes the scores before {shown}" in notes_of(folder)
    write(folder / SETTINGS, {"model_type": "CrossEncoder", "activation_fn": "os.system"})
    assert notes_of(folder) == "" and answers_of(folder, PAIRS)[0] == "scores"
    (folder / SETTINGS).unlink()
    assert notes_of(folder) == "" and answers_of(folder, PAIRS)[0] == "logits"


def test_labels_of_a_multi_label_model_are_those_of_the_pipeline(tmp_path: Path) -> None:
    names = {0: "calm", 1: "glad", 2: "sad"}
    folder = classifier(
        tmp_path / "m", 3, problem_type="multi_label_classification", id2label=names,
        label2id={name: at for at, name in names.items()},
    )  # fmt: skip
    pipeline = transformers.pipeline("text-classification", str(folder), top_k=None)
    wanted = [{one["label"]: one["score"] for one in each} for each in pipeline(KNOWN[:3])]
    data = tmp_path / "t.txt"
    data.write_text("\n".join(KNOWN))
    place = tmp_path / "program"
    run("compile", folder, "--data", data, "--recipe", "is", "--target", "sim", "-o", place)
    shown = run("run", place, "--input", data, "--count", 3, "--unchecked").out
    assert "probability of each label" in shown and "0.5 or more" in shown
    lines = [line.strip("│ \n") for line in shown.splitlines() if "t.txt:" in line]
    rows = [re.split(r"\s*│\s*", line) for line in lines]
    for row, scores in zip(rows[:3], wanted, strict=True):
        labels = ", ".join(name for name in names.values() if scores[name] >= 0.5)
        assert row[1] == (labels or "none")
        exact = [scores[name] for name in names.values()]
        assert [float(cell) for cell in row[2:]] == pytest.approx(exact, abs=2e-4)
    assert "polynomials" not in shown.split("0.5 or more")[0]


GENERATES = {
    "eos_token_id": [2, 21], "suppress_tokens": [16], "pad_token_id": 0, "use_cache": True,
    "num_beams": 3, "future": 1,
}  # fmt: skip


def test_settings_of_generation_are_said(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(tmp_path)
    write(tmp_path / "generation_config.json", GENERATES)
    said = notes_of(tmp_path)
    assert "2 settings of the folder are not applied" in said
    assert "generation_config.json: num_beams = 3: one text is written" in said
    assert "generation_config.json: future = 1" in said
    assert "pad_token_id" not in said and "use_cache" not in said
    # What a client applies is not said: tests/atlasc/generation/test_folders.py
    found = settings_of(tmp_path)
    assert (found.eos_token_id, found.suppress_tokens) == ((2, 21), (16,))
    encoder = classifier(tmp_path / "encoder", 2)  # writes no text
    write(encoder / "generation_config.json", GENERATES)
    assert notes_of(encoder) == ""


@pytest.mark.parametrize(
    ("file", "facts", "said"),
    [
        (SETTINGS, {"future": 3}, f"{SETTINGS}: future = 3"),
        ("sentence_bert_config.json", {"query_length": 32}, "query_length = 32"),
        ("sentence_bert_config.json", {"processing_kwargs": {"a": 1}}, "processing_kwargs"),
        ("sentence_bert_config.json", {"module_output_name": "other"}, "output_name = other"),
        ("1_Pooling/config.json", {"power": 3}, "1_Pooling/config.json: power = 3"),
        ("modules.json", {"kwargs": ["task"]}, "modules.json: kwargs = ['task']"),
        ("config_setfit.json", {"labels": None}, "the head of SetFit"),
    ],
)
def test_any_other_setting_is_said(tmp_path: Path, file: str, facts: Any, said: str) -> None:
    folder = folder_of(tmp_path / "m")
    if file == "modules.json":
        modules = json.loads((folder / file).read_text())
        write(folder / file, [{**modules[0], **facts}, *modules[1:]])
    else:
        write(folder / file, facts)
    assert "1 setting of the folder is not applied" in notes_of(folder)
    assert said in notes_of(folder)


def test_what_the_library_writes_itself_is_applied_or_harmless(tmp_path: Path) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = folder_of(tmp_path / "m", "Dense", "Normalize", do_lower_case=True)
    library.SentenceTransformer(str(folder)).save_pretrained(str(tmp_path / "again"))
    assert notes_of(tmp_path / "again") == ""
    library.CrossEncoder(str(classifier(tmp_path / "c", 1))).save_pretrained(str(tmp_path / "d"))
    assert notes_of(tmp_path / "d") == ""


def test_the_page_lists_every_known_member() -> None:
    page = (ROOT / "docs" / "model-files.md").read_text(encoding="utf-8")
    for file, reasons in members.HARMLESS.items():
        assert f"`{file}`" in page
        for member, why in reasons.items():
            assert f"`{member}`" in page and why, member


def test_the_tokenizers_own_settings_are_the_librarys(tmp_path: Path) -> None:
    """transformers reads tokenizer_config.json: lower case, added tokens, the end that is cut."""
    tokenizer: PreTrainedTokenizerBase = tokenizer_of("bert", do_lower_case=True)
    tokenizer.truncation_side = "left"
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**{**SIZES, "vocab_size": 12})).eval()
    tokenizer.add_tokens(["zebra"])
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = ["A Cat SAT", "the zebra on a mat sat on the cat", "zebra"]
    library = transformers.AutoTokenizer.from_pretrained(tmp_path)
    wanted = library(texts, truncation=True, max_length=6, padding="max_length")["input_ids"]
    assert inputs_of(texts, load_model(tmp_path), 6).arrays["input_ids"].tolist() == wanted
