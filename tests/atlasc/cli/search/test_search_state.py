"""What search and compile keep: a command that was stopped goes on, whatever stopped it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from atlasc.calibration.calibrate import Calibration, calibrate
from atlasc.compilation import prepare
from atlasc.compilation.fronts import kept_ranges, ranges_beside
from atlasc.search.points import Point, Settings, expert_layer
from atlasc.search.search_problem import Objective
from atlasc.search.validation import Validation, Validator
from tests.atlasc.cli.command import DATA, MODEL, ROOT, Outcome, refused, run

SEARCH = (
    "search", MODEL, "--data", DATA, "--inputs", 2, "--cost", "levels", "--json", "--strategy",
    "atlas{population=8,generations=2,layer-population=8,layer-generations=20}",
)  # fmt: skip
SHORT = (*SEARCH, "--strategy", "atlas{population=8,layer-population=8}")


@pytest.fixture(scope="module")
def front() -> list:
    return json.loads(run(*SEARCH).out)["front"]


@pytest.mark.deep("faults")  # quick: test_interrupted.py, in one process
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_search_goes_on(way: signal.Signals, front: list, tmp_path: Path) -> None:
    output, journal = tmp_path / "made" / "front", tmp_path / "made" / "front.journal"
    command = [sys.executable, "-m", "atlasc", *map(str, SEARCH), "-o", str(output)]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while not journal.exists() or len(journal.read_bytes().splitlines()) < 12:
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.01)
    process.send_signal(way)
    message = process.communicate()[1]
    assert not output.exists()
    if way == signal.SIGINT:
        assert process.returncode == 130
        assert f"the same command continues from the evaluations in {journal}" in message
    kept = journal.read_bytes()
    journal.write_bytes(kept[:-5])

    outcome = run(*SEARCH, "-o", output)
    assert "the last line of the journal" in outcome.err and "was incomplete" in outcome.err
    found = json.loads(outcome.out)
    assert found["front"] == front
    assert not journal.exists()
    lines = (output / "evaluations.jsonl").read_bytes().splitlines()
    assert lines[: kept.count(b"\n") - 1] == kept.splitlines()[:-1]
    trials = [line for line in lines if b"held_back" in line]
    assert len(trials) == len(front) + 1, "of the front and of `is`"
    assert len(lines) == found["distinct_evaluations"] + 1 + len(trials)


@pytest.mark.deep("search")
def test_a_named_journal_stays_and_may_be_made_longer(front: list, tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    budget = str(SEARCH[-1]).replace("layer-generations=20", "layer-generations=5")
    shorter = (*SEARCH[:-1], budget, "--journal", journal)
    run(*shorter, "-o", tmp_path / "short")
    assert not (tmp_path / "short" / "evaluations.jsonl").exists()
    assert json.loads(run(*SEARCH, "--journal", journal).out)["front"] == front


@pytest.mark.deep("search")  # quick: tests/atlasc/search/test_journal.py
def test_journals_that_cannot_be_used(tmp_path: Path) -> None:
    journal = tmp_path / "journal.jsonl"
    run(*SHORT, "--journal", journal)
    assert "the seed is 0 in the journal, but 3 here" in refused(
        *SHORT, "--seed", 3, "--journal", journal
    )
    other = refused(*SHORT, "--inputs", 3, "--journal", journal)
    assert "belongs to another search" in other and "the search inputs differ" in other
    missing = refused(*SHORT, "--journal", tmp_path / "none" / "journal.jsonl")
    assert f"{tmp_path / 'none'} does not exist" in missing
    assert "is a folder" in refused(*SHORT, "--journal", tmp_path)


def evaluate_only_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A front shows `is` for comparison; it is no evaluation of the search."""
    evaluate = Objective.points

    def points(self: Objective, settings: Sequence[Settings]) -> Iterator[Point]:
        space = self.space.parametrisation
        assert all(set(layers) == {expert_layer(space)} for layers in settings), "evaluated again"
        return evaluate(self, settings)

    monkeypatch.setattr(Objective, "points", points)


def test_compile_keeps_its_evaluations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bundle, journal = tmp_path / "bundle", tmp_path / "bundle.journal"
    command = (
        "compile", MODEL, "--data", DATA, "--target", "sim", "--space", "paper",
        "--strategy", "atlas{evaluations=20}", "--ranges", "measured{margin=0.1}", "-o", bundle,
    )  # fmt: skip
    assert "no setting on the front" in refused(*command, "--max-error", 1e-9)
    evaluations = journal.read_bytes()
    assert len(evaluations.splitlines()) > 10
    evaluate_only_is(monkeypatch)
    run(*command, "--max-error", 10)
    assert not journal.exists()
    kept = (bundle / "evaluations.jsonl").read_bytes()
    assert kept.startswith(evaluations)
    trials = kept.removeprefix(evaluations).splitlines()
    assert trials and all(b"unsafe" in trial for trial in trials)


