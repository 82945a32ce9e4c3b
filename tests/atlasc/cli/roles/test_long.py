"""``--long``: what every command that reads texts does with those that are too long."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_model import LENGTH, write_ids

import atlasc
from tests.atlasc.cli.command import Outcome, refused, run

READING = ("check-input", "run", "encrypt", "embed")
CUT = f"warning: 1 of 2 texts is cut to {LENGTH} tokens"


@pytest.fixture(scope="module")
def folder(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, keys of the simulator, and ids of 3 and of 14 tokens."""
    root = Path(shutil.copytree(texts, tmp_path_factory.mktemp("long") / "texts"))
    write_ids(root / "ids.jsonl", [3, 14])
    run("keygen", root / "bundle", "-o", root / "keys")
    return root


@pytest.mark.parametrize(
    "command", [*READING, pytest.param("compare", marks=pytest.mark.deep("examples"))]
)
def test_commands_that_read_inputs_cut_and_warn_once(
    folder: Path, tmp_path: Path, command: str
) -> None:
    extra = {
        "encrypt": ("--keys", folder / "keys" / "client", "-o", tmp_path / "query"),
        "embed": ("-o", tmp_path / "embedded.safetensors"),
    }.get(command, ())
    call = (command, folder / "bundle", "--input", folder / "ids.jsonl", *extra)
    message = refused(*call, "--long", "refuse")
    assert "a text of 14 tokens is longer than the compiled length 6" in message
    assert "ids.jsonl:2" in message
    outcome = Outcome(call)
    assert outcome.code in (0, 1), outcome.err
    assert outcome.err.count(CUT) == 1
    assert "ids.jsonl:2, has 14 tokens" in outcome.err
    assert "use one of truncate, windows, refuse" in refused(*call, "--long", "no")


def test_windows_are_inputs_of_their_own(folder: Path) -> None:
    call = ("run", folder / "bundle", "--input", folder / "ids.jsonl", "--long", "windows")
    found = json.loads(run(*call, "--json").out)
    names = ["ids.jsonl:1", *(f"ids.jsonl:2 [{part}/3]" for part in (1, 2, 3))]
    assert found["inputs"] == names
    assert json.loads(run(*call, "--json", "--index", "2-3").out)["inputs"] == names[2:]


def test_only_the_chosen_inputs_are_told_of(folder: Path) -> None:
    call = ("check-input", folder / "bundle", "--input", folder / "ids.jsonl")
    assert "cut" not in Outcome((*call, "--index", 0)).err
    assert "1 of 1 texts is cut" in Outcome((*call, "--index", 1)).err
    assert "cut" not in Outcome((*call, "--count", 1)).err


@pytest.mark.parametrize(
    "command", ["calibrate", "compile", pytest.param("search", marks=pytest.mark.deep("search"))]
)
def test_commands_that_read_data_cut_and_warn_once(
    folder: Path, tmp_path: Path, command: str
) -> None:
    write_ids(tmp_path / "data.jsonl", [3, 4, 5, 9] * 3)
    extra = {
        "search": ("--strategy", "hybrid{evaluations=30}"),
        "compile": (
            "--recipe",
            "is",
            "--without",
            "prefixes",
            "--target",
            "sim",
            "-o",
            tmp_path / "made",
        ),
    }.get(command, ())
    data = ("--data", tmp_path / "data.jsonl", "--sequence-length", LENGTH, *extra)
    call = (command, folder / "model", *data)
    assert "9 tokens is longer" in refused(*call, "--long", "refuse")
    outcome = run(*call)
    assert outcome.err.count(f"warning: 3 of 12 texts are cut to {LENGTH} tokens") == 1
    if command == "calibrate":
        found = json.loads(run(*call, "--without", "prefixes", "--long", "windows", "--json").out)
        assert found["inputs"] + found["held_back"] == 12 + 3


def test_the_python_interface_says_it_in_its_warnings(folder: Path) -> None:
    program = atlasc.load(folder / "bundle")
    texts = [[1, 2, 3], list(range(1, 15))]
    cut = program.run(texts)
    assert len(cut.warnings) == 1 and "1 of 2 texts is cut to 6 tokens" in cut.warnings[0]
    (first,) = program.run(texts[:1]).outputs.values()
    assert not program.run(texts[:1]).warnings
    divided = program.run(texts, long="windows")
    assert divided.inputs.names[3] == "data[1] [3/3]" and not divided.warnings
    (outputs,), (whole,) = divided.outputs.values(), cut.outputs.values()
    assert outputs.shape[0] == 4
    np.testing.assert_allclose(outputs[:2], whole, atol=1e-9)
    np.testing.assert_allclose(first[0], whole[0], atol=1e-9)
    assert len(program.check(texts, long="windows")) == 4
    for refusal in (program.run, program.check, program.inputs):
        with pytest.raises(atlasc.AtlasError, match="14 tokens is longer"):
            refusal(texts, long="refuse")
    notes: list[str] = []
    client = atlasc.Client(program, folder / "keys")
    assert client.encrypt(texts, note=lambda headline, _: notes.append(headline))
    assert "1 of 2 texts is cut to 6 tokens" in notes
    with pytest.raises(atlasc.AtlasError, match="14 tokens is longer"):
        client.encrypt(texts, long="refuse")


def test_a_compiled_program_keeps_the_warnings_of_its_data(folder: Path, tmp_path: Path) -> None:
    write_ids(tmp_path / "data.jsonl", [3, 4, 5, 9] * 3)
    program = atlasc.compile(
        folder / "model", tmp_path / "data.jsonl", recipe="is", target="sim",
        sequence_length=LENGTH, prefixes=False,
    )  # fmt: skip
    (warning,) = program.warnings
    assert warning.startswith("3 of 12 texts are cut to 6 tokens\n")
    assert atlasc.load(program.folder).warnings == ()
