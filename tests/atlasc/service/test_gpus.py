"""A worker for each GPU: what it sees, and what it tells of its GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import GIB
from atlasc.service.programs import Programs
from atlasc.service.workers.base import Loadable
from atlasc.service.workers.executor import memory_budget
from atlasc.service.workers.local import VISIBLE, gpu_workers
from atlasc.targets.base import Gpu, Target

BYTES = 80 * GIB
NATIVE = """
import sys
from types import ModuleType
library = ModuleType("atlasc.runtime._native")
class Error(Exception): pass
library.Error, library.devices = Error, lambda engine: [("a card", 80)]
def free_bytes(engine):
    if {lost}: raise Error("the CUDA device failed", "", "cudaErrorECCUncorrectable", "start again")
    return 60
library.free_bytes = free_bytes
sys.modules["atlasc.runtime._native"] = library
from atlasc.service.workers import process
process._run = lambda *_: {{"done": 1.0}}
process.main()
"""


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


@pytest.mark.parametrize("lost", [False, True])
def test_what_a_process_tells_of_its_gpu(lost: bool) -> None:
    """Its memory before it takes jobs and after each; or that it is lost, and the process ends."""
    lines = {"start": {"programs": {}, "budget": 1, "engine": "cuda"}}, {"job": {}}
    command = [sys.executable, "-c", NATIVE.format(lost=lost)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdin and process.stdout and process.stderr
        process.stdin.writelines(json.dumps(line) + "\n" for line in lines)
        process.stdin.flush()  # and stays open: the process would end with it
        told = [json.loads(process.stdout.readline()) for _ in range(2 if lost else 4)]
        if lost:
            assert process.wait(timeout=60) == 1
        process.stdin.close()
        said = process.stderr.read()
    if lost:
        assert told[0] == {"gpu": {"lost": 1}} and [*told[1]] == ["ends"]
        assert "cudaErrorECCUncorrectable" in told[1]["ends"] and "Traceback" not in said
    else:
        memory = {"gpu": {"total": 80, "free": 60, "keys": 0, "lost": 0}}
        assert [told[0], *told[2:]] == [memory, {"done": 1.0}, memory]
        assert [*told[1]] == ["ready", "machine"]
