"""The nine stages of the BERT workload, a process each, on a tiny model that reads pairs."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path
from typing import Any

import pytest
from text_models import WORDS, text_model, tokenizer_of

import atlasc
from benchmarks.he_bert import sequence, stages, true_shape
from benchmarks.he_bert.evidence import facts_of
from benchmarks.he_bert.stages import INSTANCES, Places, read_lines, write_lines
from benchmarks.he_bert.submission import write

COUNT, TOKENS, RUNS = 3, 12, 2
STEPS = (
    "Test dataset generation", "Key Generation", "Encrypted model preprocessing",
    "Input generation", "Input preprocessing", "Input encryption", "Encrypted computation",
    "Result decryption", "Result postprocessing",
    "Harness: Run inference for harness plaintext model", "Harness: Run quality check", "Total",
)  # fmt: skip
"""As the harness names them."""


def pairs(count: int) -> list[dict[str, Any]]:
    """Random pairs of two to four words."""
    chosen = random.Random(0)

    def text() -> str:
        return " ".join(chosen.choices(WORDS, k=chosen.randint(2, 4)))

    return [{"sentence1": text(), "sentence2": text(), "label": i % 2} for i in range(count)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder with a whole submission for the simulator, with a batch of 2; all steps ran in it,
    those of a run twice; and their last record.
    """
    folder = tmp_path_factory.mktemp("harness")
    source = folder / "source"
    text_model("bert").module.save_pretrained(source / "model")
    tokenizer_of("bert").save_pretrained(source / "model")
    rows = pairs(40)
    write_lines(source / "test.jsonl", rows)
    program = atlasc.compile(
        source / "model", rows, recipe="is", target="sim", sequence_length=TOKENS, batch=2
    )
    facts = facts_of(program, "tiny") | {"engine": "cpu"}  # which the simulator's sources build
    write(program, folder / "submissions", facts)
    record, path = sequence.run_sequence(Path(os.path.relpath(folder)), source, COUNT, RUNS)
    assert path.name == f"results-{RUNS}.json"
    assert json.loads(path.read_text(encoding="utf-8")) == record
    return folder, record


@pytest.mark.deep("benchmarks")
def test_the_record_has_what_the_harness_writes(run: tuple[Path, dict[str, Any]]) -> None:
    _, record = run
    assert record.keys() == {
        "model_name", "dataset_name", "Timing", "Bandwidth", "Quality", "Server Reported",
        "Peak Memory",
    }  # fmt: skip
    assert list(record["Timing"]) == list(STEPS)
    assert all(float(text.removesuffix("s")) > 0 for text in record["Timing"].values())
    assert record["Bandwidth"].keys() == {
        "Public and evaluation keys", "Packed model weights", "Encrypted input",
        "Encrypted results",
    }  # fmt: skip
    assert "0.0B" not in record["Bandwidth"].values()
    assert record["Quality"]["Encrypted model quality"]["total_samples"] == COUNT
    assert record["Server Reported"].keys() == {"Encrypted computation", "I/O", "Total"}
    assert record["Peak Memory"].keys() == record["Timing"].keys() - {sequence.CHECK, "Total"}


@pytest.mark.deep("benchmarks")
def test_the_classes_are_the_models(run: tuple[Path, dict[str, Any]]) -> None:
    folder, record = run
    places = Places.of(sequence.SIZE, folder)
    clear = sequence.clear_classes(places).read_text(encoding="utf-8")
    assert places.predictions.read_text(encoding="utf-8") == clear
    assert len(clear.split()) == COUNT
    quality = record["Quality"]
    assert quality["Encrypted model quality"] == quality["Harness model quality"]
    assert len(list((places.io / "ciphertexts_upload").iterdir())) == 2  # batches


@pytest.mark.deep("benchmarks")
def test_the_server_has_its_part_alone(run: tuple[Path, dict[str, Any]]) -> None:
    places = Places.of(sequence.SIZE, run[0], run[0] / "submissions")
    assert (places.server / "server").is_dir() and not (places.server / "client").exists()
    assert (places.client / "client").is_dir() and not (places.client / "server").exists()


MISSING: dict[str, tuple[str, str]] = {
    "client_key_generation": ("client", "benchmarks.he_bert.submission"),
    "server_preprocess_model": ("server", "benchmarks.he_bert.submission"),
    "client_preprocess_input": ("test_input.txt", "step before"),
    "client_encode_encrypt_input": ("secret_key", "client_key_generation"),
    "server_encrypted_compute": ("program", "server_preprocess_model"),
    "client_decrypt_decode": ("secret_key", "client_key_generation"),
    "client_postprocess": ("decrypted_results.jsonl", "client_decrypt_decode"),
}
"""What each stage misses first in an empty folder, and what makes it."""


