"""Parameter sets of others: what the engine refuses, and what a set at its limits does.

``ATLASC_FUZZ_INPUTS`` is the number of random sets; ``make fuzz`` sets it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from atlasc.program import key_plan
from atlasc.targets import moduli
from atlasc.targets.ckks import parameters

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
SETS = int(os.environ.get("ATLASC_FUZZ_INPUTS", "400"))
SEED = int(os.environ.get("ATLASC_FUZZ_SEED", "11"))
Run = Callable[..., str]


@pytest.fixture(scope="module")
def run(build: Callable[..., Path]) -> Run:
    sources = PROGRAMS / "parameter_sets.cpp", HERE.parent / "conformance/programs.cpp"
    program = build("parameter_sets", *sources)

    def printed(*arguments: object) -> str:
        command = [str(program), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return printed


def test_python_has_the_same_limits(run: Run) -> None:
    named = dict(line.split() for line in run("limits").splitlines())
    assert named.pop("LEAST_LOG_DEGREE") == "11"  # Python simulates smaller rings, too
    known = vars(parameters) | vars(moduli) | vars(key_plan)
    assert named == {name: str(known[name]) for name in named}


def test_65_digits_have_masks_and_errors_of_their_own(run: Run) -> None:
    """Digit 64 of a key had those of digit 0 of the next one, which gave the secret away."""
    assert run("digits") == ""


def test_sets_are_refused_or_work(run: Run) -> None:
    found = run("sets", SEED, SETS)
    print(found)
    count, taken, used = (int(word) for word in found.split() if word.isdigit())
    assert count == SETS
    assert SETS / 50 < taken < SETS
    assert used > 0
