"""Commands that run out of disk or memory: exit code 2, a message that says so, no debris."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.faults.shortage import ALL, HUNGRY
from tests.faults.workspace import ROOT, Workspace


@pytest.fixture(scope="module")
def outcomes(
    workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str], dict[str, Any]]:
    """What each command did under each shortage; in a process without threads, which forks."""
    place = tmp_path_factory.mktemp("shortage") / "report.json"
    command = [sys.executable, "-m", "tests.faults.shortage", "--quick", "--report", place]
    done = subprocess.run(
        [*command, workspace.here],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert place.exists(), done.stderr
    return {(one["command"], one["shortage"]): one for one in json.loads(place.read_text())}


def no_faults(outcomes: dict[tuple[str, str], dict[str, Any]], name: str, shortage: str) -> None:
    if (one := outcomes.get((name, shortage))) is None:
        pytest.skip("no file system can be mounted here, or only make faults fills this one")
    assert one["faults"] == [], one["said"]


@pytest.mark.deep("faults")
@pytest.mark.parametrize("name", ALL)
def test_a_file_that_cannot_be_written(
    outcomes: dict[tuple[str, str], dict[str, Any]], name: str
) -> None:
    no_faults(outcomes, name, "limit")
    assert ("exit", outcomes[name, "limit"]["code"]) == ("exit", 2)


@pytest.mark.deep("faults")
@pytest.mark.parametrize("name", ALL)
def test_a_full_file_system(outcomes: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    no_faults(outcomes, name, "full")


@pytest.mark.deep("faults")
@pytest.mark.parametrize("name", HUNGRY)
def test_too_little_memory(outcomes: dict[tuple[str, str], dict[str, Any]], name: str) -> None:
    no_faults(outcomes, name, "memory")
