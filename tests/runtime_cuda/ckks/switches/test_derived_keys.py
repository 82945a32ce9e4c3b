"""Rotations with keys that the server derives are as exact as with keys that a client sends."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

DEEP = pytest.mark.deep("engines")
SENT = 100
"""The amount whose key is sent."""


@pytest.mark.parametrize("device", ["host", "cuda", pytest.param("phantom", marks=DEEP)])
def test_derived_keys_rotate(build: Callable[..., Path], device: str, tmp_path: Path) -> None:
    program = build("derived_keys", Path(__file__).parent / "derived_keys.cpp", device=device)
    done = subprocess.run([program, tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(rows) == 2 * 11
    errors = {int(row[0]): float(row[2]) for row in rows}
    assert max(errors.values()) < errors[SENT] + 1
    assert errors[SENT] < -10
