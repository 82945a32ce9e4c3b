"""Work that repeats is captured as CUDA graphs, and stays the same bit for bit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cpp_build import OPTIMISED, Builder

from atlasc.emit.parameter_set import parameter_set

from ..conftest import builder
from ..test_engine import CONFORMANCE, PROGRAMS, run

OFF = "each kernel is launched by itself, without CUDA graphs"


def checks(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Check -> graphs that were launched for it. In all of them every bit is the same."""
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.replace(":", ",").split(", ") for line in done.stdout.splitlines()]
    assert all(same == "same" for _, same, _ in told), told
    return {name: int(graphs.removesuffix(" graphs")) for name, _, graphs in told}


@pytest.fixture(scope="module")
def repeated(build: Callable[..., Path]) -> Path:
    sources = PROGRAMS / "repeated.cpp", CONFORMANCE / "programs.cpp"
    return build("repeated", *sources, device="cuda")


def test_work_that_repeats_is_launched_as_graphs(repeated: Path) -> None:
    """The first time is direct, the second one compares the graph with what it should compute."""
    done = run(repeated)
    graphs = checks(done)
    assert [graphs[name] for name in ("one", "more room", "products")] == [2, 2, 2]
    assert graphs["again"] == 2, "captured anew in the larger workspace"
    assert graphs["threads"] >= 3
    assert graphs["plaintexts forgotten"] == 1
    assert graphs["encodes"] == graphs["off"] == 0
    assert done.stderr.count(OFF) == 1
    assert "cannot be captured: it copies to the device" in done.stderr


@pytest.mark.parametrize(
    ("environment", "graphs", "why"),
    [
        ({"ATLASC_STAND_IN": "no capture"}, 0, "cudaStreamBeginCapture"),
        ({"ATLASC_STAND_IN": "short graphs"}, 1, "a graph computes something else"),
        ({"ATLASC_GRAPHS": "off"}, 0, ""),
    ],
)
def test_without_graphs_each_kernel_is_launched(
    repeated: Path, environment: dict[str, str], graphs: int, why: str
) -> None:
    done = run(repeated, "brief", **environment)
    assert checks(done) == {"one": graphs}
    assert done.stderr.count(OFF) == (1 if why else 0)
    assert why in done.stderr


def test_another_word_is_refused(repeated: Path) -> None:
    done = run(repeated, "brief", ATLASC_GRAPHS="maybe")
    assert done.returncode == 2
    assert 'ATLASC_GRAPHS is neither off nor required: it is "maybe"' in done.stderr


def test_required_graphs_are_an_error_where_there_are_none(repeated: Path) -> None:
    done = run(repeated, "brief", ATLASC_GRAPHS="required", ATLASC_STAND_IN="no capture")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cudaStreamBeginCapture" in done.stderr and OFF not in done.stderr


@pytest.mark.deep("engines")
def test_bootstraps_are_the_same(cpp: Builder, tmp_path: Path) -> None:
    sources = PROGRAMS / "graphs.cpp", CONFORMANCE / "programs.cpp"
    program = builder(tmp_path, cpp, OPTIMISED)("graphs", *sources, device="cuda")
    place = tmp_path / "set"
    place.write_bytes(parameter_set("fifteen_levels_40", 11, (1, 32)))
    done = run(program, str(place))
    graphs = checks(done)
    assert "memory is short: the graphs gave theirs back" in done.stderr
    assert graphs.pop("narrow again") == 0
    assert list(graphs.values()) == [2] * 4
    assert checks(run(program, str(place), "threads"))["threads"] >= 4
