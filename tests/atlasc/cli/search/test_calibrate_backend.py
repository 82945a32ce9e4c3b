"""calibrate-backend and --costs: where tables are kept, and what is said of strange ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from atlasc.targets.cost_table import VARIABLE, CostTable, load, own_place
from atlasc_comparisons.desilo.calibration import DesiloCalibrator
from tests.atlasc.cli.command import DATA, MODEL, refused, run

sys.path.insert(0, str(Path(__file__).parents[2] / "targets"))

from cost_tables import MACHINE, table_of

from atlasc_comparisons.desilo.parameters import LEVELED, DesiloParameters

DESILO = ("--target", "desilo")
INSPECT = ("inspect", MODEL, *DESILO)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CostTable:
    """What calibrate returns here, without measuring; the user's own folder is a new one."""
    table = table_of([DesiloParameters(16, 4), DesiloParameters(14, 1)], note="a remark")
    monkeypatch.setattr(DesiloCalibrator, "__call__", lambda *_, **__: table)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return table


@pytest.mark.encrypted
def test_a_table_of_the_user_is_used_from_then_on(measured: CostTable) -> None:
    before = json.loads(run(*INSPECT, "--json").out)["seconds"]
    done = run("calibrate-backend", *DESILO)
    assert "2^16, 4" in done.out and str(own_place("desilo")) in done.out
    assert "a remark" in done.err
    assert load(own_place("desilo")).note == "a remark"
    after = run(*INSPECT, "--json")
    assert json.loads(after.out)["seconds"] != before
    assert f"measured on {MACHINE}" in after.err and "calibrate-backend" in after.err
    run("calibrate-backend", *DESILO, "--note", "again")  # which replaces the first one


@pytest.mark.encrypted
def test_a_table_in_another_place(measured: CostTable, tmp_path: Path) -> None:
    place = tmp_path / "mine.json"
    run("calibrate-backend", *DESILO, "--quick", "--output", place)
    assert not own_place("desilo").exists()
    shipped = json.loads(run(*INSPECT, "--json").out)["seconds"]
    mine = json.loads(run(*INSPECT, "--json", "--costs", place).out)["seconds"]
    assert mine != shipped


def test_bad_places_and_targets(tmp_path: Path) -> None:
    assert "no primitives to measure" in refused("calibrate-backend", "--target", "sim")
    assert "no target 'wrong'" in refused("calibrate-backend", "--target", "wrong")


@pytest.mark.encrypted
def test_a_place_that_cannot_be(tmp_path: Path) -> None:
    assert "does not end in .json" in refused("calibrate-backend", "-o", tmp_path / "t.txt")
    assert "does not exist" in refused("calibrate-backend", "-o", tmp_path / "no" / "t.json")


@pytest.mark.parametrize(
    "command",
    [
        ("inspect", MODEL),
        ("compile", MODEL, "--data", DATA, "-o", "build"),
        ("lower", MODEL, "-o", "build"),
        ("search", MODEL, "--data", DATA, "--cost", "latency"),
    ],
)
def test_damaged_and_missing_tables(
    command: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_text("{}")
    message = refused(*command, "--costs", "t.json")
    assert "the cost table t.json is damaged" in message and "calibrate-backend" in message
    assert "cannot be read" in refused(*command, "--costs", "none.json")
    assert [path.name for path in tmp_path.iterdir()] == ["t.json"]


def test_a_table_of_another_version_and_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = table_of(LEVELED, library="0.1").text()
    (tmp_path / "old.json").write_text(text)
    (tmp_path / "other.json").write_text(text.replace('"desilo"', '"other"'))
    known = json.loads(run(*INSPECT, "--json").out)["seconds"]
    other = run(*INSPECT, "--json", "--costs", tmp_path / "other.json")
    assert "belongs to the target other" in other.err
    assert json.loads(other.out)["seconds"] == known
    old = run(*INSPECT, "--json", "--costs", tmp_path / "old.json")
    assert str(MACHINE) in old.err
    assert VARIABLE not in os.environ  # a table is for one command alone
