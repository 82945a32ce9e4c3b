"""The error model and the dynamic program over it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.search.dynamic_programs import solve_sums
from atlasc.search.error_model import LARGEST, ErrorModel, Group, interpolated
from atlasc.search.local_errors import Candidate, candidates
from atlasc.search.points import Point

LAYERS = 3


@dataclass(frozen=True)
class Op:
    name: str
    location: str


@dataclass(frozen=True)
class Place:
    op: Op


GROUPS = [
    Group(b, "activation", (Place(Op("nn.gelu", f"layer.{b}")),), (0,)) for b in range(LAYERS)
]
TABLES = st.lists(
    st.lists(st.tuples(st.integers(1, 6), st.floats(1e-6, 1.0)), min_size=1, max_size=4),
    min_size=LAYERS,
    max_size=LAYERS,
)


def model_of(tables: list[list[tuple[int, float]]]) -> ErrorModel:
    return ErrorModel(GROUPS, lambda index, choice: tables[index][choice[0]][1])


def settings_of(choices: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    return tuple((choice,) for choice in choices)


def predicted(model: ErrorModel, choices: tuple[int, ...]) -> float:
    logs = [model.log_error(index, (choice,)) for index, choice in enumerate(choices)]
    return float(np.linalg.norm(np.exp(logs), model.exponent))


@given(TABLES)
def test_the_front_is_that_of_an_enumeration(tables) -> None:
    best: dict[int, float] = {}
    for choices in itertools.product(*[range(len(table)) for table in tables]):
        cost, total = map(sum, zip(*[table[i] for table, i in zip(tables, choices)], strict=True))
        best[cost] = min(best.get(cost, np.inf), total)
    expected, least = [], np.inf
    for cost in sorted(best):
        if best[cost] < least * (1 - 1e-12):
            least = best[cost]
            expected.append((cost, least))
    found = solve_sums(tables)
    assert [(p.cost, pytest.approx(p.error)) for p in found] == expected
    for path in found:
        assert sum(table[i][0] for table, i in zip(tables, path.choices)) == path.cost
        errors = [table[i][1] for table, i in zip(tables, path.choices)]
        assert sum(errors) == pytest.approx(path.error)


def test_interpolation_meets_the_probes_and_never_falls() -> None:
    probes = {1e-3: 1e-4, 1e-1: 5e-2, 1.0: float("inf")}
    assert interpolated(probes, 1e-3) == pytest.approx(1e-4)
    assert interpolated(probes, 1e-1) == pytest.approx(5e-2)
    assert interpolated(probes, 1.0) == pytest.approx(LARGEST)
    assert interpolated(probes, float("inf")) == pytest.approx(LARGEST)
    assert interpolated(probes, 1e-5) == pytest.approx(1e-6)  # proportional below
    values = [interpolated(probes, local) for local in np.logspace(-8, 3, 50)]
    assert values == sorted(values)


def test_the_exponent_and_the_choices_follow_the_evaluations() -> None:
    tables = [[(1, 0.1), (2, 0.01)]] * LAYERS
    true = [[0.1, 0.02], [0.1, 0.01], [0.1, 0.01]]  # the first layer's second choice is worse
    points = [
        Point(0, 0, float(np.sum([true[g][c] ** 2 for g, c in enumerate(choices)]) ** 0.5),
              settings_of(choices))
        for choices in itertools.product((0, 1), repeat=LAYERS)
    ]  # fmt: skip
    model = model_of(tables)
    before = [abs(np.log(predicted(model, sum(p.settings, ())) / p.error)) for p in points]
    model.fit(points)
    after = [abs(np.log(predicted(model, sum(p.settings, ())) / p.error)) for p in points]
    assert model.exponent > 1.8
    assert np.mean(after) < 0.5 * np.mean(before)
    assert model.log_error(0, (1,)) > model.log_error(1, (1,))


def test_the_choice_that_errs_most_is_blamed_for_an_explosion_once() -> None:
    model = model_of([[(1, 0.1), (2, 0.01)]] * LAYERS)
    exploded = [
        Point(0, 0, np.inf, settings_of(choices), exploded_at="layer.1: nn.gelu")
        for choices in ((0, 1, 0), (0, 1, 1))
    ]
    model.fit(exploded)
    assert model.log_error(0, (0,)) == pytest.approx(np.log(0.2))
    assert model.log_error(1, (1,)) == pytest.approx(np.log(0.01))
    assert model.log_error(2, (0,)) == pytest.approx(np.log(0.1))


@given(st.randoms(use_true_random=False))
def test_local_search_finds_the_front_of_monotone_choices(random) -> None:
    steps = [[0.01 + random.random() for _ in range(6)] for _ in range(2)]

    def look(choice) -> Candidate:
        error = sum(sum(column[value:]) for column, value in zip(steps, choice)) + 1e-3
        return Candidate(sum(choice), error, choice)

    found = candidates([(5, 5)], (0, 0), (5, 5), lambda choice: choice, look)
    best = {}
    for choice in itertools.product(range(6), repeat=2):
        candidate = look(choice)
        best[candidate.cost] = min(best.get(candidate.cost, np.inf), candidate.local)
    assert [c.cost for c in found] == sorted(best)
    assert found[0].choice == (0, 0)
    assert found[-1].local == pytest.approx(best[10])
    assert all(a.local > b.local for a, b in itertools.pairwise(found))


@given(st.randoms(use_true_random=False))
def test_local_search_looks_at_the_whole_error_only_where_it_may_count(random) -> None:
    """Some choices explode, which the first look at them does not show."""
    choices = list(itertools.product(range(5), repeat=2))
    seen = {choice: random.random() for choice in choices}
    whole = {choice: np.inf if random.random() < 0.3 else seen[choice] for choice in choices}
    asked = []

    def of(errors, choice) -> Candidate:
        return Candidate(sum(choice), errors[choice], choice)

    def expensive(choice) -> Candidate:
        asked.append(choice)
        return of(whole, choice)

    space = [(4, 4), (0, 2)], (0, 0), (4, 4), lambda choice: choice
    found = candidates(*space, lambda choice: of(seen, choice), expensive)
    assert found == candidates(*space, lambda choice: of(whole, choice))
    assert len(asked) == len(set(asked)) <= len(choices)
