"""Cost tables as files: nothing is lost, damage is named, and the right one is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cost_tables import MACHINE, table_of

from atlasc.ir.errors import AtlasError
from atlasc.program.counting_engine import COST_KINDS
from atlasc.targets import cost_table as cost_files
from atlasc.targets import find_target
from atlasc.targets.cost_table import (
    VARIABLE,
    CostTable,
    active_table,
    cost_warning,
    load,
    own_place,
    shipped_place,
)
from atlasc.targets.costs import FittedCosts, fitted_costs
from atlasc.targets.machine import Machine
from atlasc_comparisons.desilo.parameters import DesiloParameters

SMALL = DesiloParameters(14, 1)


def found(backend: str) -> CostTable:
    table = active_table(backend)
    assert table is not None
    return table


def written(path: Path, **facts: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(table_of([SMALL], **facts).text())
    return path


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    table = table_of([SMALL, DesiloParameters(15, 2)], other_work=0.25, note="a note")
    path = tmp_path / "t.json"
    path.write_text(table.text())
    read = load(path)
    assert (read.backend, read.library, read.date) == ("desilo", "1.17.0", "2026-01-01")
    assert (read.machine, read.bootstrap) == (table.machine, table.bootstrap)
    assert (read.other_work, read.note, read.path) == (0.25, "a note", path)
    for one, other in zip(read.sets, table.sets, strict=True):
        assert one.parameters == other.parameters
        for name, seconds in other.seconds.items():
            assert one.seconds[name] == pytest.approx(seconds, rel=1e-3)


def test_the_table_that_ships_is_whole() -> None:
    table = load(shipped_place("desilo"))
    assert table.bootstrap is not None
    assert {one.parameters["log_ring_degree"] for one in table.sets} == {14, 15, 16}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_the_tables_of_our_engine_price_every_primitive(target: str) -> None:
    table = load(shipped_place(target))
    kind = find_target(target).parameters
    assert {one.parameters["log_ring_degree"] for one in table.sets} == {14, 15, 16}
    for one in table.sets:
        costs = FittedCosts(table, kind.from_dict(one.parameters)).costs()
        bootstraps = {"bootstrap", "bootstrap_one", "bootstrap_narrow"}
        assert {name for name, _ in costs} >= {*COST_KINDS} - bootstraps
        assert all(seconds > 0 for seconds in costs.values())
    assert table.bootstrap is not None
    assert table.bootstrap.measured or "not measured" in table.note


def test_a_number_costs_as_a_vector_where_a_table_does_not_tell_them_apart() -> None:
    costs = FittedCosts(found("cpu"), find_target("cpu").parameters.bootstrapped()).costs()
    assert all(costs["add_scalar", at] == costs["add_plain", at] for at in range(19))
    costs = FittedCosts(found("cuda"), find_target("cuda").parameters.bootstrapped()).costs()
    assert all(5 * costs["add_scalar", at] < costs["add_plain", at] for at in range(1, 19))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d.update(format=99), "format is 99, but this version reads format 1"),
        (lambda d: d.pop("machine"), "machine: Field required"),
        (lambda d: d.update(sets=[]), "sets: "),
        (lambda d: d["sets"][0]["seconds"]["mul"].update({"1": -1}), "mul.1: "),
        (lambda d: d["sets"][0]["seconds"]["mul"].update({"1": "fast"}), "mul.1: "),
        (lambda d: d["sets"][0]["seconds"].update(mul={}), "seconds.mul: "),
        (lambda d: d.update(more=1), "more: "),
        (lambda d: d["sets"][0]["seconds"]["mul"].update({"9999": 1.0}), "mul.9999"),
        (lambda d: d["bootstrap"].update(seconds=float("inf")), "bootstrap.seconds: "),
        (lambda d: d["sets"][0]["parameters"].update(special_primes=99), "no usable parameters"),
    ],
)
def test_damage_is_named(
    tmp_path: Path, change: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = json.loads(table_of([SMALL]).text())
    change(data)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(data))
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(AtlasError, match="is damaged") as caught:
        fitted_costs(DesiloParameters(16, 4))
    assert why in caught.value.why
    assert "calibrate-backend" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "[]", "{", "\x00"])
def test_what_is_no_table(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(AtlasError, match="is damaged"):
        load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="cannot be read"):
        load(tmp_path / "t.json")


def test_named_before_own_before_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert found("desilo").path == shipped_place("desilo")
    own = written(own_place("desilo"))
    assert own.is_relative_to(tmp_path)
    assert found("desilo").path == own
    monkeypatch.setenv(VARIABLE, str(written(tmp_path / "named.json")))
    assert found("desilo").path == tmp_path / "named.json"


def test_a_file_that_changes_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(written(tmp_path / "t.json", note="one")))
    assert found("desilo").note == "one"
    written(tmp_path / "t.json", note="another")
    assert found("desilo").note == "another"


def test_a_warning_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost_files, "this_machine", lambda: MACHINE)
    monkeypatch.setenv(VARIABLE, str(written(tmp_path / "t.json")))
    assert cost_warning("desilo", "1.17.0") == cost_warning("desilo", None) == ""
    assert "version 1.17.0 was measured, but 1.18.0 is installed" in cost_warning(
        "desilo", "1.18.0"
    )
    for other in (Machine("Test 9001", 2, 16.0), Machine("Test 9000", 4, 16.0)):
        monkeypatch.setattr(cost_files, "this_machine", lambda other=other: other)
        found = cost_warning("desilo", "1.18.0")
        assert str(MACHINE) in found and "version 1.17.0" in found
        assert "\n" not in found and "atlasc calibrate-backend" in found
    memory = Machine("Test 9000", 2, 64.0)
    monkeypatch.setattr(cost_files, "this_machine", lambda: memory)
    assert cost_warning("desilo", "1.17.0") == ""
    assert cost_warning("unknown", None) == ""


def test_a_table_of_another_backend_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.json"
    path.write_text(table_of([SMALL]).text().replace('"desilo"', '"other"'))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, str(path))
    assert found("desilo").path == shipped_place("desilo")
    assert "belongs to the target other" in cost_warning("desilo", None)
