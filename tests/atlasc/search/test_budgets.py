"""Budgets as a number of evaluations, for strategies that count generations."""

from __future__ import annotations

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.search.nsga2 import generations_within
from atlasc.search.strategies import DEFAULT, STRATEGIES, find_strategy
from atlasc.search.strategies.atlas import Atlas
from atlasc.search.strategy import MODEST_EVALUATIONS


@pytest.mark.parametrize("evaluations", [8, 100, 936, 24_144, 100_000])
def test_generations_fill_a_budget_and_never_exceed_it(evaluations: int) -> None:
    atlas = Atlas.of({"evaluations": evaluations, "seed": 3})
    assert atlas.seed == 3
    assert 0.75 * evaluations <= atlas.evaluations <= evaluations


def test_a_population_is_about_the_number_of_generations_and_bounded() -> None:
    assert generations_within(100, 48) == (10, 9)
    assert generations_within(10_000, 48) == (48, 207)
    assert generations_within(4, 48) == (4, 0)


def test_a_budget_too_small_names_the_least() -> None:
    assert Atlas.of({"evaluations": 8}).evaluations <= 8
    with pytest.raises(AtlasError, match="too small for one generation") as caught:
        Atlas.of({"evaluations": 7})
    assert "give at least 8 evaluations" in caught.value.remedy


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_the_modest_budget_is_modest_and_what_is_given_wins(name: str) -> None:
    chosen = STRATEGIES[name]
    few = chosen.of(chosen.modest({})).evaluations
    assert few is None or few <= MODEST_EVALUATIONS
    assert chosen.modest({"evaluations": 500}) == {"evaluations": 500}


def test_the_default_strategy_exists() -> None:
    assert DEFAULT in STRATEGIES


@pytest.mark.parametrize("name", ["nsga2", "sequential", "grid", "random"])
def test_strategies_to_compare_with_are_refused_with_their_place(name: str) -> None:
    with pytest.raises(AtlasError, match="is not part of the compiler") as caught:
        find_strategy(name)
    assert f"python -m benchmarks.search --strategies {name}" in caught.value.remedy
