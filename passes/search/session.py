"""One run of a search: counts, progress, the journal, and the front at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from atlasc.passes.search.front import Front, Point, non_dominated
from atlasc.passes.search.journal import Journal
from atlasc.passes.search.nsga2 import Evaluate
from atlasc.passes.search.objective import Objective
from atlasc.passes.search.problem import SearchProblem


@dataclass(frozen=True)
class Progress:
    """How far a search is.

    Attributes:
        done, total: evaluations.
        seconds: since its start.
        front: non-dominated points so far, from cheap to accurate.
    """

    done: int
    total: int
    seconds: float
    front: tuple[Point, ...]

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the time that evaluations have taken; None before the first."""
        return self.seconds * (self.total - self.done) / self.done if self.done else None


ProgressCallback = Callable[[Progress], None]


class Session:
    """Evaluates batches for a strategy. As a context it ends quietly on a keyboard interrupt.

    Args:
        problem: what is searched.
        total: evaluations that the strategy will ask for.
        progress: called after every batch.
    """

    def __init__(
        self, problem: SearchProblem, total: int, progress: ProgressCallback | None = None
    ) -> None:
        self.problem, self.total, self._progress = problem, total, progress
        self.started = time.monotonic()
        self.objective = problem.objective()
        self.done = 0
        self.complete = True
        self._journal = Journal.open(problem.journal, problem.digest) if problem.journal else None
        if self._journal is not None:
            self.objective.known.update(self._journal.points)
        self._asked: set[tuple[int | None, object]] = set()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._journal is not None:
            self._journal.close()
        self.complete = kind is None
        return kind is KeyboardInterrupt

    def evaluate(self, vectors: np.ndarray) -> np.ndarray:
        """Objectives [n, 2] of vectors [n, 8 L] on the whole model."""
        return self._evaluate(self.objective, vectors)

    @contextmanager
    def proxy(self, layers: int | None) -> Iterator[Evaluate]:
        """The same on the first layers only; None for the whole model."""
        if layers is None:
            yield self.evaluate
        else:
            objective = self.problem.objective(layers)
            yield lambda vectors: self._evaluate(objective, vectors)

    def _evaluate(self, objective: Objective, vectors: np.ndarray) -> np.ndarray:
        batch = [objective.space.decode(vector) for vector in vectors]
        points = objective.evaluate_all(batch)
        self._asked |= {(objective.layers, settings) for settings in batch}
        if self._journal is not None and objective is self.objective:
            self._journal.add(points)
        self.done += len(batch)
        if self._progress is not None:
            self._progress(Progress(self.done, self.total, self._seconds(), tuple(self._points())))
        cost = self.problem.cost
        pairs = [(p.cost(cost), p.error) if p.valid else (np.inf, np.inf) for p in points]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)

    def front(self, strategy: str) -> Front:
        """The front of everything that was evaluated on the whole model."""
        return Front(
            tuple(self._points()),
            self.problem.cost,
            self.problem.reference(self.objective),
            self.done,
            len(self._asked),
            self._seconds(),
            strategy,
            self.complete,
        )

    def _points(self) -> list[Point]:
        # What an earlier run left in the journal counts only once this run has asked for it, so
        # that the front depends on the seed alone.
        asked = (p for s, p in self.objective.known.items() if (None, s) in self._asked)
        return non_dominated(asked, self.problem.cost)

    def _seconds(self) -> float:
        return time.monotonic() - self.started
