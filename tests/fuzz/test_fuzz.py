"""A short run of all fuzzers, and every case that they or an attack found before.

``make fuzz`` runs a million inputs; ATLASC_FUZZ_INPUTS sets the number here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.reader import all_readers

ROOT = Path(__file__).parents[2]
INPUTS = int(os.environ.get("ATLASC_FUZZ_INPUTS", "6000"))


def report(folder: Path, *arguments: object) -> dict[str, dict[str, Any]]:
    """What a run found, by reader. It has a process of its own: forks want one without threads."""
    place = folder / "report.json"
    command = [sys.executable, "-m", "tests.fuzz", "--report", place, *arguments]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
    assert place.exists(), done.stderr
    return {result["reader"]: result for result in json.loads(place.read_text())}


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return report(tmp_path_factory.mktemp("fuzz"), "--inputs", INPUTS, "--seed", 1)


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return report(tmp_path_factory.mktemp("corpus"), "--corpus")


@pytest.mark.parametrize("name", sorted(all_readers()))
def test_mutated_inputs_are_accepted_or_refused(
    fuzzed: dict[str, dict[str, Any]], name: str
) -> None:
    result = fuzzed[name]
    assert [shown(found) for found in result["found"]] == []
    assert result["accepted"] + result["refused"] == result["inputs"] > 0


@pytest.mark.parametrize("name", sorted(all_readers()))
def test_cases_that_were_found_before(replayed: dict[str, dict[str, Any]], name: str) -> None:
    assert [shown(found) for found in replayed[name]["found"]] == []


def shown(found: dict[str, Any]) -> str:
    """One kind of failure, as an assertion prints it."""
    saved = ", ".join(found["saved"])
    return f"{found['count']} x {found['kind']} at {found['place']}: {saved}\n{found['detail']}"
