"""``atlasc run``: answers, warnings before encryption, and everything that a user can get wrong."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from tiny_model import Tiny, simulated
from typer.testing import CliRunner

from atlasc.bundle.folder import load_bundle
from atlasc.cli import app
from atlasc.ir.layout import Layout
from atlasc.targets import machine
from atlasc_comparisons.desilo import library as desilo_library


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def refused(*arguments: str | Path) -> str:
    """The message of a command that exits with 2 and prints no result."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "error: " in result.stderr
    return result.stderr


def test_json_has_outputs_errors_and_time(tiny: Tiny) -> None:
    result = run(tiny.bundle, "--input", tiny.data, "--count", "5", "--json")
    assert result.exit_code == 0, result.stderr
    record = json.loads(result.stdout)
    assert set(record) >= {"outputs", "max_error", "mean_error", "seconds", "target"}
    assert record["target"] == "sim"
    assert 0 <= record["mean_error"] <= record["max_error"] <= 1e-12
    assert record["seconds"] == pytest.approx(sum(record["phases"].values()))
    expected = simulated(load_bundle(tiny.bundle), tiny.data, list(range(5)))["output"]
    assert np.abs(np.array(record["outputs"]["output"]) - expected).max() <= 1e-12
    assert record["refused"] == {}


def test_index_chooses_inputs_in_that_order(tiny: Tiny) -> None:
    result = run(tiny.bundle, "--input", tiny.data, "--index", "7,0,3-4", "--json")
    record = json.loads(result.stdout)
    assert record["inputs"] == [f"images.npz[{row}]" for row in (7, 0, 3, 4)]
    expected = simulated(load_bundle(tiny.bundle), tiny.data, [7, 0, 3, 4])["output"]
    assert np.abs(np.array(record["outputs"]["output"]) - expected).max() <= 1e-12


def test_the_table_shows_answers_and_errors(tiny: Tiny) -> None:
    result = run(tiny.bundle, "--input", tiny.data, "--count", "2")
    assert result.exit_code == 0, result.stderr
    for text in ("images.npz[1]", "polynomials", "from the model", "execute"):
        assert text in result.stdout


def test_outputs_can_be_written(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "answers.npz"
    assert run(tiny.bundle, "--input", tiny.data, "--count", "3", "-o", path).exit_code == 0
    with np.load(path) as file:
        assert file["output"].shape == (3, 3)
    assert "exists already" in refused(tiny.bundle, "--input", tiny.data, "-o", path)


# --- unsafe inputs


def test_an_unsafe_input_costs_only_itself(tiny: Tiny, wild: Path, tmp_path: Path) -> None:
    result = run(tiny.bundle, "--input", wild, "--count", "3", "--json", "-o", tmp_path / "a.npz")
    assert result.exit_code == 3
    assert "warning: 1 input is left out" in result.stderr
    assert "wild.npz[1]: an argument of softmax" in result.stderr
    assert "wild.npz[0]" not in result.stderr
    found = json.loads(result.stdout)
    assert list(found["refused"]) == ["wild.npz[1]"]
    answers = found["outputs"]["output"]
    assert answers[1] is None
    expected = simulated(load_bundle(tiny.bundle), wild, [0, 2])["output"]
    assert np.abs(np.array([answers[0], answers[2]]) - expected).max() <= 1e-12
    with np.load(tmp_path / "a.npz") as file:
        assert np.isnan(file["output"]).all(axis=1).tolist() == [False, True, False]


def test_unchecked_takes_unsafe_inputs(tiny: Tiny, wild: Path) -> None:
    result = run(tiny.bundle, "--input", wild, "--count", "3", "--json", "--unchecked")
    assert result.exit_code == 0, result.stderr
    assert "warning: 1 input is unsafe: all answers of the batch may be wrong" in result.stderr
    assert None not in json.loads(result.stdout)["outputs"]["output"]


def test_strict_refuses_unsafe_inputs(tiny: Tiny, wild: Path, tmp_path: Path) -> None:
    message = refused(tiny.bundle, "--input", wild, "--strict", "-o", tmp_path / "x.npz")
    assert "wild.npz[1]: an argument of softmax" in message
    assert not (tmp_path / "x.npz").exists()
    assert run(tiny.bundle, "--input", wild, "--strict", "--index", "0,2").exit_code == 0


# --- what a user can get wrong


def test_missing_bundle_and_missing_input(tiny: Tiny, tmp_path: Path) -> None:
    assert "not found" in refused(tmp_path / "nothing", "--input", tiny.data)
    assert "is not a compiled bundle" in refused(tmp_path, "--input", tiny.data)
    assert "x.npz not found" in refused(tiny.bundle, "--input", tmp_path / "x.npz")


def test_changed_and_foreign_bundles(tiny: Tiny, tmp_path: Path) -> None:
    changed = Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))
    with (changed / "server" / "program.air").open("a") as file:
        file.write("\n")
    assert "program.air was changed" in refused(changed, "--input", tiny.data)
    manifest = json.loads((changed / "manifest.json").read_text())
    (changed / "manifest.json").write_text(json.dumps(manifest | {"format": 99}))
    message = refused(changed, "--input", tiny.data)
    assert "bundle format 99" in message
    assert "compile the model again" in message


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pixel_values": np.zeros((2, 1, 8, 8), np.int64)}, "must be floats"),
        ({"pixel_values": np.zeros((2, 1, 9, 8), np.float32)}, "images of shape (1, 9, 8)"),
        ({"pixel_values": np.full((2, 1, 8, 8), np.nan, np.float32)}, "not fit to be encrypted"),
        ({"pixels": np.zeros((2, 1, 8, 8), np.float32)}, "does not have the model's inputs"),
        ({"pixel_values": np.zeros((0, 1, 8, 8), np.float32)}, "is empty"),
    ],
)
def test_data_of_the_wrong_kind(
    tiny: Tiny, tmp_path: Path, arrays: dict[str, np.ndarray], message: str
) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)  # type: ignore[arg-type]
    assert message in refused(tiny.bundle, "--input", tmp_path / "bad.npz")


