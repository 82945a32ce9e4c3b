"""A device that fails takes its process with it; the job is answered by another one, or refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.service.workers import executor as executors
from atlasc.service.workers import local
from atlasc.service.workers.executor import Executor
from atlasc.service.workers.local import LocalWorker
from tests.atlasc.service.running import until

LOST = "the CUDA device failed"


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
    executor = Executor(lambda _: SimpleNamespace(), {"p": 1}, 10, lambda _: None)  # type: ignore[arg-type,return-value]
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
