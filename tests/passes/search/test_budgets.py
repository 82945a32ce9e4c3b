"""Budgets as a number of evaluations, for strategies that count generations."""

from __future__ import annotations

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.nsga2 import generations_within
from atlasc.passes.search.strategies.named import DEFAULT, MODEST_EVALUATIONS, STRATEGIES, strategy


@pytest.mark.parametrize("name", ["atlas", "nsga2"])
@pytest.mark.parametrize("evaluations", [8, 100, 936, 24_144, 100_000])
def test_generations_fill_a_budget_and_never_exceed_it(name: str, evaluations: int) -> None:
    options = strategy(name).make_options({"evaluations": evaluations, "seed": 3})
    assert options.seed == 3
    assert 0.75 * evaluations <= options.evaluations <= evaluations


def test_a_population_is_about_the_number_of_generations_and_bounded() -> None:
    assert generations_within(100, 48) == (10, 9)
    assert generations_within(10_000, 48) == (48, 207)
    assert generations_within(4, 48) == (4, 0)


@pytest.mark.parametrize(("name", "least"), [("atlas", 8), ("nsga2", 4)])
def test_a_budget_too_small_names_the_least(name: str, least: int) -> None:
    assert strategy(name).make_options({"evaluations": least}).evaluations <= least
    with pytest.raises(AtlasError, match="too small for one generation") as caught:
        strategy(name).make_options({"evaluations": least - 1})
    assert f"give {least} evaluations" in caught.value.remedy


@pytest.mark.parametrize("name", list(STRATEGIES))
def test_the_modest_budget_is_modest_and_what_is_given_wins(name: str) -> None:
    chosen = strategy(name)
    few = chosen.make_options(chosen.modest({})).evaluations
    assert few is None or few <= MODEST_EVALUATIONS
    assert chosen.modest({"evaluations": 500}) == {"evaluations": 500}


def test_the_default_strategy_exists() -> None:
    assert DEFAULT in STRATEGIES
