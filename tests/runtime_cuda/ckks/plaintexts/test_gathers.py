"""Numbers of plaintexts that the device finds itself are those that the host makes, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ..test_engine import CONFORMANCE, DEEP, run


@pytest.mark.parametrize("device", ["host", "cuda", pytest.param("phantom", marks=DEEP)])
def test_numbers_that_the_device_finds(build: Callable[..., Path], device: str) -> None:
    sources = Path(__file__).with_name("gathers.cpp"), CONFORMANCE / "programs.cpp"
    done = run(build("gathers", *sources, device=device))
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
