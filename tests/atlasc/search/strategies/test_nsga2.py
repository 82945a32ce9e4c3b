"""NSGA-II: its operators, its budget, and that it finds a known front."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.polynomials.parametrisation import PAPER
from atlasc.search.nsga2 import minimise, step_mutation

LOW, HIGH = np.array(PAPER.lower), np.array(PAPER.upper)


@given(st.integers(0, 2**32 - 1))
def test_a_mutation_steps_by_one_within_the_bounds(seed: int) -> None:
    generator = np.random.default_rng(seed)
    vectors = generator.integers(LOW, HIGH + 1, size=(50, 8))
    mutated = step_mutation(vectors, LOW, HIGH, generator)
    assert np.all((mutated >= LOW) & (mutated <= HIGH))
    assert np.all(np.abs(mutated - vectors) <= 1)


def test_one_variable_changes_on_average() -> None:
    generator = np.random.default_rng(0)
    vectors = generator.integers(LOW, HIGH + 1, size=(20_000, 8))
    changed = step_mutation(vectors, LOW, HIGH, generator) != vectors
    assert changed.sum(axis=1).mean() == pytest.approx(1.0, abs=0.03)
    assert changed.mean(axis=0) == pytest.approx(np.full(8, 1 / 8), abs=0.01)


def two_costs(vectors: np.ndarray) -> np.ndarray:
    """Both objectives pull: the sum, and the distance from the upper corner; odd p1 is invalid."""
    values = np.stack([vectors.sum(axis=1), np.square(HIGH - vectors).sum(axis=1)], axis=1)
    return np.where(vectors[:, :1] % 2 == 1, np.inf, values.astype(float))


def run(seed: int, seen: list[np.ndarray], generations: int = 30) -> np.ndarray:
    def evaluate(vectors: np.ndarray) -> np.ndarray:
        seen.append(vectors)
        return two_costs(vectors)

    initial = np.random.default_rng(seed).integers(LOW, HIGH + 1, size=(24, 8))
    return minimise(evaluate, initial, LOW, HIGH, generations=generations, seed=seed)


def test_the_budget_is_population_times_generations_and_the_first() -> None:
    seen: list[np.ndarray] = []
    run(3, seen, generations=7)
    assert [len(vectors) for vectors in seen] == [24] * 8
    assert all(np.all((v >= LOW) & (v <= HIGH)) for v in seen)


def test_a_seed_fixes_the_result() -> None:
    first, again, other = ([], [], [])
    assert np.array_equal(run(5, first), run(5, again))
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    run(6, other)
    assert not np.array_equal(first[-1], other[-1])


def test_the_result_is_valid_non_dominated_and_better_than_chance() -> None:
    seen: list[np.ndarray] = []
    found = two_costs(run(1, seen))
    assert np.isfinite(found).all()
    for a in found:
        assert not any(np.all(b <= a) and np.any(b < a) for b in found)
    start = two_costs(seen[0])
    start = start[np.isfinite(start).all(axis=1)]
    dominated = [any(np.all(b <= a) for b in found) for a in start]
    assert np.mean(dominated) > 0.9


def test_nothing_valid_gives_an_empty_result() -> None:
    initial = np.random.default_rng(0).integers(LOW, HIGH + 1, size=(8, 8))
    found = minimise(
        lambda vectors: np.full((len(vectors), 2), np.inf),
        initial,
        LOW,
        HIGH,
        generations=2,
        seed=0,
    )
    assert found.shape == (0, 8)
