"""What is said of a machine, from a made-up /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from atlasc.targets.machine import OtherWork, this_machine


def proc(root: Path, name: str, text: str) -> None:
    (root / "proc").mkdir(exist_ok=True)
    (root / "proc" / name).write_text(text)


def test_processor(tmp_path: Path) -> None:
    proc(
        tmp_path, "cpuinfo", "cpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\nflags\t: a\n"
    )
    machine = this_machine(tmp_path)
    assert machine.processor == "AMD EPYC, family 25, model 17"
    assert machine.threads >= 1
    assert machine.memory_gib > 0
    assert str(machine) == f"{machine.threads} threads of AMD EPYC, family 25, model 17"


def test_processor_of_numbers_alone(tmp_path: Path) -> None:
    proc(tmp_path, "cpuinfo", "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n")
    assert this_machine(tmp_path).processor.endswith(", implementer 0x41, part 0xd40")


def test_processor_that_nobody_names(tmp_path: Path) -> None:
    assert this_machine(tmp_path).processor


def test_other_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tick = os.sysconf("SC_CLK_TCK")

    def stat(busy: int, idle: int) -> None:
        proc(tmp_path, "stat", f"cpu  {busy * tick} 0 0 {idle * tick} 0 0 0 0 0 0\ncpu0 1\n")

    own = os.times()
    monkeypatch.setattr("os.times", lambda: own)
    stat(100, 100)
    work = OtherWork(tmp_path)
    stat(103, 101)
    assert work.share() == pytest.approx(0.75)


def test_other_work_that_nobody_tells(tmp_path: Path) -> None:
    assert OtherWork(tmp_path).share() is None


def test_the_limit_of_a_process_counts() -> None:
    """``ulimit -v`` in KiB; an interpreter with NumPy takes some of it."""
    code = "from atlasc.targets.machine import available_bytes; print(available_bytes())"
    done = subprocess.run(
        ["bash", "-c", 'ulimit -v 4000000 && exec "$0" -c "$1"', sys.executable, code],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert 0 < int(done.stdout) < 4_000_000 * 1024
