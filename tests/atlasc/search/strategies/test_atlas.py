"""The paper's search on a small model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.search.points import non_dominated
from atlasc.search.search_problem import Objective
from atlasc.search.strategies import find_strategy
from atlasc.search.strategies.atlas import Atlas
from atlasc.search.strategy import SearchRun

SMALL = Atlas(seed=1, population=8, generations=3, layer_population=12, layer_generations=4)


@pytest.fixture(scope="module")
def found(problem):
    reports = []
    return SMALL.search(problem, reports.append), reports


def test_the_default_budget_is_the_papers() -> None:
    assert Atlas().evaluations == 24_144


def test_the_budget_is_spent_and_reported(found) -> None:
    front, reports = found
    assert front.evaluations == SMALL.evaluations == 8 * 4 + 12 * 5
    assert 0 < front.distinct <= front.evaluations
    done = [r.done for r in reports]
    assert done == sorted(done) and len(set(done)) >= front.distinct
    batches = [r for r in reports if r.front.evaluations == r.done]
    assert [r.done for r in batches] == [8 * (i + 1) for i in range(4)] + [
        32 + 12 * (i + 1) for i in range(5)
    ]
    assert reports[-1].total == front.evaluations
    assert reports[-1].front.points == front.points
    assert front.complete
    assert [(m.evaluations, m.hypervolume) for m in front.history] == [
        (r.done, r.front.hypervolume) for r in batches
    ]
    assert front.history[-1].hypervolume == front.hypervolume
    hypervolumes = [m.hypervolume for m in front.history]
    assert hypervolumes == sorted(hypervolumes)


def test_the_front_is_non_dominated_and_its_errors_are_real(found, problem) -> None:
    front, _ = found
    assert len(front.points) >= 2
    assert non_dominated(front.points) == list(front.points)
    objective = problem.objective()
    for point in front.points:
        assert objective.evaluate(point.settings) == point


def test_a_seed_fixes_the_front(found, problem) -> None:
    front, _ = found
    assert SMALL.search(problem).points == front.points
    other = replace(SMALL, seed=2).search(problem)
    assert other.points != front.points


def test_stage_two_tells_layers_apart_and_improves_on_stage_one(problem) -> None:
    one = replace(SMALL, layer_population=4, layer_generations=0).search(problem)
    both = replace(SMALL, layer_generations=12).search(problem)
    assert both.hypervolume > one.hypervolume
    assert any(len(set(p.settings)) > 1 for p in both.points)


def test_the_reference_point_is_the_expert_setting(found) -> None:
    front, _ = found
    assert front.reference == (2 * 101, 0.2)


def test_levels_as_the_cost(problem) -> None:
    front = SMALL.search(replace(problem, cost="levels"))
    assert front.reference == (2 * 77, 0.2)
    assert non_dominated(front.points, "levels") == list(front.points)


def test_the_early_layer_proxy_serves_stage_one_only(problem, monkeypatch) -> None:
    seen = []
    points_of = SearchRun.points_of

    def spy(self, batch, layers=None):
        seen.append((layers, len(batch)))
        return points_of(self, batch, layers)

    monkeypatch.setattr(SearchRun, "points_of", spy)
    front = replace(SMALL, early_layers=1).search(problem)
    assert seen == [(1, 8)] * 4 + [(None, 12)] * 5
    assert front.evaluations == SMALL.evaluations


def test_an_interrupt_leaves_the_front_so_far(problem) -> None:
    def interrupt(report):
        if report.front.evaluations >= 32:
            raise KeyboardInterrupt

    front = SMALL.search(problem, interrupt)
    assert not front.complete
    assert front.evaluations == 32
    assert front.points


def test_a_journal_lets_a_search_go_on(problem, found, tmp_path, monkeypatch) -> None:
    front, _ = found
    journaled = replace(problem, journal=tmp_path / "journal.jsonl")

    def interrupt(report):
        if report.done >= 44:
            raise KeyboardInterrupt

    SMALL.search(journaled, interrupt)
    path = journaled.journal
    path.write_text(path.read_text()[:-7])  # as a crash in the middle of a line leaves it
    evaluated = []
    point = Objective._point
    monkeypatch.setattr(
        Objective, "_point", lambda self, s, found: evaluated.append(s) or point(self, s, found)
    )
    resumed = SMALL.search(journaled)
    assert resumed.points == front.points
    assert 0 < len(evaluated) < front.distinct
    evaluated.clear()
    assert SMALL.search(journaled).points == front.points
    assert not evaluated


def test_strategies_are_found_by_name(problem, found) -> None:
    atlas = find_strategy("atlas")
    small = atlas.of(
        {"seed": 1, "population": 8, "generations": 3, "layer_population": 12,
         "layer_generations": 4}
    )  # fmt: skip
    assert small.search(problem).points == found[0].points
    with pytest.raises(AtlasError, match="no option 'budget'"):
        atlas.of({"budget": 3})
    with pytest.raises(AtlasError, match="no search strategy 'best'"):
        find_strategy("best")
    with pytest.raises(AtlasError, match="at least 4"):
        Atlas(population=2)
