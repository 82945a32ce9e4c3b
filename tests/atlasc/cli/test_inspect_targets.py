"""``inspect`` of a program: the costs of the target that is named, or why not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atlasc.cli.commands.inspect import COLUMNS
from atlasc.report.report_page import COUNTS
from tests.atlasc.cli.command import DATA, MODEL, refused, run


def test_a_figure_has_one_name() -> None:
    both = COLUMNS.keys() & COUNTS.keys()
    assert len(both) == len(COUNTS)
    assert {key: COLUMNS[key] for key in both} == COUNTS


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("inspected") / "program"
    run("compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "cpu", "-o", place)
    return place


def test_the_seconds_are_those_of_the_named_target(bundle: Path) -> None:
    own, cpu, cuda = (
        json.loads(run("inspect", bundle, *target, "--json").out)
        for target in ((), ("--target", "cpu"), ("--target", "cuda"))
    )
    assert (own["seconds"], own["machine"]) == (cpu["seconds"], cpu["machine"])
    assert "NVIDIA" in cuda["machine"] and "NVIDIA" not in own["machine"]
    assert cuda["seconds"] < own["seconds"] and cuda["device_bytes"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--target", "desilo"), "the target desilo cannot run a program that was lowered for cpu"),
        (("--target", "nobody"), "there is no target 'nobody'"),
        (("--batch", 3), "--batch changes nothing of"),
        (("--recipe", "nexus"), "--recipe changes nothing of"),
        (("--target", "cpu{key-memory=1G}"), "key-memory of --target changes nothing of"),
    ],
)
def test_what_has_no_effect_is_refused(
    bundle: Path, options: tuple[object, ...], said: str
) -> None:
    assert said in refused("inspect", bundle, *options)
