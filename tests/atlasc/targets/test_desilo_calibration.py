"""Measuring a backend: every primitive, positive, with honest progress and remarks."""

from __future__ import annotations

import pytest
from cost_tables import MACHINE, table_of

from atlasc.passes.execution.counting_engine import PRIMITIVES
from atlasc.targets.costs import KEY, FittedCosts, ratio
from atlasc.targets.desilo import calibration as desilo_calibration
from atlasc.targets.desilo.calibration import FEW, MANY, calibrate, plans
from atlasc.targets.desilo.parameters import BOOTSTRAPPED, DesiloParameters

SMALL = DesiloParameters(14, 3)


def test_plans_cover_every_ring_degree_from_top_to_bottom() -> None:
    for quick in (False, True):
        chosen = plans(quick)
        assert {parameters.log_ring_degree for parameters in chosen} == {14, 15, 16}
        for parameters, levels in chosen.items():
            assert 1 <= min(levels) <= 2
            assert max(levels) <= parameters.max_level
    assert BOOTSTRAPPED in plans()


def test_the_shared_part_of_hoisted_rotations() -> None:
    each, shared = desilo_calibration._hoisted(0.3 + FEW * 0.1, 0.3 + MANY * 0.1)
    assert (each, shared) == (pytest.approx(0.1), pytest.approx(0.3))
    for few, many in ((2.0, 1.0), (0.0, 1.0)):  # noise
        each, shared = desilo_calibration._hoisted(few, many)
        assert each > 0 and shared > 0
        assert MANY * each + shared == pytest.approx(many)


def test_the_ratio_of_two_tables() -> None:
    sets = [DesiloParameters(16, 4), SMALL]
    slow = table_of(sets, lambda p, n, level: 3.0 * (level + 1))
    fast = table_of(sets, lambda p, n, level: 1.5 * (level + 1))
    assert ratio(slow, fast, DesiloParameters) == pytest.approx(2.0)
    assert ratio(fast, fast, DesiloParameters) == pytest.approx(1.0)


@pytest.mark.encrypted
def test_a_small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    known = table_of([SMALL])
    monkeypatch.setattr(desilo_calibration, "plans", lambda quick: {SMALL: [1, 3]})
    monkeypatch.setattr(desilo_calibration.cost_table, "load", lambda path: known)
    seen: list[tuple[str, int, int]] = []
    table = calibrate(lambda *step: seen.append(step), quick=True, note="by a test")
    (one,) = table.sets
    assert DesiloParameters.from_dict(one.parameters) == SMALL
    assert set(one.seconds) == {*PRIMITIVES, KEY} - {"bootstrap"}
    assert all(set(s) == {1, 3} for name, s in one.seconds.items() if name != KEY)
    assert all(s > 0 for seconds in one.seconds.values() for s in seconds.values())
    cost = FittedCosts(table, SMALL).cost("rotate", 3)
    assert cost == pytest.approx(one.seconds["rotate"][3])
    assert table.bootstrap is not None and not table.bootstrap.measured
    assert table.bootstrap.seconds == pytest.approx(30.0 * ratio(table, known, DesiloParameters))
    assert table.note.startswith("by a test")
    assert f"times that of {MACHINE}" in table.note
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert {total for _, _, total in seen} == {100}
