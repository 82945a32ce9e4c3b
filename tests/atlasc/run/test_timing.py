"""Measured seconds beside predicted ones: what is kept, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from tiny_model import Tiny

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.cli.results import show_timing
from atlasc.ir.errors import AtlasError
from atlasc.run import session
from atlasc.run.timing import Course, Pace, Timing, predicted_seconds, timing_place
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.phantom import PhantomParameters
from tests.atlasc.cli.command import refused, run


@pytest.fixture(scope="module")
def bundle(tiny: Tiny) -> Bundle:
    return load_bundle(tiny.bundle)


@pytest.fixture
def timing(bundle: Bundle) -> Timing:
    """A second for the first op, two for the second, and so on."""
    seconds = [1.0 + n for n in range(len(bundle.program.ops))]
    return Timing.of(bundle.program, bundle.parameters, "cpu", 1, seconds)


def test_every_op_has_its_own_time(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("atlasc.run.timing.time.perf_counter", lambda: now)
    first, second = bundle.program.ops[:2]
    pace = Pace(Course.of(bundle.program, bundle.parameters), find_target("cpu"), 2, no_progress)
    for start in (0.0, 100.0):  # two runs, and nothing counts between them
        for op, after in ((first, 1), (second, 3)):
            now = start + after
            pace(op)
        now = start + 7
        pace.finish()
    timing = pace.timing()
    assert timing is not None
    assert [op["measured"] for op in timing.ops[:3]] == [2.0, 4.0, 0.0]


def test_seconds_of_a_simulation_are_called_so(
    bundle: Bundle, timing: Timing, capsys: pytest.CaptureFixture[str]
) -> None:
    for target in ("sim", "cpu", "another engine"):
        timing = dataclasses.replace(timing, target=target)
        assert timing.simulated == timing.summary()["simulated"] == (target == "sim")
        show_timing(timing)
        assert ("those of a simulation" in capsys.readouterr().out) == (target == "sim")


def test_kinds_and_ops_add_up(bundle: Bundle, timing: Timing) -> None:
    count = len(bundle.program.ops)
    predicted = predicted_seconds(bundle.program, bundle.parameters)
    whole = timing.summary()
    assert whole["measured"] == count * (count + 1) / 2
    assert whole["predicted"] == pytest.approx(sum(predicted.values()))
    assert whole["ratio"] == pytest.approx(whole["predicted"] / whole["measured"])
    for key in ("predicted", "measured"):
        assert sum(row[key] for row in whole["per_kind"]) == pytest.approx(whole[key])
    assert sum(row["ops"] for row in whole["per_kind"]) == count
    measured = [row["measured"] for row in whole["per_kind"]]
    assert measured == sorted(measured, reverse=True)


def test_nothing_is_predicted_without_a_cost_table(
    bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    parameters = PhantomParameters.bootstrapped("fourteen_levels")
    seconds = [1.0] * len(bundle.program.ops)
    timing = Timing.of(bundle.program, parameters, "phantom", 1, seconds)
    whole = timing.summary()
    assert whole["measured"] == len(seconds)
    assert whole["predicted"] is None
    assert {row["ratio"] for row in whole["per_kind"]} == {None}
    show_timing(timing)
    shown = capsys.readouterr().out
    assert f"executed in {len(seconds)} s\n" in shown
    assert "predicted 0" not in shown


def test_a_file_has_every_op(bundle: Bundle, timing: Timing, tmp_path: Path) -> None:
    place = timing_place(tmp_path / "answers.npz")
    assert place == tmp_path / "answers.timing.json"
    assert timing_place(tmp_path / "answer") == tmp_path / "answer.timing.json"
    place.write_text(timing.text(bundle))
    assert Timing.load(place, bundle) == timing
    shown = run("inspect", bundle.folder, "--timing", place).out
    assert "predicted / measured" in shown and "softmax" in shown
    found = json.loads(run("inspect", bundle.folder, "--timing", place, "--json").out)
    assert found["timing"]["measured"] == timing.summary()["measured"]


def test_bad_files(bundle: Bundle, timing: Timing, tmp_path: Path) -> None:
    place = tmp_path / "t.timing.json"
    with pytest.raises(AtlasError, match="cannot be read"):
        Timing.load(place, bundle)
    for text in ("", "[]", "{}", timing.text(bundle).replace('"measured"', '"x"')):
        place.write_text(text)
        assert "cannot be read" in refused("inspect", bundle.folder, "--timing", place)
    data = json.loads(timing.text(bundle))
    place.write_text(json.dumps(data | {"program": "another"}))
    assert "to another program" in refused("inspect", bundle.folder, "--timing", place)
    place.write_text(json.dumps(data))
    assert "not found" in refused("inspect", tmp_path / "none", "--timing", place)


def test_nothing_is_measured_where_nothing_is_encrypted(tiny: Tiny, bundle: Bundle) -> None:
    answer = session.run(bundle, bundle.load_inputs(tiny.data).take(range(1)).arrays)
    assert answer.timing is None


def test_a_pace_measures_what_it_paces(bundle: Bundle) -> None:
    pace = Pace(Course.of(bundle.program, bundle.parameters), find_target("cpu"), 2, no_progress)
    for _ in range(2):
        for op in bundle.program.ops:
            pace(op)
        pace.finish()
    timing = pace.timing()
    assert timing is not None
    whole = timing.summary()
    assert 0 < whole["measured"] < 1
    assert pace.done == pytest.approx(2 * whole["predicted"])