def test_text_for_a_vision_model(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "texts.txt").write_text("some words\n")
    message = refused(tiny.bundle, "--input", tmp_path / "texts.txt")
    assert "the model reads pixel_values" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--index", "24"), "it has the inputs 0 to 23"),
        (("--index", "a"), "not a list of numbers"),
        (("--index", "-1"), "not a list of numbers"),
        (("--index", "4-2"), "not a list of numbers"),
        (("--index", "0,4-2"), "not a list of numbers"),
        (("--index", "0-"), "not a list of numbers"),
        (("--index", "0-9999999999"), "it has the inputs 0 to 23"),
        (("--index", "9" * 5000), "it has the inputs 0 to 23"),
        (("--count", "25"), "the file has 24"),
        (("--count", "1", "--index", "0"), "exclude each other"),
        (("--target", "gpu"), "there is no target 'gpu'"),
    ],
)
def test_options_that_make_no_sense(tiny: Tiny, options: tuple[str, str], message: str) -> None:
    assert message in refused(tiny.bundle, "--input", tiny.data, *options)


def test_a_missing_library_is_said_before_any_work(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(desilo_library.importlib.metadata, "version", missing)
    message = refused(tiny.bundle, "--input", tiny.data, "--target", "desilo")
    assert "desilofhe" in message
    assert "pip install desilofhe==1.17.0" in message


@pytest.mark.encrypted
def test_too_little_memory_is_said_before_keys_are_made(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: 2**27)
    message = refused(tiny.bundle, "--input", tiny.data, "--target", "cpu", "--count", "1")
    assert "not enough memory for the evaluation keys" in message
    assert "GiB are needed, but 0.1 GiB are available" in message


# --- answers that are none


def test_an_answer_that_is_none_has_an_exit_code_of_its_own(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from atlasc.run import session
    from tests.atlasc.client.owners import owners

    (output,) = load_bundle(tiny.bundle).client.interface.outputs
    owner = owners(Layout.parse(output.layout), [2, 3], 2)
    decrypt_all = session.decrypt_all

    def exploded(*given: Any) -> dict[str, np.ndarray]:
        slots = decrypt_all(*given)
        slots["output"][owner >= 3] *= 1e8
        return slots

    monkeypatch.setattr(session, "decrypt_all", exploded)
    arguments = (tiny.bundle, "--input", tiny.data, "--count", "2")
    result = run(*arguments, "--json", "-o", tmp_path / "a.npz")
    assert result.exit_code == 3
    record = json.loads(result.stdout)
    assert list(record["refused"]) == ["images.npz[1]"]
    assert record["outputs"]["output"][1] is None
    assert np.isfinite(record["outputs"]["output"][0]).all()
    assert record["max_error"] <= 1e-12
    assert "images.npz[1]: 100.0% of its slots" in result.stderr
    with np.load(tmp_path / "a.npz") as file:
        assert np.isnan(file["output"][1]).all()
    table = run(*arguments)
    assert table.exit_code == 3
    assert "images.npz[0]" in table.stdout
    unchecked = run(*arguments, "--json", "--unchecked")
    assert unchecked.exit_code == 0
    assert abs(json.loads(unchecked.stdout)["outputs"]["output"][1][0]) > 1e6
    assert "1 input has no answer" in unchecked.stderr
