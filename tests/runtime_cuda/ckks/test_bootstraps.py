"""Whole bootstraps of the engine, to every kind of level that they end at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from atlasc.emit.parameter_set import parameter_set

from .test_engine import CONFORMANCE, DEEP, PROGRAMS, run

EVERY_LANDING = (3, 8, 9, 14, 16)
"""Levels below which parts of digits, whole ones and several are left out."""


@pytest.mark.parametrize(
    ("device", "name", "level", "landings"),
    [
        ("host", "fifteen_levels_40", 18, (3, 9)),
        pytest.param("host", "fifteen_levels_40_fewest_keys", 18, (9,), marks=DEEP),
        pytest.param("host", "fourteen_levels_fewer_keys", 17, (9,), marks=DEEP),
        pytest.param("cuda", "fifteen_levels_40_fewer_keys", 18, (9,), marks=DEEP),
        pytest.param("host", "fifteen_levels_40", 18, (*EVERY_LANDING, 17), marks=DEEP),
        pytest.param("host", "fourteen_levels", 17, EVERY_LANDING, marks=DEEP),
        pytest.param("cuda", "fifteen_levels_40", 18, (*EVERY_LANDING, 17), marks=DEEP),
        pytest.param("cuda", "fourteen_levels", 17, EVERY_LANDING, marks=DEEP),
    ],
)
def test_bootstrap(
    build: Callable[..., Path],
    device: str,
    name: str,
    level: int,
    landings: tuple[int, ...],
    tmp_path: Path,
) -> None:
    sources = PROGRAMS / "small_bootstrap.cpp", CONFORMANCE / "programs.cpp"
    program = build("bootstrap", *sources, device=device)
    place = tmp_path / "set"
    place.write_bytes(parameter_set(name, 11, (1, 32)))
    done = run(program, str(place), *map(str, landings))
    assert done.returncode == 0, done.stdout + done.stderr
    require_refreshed(done.stdout, level, landings)


def require_refreshed(told: str, level: int, landings: tuple[int, ...]) -> None:
    """What ``small_bootstrap`` tells of its levels and errors is what a bootstrap promises."""
    texts = [line for line in told.splitlines() if not line.startswith("to ")]
    *refreshed, product, _ = ([float(number) for number in line.split()] for line in texts)
    landed = [line.split()[1:] for line in told.splitlines() if line.startswith("to ")]
    assert tuple(int(wanted) for wanted, *_ in landed) == landings
    for wanted, *levels in landed:
        low = int(wanted)
        assert list(map(int, levels[:3])) == [low, low, low - 1]
        assert all(float(error) < -17.5 for error in levels[3:]), (wanted, levels)
    assert [level for level, _ in refreshed] == [level] * 6
    # docs/bootstrapping.md: 2^-20.3 and 2^-19 at N = 2^16; key switches and rounding are smaller
    # here.
    assert all(error < -18.5 for _, error in refreshed), refreshed
    assert product[0] == level - 1
    assert product[1] < -16
