"""Searching by predicted seconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_settings
from atlasc.passes.pipeline import lower_nn
from atlasc.polynomials.parametrisation import EXACT
from atlasc.program.costs import program_costs
from atlasc.search.front import Front
from atlasc.search.points import Point, expert
from atlasc.search.strategies.atlas import Atlas
from atlasc.targets import find_target

LATENCY = LatencyTarget.of(find_target("desilo"))

GOOD = ((7, 6, 0, 0, 0, 7, 7, 7), (6, 6, 6, 0, 0, 6, 7, 8))


@pytest.fixture(scope="module")
def timed(problem):
    return replace(problem, cost="latency", target=LATENCY)


def counted_seconds(problem, settings) -> float:
    """Of the lowered program, its bootstraps placed for the least time."""
    module = apply_settings(problem.module, settings, problem.calibration)
    lowered = lower_nn(module, LATENCY.choose, costs=LATENCY.costs)
    costs = LATENCY.costs(lowered.parameters)
    return program_costs(lowered.program).total.seconds(costs)


def test_points_have_the_seconds_of_the_lowered_program(timed, problem) -> None:
    point = timed.objective().evaluate(GOOD)
    assert point.seconds == pytest.approx(counted_seconds(timed, GOOD), rel=1e-3)
    assert point.cost("latency") == point.seconds
    assert problem.objective().evaluate(GOOD).seconds is None


def test_a_setting_that_leaves_ops_exact_has_no_seconds(timed) -> None:
    partial = ((EXACT,) * 8, GOOD[1])
    point = timed.objective().evaluate(partial)
    assert point.seconds is None and point.cost("latency") == float("inf")


def test_the_reference_is_the_expert_setting(timed) -> None:
    seconds, _ = timed.reference(timed.objective())
    assert seconds == pytest.approx(counted_seconds(timed, expert(2)), rel=1e-3)


def test_a_journal_is_of_one_cost_table(timed, problem) -> None:
    dear = replace(
        timed.target,
        costs=lambda p: {k: 2 * v for k, v in LATENCY.costs(p).items()},
    )
    assert "costs" not in problem.identity()
    assert timed.identity() != replace(timed, target=dear).identity()


def test_a_front_by_seconds(timed, tmp_path) -> None:
    front = Atlas.of({"evaluations": 60}).search(timed)
    costs = [point.seconds for point in front.points]
    assert costs == sorted(costs) and None not in costs
    front.save(tmp_path / "front.json")
    again = Front.load(tmp_path / "front.json")
    assert again.points == front.points and again.cost == "latency"


def test_without_seconds_a_point_costs_infinitely_much() -> None:
    assert Point(1, 1, 0.1, ()).cost("latency") == float("inf")
