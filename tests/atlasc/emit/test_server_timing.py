"""Seconds of each op that a C++ server writes, read by ``atlasc inspect --timing``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atlasc.bundle.folder import load_bundle
from atlasc.ir.errors import AtlasError
from atlasc.program.kinds import OUTSIDE
from atlasc.run.timing import Timing
from tests.atlasc.emit.cpp import Project, command_line, digit_answers, refused, run

TIMES = "times.json"


@pytest.fixture(scope="module")
def folder(digits: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys, a query and the times of its execution."""
    folder = tmp_path_factory.mktemp("timing")
    digit_answers(digits, folder)
    run(execute(digits, "again"), folder)
    return folder


def execute(project: Project, output: str) -> list[object]:
    keys = ("--keys", "keys/evaluation.key", "--program", project.program)
    return [*project.server, *keys, "--query", "query", "--output", output, "--timing", TIMES]


def test_every_op_has_its_seconds(digits: Project, folder: Path) -> None:
    bundle = load_bundle(digits.bundle)
    timing = Timing.load(folder / TIMES, bundle)
    assert (timing.target, timing.runs) == ("sim", 1)
    assert [op["op"] for op in timing.ops] == [op.name for op in bundle.program.ops]
    assert all(op["measured"] == 0 for op in timing.ops if op["op"] in OUTSIDE)
    kinds = {row["kind"]: row["measured"] for row in timing.summary()["per_kind"]}
    assert all(kinds[kind] > 0 for kind in ("linear", "softmax", "layer_norm", "gelu"))
    shown = command_line("inspect", digits.bundle, "--timing", folder / TIMES)
    assert "predicted / measured" in shown


def test_times_that_exist_are_kept(digits: Project, folder: Path) -> None:
    assert f"the output {TIMES} exists already" in refused(execute(digits, "third"), folder)
    assert not (folder / "third").exists()


def test_times_of_other_programs(digits: Project, folder: Path, tmp_path: Path) -> None:
    data = json.loads((folder / TIMES).read_text())
    for damage, message in (
        ({"program": "another"}, "belong to another program"),
        ({"ops": data["ops"][1:]}, "belong to another program"),
        ({"format": 2}, "cannot be read"),
    ):
        (tmp_path / TIMES).write_text(json.dumps(data | damage))
        with pytest.raises(AtlasError, match=message):
            Timing.load(tmp_path / TIMES, load_bundle(digits.bundle))
