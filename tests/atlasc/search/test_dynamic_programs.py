"""The joint program against brute force: every option of every stage at every level."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import pytest

from atlasc.search.dynamic_programs import (
    Option,
    Solution,
    prune,
    solve,
    solve_rounded,
)
from atlasc.search.points import cheap_to_accurate

LEVELS = 4


def random_table(rng: random.Random, width: int) -> np.ndarray:
    entries = [
        math.inf if rng.random() < 0.3 else rng.randint(0, 20) for _ in range(LEVELS * width)
    ]
    return np.array(entries, dtype=np.float64).reshape(LEVELS, width)


def random_problem(seed: int, largest_error: int = 6) -> tuple[np.ndarray, list[list[Option]]]:
    rng = random.Random(seed)
    stages = rng.randint(1, 4)
    start = np.array([math.inf if rng.random() < 0.3 else rng.randint(0, 5) for _ in range(LEVELS)])
    options = [
        [
            Option(
                random_table(rng, 1 if n == stages - 1 else LEVELS), rng.randint(0, largest_error)
            )
            for _ in range(rng.randint(1, 4))
        ]
        for n in range(stages)
    ]
    return start.astype(np.float64), options


def non_dominated(paths: list[Solution]) -> list[Solution]:
    return cheap_to_accurate(paths, lambda path: (path.cost, path.error))


def brute_force(start: np.ndarray, stages: list[list[Option]]) -> list[Solution]:
    """The front over all combinations of options, each with all combinations of levels."""
    found = []
    for choice in itertools.product(*(range(len(stage)) for stage in stages)):
        tables = [stage[index].table for stage, index in zip(stages, choice, strict=True)]
        seconds = math.inf
        for levels in itertools.product(range(LEVELS), repeat=len(tables)):
            ends = (*levels[1:], 0)
            steps = [t[i, j] for t, i, j in zip(tables, levels, ends, strict=True)]
            seconds = min(seconds, start[levels[0]] + sum(steps))
        if seconds < math.inf:
            error = sum(stage[index].error for stage, index in zip(stages, choice, strict=True))
            found.append(Solution(seconds, error, choice))
    return non_dominated(found)


def pairs(paths: list[Solution]) -> list[tuple[float, float]]:
    return [(path.cost, path.error) for path in paths]


def check_options(start: np.ndarray, stages: list[list[Option]], paths: list[Solution]) -> None:
    """A path costs what its options cost."""
    for path in paths:
        only = [[stage[index]] for stage, index in zip(stages, path.choices, strict=True)]
        assert pairs(brute_force(start, only)) == [(path.cost, pytest.approx(path.error))]


def test_whole_errors_equal_brute_force() -> None:
    fronts = 0
    for seed in range(150):
        start, stages = random_problem(seed)
        expected = brute_force(start, stages)
        found = solve_rounded(start, stages, 1.0, 24)
        assert pairs(non_dominated(found)) == pairs(expected)
        check_options(start, stages, found)
        fronts += len(expected) > 2
    assert fronts >= 40


def test_a_budget_leaves_out_what_exceeds_it() -> None:
    for seed in range(40):
        start, stages = random_problem(seed)
        expected = [path for path in brute_force(start, stages) if path.error <= 5]
        assert pairs(non_dominated(solve_rounded(start, stages, 1.0, 5))) == pairs(expected)


def test_errors_of_all_sizes_equal_brute_force_up_to_rounding() -> None:
    """For each point of the true front there is one as cheap, 2 n / resolution less accurate."""
    rng = random.Random(0)
    for seed in range(60):
        start, stages = random_problem(seed)
        spread = [
            [Option(o.table, 10 ** rng.uniform(-7, 1) * (rng.random() < 0.9)) for o in stage]
            for stage in stages
        ]
        found = solve(start, spread, 64)
        check_options(start, spread, found)
        for path in brute_force(start, spread):
            allowed = path.error * (1 + 2 * len(stages) / 64) + 1e-15
            assert any(p.cost <= path.cost and p.error <= allowed for p in found)


def test_options_without_a_finite_error_are_not_taken() -> None:
    table = np.zeros((LEVELS, 1))
    start = np.zeros(LEVELS)
    good, bad = Option(table + 5, 1.0), Option(table, math.inf)
    assert [p.choices for p in solve(start, [[bad, good]])] == [(1,)]
    assert solve(start, [[bad]]) == []


def test_options_that_others_beat_are_pruned() -> None:
    table = np.arange(LEVELS, dtype=np.float64)[:, None]
    options = [Option(table, 2.0), Option(table, 1.0), Option(table - 1, 3.0), Option(table, 1.0)]
    assert sorted(prune(options)) == [1, 2]
    for seed in range(30):
        start, stages = random_problem(seed)
        kept = [[stage[index] for index in prune(stage)] for stage in stages]
        assert pairs(brute_force(start, kept)) == pairs(brute_force(start, stages))
