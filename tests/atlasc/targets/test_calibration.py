"""Measuring a backend: every primitive, positive, with honest progress and remarks."""

from __future__ import annotations

import pytest
from cost_tables import table_of

from atlasc.program.counting_engine import COST_KINDS
from atlasc.program.transform_work import TransformWork
from atlasc.targets import calibration, find_target
from atlasc.targets.calibration import FEW, MANY, Calibrator
from atlasc.targets.costs import KEY, SUBSTITUTES, FittedCosts, ratio
from atlasc.targets.cpu.calibration import TRANSFORMS, CpuCalibrator, parts_of, terms_of
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import ParameterSet
from atlasc_comparisons.desilo.calibration import DesiloCalibrator
from atlasc_comparisons.desilo.parameters import DesiloParameters

SMALL = DesiloParameters(14, 3)


@pytest.mark.parametrize("calibrator", [DesiloCalibrator(), CpuCalibrator()])
def test_plans_cover_every_ring_degree_from_top_to_bottom(calibrator: Calibrator) -> None:
    for quick in (False, True):
        chosen = calibrator.plans(quick)
        degrees = {parameters.log_ring_degree for parameters in chosen}
        assert degrees >= {14, 15, 16}
        for parameters, levels in chosen.items():
            assert 1 <= min(levels) <= 2
            assert max(levels) <= parameters.max_level
    assert calibrator.bootstrapped in calibrator.plans(False)


def test_the_shared_part_of_hoisted_rotations() -> None:
    each, shared = calibration._hoisted(0.3 + FEW * 0.1, 0.3 + MANY * 0.1)
    assert (each, shared) == (pytest.approx(0.1), pytest.approx(0.3))
    for few, many in ((2.0, 1.0), (0.0, 1.0)):  # noise
        each, shared = calibration._hoisted(few, many)
        assert each > 0 and shared > 0
        assert MANY * each + shared == pytest.approx(many)


def test_the_parts_of_transforms() -> None:
    exact = dict(zip(SUBSTITUTES, (1.5e-3, 1.2e-2, 1e-4, 3e-3, 5e-3), strict=True))
    works = {
        name: TransformWork.of(1, terms_of(one, 2**13), 2**13) for name, one in TRANSFORMS.items()
    }
    measured = {
        name: 4e-3 * work.operands + sum(calls * exact[kind] for kind, calls in work.calls.items())
        for name, work in works.items()
    }
    assert parts_of(measured) == pytest.approx(exact)
    noise = measured | {"transform_results": 1.0, "transform_products": 0.01}
    assert all(seconds > 0 for seconds in parts_of(noise).values())


def test_the_ratio_of_two_tables() -> None:
    sets = [DesiloParameters(16, 4), SMALL]
    slow = table_of(sets, lambda p, n, level: 3.0 * (level + 1))
    fast = table_of(sets, lambda p, n, level: 1.5 * (level + 1))
    assert ratio(slow, fast, DesiloParameters) == pytest.approx(2.0)
    assert ratio(fast, fast, DesiloParameters) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("calibrator", "parameters"),
    [
        pytest.param(DesiloCalibrator(), SMALL, marks=pytest.mark.encrypted),
        (CpuCalibrator(), CpuParameters.choose(4, 2**13)),
    ],
)
def test_a_small_table(
    calibrator: Calibrator, parameters: ParameterSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = find_target(parameters.family)
    known = calibration.cost_table.load(calibration.cost_table.shipped_place(target.name))
    monkeypatch.setattr(type(calibrator), "plans", lambda *_: {parameters: [1, 3]})
    seen: list[tuple[str, int, int]] = []
    table = calibrator(lambda *step: seen.append(step), quick=True, note="by a test")
    (one,) = table.sets
    assert type(parameters).from_dict(one.parameters) == parameters
    own = () if parameters.family == "cpu" else SUBSTITUTES
    bootstraps = ("bootstrap", "bootstrap_one", "bootstrap_narrow")
    assert set(one.seconds) == {*COST_KINDS, KEY} - {*bootstraps, *own}
    assert all(set(s) == {1, 3} for name, s in one.seconds.items() if name != KEY)
    assert all(s > 0 for seconds in one.seconds.values() for s in seconds.values())
    cost = FittedCosts(table, parameters).cost("rotate", 3)
    assert cost == pytest.approx(one.seconds["rotate"][3])
    assert table.bootstrap is not None and not table.bootstrap.measured
    assert known.bootstrap is not None
    factor = ratio(table, known, type(parameters))
    assert table.bootstrap.seconds == pytest.approx(known.bootstrap.seconds * factor)
    assert table.note.startswith("by a test")
    assert f"times that of {known.machine}" in table.note
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert {total for _, _, total in seen} == {100}
