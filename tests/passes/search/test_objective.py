"""What a setting costs and how wrong it is."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.interpreter import interpret
from atlasc.passes.approximation.assign import apply_settings
from atlasc.passes.approximation.depth import depth_of
from atlasc.passes.approximation.simulate import PolynomialSimulator

GOOD = ((7, 6, 0, 0, 0, 7, 7, 7), (6, 6, 6, 0, 0, 6, 7, 8))
OTHER = ((7, 7, 0, 0, 0, 5, 5, 5), (1, 1, 1, 1, 1, 1, 1, 1))


def test_the_error_is_that_of_the_tokens_that_a_mask_keeps(problem) -> None:
    point = problem.objective().evaluate(GOOD)
    module = apply_settings(problem.module, GOOD, problem.calibration)
    simulated = PolynomialSimulator(module, np.float64).run(problem.arrays).outputs["y"]
    exact = interpret(problem.module, problem.arrays)["y"]
    kept = problem.arrays["mask"].astype(bool)
    assert point.error == pytest.approx(np.abs(simulated - exact)[kept].mean(), rel=1e-2)
    assert 0 < point.error < 0.1


def test_costs_are_those_of_the_module(problem) -> None:
    point = problem.objective().evaluate(GOOD)
    depth = depth_of(apply_settings(problem.module, GOOD, problem.calibration))
    # Softmax 5 + sum (p + 5), norms p + 8, activation p + 1.
    assert point.depth == depth.blocks == (28 + 15 + 15 + 8) + (38 + 14 + 15 + 9)
    # Softmax 4 + sum (p + 3), norms p + 2, activation p.
    assert point.levels == depth.levels == (23 + 9 + 9 + 7) + (31 + 8 + 9 + 8)


def test_equal_settings_are_simulated_once(problem, monkeypatch) -> None:
    objective = problem.objective()
    runs = []
    run = PolynomialSimulator.run
    monkeypatch.setattr(PolynomialSimulator, "run", lambda *a, **k: runs.append(a) or run(*a, **k))
    points = objective.evaluate_all([GOOD, OTHER, GOOD])
    objective.evaluate(GOOD)
    assert len(runs) == 2
    assert points[0] is points[2]


def test_narrow_ranges_make_a_setting_invalid(problem) -> None:
    from dataclasses import replace

    ranges = {
        name: replace(r, low=r.low + 0.49 * (r.high - r.low), high=r.high - 0.49 * (r.high - r.low))
        for name, r in problem.calibration.ranges.items()
    }
    narrow = replace(problem, calibration=replace(problem.calibration, ranges=ranges))
    point = narrow.objective().evaluate(((5, 5, 5, 5, 7, 9, 9, 9),) * 2)
    assert point.error == np.inf
    assert not point.valid


def test_the_proxy_sees_the_first_layers_only(problem) -> None:
    proxy = problem.objective(layers=1)
    same_start = (GOOD[0], (6, 6, 6, 0, 0, 1, 1, 1))
    assert proxy.evaluate(GOOD).error == proxy.evaluate(same_start).error
    whole = problem.objective()
    assert whole.evaluate(GOOD).error < whole.evaluate(same_start).error
