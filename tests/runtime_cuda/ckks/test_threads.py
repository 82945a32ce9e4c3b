"""One engine for several threads, under the race detector."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"


def test_threads_share_an_engine(build_watched: Callable[..., Path]) -> None:
    program = build_watched(
        "threads", PROGRAMS / "threads.cpp", HERE.parent / "conformance/programs.cpp"
    )
    environment = {**os.environ, "ATLASC_THREADS": "2", "TSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run([program], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    errors = [float(word) for word in done.stdout.split()]
    assert len(errors) == 16 and 0 < max(errors) < 1e-6
