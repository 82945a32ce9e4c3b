"""How a search went."""

from __future__ import annotations

from atlasc.search.front import Moment
from benchmarks.search.ablation import continued, reached

HISTORY = [Moment(10, 1.0, 0.2), Moment(20, 3.0, 0.5), Moment(30, 4.0, 0.5)]


def test_the_first_moment_with_a_hypervolume() -> None:
    assert reached(HISTORY, 0.5) == Moment(20, 3.0, 0.5)
    assert reached(HISTORY, 0.1) == HISTORY[0]
    assert reached(HISTORY, 0.6) is None


def test_seconds_of_an_interrupted_run_are_kept() -> None:
    now = [Moment(10, 0.01, 0.2), Moment(20, 0.02, 0.5), Moment(30, 1.02, 0.5)]
    assert continued(HISTORY[:2], now) == HISTORY
    assert continued([], now) == now
    assert continued(HISTORY, now[:1]) == HISTORY
