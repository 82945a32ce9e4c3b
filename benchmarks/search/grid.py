"""Independent grid: softmax, norms and activation are searched each on its own, then combined."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.polynomials.parametrisation import (
    ACTIVATION,
    ALGORITHM,
    DIRECT,
    FIRST_NORM,
    RENORMALISED,
    SECOND_NORM,
    SOFTMAX,
    SOFTMAX_ITERATIONS,
    Parametrisation,
)
from atlasc.search.points import expert_layer
from atlasc.search.strategy import SearchRun, Strategy

NORMS = (*FIRST_NORM, *SECOND_NORM)
RESERVED = 8
"""One part in so many of the budget is kept for combinations, and one is the most for norms."""
BATCH = 96


@dataclass(frozen=True)
class Grid:
    """Choices of one group.

    Attributes:
        columns: which of a layer's integers it holds.
        choices: [n, columns].
    """

    columns: tuple[int, ...]
    choices: np.ndarray

    def rows(self, layer: tuple[int, ...]) -> np.ndarray:
        """The layer with each of the choices, [n, integers of a layer]."""
        rows = np.tile(layer, (len(self.choices), 1))
        rows[:, self.columns] = self.choices
        return rows


@dataclass(frozen=True)
class GridSearch(Strategy):
    """Searches each group on a grid, with all else at the expert setting `is`, then combines.

    All layers share one setting. Our reading of the paper's baseline: a group's grid is the finest
    that the budget allows, with equal steps; the default budget holds every choice of the paper's
    space. What no other choice of its group dominates is combined with that of the other groups,
    and the combinations are evaluated in the order in which sums of the groups' costs and errors
    dominate each other, until the budget is spent. The seed has no effect: nothing is random.

    Attributes:
        evaluations: at most; it decides how fine the grid is.
    """

    name = "grid"
    evaluations: int = 24_144

    def __post_init__(self) -> None:
        if self.evaluations < 100:
            raise AtlasError("a grid search needs at least 100 evaluations")

    def run(self, run: SearchRun) -> None:
        """Evaluate the grids, then the combinations."""
        parametrisation = run.problem.parametrisation
        expert = expert_layer(parametrisation)
        best, sums = [], np.zeros((1, 2))
        for grid in grids(parametrisation, self.evaluations):
            objectives = _evaluate(run, grid.rows(expert))
            kept = _non_dominated(objectives)
            best.append(Grid(grid.columns, grid.choices[kept]))
            sums = (sums[:, np.newaxis] + objectives[kept]).reshape(-1, 2)
        combinations = np.indices([len(grid.choices) for grid in best]).reshape(len(best), -1).T
        chosen = combinations[_ranked(sums, self.evaluations - run.front.evaluations)]
        rows = np.tile(expert, (len(chosen), 1))
        for grid, indices in zip(best, chosen.T, strict=True):
            rows[:, grid.columns] = grid.choices[indices]
        run.total = run.front.evaluations + len(rows)
        _evaluate(run, rows)


def grids(parametrisation: Parametrisation, evaluations: int) -> list[Grid]:
    """The grids of softmax, norms and activation within a budget.

    Of a space with several softmax algorithms they hold them all; where not even two steps of each
    fit into the budget, none is renormalised.
    """
    top = parametrisation.upper
    most = evaluations // RESERVED
    norms = _steps(top[NORMS[0]], int(most**0.5))
    activation = _steps(top[ACTIVATION[0]], most)
    left = evaluations - most - len(norms) ** 2 - len(activation)
    algorithms = range(len(parametrisation.algorithms))
    if _choices(2, algorithms) > left:
        algorithms = algorithms[:RENORMALISED]
    sizes = range(2, top[0] + 1)
    fitting = [n for n in sizes if n == 2 or _choices(n, algorithms) <= left]
    softmax = _softmax(_steps(top[0], max(fitting)), algorithms)
    chosen = len(parametrisation.algorithms) > 1
    columns = (*SOFTMAX, *ALGORITHM) if chosen else SOFTMAX
    return [
        Grid(columns, softmax[:, : len(columns)]),
        Grid(NORMS, np.array(list(itertools.product(norms, repeat=2)))),
        Grid(ACTIVATION, np.array(activation)[:, np.newaxis]),
    ]


def _steps(top: int, count: int) -> list[int]:
    """At most `count` integers from 1 to `top`, in equal steps as far as rounding lets them."""
    return np.unique(np.linspace(1, top, min(count, top)).round().astype(int)).tolist()


def _lengths(algorithm: int) -> Sequence[int]:
    """How many integers a softmax may have: one for each iteration, or two of a direct one."""
    return [2] if algorithm == DIRECT else range(1, SOFTMAX_ITERATIONS + 1)


def _choices(steps: int, algorithms: Iterable[int]) -> int:
    return sum(steps**length for algorithm in algorithms for length in _lengths(algorithm))


def _softmax(steps: list[int], algorithms: Iterable[int]) -> np.ndarray:
    """All choices of these steps, with the algorithm as the last integer."""
    return np.array(
        [
            (*p, *(0,) * (SOFTMAX_ITERATIONS - length), algorithm)
            for algorithm in algorithms
            for length in _lengths(algorithm)
            for p in itertools.product(steps, repeat=length)
        ]
    )


def _evaluate(run: SearchRun, rows: np.ndarray) -> np.ndarray:
    """Objectives of settings that all layers share."""
    vectors = np.tile(rows, run.objective.space.layers)
    parts = [run.evaluate(vectors[i : i + BATCH]) for i in range(0, len(vectors), BATCH)]
    return np.concatenate([np.empty((0, 2)), *parts])


def _non_dominated(objectives: np.ndarray) -> np.ndarray:
    """Indices of the finite pairs that no other dominates, from cheap to accurate."""
    order = np.lexsort((objectives[:, 1], objectives[:, 0]))
    errors = objectives[order, 1]
    before = np.minimum.accumulate(np.concatenate([[np.inf], errors]))[:-1]
    return order[errors < before]


def _ranked(objectives: np.ndarray, count: int) -> np.ndarray:
    """Indices of that many pairs: the non-dominated ones, then those of the rest, and so on."""
    left, found = np.arange(len(objectives)), np.empty(0, dtype=int)
    while len(left) and len(found) < count:
        first = _non_dominated(objectives[left])
        found = np.concatenate([found, left[first]])
        left = np.delete(left, first)
    return found[:count]
