"""A worker on a GPU: what it sees and tells. A device that fails takes its process with it; the job
is answered by another one, or refused.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB
from atlasc.service.programs import Programs
from atlasc.service.texts import Opened
from atlasc.service.workers import executor as executors
from atlasc.service.workers import local
from atlasc.service.workers.base import Loadable
from atlasc.service.workers.executor import Executor, memory_budget
from atlasc.service.workers.local import VISIBLE, LocalWorker, gpu_workers
from atlasc.targets.base import Gpu, Target
from tests.atlasc.service.running import until

LOST = "the CUDA device failed"
BYTES = 80 * GIB
NATIVE = """
import sys
from types import ModuleType
library = ModuleType("atlasc.runtime._native")
class Error(Exception): pass
library.Error, library.devices = Error, lambda engine: [("a card", 80)]
def free_bytes(engine):
    if lost: raise Error("the CUDA device failed", "", "cudaErrorECCUncorrectable", "start again")
    return 60
library.free_bytes = free_bytes
sys.modules["atlasc.runtime._native"] = library
from atlasc.service.workers import process
def run(*_):
    global lost
    lost = {lost} == "in a job"
    return {{"failed": {{"error": "the keys cannot be loaded"}}}} if lost else {{"done": 1.0}}
lost, process._run = {lost} == "before", run
process.main()
"""


class Device:
    """An engine whose device may be lost."""

    lost = False

    def wait(self) -> None:
        if self.lost:
            raise AtlasError(LOST, why="cudaErrorECCUncorrectable")


class Fails:
    """A server that answers nothing; with ``loses`` its device is lost meanwhile."""

    loses = False

    def __init__(self, *_: Any) -> None:
        self.engine = Device()

    def answer(self, *_: Any) -> Any:
        self.engine.lost = self.loses
        raise AtlasError("an op failed")


@contextmanager
def keys() -> Iterator[bytes]:
    yield b""


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(executors, "Server", Fails)
    monkeypatch.setattr(executors.Message, "read", staticmethod(lambda *_: None))
    executor = Executor(lambda _: Opened(SimpleNamespace()), {"p": 1}, 10, lambda _: None)  # type: ignore[arg-type,return-value]
    return lambda: executor.run("job", "p", "key", b"", keys, lambda _: None)


def test_a_job_that_fails_on_a_good_device_is_refused(run: Any) -> None:
    assert run()["failed"]["error"] == "an op failed"


def test_a_lost_device_is_no_fault_of_the_job(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fails, "loses", True)
    with pytest.raises(AtlasError, match=LOST):
        run()


def test_the_process_ends_and_says_why() -> None:
    code = (
        "from atlasc.ir.errors import AtlasError\n"
        "from atlasc.service.workers import process\n"
        "def run(*_): raise AtlasError('the CUDA device failed', why='cudaErrorUnknown')\n"
        "process._run = run\n"
        "process.main()\n"
    )
    lines = {"start": {"programs": {}, "budget": 1}}, {"job": {}}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.writelines(json.dumps(line) + "\n" for line in lines)
        process.stdin.flush()  # and stays open: the process ends by itself
        assert process.wait(timeout=60) == 1
        told, why = process.stdout.read().splitlines(), process.stderr.read()
    assert [*json.loads(told[0])] == ["ready", "machine"]
    [ends] = [json.loads(line) for line in told[1:]]  # no record of the job
    assert [*ends] == ["ends"] and "cudaErrorUnknown" in ends["ends"]
    assert "error: the CUDA device failed" in why
    assert "cudaErrorUnknown" in why and "Traceback" not in why


def test_a_process_says_why_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason that it knows, else its exit code; the service decides by it (and tells it)."""
    for line, why in ((json.dumps({"ends": LOST}), LOST), ("", "its process ended with 3")):
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\necho '{line}' | grep . \nexit 3\n")
        program.chmod(0o700)
        monkeypatch.setattr(local, "sys", SimpleNamespace(executable=str(program)))
        told: list[Any] = []
        worker = LocalWorker(0, {}, 0)
        worker.start(told.append)
        until(lambda told=told: told)  # type: ignore[misc]
        worker.end()
        assert told == [{"died": why}]


