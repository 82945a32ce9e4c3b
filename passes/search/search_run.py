"""One run of a search: it evaluates what a strategy asks for, counts, and keeps the front."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.passes.search.evaluator import Evaluator
from atlasc.passes.search.front import Front, Moment
from atlasc.passes.search.journal import Journal
from atlasc.passes.search.point import Point, hypervolume, non_dominated
from atlasc.passes.search.ray_workers import RayEvaluator, RayPool
from atlasc.passes.search.search_problem import SearchProblem
from atlasc.passes.search.space import Settings, is_partial


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        done, total: evaluations.
        seconds: since its start.
        front: non-dominated points so far, from cheap to accurate.
        hypervolume: of that front.
    """

    done: int
    total: int
    seconds: float
    front: tuple[Point, ...]
    hypervolume: float = 0.0


ProgressCallback = Callable[[Progress], None]


class SearchRun:
    """Evaluates batches for a strategy.

    Args:
        problem: what is searched.
        total: how many evaluations the strategy will ask for.
        progress: called after every batch.
        journal: keeps every point as soon as it is known.
        pool: workers that evaluate; None for this process.

    Attributes:
        objective: the problem's objective in this process.
        done: evaluations so far.
        asked: what they gave, by the blocks of the early-layer proxy (None for the whole model)
            and the settings.
        points: non-dominated so far. A point counts once this run has asked for it, and not before
            because an earlier run left it in the journal: so the front depends on the seed alone.
        complete: whether the search came to its end.
        rank_correlation: see `Front`.
    """

    def __init__(
        self,
        problem: SearchProblem,
        total: int,
        progress: ProgressCallback | None = None,
        journal: Journal | None = None,
        pool: RayPool | None = None,
    ) -> None:
        self.problem, self.total, self._progress = problem, total, progress
        self._journal, self._pool = journal, pool
        self._started = time.monotonic()
        self.objective = problem.objective()
        self._reference = problem.reference(self.objective)
        self._whole = self.evaluator(None)
        self.done = 0
        self.asked: dict[tuple[int | None, Settings], Point] = {}
        self.points: list[Point] = []
        self.complete = True
        self.rank_correlation: float | None = None
        self._history: list[Moment] = []

    def evaluator(self, layers: int | None) -> Evaluator:
        """Evaluates on the first layers alone; None for the whole model."""
        evaluator: Evaluator
        if self._pool is not None:
            evaluator = RayEvaluator(self._pool, layers, self.objective.prefix)
        else:
            evaluator = self.objective if layers is None else self.problem.objective(layers)
        if self._journal is not None:
            known = self._journal.points.items()
            evaluator.known.update((s, p) for (blocks, s), p in known if blocks == layers)
        return evaluator

    def evaluate(self, vectors: np.ndarray, evaluator: Evaluator | None = None) -> np.ndarray:
        """Objectives [n, 2] of vectors [n, variables]: infinite where values explode.

        Args:
            evaluator: of the early-layer proxy; None for the whole model.
        """
        points = self.points_of([self.objective.space.decode(v) for v in vectors], evaluator)
        cost = self.problem.cost
        pairs = [(p.cost(cost), p.error) if p.valid else (np.inf, np.inf) for p in points]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)

    def points_of(
        self, batch: Sequence[Settings], evaluator: Evaluator | None = None
    ) -> list[Point]:
        """Points of settings in canonical form, also of probes, which leave ops exact."""
        evaluator, journal = evaluator or self._whole, self._journal

        def keep(point: Point) -> None:
            if journal is not None:
                journal.add(point, evaluator.layers)

        points = evaluator.evaluate_all(batch, keep)
        self.asked.update(((evaluator.layers, point.settings), point) for point in points)
        self.done += len(batch)
        if evaluator.layers is None:
            whole = [p for p in points if not is_partial(p.settings)]
            self.points = non_dominated([*self.points, *whole], self.problem.cost)
        pairs = [(p.cost(self.problem.cost), p.error) for p in self.points]
        moment = Moment(self.done, self._seconds(), hypervolume(pairs, self._reference))
        self._history.append(moment)
        if self._progress is not None:
            self._progress(
                Progress(
                    self.done, self.total, moment.seconds, tuple(self.points), moment.hypervolume
                )
            )
        return points

    def front(self, strategy: str) -> Front:
        """The front of everything that was evaluated on the whole model."""
        return Front(
            tuple(self.points),
            self.problem.cost,
            self._reference,
            self.done,
            len(self.asked),
            self._seconds(),
            strategy,
            self.complete,
            self.problem.parametrisation,
            tuple(self._history),
            rank_correlation=self.rank_correlation,
        )

    def _seconds(self) -> float:
        return time.monotonic() - self._started
