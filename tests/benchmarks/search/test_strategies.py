"""The strategies that studies compare with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.polynomials.parametrisation import PAPER, WIDE, Parametrisation
from atlasc.search import strategies as compiler
from atlasc.search.points import SearchSpace, expert_layer, non_dominated
from atlasc.search.strategy import SearchRun
from benchmarks.search.grid import grids
from benchmarks.search.random_search import RandomSearch
from benchmarks.search.sequential import Sequential
from benchmarks.search.single_stage import SingleStage
from benchmarks.search.strategies import STRATEGIES

BUDGETS = {
    "random": {"evaluations": 100},
    "grid": {"evaluations": 120},
    "sequential": {"evaluations": 100, "targets": 3, "population": 6},
    "nsga2": {"population": 10, "generations": 9},
}


@pytest.fixture(scope="module")
def problem(problem):
    """With ranges on which the expert setting, from which two strategies start, is finite."""
    return replace(problem, parametrisation=Parametrisation("measured"))


@pytest.fixture(scope="module", params=BUDGETS)
def found(request, problem):
    chosen = STRATEGIES[request.param].of({**BUDGETS[request.param], "seed": 1})
    reports, asked = [], []
    evaluate = SearchRun.evaluate
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            SearchRun, "evaluate", lambda self, v: asked.append(np.array(v)) or evaluate(self, v)
        )
        front = chosen.search(problem, reports.append)
    return chosen, front, reports, np.concatenate(asked)


@pytest.mark.deep("benchmarks")
def test_the_budget_is_kept_and_reported(found) -> None:
    chosen, front, reports, asked = found
    assert front.strategy == chosen.name
    assert front.evaluations == len(asked) == reports[-1].done == reports[-1].total
    assert 0.7 * chosen.evaluations < front.evaluations <= chosen.evaluations
    assert front.distinct <= front.evaluations
    batches = [r.done for r in reports if r.front.evaluations == r.done]
    assert [m.evaluations for m in front.history] == batches
    assert front.complete


@pytest.mark.deep("benchmarks")
def test_the_front_is_real(found, problem) -> None:
    _, front, _, _ = found
    assert front.points
    assert non_dominated(front.points) == list(front.points)
    objective = problem.objective()
    for point in front.points:
        assert objective.evaluate(point.settings) == point


@pytest.mark.deep("benchmarks")
def test_a_seed_fixes_the_front(found, problem) -> None:
    chosen, front, _, _ = found
    assert chosen.search(problem).points == front.points
    other = replace(chosen, seed=2).search(problem)
    assert (other.points == front.points) == (chosen.name == "grid")


@pytest.mark.deep("benchmarks")
def test_an_interrupt_leaves_the_front_so_far(found, problem) -> None:
    chosen, _, _, _ = found

    def interrupt(report):
        if report.front.evaluations >= 30:
            raise KeyboardInterrupt

    front = chosen.search(problem, interrupt)
    assert not front.complete
    assert 30 <= front.evaluations < chosen.evaluations


@pytest.mark.deep("benchmarks")
def test_what_each_strategy_asks_for(found) -> None:
    chosen, _, _, asked = found
    layers = asked.reshape(-1, 2, 8)
    expert = np.array(expert_layer())
    if chosen.name == "grid":
        assert np.array_equal(layers[:, 0], layers[:, 1])  # one setting for all layers
        groups = np.stack([np.any(layers[:, 0, c] != expert[c], axis=1)
                           for c in (slice(0, 5), slice(5, 7), slice(7, 8))])  # fmt: skip
        assert np.all(groups.sum(axis=0)[:80] <= 1)  # softmax 62, norms 9, activation 9
        assert np.any(groups.sum(axis=0)[80:] > 1)
    elif chosen.name == "sequential":
        per_layer = len(asked) // chosen.targets // 2
        for target in range(chosen.targets):
            first, second = layers[2 * target * per_layer :][: 2 * per_layer].reshape(2, -1, 2, 8)
            assert np.all(first[:, 1] == expert)
            assert len(np.unique(second[:, 0], axis=0)) == 1
            assert np.any(second[:, 1] != expert)
    else:
        assert np.any(layers[:, 0] != layers[:, 1])


def test_the_default_budgets_are_alike(problem) -> None:
    budgets = [STRATEGIES[name]().evaluations for name in BUDGETS]
    assert max(budgets) == STRATEGIES["atlas"]().evaluations
    assert min(budgets) > 0.99 * max(budgets)


@pytest.mark.deep("benchmarks")
@pytest.mark.parametrize("name", ["random", "sequential", "nsga2", "grid"])
def test_a_wide_space_can_be_searched(problem, name: str) -> None:
    wide = replace(problem, parametrisation=Parametrisation("measured", degrees="openfhe"))
    options = {**BUDGETS[name], **({"generations": 1} if name == "nsga2" else {})}
    front = STRATEGIES[name].of(options).search(wide)
    assert front.points
    assert front.parametrisation == wide.parametrisation


def test_the_full_grid_holds_every_choice_of_the_papers_groups() -> None:
    softmax, norms, activation = grids(PAPER, 24_144)
    assert [len(grid.choices) for grid in (softmax, norms, activation)] == [19_607, 81, 9]
    for grid in (softmax, norms, activation):
        assert len(np.unique(grid.choices, axis=0)) == len(grid.choices)


@pytest.mark.parametrize(("evaluations", "algorithms"), [(100, 2), (1000, 4), (24_144, 4)])
def test_the_grid_tries_every_softmax_algorithm_that_fits(evaluations, algorithms) -> None:
    softmax = grids(WIDE, evaluations)[0]
    assert np.unique(softmax.choices[:, -1]).tolist() == list(range(algorithms))


@pytest.mark.parametrize("parametrisation", [PAPER, WIDE, Parametrisation(degrees="openfhe")])
@pytest.mark.parametrize("evaluations", [100, 1000, 24_144])
def test_grids_fit_the_budget_and_the_space(parametrisation, evaluations: int) -> None:
    expert = expert_layer(parametrisation)
    space = SearchSpace(1, parametrisation)
    found = grids(parametrisation, evaluations)
    assert sum(len(grid.choices) for grid in found) < evaluations
    for grid in found:
        for row in grid.rows(expert)[:: max(1, len(grid.choices) // 50)]:
            assert space.decode(row) == (tuple(row.tolist()),)  # canonical: no choice twice


def test_the_expert_setting_on_every_ladder() -> None:
    assert expert_layer() == (5, 5, 5, 5, 7, 9, 9, 9)
    for parametrisation in (WIDE, Parametrisation(degrees="openfhe")):
        layer = expert_layer(parametrisation)
        degrees = [parametrisation.degree(rung) for rung in layer[:8]]
        assert all(d >= e for d, e in zip(degrees[:4], (31,) * 4))
        assert degrees[4] >= 119 and min(degrees[5:]) >= 495
        assert parametrisation.canonical(layer) == layer


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("random", {"evaluations": 0}, "at least 1 evaluation"),
        ("grid", {"evaluations": 99}, "at least 100"),
        ("sequential", {"targets": 0}, "at least 1 error target"),
        ("sequential", {"population": 3}, "at least 4"),
        ("nsga2", {"population": 3}, "at least 4"),
        ("nsga2", {"generations": -1}, "negative number"),
    ],
)
def test_impossible_options_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        STRATEGIES[name].of(options)


def test_a_sequential_search_with_a_small_budget_has_fewer_targets(problem) -> None:
    front = Sequential(evaluations=100).search(problem)
    assert front.evaluations == 2 * 2 * 24  # targets, layers, population
    front = Sequential(evaluations=9).search(problem)
    assert front.evaluations == 2 * 4
    with pytest.raises(AtlasError, match="too few"):
        Sequential(evaluations=7).search(problem)


def test_the_compiler_names_exactly_these_as_moved() -> None:
    assert set(STRATEGIES) == {*compiler.STRATEGIES, *compiler.COMPARED}


@pytest.mark.parametrize("evaluations", [4, 100, 936, 24_144, 100_000])
def test_generations_of_a_single_stage_fill_a_budget(evaluations: int) -> None:
    single = SingleStage.of({"evaluations": evaluations, "seed": 3})
    assert single.seed == 3
    assert 0.75 * evaluations <= single.evaluations <= evaluations
    assert SingleStage.modest({})["evaluations"] == 936


def test_a_single_stage_names_its_least_budget() -> None:
    with pytest.raises(AtlasError, match="too small for one generation") as caught:
        SingleStage.of({"evaluations": 3})
    assert "give at least 4 evaluations" in caught.value.remedy


def test_what_decides_a_search_is_in_its_identity() -> None:
    assert RandomSearch(seed=3, batch=5).identity() == {"strategy": "random", "seed": 3, "batch": 5}