def on(*gpus: Gpu) -> Target:
    return SimpleNamespace(runtime_engine="cuda", gpus=lambda: [*gpus])  # type: ignore[return-value]


def environments(target: Target, memory: int | None = None) -> list[dict[str, str]]:
    programs = {"p": Loadable("", "digits", 5 * GIB)}
    return [one._environment for one in gpu_workers(programs, target, memory)]  # type: ignore[attr-defined]


def test_each_worker_sees_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VISIBLE, raising=False)
    two = on(Gpu("a", BYTES), Gpu("b", 40 * GIB))
    assert [one[VISIBLE] for one in environments(two)] == ["0", "1"]
    monkeypatch.setenv(VISIBLE, "3, GPU-5c1a")
    found = environments(two)
    assert [one[VISIBLE] for one in found] == ["3", "GPU-5c1a"]
    threads = len(os.sched_getaffinity(0))
    assert {one["ATLASC_THREADS"] for one in found} == {str(max(1, threads // 2))}


def test_keys_have_half_of_the_smallest_gpu() -> None:
    sizes = {"digits": 5 * GIB}
    assert memory_budget(sizes, None, gpu=BYTES) == BYTES // 2
    assert memory_budget(sizes, 6 * GIB, gpu=BYTES) == 6 * GIB
    with pytest.raises(AtlasError, match="do not fit into the memory of the GPU"):
        environments(on(Gpu("a", BYTES), Gpu("b", 8 * GIB)))
    with pytest.raises(AtlasError, match="--memory is more than the GPU has"):
        environments(on(Gpu("a", BYTES)), 2 * BYTES)


def test_one_service_has_programs_of_one_kind(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert programs.gpu_target is None
    bundles = [SimpleNamespace(target=name) for name in ("cuda", "cpu")]
    both = {one.target: SimpleNamespace(bundle=one) for one in bundles}
    monkeypatch.setattr(programs, "_by_program", both)
    cuda = SimpleNamespace(gpus=lambda: [Gpu("a", BYTES)])
    cpu = SimpleNamespace(gpus=list)
    find: Callable[[str], Any] = {"cuda": cuda, "cpu": cpu}.__getitem__
    monkeypatch.setattr("atlasc.service.programs.find_target", find)
    with pytest.raises(AtlasError, match="programs for cpu and cuda are not answered by one"):
        _ = programs.gpu_target
    del both["cpu"]
    assert programs.gpu_target is cuda


@pytest.mark.parametrize("lost", ["", "before", "in a job"])
def test_what_a_process_tells_of_its_gpu(lost: str) -> None:
    """Its memory before it takes jobs and after each; or that it is lost, and the process ends. A
    job that fails by it is not refused.
    """
    lines = {"start": {"programs": {}, "budget": 1, "engine": "cuda"}}, {"job": {}}
    command = [sys.executable, "-c", NATIVE.format(lost=repr(lost))]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.writelines(json.dumps(line) + "\n" for line in lines)
        process.stdin.flush()  # and stays open: the process would end with it
        told = [json.loads(process.stdout.readline()) for _ in range(2 if lost == "before" else 4)]
        if lost:
            assert process.wait(timeout=60) == 1
        process.stdin.close()
        said = process.stderr.read()
    if lost:
        assert told[-2] == {"gpu": {"lost": 1}} and [*told[-1]] == ["ends"]
        assert "cudaErrorECCUncorrectable" in told[-1]["ends"] and "Traceback" not in said
    else:
        memory = {"gpu": {"total": 80, "free": 60, "keys": 0, "lost": 0}}
        assert [told[0], *told[2:]] == [memory, {"done": 1.0}, memory]
        assert [*told[1]] == ["ready", "machine"]
