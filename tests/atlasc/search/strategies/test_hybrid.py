"""The default search on a small model."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.polynomials.parametrisation import WIDE
from atlasc.search.error_model import groups_of
from atlasc.search.local_errors import LocalErrors, capture
from atlasc.search.points import is_partial, non_dominated
from atlasc.search.strategies import find_strategy, hybrid
from atlasc.search.strategies.atlas import Atlas
from atlasc.search.strategies.hybrid import (
    CAPTURING,
    COMPARING,
    Hybrid,
    default_evaluations,
)
from atlasc.search.strategy import EVALUATING

SMALL = Hybrid(seed=1, evaluations=150, population=8)


@pytest.fixture(scope="module")
def found(problem):
    reports = []
    return SMALL.search(problem, reports.append), reports


def test_groups_read_and_write_their_own_integers(problem) -> None:
    groups = groups_of(problem.module, problem.parametrisation)
    assert [(g.block, g.kind) for g in groups[:4]] == [
        (0, "softmax"), (0, "first norm"), (0, "activation"), (0, "second norm")
    ]  # fmt: skip
    settings = ((5, 5, 0, 0, 0, 3, 4, 6), (7, 6, 5, 0, 0, 1, 2, 3))
    assert [g.of(settings) for g in groups[4:]] == [(7, 6, 5, 0, 0), (1,), (3,), (2,)]
    changed = groups[4].put(settings, (1, 0, 0, 0, 0))
    assert changed == (settings[0], (1, 0, 0, 0, 0, 1, 2, 3))
    wide = groups_of(problem.module, WIDE)[0]
    assert wide.of(((5, 5, 0, 0, 0, 3, 4, 6, 1),)) == (5, 5, 0, 0, 0, 1)


def test_shared_groups_write_all_their_blocks(problem) -> None:
    groups = groups_of(problem.module, problem.parametrisation, 2)
    assert [(g.block, g.blocks, g.kind, len(g.places)) for g in groups] == [
        (0, 2, "softmax", 2), (0, 2, "first norm", 2),
        (0, 2, "activation", 2), (0, 2, "second norm", 2),
    ]  # fmt: skip
    settings = ((5, 5, 0, 0, 0, 3, 4, 6), (7, 6, 5, 0, 0, 1, 2, 3))
    assert groups[1].put(settings, (9,)) == ((5, 5, 0, 0, 0, 9, 4, 6), (7, 6, 5, 0, 0, 9, 2, 3))


@pytest.mark.parametrize("strategy", [SMALL, find_strategy("atlas").of({"evaluations": 60})])
def test_blocks_share_their_settings(problem, strategy) -> None:
    front = strategy.search(replace(problem, sharing=2))
    assert front.points
    for point in front.points:
        assert point.settings[0] == point.settings[1]


def test_captured_rows_are_those_of_the_model(problem) -> None:
    captured = capture(replace(problem, dtype=np.float64), seed=0)
    softmax, gelu = captured[problem_op(problem, "softmax")], captured[problem_op(problem, "gelu")]
    assert softmax.values is not None
    assert softmax.y.shape == (*softmax.x.shape[:-1], softmax.values.shape[-1])
    kept = np.where(softmax.keep, softmax.x, -np.inf)
    exact = np.exp(kept) / np.exp(kept).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(exact @ softmax.values, softmax.y, atol=1e-12)
    assert gelu.y.shape == gelu.x.shape


def problem_op(problem, name: str) -> str:
    return next(op.value.name for op in problem.module.ops if op.name == f"nn.{name}")


def test_the_budget_is_kept_and_the_front_is_real(found, problem) -> None:
    front, reports = found
    assert 0 < front.evaluations <= SMALL.evaluations
    assert reports[-1].done == front.evaluations
    assert reports[-1].total == SMALL.evaluations
    assert non_dominated(front.points) == list(front.points)
    assert len(front.points) >= 5
    assert not any(is_partial(p.settings) for p in front.points)
    objective = problem.objective()
    assert all(objective.evaluate(p.settings).error == p.error for p in front.points)


def test_every_step_says_where_it_stands(found, problem) -> None:
    _, reports = found
    works = [work for work, _ in itertools.groupby(report.work for report in reports)]
    assert works == [CAPTURING, COMPARING, EVALUATING]
    for work in works:
        done = [report.done for report in reports if report.work == work]
        assert done == sorted(done)
    assert reports[0].total == len(problem.module.ops)
    compared = [report for report in reports if report.work == COMPARING]
    assert compared[-1].done == compared[-1].total == 8
    stages = list(dict.fromkeys(r.note.split(",")[0] for r in reports if r.work == EVALUATING))
    assert stages[:2] == ["probing single polynomials", "predicted front"]
    assert stages[-2:] == ["refining", "filling the front"]


def test_every_evaluation_is_reported(found) -> None:
    front, reports = found
    done = {report.done for report in reports if report.work == EVALUATING}
    assert front.distinct <= len(done) <= front.evaluations
    assert done <= set(range(1, front.evaluations + 1))


def test_long_comparisons_are_reported_while_they_run(problem, monkeypatch) -> None:
    """One choice after the other is released by a report, on however slow a machine."""
    reports, released = [], threading.Semaphore(0)
    error = LocalErrors.error

    def slow(self, group, choice):
        released.acquire()
        return error(self, group, choice)

    def report(now):
        if now.work == COMPARING:
            reports.append(now)
            released.release()
        elif now.work == EVALUATING:
            raise KeyboardInterrupt

    monkeypatch.setattr(hybrid, "REPORT_SECONDS", 1e-3)
    monkeypatch.setattr(LocalErrors, "error", slow)
    SMALL.search(problem, report)
    notes = [now.note for now in reports if now.done == 0]
    assert len(set(notes)) > 10, "there are reports before the first op is done"
    assert reports[-1].done == reports[-1].total


def test_an_interrupt_while_choices_are_compared_ends_the_search(problem, monkeypatch) -> None:
    def report(now):
        if now.work == COMPARING:
            raise KeyboardInterrupt

    monkeypatch.setattr(hybrid, "REPORT_SECONDS", 1e-3)
    front = SMALL.search(problem, report)
    assert not front.complete and not front.points


def test_an_op_without_a_finite_polynomial_is_named(problem, monkeypatch) -> None:
    monkeypatch.setattr(LocalErrors, "error", lambda *_: np.inf)
    with pytest.raises(AtlasError, match="no polynomial for .* stays finite"):
        SMALL.search(problem)


def test_threads_do_not_change_the_front(found, problem) -> None:
    front, _ = found
    assert SMALL.search(replace(problem, threads=2)).points == front.points


def test_predictions_rank_the_front(found) -> None:
    front, _ = found
    assert front.rank_correlation is not None
    assert front.rank_correlation > 0.9


def test_it_beats_nsga2_with_as_many_evaluations(found, problem) -> None:
    front, _ = found
    budget = Atlas(seed=1, population=10, generations=4, layer_population=20, layer_generations=4)
    assert budget.evaluations == SMALL.evaluations
    assert front.hypervolume > budget.search(problem).hypervolume


def test_a_seed_fixes_the_front(found, problem) -> None:
    front, _ = found
    again = SMALL.search(problem)
    assert again.points == front.points
    assert again.rank_correlation == front.rank_correlation


@pytest.mark.parametrize("evaluations", [9, 20, 40])
def test_a_small_budget_is_not_exceeded(problem, evaluations) -> None:
    front = replace(SMALL, evaluations=evaluations).search(problem)
    assert front.evaluations <= evaluations


def test_other_costs_and_spaces(problem) -> None:
    front = SMALL.search(replace(problem, cost="levels", parametrisation=WIDE))
    assert non_dominated(front.points, "levels") == list(front.points)
    paper = SMALL.search(replace(problem, cost="levels"))
    assert front.reference == paper.reference == (2 * 77, 0.2)
    assert front.hypervolume > paper.hypervolume
    assert {len(layer) for p in front.points for layer in p.settings} == {9}


def test_an_interrupt_leaves_the_front_so_far_and_a_journal_goes_on(
    problem, found, tmp_path, interrupt, evaluated
) -> None:
    front, _ = found
    journaled = replace(problem, journal=tmp_path / "journal.jsonl")
    first = SMALL.search(journaled, interrupt)
    assert not first.complete
    evaluated.clear()
    resumed = SMALL.search(journaled)
    assert resumed.points == front.points
    assert 0 < len(evaluated) < front.distinct


@pytest.mark.parametrize("wrong", [{"evaluations": 0}, {"rounds": 0}, {"population": 3}])
def test_a_budget_out_of_bounds_is_refused(wrong) -> None:
    with pytest.raises(AtlasError, match="needs at least"):
        Hybrid(**wrong)


def test_the_default_budget_grows_with_the_groups_that_are_probed(problem) -> None:
    assert default_evaluations(24) == 400  # six layers of a softmax, two norms and an activation
    assert default_evaluations(48) - default_evaluations(24) == 3 * 24
    groups = groups_of(problem.module, problem.parametrisation)
    assert Hybrid().filled(problem).evaluations == default_evaluations(len(groups))
    assert Hybrid(evaluations=9).filled(problem).evaluations == 9
    aimed = Hybrid().filled(replace(problem, aim=0.01)).evaluations
    assert aimed == default_evaluations(len(groups), aimed=True) < default_evaluations(len(groups))


@pytest.mark.parametrize("aim", [1e-2, 1e-3, 1e-4])
def test_a_search_that_aims_at_an_error_needs_fewer_evaluations(problem, found, aim) -> None:
    front, _ = found
    fewer = replace(SMALL, evaluations=100)
    aimed = fewer.search(replace(problem, aim=aim))
    assert aimed.evaluations <= 100
    least, wanted = (
        min(point.depth for point in one.points if point.error <= aim) for one in (aimed, front)
    )
    assert least <= wanted


def test_a_budget_without_a_prediction_is_refused(problem) -> None:
    with pytest.raises(AtlasError, match="8 evaluations are too few") as caught:
        replace(SMALL, evaluations=8).search(problem)
    assert "{evaluations=9}" in caught.value.remedy
