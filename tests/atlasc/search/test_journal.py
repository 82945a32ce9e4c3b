"""The journal: what it keeps, what it repairs, what it refuses, and that kills cost nothing."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from atlasc.ir.errors import AtlasError
from atlasc.polynomials.parametrisation import Parametrisation
from atlasc.search import journal as journal_file
from atlasc.search.journal import Journal
from atlasc.search.points import Point
from atlasc.search.search_problem import Objective
from atlasc.search.strategies.atlas import Atlas
from atlasc.search.strategies.hybrid import Hybrid

SMALL = Atlas(seed=1, population=8, generations=1, layer_population=12, layer_generations=2)
IDENTITY = {"model": "0" * 64, "seed": 1}
POINTS = [
    Point(132, 90, 0.1 / 3, ((7, 6, 0, 0, 0, 7, 7, 7), (6, 6, 6, 0, 0, 6, 7, 8))),
    Point(9, 4, float("inf"), ((1, 0, 0, 0, 0, 1, 1, 1), (-1, -1, -1, -1, -1, 1, 1, 1))),
]


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "journal.jsonl"


@pytest.fixture
def written(path) -> bytes:
    with Journal.open(path, IDENTITY) as journal:
        for point in POINTS:
            journal.add(point)
        journal.add(POINTS[0], layers=1)
    return path.read_bytes()


def held(path: Path, notes: list[str] | None = None) -> dict:
    with Journal.open(path, IDENTITY, None if notes is None else notes.append) as journal:
        return dict(journal.points)


def test_points_come_back_as_they_were(path, written) -> None:
    assert held(path) == {
        (None, POINTS[0].settings): POINTS[0],
        (None, POINTS[1].settings): POINTS[1],
        (1, POINTS[0].settings): POINTS[0],
    }
    lines = [json.loads(line) for line in written.splitlines()]
    assert lines[0] == {"journal": "atlasc evaluations 4", **IDENTITY}
    assert [line["error"] for line in lines[1:]] == [0.1 / 3, "inf", 0.1 / 3]
    assert [line.get("layers") for line in lines[1:]] == [None, None, 1]


def test_trials_come_back_as_they_were(path, written) -> None:
    """Beside the evaluations of the same settings, and for each set of held-back inputs."""
    trial = replace(POINTS[0], held_back_error=float("inf"), unsafe=3)
    other = replace(POINTS[0], held_back_error=0.25, unsafe=0)
    with Journal.open(path, IDENTITY) as journal:
        assert not journal.trials
        journal.add_trial(trial, "a" * 64)
        journal.add_trial(other, "b" * 64)
    with Journal.open(path, IDENTITY) as journal:
        settings = POINTS[0].settings
        assert journal.trials == {("a" * 64, settings): trial, ("b" * 64, settings): other}
        assert len(journal.points) == 3 and journal.points[None, settings] == POINTS[0]
    path.write_bytes(path.read_bytes().replace(b"b" * 64, b"b" * 63))
    with pytest.raises(AtlasError, match="line 6 of the journal .* is damaged"):
        held(path)


def test_a_point_is_on_disk_before_add_returns_and_is_written_once(path) -> None:
    with Journal.open(path, IDENTITY) as journal:
        journal.add(POINTS[0])
        size = path.stat().st_size
        assert json.loads(path.read_text().splitlines()[1])["depth"] == 132
        journal.add(POINTS[0])
        assert path.stat().st_size == size


def test_a_journal_cut_anywhere_is_repaired(path, written) -> None:
    header = written.index(b"\n") + 1
    for length in range(0, len(written), 5):
        path.write_bytes(written[:length])
        notes: list[str] = []
        kept = len(held(path, notes))
        complete = written[:length].rfind(b"\n") + 1
        assert kept == max(0, written[:length].count(b"\n") - 1)
        assert path.exists() == (complete > header)  # one without a point does not stay
        assert not kept or path.read_bytes() == written[:complete]
        assert len(notes) == (complete < length)
        assert all(
            f"was incomplete and is removed; {kept} evaluations are kept" in n for n in notes
        )


def test_a_damaged_line_is_refused_by_its_number(path, written) -> None:
    lines = written.split(b"\n")
    lines[2] = lines[2][:-9]
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(AtlasError, match=r"line 3 of the journal .* is damaged") as caught:
        held(path)
    assert "remove this line" in caught.value.remedy
    for line in (
        b"[1, 2]",
        lines[1].replace(b"0.03", b"1e999, 0.03"),
        lines[1].replace(b"132", b"-1"),
        lines[1].replace(b"132", b"9" * 5000),
        lines[1].replace(b"[[7", b"[[1e999"),
        lines[1].replace(b'"levels"', b'"more": 1, "levels"'),
        lines[1].replace(b'"levels"', b'"depth": 1, "levels"'),
        b"[" * 2000,
    ):
        path.write_bytes(b"\n".join([*lines[:2], line, b""]))
        with pytest.raises(AtlasError, match="line 3 of the journal"):
            held(path)


def test_a_journal_is_a_plain_file_of_a_bounded_size(path, written, monkeypatch) -> None:
    link, pipe = path.with_name("link"), path.with_name("pipe")
    link.symlink_to(path)
    with pytest.raises(AtlasError, match="cannot be written") as caught:
        held(link)
    assert "the path is a link" in caught.value.remedy
    os.mkfifo(pipe)
    with pytest.raises(AtlasError, match="not a plain file"):
        held(pipe)
    monkeypatch.setattr(journal_file, "MAX_JOURNAL", len(written) - 1)
    with pytest.raises(AtlasError, match="is too large"):
        held(path)
    assert path.read_bytes() == written


@pytest.mark.parametrize(
    "text", ["notes of mine\n", "notes of mine", '{"a": 1}\n', "[]\n", "\xff\n"]
)
def test_another_file_is_refused_and_left_alone(path, text) -> None:
    path.write_text(text, encoding="latin-1")
    with pytest.raises(AtlasError, match="is not a journal of evaluations"):
        held(path)
    assert path.read_text(encoding="latin-1") == text


def test_another_format_is_refused(path, written) -> None:
    path.write_bytes(written.replace(b"evaluations 4", b"evaluations 2"))
    with pytest.raises(AtlasError, match="has another format"):
        held(path)


def test_two_processes_cannot_write_to_one_journal(path) -> None:
    with Journal.open(path, IDENTITY), pytest.raises(AtlasError, match="is in use"):
        Journal.open(path, IDENTITY)
    held(path)


def test_places_that_cannot_be_written_are_refused(tmp_path) -> None:
    missing = tmp_path / "no" / "journal.jsonl"
    with pytest.raises(AtlasError, match="No such file or directory") as caught:
        held(missing)
    assert f"make the folder {tmp_path / 'no'} first" in caught.value.remedy
    with pytest.raises(AtlasError, match="Is a directory"):
        held(tmp_path)


def test_a_full_disk_is_said_and_leaves_whole_lines(path, written, monkeypatch) -> None:
    with Journal.open(path, IDENTITY) as journal:
        monkeypatch.setattr(os, "write", lambda fd, line: _write(fd, line[:20]))
        with pytest.raises(AtlasError, match="No space left on device") as caught:
            journal.add(replace(POINTS[0], settings=((1,) * 8,)))
        assert "make room on the disk" in caught.value.remedy
        assert path.read_bytes() == written

        def fail(fd: int, line: bytes = b"") -> int:
            raise OSError(errno.EIO, "Input/output error")

        for broken in ("write", "fsync"):
            with monkeypatch.context() as patch:
                patch.setattr("atlasc.search.journal.SYNC_SECONDS", 0)
                patch.setattr(os, "write", _write)
                patch.setattr(os, broken, fail)
                with pytest.raises(AtlasError, match="Input/output error"):
                    journal.add(replace(POINTS[0], settings=((1,) * 8,)))
            assert path.read_bytes() == written


_write = os.write


@pytest.mark.parametrize(
    ("change", "options", "difference"),
    [
        ({}, replace(SMALL, seed=2), "the seed is 1 in the journal, but 2 here"),
        ({}, replace(SMALL, population=12), "the population is 8 in the journal, but 12 here"),
        ({}, replace(SMALL, early_layers=1), "the early layers is null in the journal, but 1 here"),
        ({"cost": "levels"}, SMALL, 'the cost is "depth" in the journal, but "levels" here'),
        ({"dtype": np.float64}, SMALL, 'the dtype is "float32" in the journal, but "float64" here'),
        ({"arrays": 2}, SMALL, "the search inputs differ"),
        ({"calibration": 0.1}, SMALL, "the calibration differs"),
        ({"module": "gamma"}, SMALL, "the weights differ"),
        (
            {"parametrisation": Parametrisation(softmax_ranges="measured")},
            SMALL,
            "the parametrisation is",
        ),
    ],
)
def test_a_journal_of_another_search_is_refused(problem, path, change, options, difference) -> None:
    journaled = replace(problem, journal=path)
    replace(SMALL, generations=0, layer_generations=0).search(journaled)
    before = path.read_bytes()
    if "arrays" in change:
        change = {"arrays": {name: array[:2] for name, array in problem.arrays.items()}}
    if "calibration" in change:
        ranges = tuple(replace(r, high=r.high + 0.1) for r in problem.calibration.ranges)
        change = {"calibration": replace(problem.calibration, ranges=ranges)}
    if "module" in change:
        symbols = {name: array * 2 for name, array in problem.module.symbols.items()}
        change = {"module": replace(problem.module, symbols=symbols)}
    options = replace(options, generations=0, layer_generations=0)
    with pytest.raises(AtlasError, match="belongs to another search") as caught:
        options.search(replace(journaled, **change))
    assert difference in caught.value.why
    assert path.read_bytes() == before


def test_a_search_may_be_made_longer(problem, path) -> None:
    assert "layer_generations" not in SMALL.identity()
    assert Hybrid(seed=3, batch=5, evaluations=100).identity() == {
        "strategy": "hybrid", "seed": 3, "rounds": 8, "batch": 5, "population": 16
    }  # fmt: skip
    SMALL.search(replace(problem, journal=path))
    longer = replace(SMALL, layer_generations=4)
    assert longer.search(replace(problem, journal=path)).points == longer.search(problem).points


def test_evaluations_of_the_proxy_are_kept_too(problem, path, monkeypatch) -> None:
    journaled, options = replace(problem, journal=path), replace(SMALL, early_layers=1)
    front = options.search(journaled)
    monkeypatch.setattr(Objective, "_point", lambda *_: pytest.fail("evaluated again"))
    assert options.search(journaled).points == front.points


def test_every_point_is_kept_as_soon_as_it_is_known(problem, path, monkeypatch) -> None:
    point, seen = Objective._point, []

    def interrupted(self, settings, simulated):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(settings)
        return point(self, settings, simulated)

    monkeypatch.setattr(Objective, "_point", interrupted)
    assert not SMALL.search(replace(problem, journal=path)).complete
    kept = [json.loads(line)["settings"] for line in path.read_text().splitlines()[1:]]
    assert kept == [[list(layer) for layer in settings] for settings in seen]


LONG = replace(SMALL, generations=10, layer_generations=45)
KILLS = 20


def test_twenty_kills_lose_nothing(problem, path, monkeypatch) -> None:
    undisturbed = LONG.search(problem)
    journaled = replace(problem, journal=path)
    moments = random.Random(7)
    for _ in range(KILLS):
        reported, status = _killed(journaled, moments.randrange(24), moments.uniform(0, 4e-3))
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        lines = path.read_bytes().splitlines() if path.exists() else []
        assert {line for line in reported.splitlines(keepends=True) if line.endswith(b"\n")} <= {
            line + b"\n" for line in lines
        }
    before = len(lines) - 1
    assert 0 < before < undisturbed.distinct
    point, evaluated = Objective._point, []
    monkeypatch.setattr(
        Objective, "_point", lambda self, s, found: evaluated.append(s) or point(self, s, found)
    )
    resumed = LONG.search(journaled)
    assert resumed.points == undisturbed.points
    assert len(evaluated) == undisturbed.distinct - before


def _killed(problem, points: int, seconds: float) -> tuple[bytes, int]:
    """What a search in a process of its own reported before it was killed: so many points, and a
    few milliseconds after.
    """
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)  # the threads of the other process are not here
        add = Journal.add

        def reporting(self, point, layers=None):
            add(self, point, layers)
            os.write(send, json.dumps(point.to_dict()).encode() + b"\n")

        Journal.add = reporting  # type: ignore[method-assign]
        LONG.search(problem)
        os._exit(0)
    os.close(send)
    reported = b""
    while reported.count(b"\n") < points and (more := os.read(receive, 1 << 12)):
        reported += more
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    while more := os.read(receive, 1 << 16):
        reported += more
    os.close(receive)
    return reported, os.waitpid(child, 0)[1]


def test_a_journal_without_points_does_not_stay(tmp_path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal.open(path, {"seed": 0}).close()
    assert not path.exists()
    with Journal.open(path, {"seed": 1}) as journal:
        journal.add(Point(1, 1, 0.5, ((5, 5, 0, 0, 0, 3, 3, 3),)))
    assert path.exists()
