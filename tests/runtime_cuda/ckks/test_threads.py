"""One engine for several threads, under the race detector."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


def errors_of(program: Path, *arguments: Path) -> list[float]:
    """What a program prints under the race detector."""
    environment = {**os.environ, "ATLASC_THREADS": "2", "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    return [float(word) for word in done.stdout.split()]


@pytest.mark.deep("sanitizers")
def test_threads_share_an_engine(build_watched: Callable[..., Path]) -> None:
    errors = errors_of(
        build_watched("threads", PROGRAMS / "threads.cpp", HERE.parent / "conformance/programs.cpp")
    )
    assert len(errors) == 16 and 0 < max(errors) < 1e-6


@pytest.mark.deep("sanitizers")
def test_threads_share_a_server_and_a_record_that_grows(
    build_watched: Callable[..., Path], tmp_path: Path
) -> None:
    errors = errors_of(build_watched("server-threads", PROGRAMS / "server_threads.cpp"), tmp_path)
    assert len(errors) == 16 and 0 < max(errors) < 1e-4
