"""The default search where the cost is the predicted seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.latency.model import LatencyTarget
from atlasc.polynomials.parametrisation import WIDE
from atlasc.search.dynamic_programs import Solution
from atlasc.search.error_model import ErrorModel, groups_of
from atlasc.search.latency_front import STEPS, evenly
from atlasc.search.local_errors import Candidate, candidates
from atlasc.search.points import hypervolume, non_dominated
from atlasc.search.strategies.hybrid import Hybrid, HybridSteps
from atlasc.search.strategy import SearchRun
from atlasc.targets import find_target

LATENCY = LatencyTarget.of(find_target("desilo"))

SMALL = Hybrid(seed=1, evaluations=150, population=8)


@pytest.fixture(scope="module")
def timed(problem):
    return replace(problem, cost="latency", target=LATENCY)


@pytest.fixture(scope="module")
def found(timed):
    return SMALL.search(timed)


def area(points, reference) -> float:
    return hypervolume([(p.seconds, p.error) for p in points], reference)


def test_the_front_is_real(found, timed) -> None:
    assert non_dominated(found.points, "latency") == list(found.points)
    assert len(found.points) >= 5
    assert found.rank_correlation > 0.9
    objective = timed.objective()
    for point in found.points:
        again = objective.evaluate(point.settings)
        assert (again.error, again.seconds) == (point.error, point.seconds)


def test_it_is_no_worse_than_a_search_by_levels(found, timed) -> None:
    by_levels = SMALL.search(replace(timed, cost="levels"))
    timed_again = area(non_dominated(by_levels.points, "latency"), found.reference)
    assert found.hypervolume >= timed_again > 0.05


@pytest.mark.deep("search")
def test_a_seed_fixes_the_front_and_a_journal_goes_on(
    found, timed, tmp_path, interrupt, evaluated
) -> None:
    journaled = replace(timed, journal=tmp_path / "journal.jsonl")
    assert not SMALL.search(journaled, interrupt).complete
    evaluated.clear()
    resumed = SMALL.search(journaled)
    assert resumed.points == found.points
    assert resumed.rank_correlation == found.rank_correlation
    assert 0 < len(evaluated) < found.distinct


@pytest.mark.deep("search")
def test_degrees_between_powers(timed) -> None:
    any_degree = replace(timed, parametrisation=replace(WIDE, degrees="any"))
    front = SMALL.search(any_degree)
    assert non_dominated(front.points, "latency") == list(front.points)
    assert front.hypervolume > 0.05
    degrees = {
        any_degree.parametrisation.degree(rung)
        for point in front.points
        for layer in point.settings
        for rung in layer[5:8]
    }
    assert not all((degree + 1) & degree == 0 for degree in degrees)


def test_predicted_seconds_and_errors_are_those_of_the_settings(timed) -> None:
    objective, groups = timed.objective(), groups_of(timed.module, timed.parametrisation)
    template = ((4, 3, 0, 0, 0, 3, 4, 2), (3, 4, 3, 0, 0, 4, 3, 3))

    accurate = tuple(tuple(rung + (rung > 0) for rung in layer) for layer in template)
    options = [[Candidate(0, 0.0, group.of(t)) for t in (template, accurate)] for group in groups]
    rng = np.random.default_rng(0)
    errors = {
        (index, candidate.choice): rng.random() * scale
        for index, two in enumerate(options)
        for candidate, scale in zip(two, (1.0, 0.1), strict=True)
    }
    steps = HybridSteps(SearchRun(timed, 0), SMALL)
    steps.template, steps.candidates = template, options
    model = ErrorModel(groups, lambda index, choice: errors[index, choice])
    front = steps.predicted(model)
    assert len(front) > 5
    seconds = [objective.seconds(settings) for _, settings in front]
    assert seconds == sorted(seconds)
    for error, settings in front:
        logs = [model.log_error(i, group.of(settings)) for i, group in enumerate(groups)]
        assert error == pytest.approx(np.linalg.norm(np.exp(logs), model.exponent))


def test_a_candidate_of_as_many_levels_may_have_fewer_degrees() -> None:
    """Of the degrees that take the same levels, only the sum of degrees keeps the lower ones."""

    def look(choice) -> Candidate:
        (rung,) = choice
        return Candidate(1 + rung // 4, 0.5 ** (rung // 2), choice, degrees=rung)

    found = candidates([(15,)], (0,), (15,), lambda choice: choice, look)
    assert sorted(c.choice[0] for c in found) == list(range(0, 16, 2))
    found = candidates(
        [(15,)], (0,), (15,), lambda choice: choice, lambda c: replace(look(c), degrees=0)
    )
    assert sorted(c.choice[0] for c in found) == [14]


def test_a_front_is_thinned_where_it_is_dense() -> None:
    dense = [Solution(100 + 1e-3 * i, 1.0 - 1e-4 * i, (i,)) for i in range(1000)]
    sparse = [Solution(101.0 + i, 0.1 / i, (1000 + i,)) for i in range(1, 100)]
    thin = evenly([*dense, *sparse])
    assert thin[-len(sparse) :] == sparse
    assert len(thin) <= STEPS and len(thin) - len(sparse) <= 3
    assert evenly([]) == [] and evenly(dense[:1]) == dense[:1]
