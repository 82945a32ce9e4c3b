"""Key switches at low levels compute with fewer special primes: the same bit for bit."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from atlasc.targets.moduli import special_for

DEEP = pytest.mark.deep("engines")


@pytest.mark.parametrize("device", ["host", "cuda", pytest.param("phantom", marks=DEEP)])
def test_fewer_special_primes_switch_as_all_do(build: Callable[..., Path], device: str) -> None:
    program = build("low_levels", Path(__file__).parent / "low_levels.cpp", device=device)
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sizes, special = (50, 40, 40, 40, 40, 40), (50, 50, 45, 50)
    counts = [special_for(sizes[: level + 1], special) for level in range(len(sizes))]
    assert done.stdout.splitlines() == [f"special {count}" for count in counts]
    assert counts == [2, 2, 3, 4, 4, 4]
