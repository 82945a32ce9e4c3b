"""One run of a search: counts, progress, the journal, and the front at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import numpy as np

from atlasc.passes.search.evaluator import Evaluator
from atlasc.passes.search.front import Front, Point, hypervolume, non_dominated
from atlasc.passes.search.history import Moment
from atlasc.passes.search.journal import Journal, trajectory
from atlasc.passes.search.nsga2 import Evaluate
from atlasc.passes.search.problem import SearchProblem
from atlasc.passes.search.ray_workers import RayEvaluator, RayPool
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


class Session:
    """Evaluates batches for a strategy. As a context it ends quietly on a keyboard interrupt.

    Args:
        problem: what is searched.
        options: of the strategy; `evaluations` is how many it will ask for.
        progress: called after every batch.

    Attributes:
        objective: the problem's objective in this process.
        done: evaluations so far.
        asked: what they gave, by the blocks of the early-layer proxy (None for the whole model)
            and the settings.
        points: non-dominated so far.
    """

    def __init__(
        self, problem: SearchProblem, options: Any, progress: ProgressCallback | None = None
    ) -> None:
        self.problem, self.total, self._progress = problem, options.evaluations, progress
        self.started = time.monotonic()
        self.objective = problem.objective()
        self.done = 0
        self.complete = True
        self.asked: dict[tuple[int | None, Settings], Point] = {}
        self._reference = problem.reference(self.objective)
        # Of what this run has asked for: what an earlier run left in the journal does not count
        # before, so that the front depends on the seed alone.
        self.points: list[Point] = []
        self._history: list[Moment] = []
        self._journal: Journal | None = None
        self._pool: RayPool | None = None
        with ExitStack() as opened:
            if problem.journal is not None:
                identity = {**problem.identity(), **trajectory(options)}
                journal = Journal.open(problem.journal, identity, problem.note)
                self._journal = opened.enter_context(journal)
            if problem.workers is not None:
                self._pool = opened.enter_context(RayPool(problem, problem.workers))
            self._opened = opened.pop_all()
        self._whole = self._evaluator(None)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        self._opened.close()
        self.complete = kind is None
        return kind is KeyboardInterrupt

    def evaluate(self, vectors: np.ndarray) -> np.ndarray:
        """Objectives [n, 2] of vectors [n, variables] on the whole model."""
        return self._evaluate(self._whole, vectors)

    @contextmanager
    def proxy(self, layers: int | None) -> Iterator[Evaluate]:
        """The same on the first layers only; None for the whole model."""
        if layers is None:
            yield self.evaluate
        else:
            evaluator = self._evaluator(layers)
            yield lambda vectors: self._evaluate(evaluator, vectors)

    def _evaluator(self, layers: int | None) -> Evaluator:
        evaluator: Evaluator
        if self._pool is not None:
            evaluator = RayEvaluator(self._pool, layers, self.objective.prefix)
        else:
            evaluator = self.objective if layers is None else self.problem.objective(layers)
        if self._journal is not None:
            known = self._journal.points.items()
            evaluator.known.update((s, p) for (blocks, s), p in known if blocks == layers)
        return evaluator

    def points_of(
        self, batch: Sequence[Settings], evaluator: Evaluator | None = None
    ) -> list[Point]:
        """Points of settings in canonical form; a probe, which leaves ops exact, is one too.

        Args:
            evaluator: of the early-layer proxy; None for the whole model.
        """
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
        area = hypervolume(pairs, self._reference)
        self._history.append(Moment(self.done, self._seconds(), area))
        if self._progress is not None:
            found = tuple(self.points)
            self._progress(Progress(self.done, self.total, self._seconds(), found, area))
        return points

    def _evaluate(self, evaluator: Evaluator, vectors: np.ndarray) -> np.ndarray:
        points = self.points_of([self.objective.space.decode(v) for v in vectors], evaluator)
        cost = self.problem.cost
        pairs = [(p.cost(cost), p.error) if p.valid else (np.inf, np.inf) for p in points]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)

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
            history=tuple(self._history),
        )

    def _seconds(self) -> float:
        return time.monotonic() - self.started
