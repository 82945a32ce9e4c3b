"""NSGA-II on integer vectors (Deb et al. 2002), with the paper's operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError

PENALTY = 1e12
"""Objectives of an invalid setting: worse than all valid ones, but finite, because crowding
distances need it."""

LEAST_POPULATION = 4

Evaluate = Callable[[np.ndarray], np.ndarray]
"""Maps vectors [n, variables] to objectives [n, 2] to minimise; infinite for invalid vectors."""


def check_population(population: int, generations: int = 0) -> None:
    """Raise AtlasError for a size of population or a number of generations that is impossible."""
    if population < LEAST_POPULATION:
        raise AtlasError(f"a population needs at least {LEAST_POPULATION} settings")
    if generations < 0:
        raise AtlasError("a search cannot have a negative number of generations")


def require_generation(evaluations: int, stages: int = 1) -> None:
    """Raise AtlasError unless each stage can evaluate a population once."""
    least = stages * LEAST_POPULATION
    if evaluations < least:
        raise AtlasError(
            f"a budget of {evaluations} evaluations is too small for one generation",
            why=f"a population has at least {LEAST_POPULATION} settings"
            + (f", and there are {stages} stages" if stages > 1 else ""),
            remedy=f"give at least {least} evaluations",
        )


def generations_within(evaluations: int, largest: int) -> tuple[int, int]:
    """A size of the population (at most `largest`) and a number of further generations.

    Together they make at most ``evaluations`` evaluations, which must be at least
    `LEAST_POPULATION`.
    """
    population = int(np.clip(math.isqrt(evaluations), LEAST_POPULATION, largest))
    return population, evaluations // population - 1


def step_mutation(
    vectors: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    generator: np.random.Generator,
) -> np.ndarray:
    """Change each integer by +1 or -1 with probability 1 / variables; bounds reflect."""
    rate = 1 / vectors.shape[1]
    moves = generator.random(vectors.shape) < rate
    steps = np.where(generator.random(vectors.shape) < 0.5, 1, -1)
    moved = vectors + np.where(moves, steps, 0)
    moved = np.where(moved > upper, upper - 1, np.where(moved < lower, lower + 1, moved))
    return np.clip(moved, lower, upper)


def minimise(
    evaluate: Evaluate,
    initial: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    *,
    generations: int,
    seed: int,
) -> np.ndarray:
    """The first front of the last population, [m, variables].

    Binary tournament, two-point crossover with probability 0.9, `step_mutation`, elimination of
    duplicates.

    Args:
        evaluate: computes objectives.
        initial: the first population, [population, variables]; it is evaluated too, so there are
            population times (generations + 1) evaluations.
        lower, upper: bounds of the integers, [variables].
        generations: number of generations after the first population.
        seed: equal seeds give equal results.
    """
    from pymoo.algorithms.moo.nsga2 import NSGA2
    from pymoo.config import Config
    from pymoo.core.mutation import Mutation
    from pymoo.core.problem import Problem
    from pymoo.operators.crossover.pntx import TwoPointCrossover

    Config.warnings["not_compiled"] = False
    generator = np.random.default_rng([seed, 1])

    class StepMutation(Mutation):
        """`step_mutation` in pymoo's form."""

        def _do(self, problem: Any, x: np.ndarray, *args: Any, **kwargs: Any) -> np.ndarray:
            return step_mutation(np.asarray(x, dtype=np.int64), lower, upper, generator)

    algorithm = NSGA2(
        pop_size=len(initial),
        sampling=initial,
        crossover=TwoPointCrossover(prob=0.9),
        mutation=StepMutation(),
        eliminate_duplicates=True,
    )
    algorithm.setup(
        Problem(n_var=len(lower), n_obj=2, xl=lower, xu=upper, vtype=int),
        termination=("n_gen", generations + 1),
        seed=seed,
        verbose=False,
    )
    while algorithm.has_next():
        asked = algorithm.ask()
        if asked is not None:  # None if the population has every setting already
            objectives = evaluate(np.asarray(asked.get("X"), dtype=np.int64))
            valid = np.isfinite(objectives).all(axis=1, keepdims=True)
            asked.set("F", np.where(valid, objectives, PENALTY))
        algorithm.tell(infills=asked)
    population = algorithm.pop
    valid = np.all(np.asarray(population.get("F")) < PENALTY, axis=1)
    best = np.equal(population.get("rank"), 0) & valid
    return np.asarray(population.get("X"), dtype=np.int64)[best]
