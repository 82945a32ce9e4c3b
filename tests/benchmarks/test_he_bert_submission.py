"""The folder that is submitted to the BERT workload, its README, and what is refused for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from text_models import text_model, tokenizer_of

import atlasc
from benchmarks.he_bert import submission
from benchmarks.he_bert.evidence import measured_in
from benchmarks.he_bert.stages import STAGES, write_lines

TOKENS = 12


def pair_model(folder: Path, **changes: Any) -> Path:
    """A tiny BERT with two classes, or with another config."""
    from transformers import BertConfig, BertForSequenceClassification

    base = text_model("bert").config
    assert base is not None
    config = BertConfig(**base.to_dict() | {"num_labels": 2} | changes)
    BertForSequenceClassification(config).save_pretrained(folder)
    tokenizer_of("bert").save_pretrained(folder)
    return folder


def command(monkeypatch: Any, *words: object) -> None:
    """Run the command."""
    monkeypatch.setattr(sys, "argv", ["submission", *map(str, words)])
    submission.main()


def record(seconds: float, right: int | None = None) -> dict[str, Any]:
    """A record as the harness writes it, of a single pair or of ten."""
    found: dict[str, Any] = {
        "model_name": "bert-base", "dataset_name": "mrpc",
        "Timing": {"Key Generation": f"{seconds}s", "Total": f"{2 * seconds}s"},
        "Bandwidth": {"Encrypted input": "17.9M"},
        "Server Reported": {"Total": f"{seconds}s"},
    }  # fmt: skip
    if right is not None:
        quality = {"correct_predictions": right, "total_samples": 10, "accuracy": right / 10}
        found["Quality"] = {"Encrypted model quality": quality}
    return found


def write_records(folder: Path, instance: str, records: list[dict[str, Any]]) -> None:
    """Where the harness writes them."""
    (folder / instance).mkdir(parents=True)
    for number, one in enumerate(records, 1):
        place = folder / instance / f"results-{number}.json"
        place.write_text(json.dumps(one), encoding="utf-8")


@pytest.mark.deep("benchmarks")
def test_the_folder_for_a_gpu_says_that_it_was_not_run(tmp_path: Path, monkeypatch: Any) -> None:
    words = ["a cat", "the mat sat", "a cat sat on the mat", "on a mat"]
    rows = [
        {"sentence1": one, "sentence2": other, "label": one < other}
        for one in words for other in words
    ] * 3  # fmt: skip
    write_lines(tmp_path / "pairs.jsonl", rows)
    folder = tmp_path / "submissions"
    command(
        monkeypatch, "--target", "cuda", "--model", pair_model(tmp_path / "model"),
        "--calibration", tmp_path / "pairs.jsonl", "--labelled", tmp_path / "pairs.jsonl",
        "--tokens", TOKENS, "--recipe", "is", "-o", folder,
    )  # fmt: skip
    assert {f"{stage.__name__}.py" for stage in STAGES} <= {one.name for one in folder.iterdir()}
    for role in ("client", "server"):
        assert atlasc.load(folder / "program" / role).target == "cuda"
    install = folder / "install.sh"
    assert "ATLASC_ENGINE=cuda CUDAARCHS=" in install.read_text("utf-8")
    assert subprocess.run(["sh", "-n", install]).returncode == 0 and os.access(install, os.X_OK)
    facts = json.loads((folder / "parameters.json").read_text("utf-8"))
    assert facts["quality"]["inputs"] == len(rows) and facts["secrets"][1]["weight"] == 32
    page = (folder / "README.md").read_text("utf-8")
    for said in (
        "neither built nor run", "Nothing was measured", "no table for sparse secrets", "164.58",
        "attention_mask, so how many tokens", "CUDA toolkit", f"{facts['sent']['query']:,} bytes",
    ):  # fmt: skip
        assert said in page
    with tarfile.open(folder / facts["archive"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "atlasc/ir/module.py", "atlasc/runtime_cuda/CMakeLists.txt"} <= names
    assert not any(name.endswith((".so", ".pyc")) for name in names)

    write_records(tmp_path / "measurements", "single", [record(10), record(20), record(60)])
    write_records(tmp_path / "measurements", "small", [record(100, 8), record(300, 9)])
    again = ("--measurements", tmp_path / "measurements", "-o", folder)
    with pytest.raises(SystemExit, match="name it and its GPU"):
        command(monkeypatch, *again)
    command(monkeypatch, *again, "--machine", "one H200")
    page = (folder / "README.md").read_text("utf-8")
    for said in (
        "by the harness on one H200", "### Single, 3 runs", "| Key Generation | 30.0 |",
        "### Small, 2 runs", "| Total | 400.0 |",
        "| Encrypted model quality | 8 of 10; 9 of 10 |", "| Encrypted input | 17.9M |",
    ):  # fmt: skip
        assert said in page
    assert "neither built nor run" not in page and "Nothing was measured" not in page


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"num_labels": 3}, "it has 3 classes"),
        ({"max_position_embeddings": 10}, "it reads 10 tokens, not 12"),
    ],
)
def test_a_model_of_another_shape_is_refused_before_the_search(
    changes: dict[str, int], why: str, tmp_path: Path, monkeypatch: Any
) -> None:
    with pytest.raises(SystemExit, match=why):
        command(
            monkeypatch, "--model", pair_model(tmp_path / "model", **changes),
            "--calibration", "none", "--tokens", TOKENS, "-o", tmp_path / "new",
        )  # fmt: skip
    assert not (tmp_path / "new").exists()


def test_a_model_without_classes_is_refused(tmp_path: Path) -> None:
    from transformers import BertModel

    BertModel(text_model("bert").config).save_pretrained(tmp_path)
    with pytest.raises(atlasc.AtlasError, match="it is a BertModel"):
        submission.require_shape(str(tmp_path), TOKENS)


def test_a_model_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    given = ("--calibration", "none", "-o", tmp_path / "new")
    with pytest.raises(SystemExit, match=r"nothing not found(.|\n)*hf download"):
        command(monkeypatch, "--model", "nothing", *given)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SystemExit, match="is empty"):
        command(monkeypatch, "--model", tmp_path / "empty", *given)


def test_a_folder_that_exists_is_not_overwritten(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(SystemExit, match="exists already"):
        command(monkeypatch, "--calibration", "none", "-o", tmp_path)


def test_only_a_folder_of_this_command_gets_a_new_readme(tmp_path: Path, monkeypatch: Any) -> None:
    with pytest.raises(SystemExit, match="is no folder of a submission"):
        command(monkeypatch, "--measurements", tmp_path, "-o", tmp_path)


@pytest.mark.parametrize("words", [(), ("--calibration", "a", "--measurements", "b")])
def test_it_is_either_made_or_renewed(
    words: tuple[str, ...], monkeypatch: Any, capsys: Any
) -> None:
    with pytest.raises(SystemExit):
        command(monkeypatch, "-o", "new", *words)
    assert "give --calibration to make the folder" in capsys.readouterr().err


def test_records_are_read_as_the_harness_writes_them(tmp_path: Path) -> None:
    with pytest.raises(atlasc.AtlasError, match="has no records"):
        measured_in(tmp_path)
    write_records(tmp_path, "single", [record(1), record(2)])
    (found,) = measured_in(tmp_path)["instances"]
    assert (found["name"], found["runs"], found["seconds"]["Total"]) == ("single", 2, 3.0)
    assert found["quality"] == {}
    shutil.rmtree(tmp_path / "single")
    for damaged in ({"Timing": {}}, [], {"Timing": {"Total": "soon"}, "Server Reported": {}}):
        shutil.rmtree(tmp_path / "small", ignore_errors=True)
        write_records(tmp_path, "small", [damaged])  # type: ignore[list-item]
        with pytest.raises(atlasc.AtlasError, match="is no record of the harness"):
            measured_in(tmp_path)