class Trials(list[object]):
    """One for each trial that was made; the user loses patience at the end of one of them."""

    patience = 6


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    made = Trials()
    measure = Validator.measure

    def impatient(self: Validator, *arguments: Any) -> Validation:
        found = measure(self, *arguments)
        made.append(arguments[0])
        if len(made) == made.patience:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(Validator, "measure", impatient)
    return made


@pytest.mark.deep("search")
def test_an_interrupted_search_goes_on_with_its_trials(
    front: list, trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "front"
    first = Outcome((*SEARCH, "-o", output))
    assert first.code == 130 and not output.exists()
    assert f"the same command continues from the evaluations in {output}.journal" in first.err
    shown = json.loads(first.out)["front"]
    assert len(shown) == len(front) and sum("unsafe" in point for point in shown) <= 5
    evaluate_only_is(monkeypatch)
    assert json.loads(run(*SEARCH, "-o", output).out)["front"] == front
    assert len(trials) == 6 + len(front) + 1 - 5, "only the interrupted trial is repeated"


def test_an_interrupted_compile_goes_on_with_its_trials(
    trials: Trials, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials.patience = 0  # it is the lowering that is interrupted
    bundle = tmp_path / "bundle"
    command = (
        "compile", MODEL, "--data", DATA, "--target", "sim", "--strategy",
        "atlas{evaluations=20}", "--max-error", 10, "--ranges", "measured{margin=0.1}",
        "-o", bundle,
    )  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr("atlasc.compilation.compile.lower_module", _interrupt)
        assert Outcome(command).code == 130
    tried = len(trials)
    assert tried > 0 and not bundle.exists()
    evaluate_only_is(monkeypatch)
    run(*command)
    assert len(trials) == tried, "nothing is tried again"


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_workers_that_make_no_sense() -> None:
    assert "--workers cannot be 'many'" in refused(*SHORT, "--workers", "many")
    for key, value in (("count", 2), ("address", "a:1")):
        wrong = refused(*SHORT, "--workers", f"serial{{{key}={value}}}")
        assert f"--workers serial has no key '{key}'" in wrong


@pytest.mark.deep("cluster")
def test_workers_of_ray_print_nothing_of_their_own(front: list) -> None:
    pytest.importorskip("ray", reason="needs the ray extra")
    command = [sys.executable, "-m", "atlasc", *map(str, SEARCH)]
    command += ["--workers", "ray{count=2}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["front"] == front
    assert "ray" not in done.stderr.lower()


@pytest.mark.parametrize("text", ["{}", "no JSON"])
def test_ranges_that_cannot_be_read_are_said(tmp_path: Path, text: str) -> None:
    journal, told = tmp_path / "front.journal", dict[str, str]()
    assert kept_ranges(journal, "0" * 64, told.setdefault) is None and not told
    ranges_beside(journal).write_text(text)
    assert kept_ranges(journal, "0" * 64, told.setdefault) is None
    [(what, details)] = told.items()
    assert "are measured again" in what and str(ranges_beside(journal)) in details


@pytest.mark.deep("search")
def test_an_interrupted_search_does_not_measure_ranges_again(
    front: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, kept = tmp_path / "front", tmp_path / "front.journal.ranges"
    measured: list[object] = []

    def counted(*arguments: Any, **options: Any) -> Calibration:
        measured.append(arguments)
        return calibrate(*arguments, **options)

    def impatient(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(prepare, "calibrate", counted)
    with monkeypatch.context() as patch:
        patch.setattr(Objective, "points", impatient)
        assert Outcome((*SEARCH, "-o", output)).code == 130
    assert len(measured) == 1 and kept.exists()
    text = kept.read_text()
    with monkeypatch.context() as patch:
        patch.setattr(Objective, "points", impatient)
        for changed in (text[:100], text.replace('"of": "', '"of": "0')):
            kept.write_text(changed)
            Outcome((*SEARCH, "-o", output))
        assert len(measured) == 3 and kept.read_text() == text, "damaged ones are measured again"
        Outcome((*SEARCH, "--ranges", "measured{margin=0.3}", "-o", output))
        assert len(measured) == 4 and kept.read_text() != text, "and so are those of other options"
    kept.write_text(text)
    assert json.loads(run(*SEARCH, "-o", output).out)["front"] == front
    assert len(measured) == 4
    assert {path.name for path in tmp_path.iterdir()} == {"front"}
