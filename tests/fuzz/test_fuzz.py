"""A short run of all fuzzers, and every case that they or an attack found before.

``make fuzz`` runs a million inputs; ATLASC_FUZZ_INPUTS sets the number here.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny

from tests.atlasc.generation.conftest import make_decoder
from tests.fuzz.reader import all_readers
from tests.fuzz.seeds import SAMPLES, make_samples
from tests.fuzz.sites import HERE, NOT_FUZZED, openings, unread
from tests.suite.made_once import made_once

ROOT = Path(__file__).parents[2]
INPUTS = int(os.environ.get("ATLASC_FUZZ_INPUTS", "100"))


Results = dict[tuple[str, bool], dict[str, Any]]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Path:
    """What readers start from; other tests read the tiny model and the decoder as well."""
    decoder = made_once(tmp_path_factory, "decoder", make_decoder)

    def make(folder: Path) -> None:
        make_samples(folder, tiny.archive.parent, decoder)

    return made_once(tmp_path_factory, "fuzz-samples", make)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, samples: Path) -> Results:
    """What a run found, by reader and whether in the corpus.

    It has a process of its own: forks want one without threads.
    """
    place = tmp_path_factory.mktemp("fuzz") / "report.json"
    return fuzzed(samples, place, "--corpus", "--case-seconds", 1, "--inputs", INPUTS, "--seed", 1)


def fuzzed(samples: Path, place: Path, *options: object) -> Results:
    """What ``python -m tests.fuzz`` reports into a file."""
    words = ["-m", "tests.fuzz", *map(str, options), "--report", str(place)]
    environment = {**os.environ, SAMPLES: str(samples)}
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert place.exists(), done.stderr
    return {(one["reader"], one["corpus"]): one for one in json.loads(place.read_text())}


@pytest.mark.parametrize("name", sorted(all_readers()))
def test_mutated_inputs_are_accepted_or_refused(results: Results, name: str) -> None:
    result = results[name, False]
    assert [shown(found) for found in result["found"]] == []
    assert result["accepted"] + result["refused"] == result["inputs"] > 0


@pytest.mark.parametrize("name", sorted(all_readers()))
def test_cases_that_were_found_before(results: Results, name: str) -> None:
    assert [shown(found) for found in results[name, True]["found"]] == []


@pytest.mark.deep("examples")
def test_fresh_mutated_inputs_are_accepted_or_refused(tmp_path: Path, samples: Path) -> None:
    seed = secrets.randbelow(2**31)
    place = tmp_path / "report.json"
    results = fuzzed(samples, place, "--corpus", "--inputs", 10 * INPUTS, "--seed", seed)
    found = [shown(one) for result in results.values() for one in result["found"]]
    assert found == [], f"seed {seed}"


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified names before")
def test_every_reader_is_fuzzed(results: Results) -> None:
    """Each place in the code that reads from outside is one that a reader's samples go through."""
    through = {place for result in results.values() for place in result["places"]}
    assert unread(openings().keys(), through) == []
    places = {name.rpartition(":")[0] and name.partition(" ")[0] for name in openings()}
    assert sorted(NOT_FUZZED.keys() - places - openings().keys()) == [], "no longer there"
    ours = {name for name, why in NOT_FUZZED.items() if why != HERE}  # the rest is read by chance
    assert sorted(ours & through) == [], "fuzzed now"


def shown(found: dict[str, Any]) -> str:
    """One kind of failure, as an assertion prints it."""
    saved = ", ".join(found["saved"])
    return f"{found['count']} x {found['kind']} at {found['place']}: {saved}\n{found['detail']}"