@pytest.mark.parametrize("stage", stages.STAGES, ids=lambda stage: stage.__name__)
def test_a_stage_names_what_it_misses_and_what_makes_it(stage: Any, tmp_path: Path) -> None:
    name, maker = MISSING[stage.__name__]
    with pytest.raises(atlasc.AtlasError, match=rf"{name} not found(.|\n)*{maker} makes it"):
        stage(Places.of(sequence.SIZE, tmp_path, tmp_path))


def test_the_server_misses_its_keys_alone(tmp_path: Path) -> None:
    places = Places.of(sequence.SIZE, tmp_path, tmp_path)
    places.server.mkdir(parents=True)
    with pytest.raises(atlasc.AtlasError, match="public_keys not found"):
        stages.server_encrypted_compute(places)


def test_keys_are_not_overwritten(tmp_path: Path) -> None:
    places = Places.of(sequence.SIZE, tmp_path, tmp_path)
    for folder in (places.client, places.public_keys):
        folder.mkdir(parents=True)
    with pytest.raises(atlasc.AtlasError, match="has keys already"):
        stages.client_key_generation(places)


@pytest.mark.parametrize("words", [(), ("4",), ("small",), ("-1",), ("1", "2")])
def test_a_stage_says_what_it_is_called_with(words: tuple[str, ...], monkeypatch: Any) -> None:
    monkeypatch.setattr(sys, "argv", ["stage", *words])
    with pytest.raises(SystemExit, match=f"one of {', '.join(map(str, range(len(INSTANCES))))}"):
        stages.main("client_postprocess")


def test_an_answer_that_is_none_is_a_wrong_class(tmp_path: Path) -> None:
    places = Places.of(sequence.SIZE, tmp_path)
    write_lines(places.logits, [{"he_logits": [0.1, 0.7]}, {"he_logits": []}])
    stages.client_postprocess(places)
    assert places.predictions.read_text(encoding="utf-8").split() == ["1", "-1"]
    labels = tmp_path / "labels.txt"
    labels.write_text("1\n0\n", encoding="utf-8")
    assert sequence.quality(labels, places.predictions)["accuracy"] == 0.5


def test_a_step_that_fails_stops_the_sequence(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="Test dataset generation failed"):
        sequence.run_sequence(tmp_path, tmp_path / "nothing", COUNT)


def test_memory_is_that_of_the_step_alone(tmp_path: Path) -> None:
    held = b"1" * 300_000_000  # by this process, which starts the step
    small = sequence.timed([sys.executable, "-c", "pass"], tmp_path, "small")
    large = sequence.timed([sys.executable, "-c", "b'1' * 100_000_000"], tmp_path, "large")
    assert small.memory < 100_000_000 < large.memory < len(held)


def test_pairs_that_were_read_are_those_that_were_written(tmp_path: Path) -> None:
    write_lines(tmp_path / "new" / "rows.jsonl", pairs(3))
    assert read_lines(tmp_path / "new" / "rows.jsonl") == pairs(3)


def test_pairs_of_the_true_shape_fill_most_of_its_tokens(tmp_path: Path, monkeypatch: Any) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    shape = true_shape.configuration() | small | {"intermediate_size": 8}
    monkeypatch.setattr(true_shape, "configuration", lambda: shape)
    true_shape.write(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    for name in ("calibration", "test"):
        for row in read_lines(tmp_path / f"{name}.jsonl"):
            read = tokenizer(row["sentence1"], row["sentence2"])
            assert true_shape.TOKENS / 2 < len(read["input_ids"]) <= true_shape.TOKENS
            assert set(read["token_type_ids"]) == {0, 1}
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert model.config.num_labels == 2


def test_attention_of_the_true_shape_attends(tmp_path: Path, monkeypatch: Any) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    shape = true_shape.configuration() | {"num_hidden_layers": 1}
    monkeypatch.setattr(true_shape, "configuration", lambda: shape)
    true_shape.write(tmp_path)
    row = read_lines(tmp_path / "test.jsonl")[0]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    read = tokenizer(row["sentence1"], row["sentence2"], return_tensors="pt")
    model = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "model", attn_implementation="eager"
    )
    with torch.no_grad():
        (weights,) = model.eval()(**read, output_attentions=True).attentions
    entropy = -(weights * weights.clamp_min(1e-30).log()).sum(-1)
    assert 2 < entropy.exp().mean() < read["input_ids"].shape[1] / 3
