"""What several processes of one run read is made by the first that wants it."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that ``make`` filled, in this process of the run or in another one.

    Nobody may change its files. When ``make`` fails, the next one who asks tries again.
    """
    root = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent  # which the processes of a run share
    folder = root / "made-once" / name
    folder.parent.mkdir(exist_ok=True)
    complete = folder.with_name(f"{name}.complete")
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of an attempt that failed
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
