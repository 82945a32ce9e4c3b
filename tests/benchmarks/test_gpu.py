"""The runner of `make gpu`, with parts that stand for those of a GPU; and a run without one."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import parts as real
from benchmarks.gpu.bundles import bundle
from benchmarks.gpu.commands import output_of
from benchmarks.gpu.figures import AIMS, FIGURES, recorded, table
from benchmarks.gpu.machine import EMULATED, Machine, find_machine
from benchmarks.gpu.outcome import Failed, Skipped
from benchmarks.gpu.results import Outcome, Results
from benchmarks.gpu.roles import relative_error
from benchmarks.gpu.runner import Part, run_parts

ROOT = Path(__file__).resolve().parents[2]
H200 = Machine("NVIDIA H200", "90", 143771, "580", "13.0", "/usr/bin/nvcc")


class Clock:
    """Seconds pass where a part says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Parts that note when they run."""

    def __init__(self, folder: Path) -> None:
        self.path, self.clock = folder / "results.json", Clock()
        self.ran: list[str] = []
        self.lines: list[str] = []

    def part(
        self, name: str, seconds: float = 1, *, after: str = "", always: bool = False,
        error: BaseException | None = None,
    ) -> Part:  # fmt: skip
        def run() -> dict[str, float]:
            self.ran.append(name)
            self.clock.now += seconds
            if error is not None:
                raise error
            return {"product": seconds}

        return Part(name, name, seconds, run, after, always)

    def run(
        self,
        *parts: Part,
        sources: str = "a",
        budget: float | None = None,
        again: tuple[str, ...] = (),
    ) -> dict[str, Outcome]:
        """Of a process that reads the file anew."""
        self.ran, self.lines = [], []
        results = Results(self.path, H200, sources)
        self.good = run_parts(
            parts, results, budget=budget, again=again, clock=self.clock, say=self.lines.append
        )
        return results.outcomes


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_a_part_that_cannot_run_or_fails_says_why_and_the_others_go_on(bench: Bench) -> None:
    full = OSError(28, "No space left on device", "keys")
    errors = [Skipped("no bundle"), Failed("stuck"), full, KeyError("name")]
    parts = [bench.part(f"p{at}", error=error) for at, error in enumerate(errors)]
    found = bench.run(*parts, bench.part("last", 3))
    assert bench.ran == ["p0", "p1", "p2", "p3", "last"] and not bench.good
    assert [(one.state, one.reason) for one in found.values()] == [
        ("skipped", "no bundle"),
        ("failed", "stuck"),
        ("failed", "No space left on device: keys"),
        ("failed", "KeyError: 'name'"),
        ("done", ""),
    ]
    assert bench.lines[0] == "p0: skipped: no bundle" and bench.lines[-1] == "last: done in 3.0 s"
    stored = json.loads(bench.path.read_text())
    assert stored["kind"] == "measured on a GPU" and stored["machine"]["driver"] == "580"
    assert stored["parts"]["last"]["figures"] == {"product": 3}


def test_finished_parts_survive_an_interrupt_and_the_same_command_goes_on(bench: Bench) -> None:
    stopped = bench.part("b", error=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        bench.run(bench.part("a"), stopped, bench.part("c"))
    found = bench.run(bench.part("a"), bench.part("b"), bench.part("c"))
    assert bench.ran == ["b", "c"] and bench.good
    assert bench.lines[0] == "a: done before"
    assert {one.state for one in found.values()} == {"done"}
    bench.run(bench.part("a"), bench.part("b"), bench.part("c"), again=("b",))
    assert bench.ran == ["b"]
    bench.run(bench.part("a"), bench.part("b"), sources="changed")
    assert bench.ran == ["a", "b"]


def test_failed_and_skipped_parts_are_tried_again(bench: Bench) -> None:
    bench.run(bench.part("a", error=Failed("x")), bench.part("b", error=Skipped("y")))
    assert not bench.good
    bench.run(bench.part("a"), bench.part("b"))
    assert bench.ran == ["a", "b"] and bench.good


def test_a_part_that_does_not_fit_into_the_budget_is_not_begun(bench: Bench) -> None:
    parts = bench.part("a", 60), bench.part("b", 50), bench.part("c", 40)
    found = bench.run(*parts, budget=100)
    assert bench.ran == ["a", "c"] and bench.good
    assert found["b"].reason == "takes about 50 s, and 40 s of the budget are left"
    bench.run(*parts, budget=100)
    assert bench.ran == ["b"]


def test_a_build_comes_before_those_that_need_it_and_only_then(bench: Bench) -> None:
    build, user = bench.part("build", always=True), bench.part("a", after="build")
    bench.run(build, user)
    assert bench.ran == ["build", "a"]
    bench.run(build, user)
    assert bench.ran == []
    bench.run(build, user, again=("a",))
    assert bench.ran == ["build", "a"]
    broken = bench.part("build", always=True, error=Failed("no cmake"))
    found = bench.run(broken, user, again=("a",))
    assert found["a"] == Outcome("skipped", "build: failed")


def test_a_build_that_was_done_fits_into_a_small_budget(bench: Bench) -> None:
    build, user = bench.part("build", 90, always=True), bench.part("a", 5, after="build")
    found = bench.run(build, user, budget=50)
    assert bench.ran == [] and found["a"].reason == "build: skipped"
    bench.run(build)
    assert bench.ran == []  # nothing needs it
    bench.run(build, user)
    quick = replace(bench.part("build", 2, always=True), seconds=90)
    bench.run(quick, user, budget=50, again=("a",))
    assert bench.ran == ["build", "a"]


def test_a_file_of_another_machine_or_a_damaged_one_is_not_read(bench: Bench) -> None:
    bench.run(bench.part("a"))
    assert Results(bench.path, H200, "a").done("a")
    assert not Results(bench.path, replace(H200, name="another"), "a").outcomes
    bench.path.write_text(bench.path.read_text()[:-20])
    assert not Results(bench.path, H200, "a").outcomes


def test_the_table_has_ratios_to_recorded_figures_reasons_and_aims() -> None:
    known = [
        {"device": "another", "parts": {}},
        {"device": "NVIDIA H200", "parts": {"cuda/bootstraps": {"bootstrap_two": {"value": 40}}}},
    ]
    figures = {"bootstrap_two": 20.0, "bootstrap_two_error": -20.25}
    outcomes = {
        "cuda/bootstraps": Outcome("done", figures=figures),
        "cuda/text": Outcome("skipped", "no bundle"),
        "cuda/digits": Outcome("failed", "the answer is wrong"),
    }
    heading, *lines = [re.split(r"  +", line) for line in table(outcomes, "NVIDIA H200", known)]
    assert heading[3] == "recorded (NVIDIA H200)"
    assert lines[0] == ["cuda/bootstraps", "bootstrap of two", "20 ms", "40 ms", "0.50",
                        "at most 26 ms"]  # fmt: skip
    assert lines[1][-1] == "2^-20.2"
    assert lines[2:] == [
        ["cuda/text", "SKIPPED", "no bundle"],
        ["cuda/digits", "FAILED", "the answer is wrong"],
    ]


def test_an_emulated_table_says_so_and_is_not_compared_with_a_gpu() -> None:
    outcomes = {"cuda/bootstraps": Outcome("done", figures={"bootstrap_two_error": -20.0})}
    first, heading, _ = table(outcomes, "emulated", recorded()[-1:] + recorded()[:1])
    assert first == "emulated: counts, no seconds of a GPU"
    assert "H200" not in heading


def test_a_wrong_result_is_a_failure_and_no_figure() -> None:
    good = {"name": "bootstrap_two", "milliseconds": 20.0, "log2_error": -20.0}
    keys = {"name": "keys", "milliseconds": 2000.0}
    assert real.speeds_of([keys, good], -18) == {
        "keys": 2.0, "bootstrap_two": 20.0, "bootstrap_two_error": -20.0
    }  # fmt: skip
    assert real.speeds_of([keys, good], -18, emulated=True) == {"bootstrap_two_error": -20.0}
    for wrong in (-17.9, float("nan")):
        with pytest.raises(Failed, match="bootstrap_two is wrong: it errs by"):
            real.speeds_of([keys, good | {"log2_error": wrong}], -18)
    with pytest.raises(Failed, match="nothing was compared"):
        real.speeds_of([keys], -18)
    text = {"ids": [1, 2], "keys": 13.0, "prompt": [3.0, 1.0], "steps": [2.0, 1.0, 9.0]}
    assert real.text_of(text, [1, 2]) == {"keys": 13.0, "prompt": 4.0, "step": 2.0, "tokens": 2}
    with pytest.raises(Failed, match=r"tokens are \[1, 2\], and the model's are \[1, 3\]"):
        real.text_of(text, [1, 3])


def write_tensors(path: Path, **arrays: list[float]) -> Path:
    header, data = {}, b""
    for name, numbers in arrays.items():
        begin, data = len(data), data + struct.pack(f"<{len(numbers)}d", *numbers)
        shape, places = [len(numbers)], [begin, len(data)]
        header[name] = {"dtype": "F64", "shape": shape, "data_offsets": places}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def test_an_answer_is_compared_with_the_expected_one(tmp_path: Path) -> None:
    right = write_tensors(tmp_path / "right", a=[0.5, -2.0], b=[1.0])
    near = write_tensors(tmp_path / "near", a=[0.5, -2.0], b=[1.0 + 2**-9])
    assert relative_error(near, right) == -10
    assert relative_error(right, right) == -99
    for name, arrays, message in (
        ("fewer", {"a": [0.5, -2.0]}, "no output b"),
        ("short", {"a": [0.5], "b": [1.0]}, "no output a of 2 numbers"),
        ("nan", {"a": [0.5, float("nan")], "b": [1.0]}, "a is not finite"),
    ):
        with pytest.raises(Failed, match=message):
            relative_error(write_tensors(tmp_path / name, **arrays), right)
    right.write_bytes(right.read_bytes()[:20])
    with pytest.raises(Failed, match="no safetensors file"):
        relative_error(near, right)


@pytest.mark.parametrize(
    ("printed", "message"),
    [
        ("ok    add: 2^-30\nFAILED mul: 2^3\n", "ended with code 1: FAILED mul: 2^3"),
        ("ok    add: 2^-30\nkilled\n", "1 of 2 checks passed"),
        ("", "0 of 0 checks passed"),
    ],
)
def test_conformance_is_every_line(tmp_path: Path, printed: str, message: str) -> None:
    folder = tmp_path / "build-cuda-90"
    folder.mkdir()
    script(folder, "conformance", f"printf '{printed}'; exit {int('FAILED' in printed)}")
    engine = real.Engine("cuda", H200, tmp_path)
    with pytest.raises(Failed, match=re.escape(message)):
        engine.conformance("leveled", limit=10)
    script(folder, "conformance", "echo 'ok    add'; echo 'ok    mul'")
    assert engine.conformance("leveled", limit=10) == {"checks": 2}


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def finder(folder: Path, **programs: str) -> Callable[[str], str | None]:
    """Finds programs that print these lines."""
    found = {name.replace("_", "-"): text for name, text in programs.items()}
    made = {name: script(folder, name, text) for name, text in found.items()}
    return made.get


SMI = "echo 'NVIDIA L4, 8.9, 23034, 550.54'"


def test_a_gpu_and_its_compiler_are_found(tmp_path: Path) -> None:
    release = "echo 'Cuda compilation tools, release 12.4, V12.4.131'"
    find = finder(tmp_path, cmake="exit 0", nvidia_smi=SMI, nvcc=release)
    found = find_machine(find)
    assert (found.name, found.capability, found.memory_mib) == ("NVIDIA L4", "89", 23034)
    assert (found.cuda, found.missing, found.emulated) == ("12.4", "", False)
    assert found.slug == "nvidia-l4"
    assert find_machine(find, emulate=True).emulated


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    broken = find_machine(
        finder(tmp_path, cmake="exit 0", nvidia_smi=SMI, nvcc="echo 'no cicc' >&2; exit 1")
    )
    assert not broken.emulated
    assert broken.missing.endswith("nvcc does not work: nvcc ended with code 1: no cicc")
    assert "nvcc is not there" in find_machine(
        finder(tmp_path, cmake="exit 0", nvidia_smi=SMI)
    ).missing  # fmt: skip
    assert "cmake is not there" in find_machine(finder(tmp_path)).missing
    driver = finder(tmp_path, cmake="exit 0", nvidia_smi="echo 'No devices were found'; exit 6")
    assert find_machine(driver) == EMULATED
    with pytest.raises(Skipped, match=r"bert-base is not there; .*'?--prepare --whole"):
        bundle(tmp_path, "bert-base")


def test_a_program_that_is_stuck_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    stuck = script(tmp_path, "stuck", f"sleep 60 & echo $! > {child}; wait")
    with pytest.raises(Failed, match="stuck was ended after 1 s"):
        output_of([stuck], 1)
    process = Path("/proc") / child.read_text().strip()
    for _ in range(50):
        if not process.exists() or "Z" in (process / "stat").read_text().split()[2]:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the child is still there")
    with pytest.raises(Failed, match="killed by signal 11"):
        output_of([script(tmp_path, "crash", "kill -SEGV $$")], 10)
    with pytest.raises(Failed, match="cannot be started: No such file"):
        output_of([tmp_path / "nothing"], 10)


def test_recorded_figures_have_titles_and_sources() -> None:
    names = {part.name for part in real.gpu_parts(H200, ROOT, ROOT, True)}
    emulated = {part.name for part in real.emulated_parts(EMULATED, ROOT)}
    assert {name for name, _ in AIMS} <= names
    devices = set()
    for one in recorded():
        devices.add(one["device"])
        for part, figures in one["parts"].items():
            assert part in (emulated if one["device"] == "emulated" else names)
            for name, figure in figures.items():
                assert name in FIGURES and re.fullmatch("[0-9a-f]{8}", figure["commit"])
                page, _, anchor = figure["source"].partition("#")
                text = (ROOT / page).read_text()
                titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
                plain = [
                    re.sub(r"[^\w\s-]", "", title.lower()).replace(" ", "-") for title in titles
                ]
                assert not anchor or anchor in plain
    assert devices == {"NVIDIA H200", "emulated"}


def test_all_parts_but_the_whole_take_five_minutes() -> None:
    parts = real.gpu_parts(H200, ROOT, None, False)
    assert sum(part.seconds for part in parts) <= 300


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gpu", "--emulate", *map(str, words)]


def test_mistakes_end_with_one_message(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for words, message in (
        (("--folder", tmp_path, "--again", "cuda/nothing"), "there is no part cuda/nothing"),
        (("--folder", file / "below"), "Not a directory; --folder names another folder"),
    ):
        done = subprocess.run(command(*words), cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 2
        assert message in done.stderr and "Traceback" not in done.stderr


@pytest.mark.deep("benchmarks")
def test_without_a_gpu(tmp_path: Path) -> None:
    """Interrupted while it builds, and then to its end."""
    words = command("--folder", tmp_path)
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.glob("build-cuda/CMakeCache.txt")):
            assert process.poll() is None
            time.sleep(0.1)
        os.kill(process.pid, signal.SIGINT)
        printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "the same command goes on" in printed
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("There is no GPU here. emulated: counts, no seconds of a GPU")
    stored = json.loads((tmp_path / "emulated.json").read_text())
    states = {name: one["state"] for name, one in stored["parts"].items()}
    bundles = ["cuda/digits", "cuda/text", "cuda/bert-layer"]
    assert [name for name, state in states.items() if state == "skipped"] == bundles
    assert set(states.values()) == {"done", "skipped"}
    work = stored["parts"]["cuda/bootstrap-work"]["figures"]
    (known,) = (one for one in recorded() if one["device"] == "emulated")
    for name, figure in known["parts"]["cuda/bootstrap-work"].items():
        assert work[name] <= figure["value"] * 1.001  # they only fall; then renew the file
    again = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert again.stdout.count("done before") >= 4
