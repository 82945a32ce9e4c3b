"""The base class of search strategies, and a run, which evaluates, counts, and keeps the front."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from typing_extensions import Self

from atlasc.calibration.measure import blas_threads
from atlasc.ir.errors import AtlasError
from atlasc.search.front import Front, Moment
from atlasc.search.journal import Journal, Key
from atlasc.search.points import Point, Settings, is_partial, non_dominated
from atlasc.search.ray_workers import RayPool
from atlasc.search.search_problem import SearchProblem

MODEST_EVALUATIONS = 936
"""Greatest number of evaluations of the search inside ``compile``, if the user gives none."""
EVALUATING = "evaluating settings"
EXTENDS = {"extends": True}
"""Metadata of an option that lengthens a search: a search may continue with another value of it,
and reuses the evaluations of the shorter search."""


class Progress(NamedTuple):
    """The progress of a search.

    Attributes:
        front: the front so far.
        work: name of the current work.
        done, total: how much of it is done; counted in evaluations if the work is `EVALUATING`.
        note: a few words on the current state.
    """

    front: Front
    work: str
    done: int
    total: int
    note: str


ProgressCallback = Callable[[Progress], None]


class SearchRun:
    """Evaluates batches for a strategy; equal settings are evaluated once.

    Args:
        total: number of evaluations that the strategy will ask for.
        progress: called after every evaluation and every batch.
        journal: keeps every point as soon as it is known.
        pool: workers that evaluate; None for this process.

    Attributes:
        objective: the problem's objective in this process.
        asked: (blocks of the early-layer proxy, or None for the whole model; settings) -> point.
        front: the front so far. A point counts once this run has asked for it, even if an earlier
            run left it in the journal, so that the front depends only on the seed.
        stage: purpose of the current evaluations, in a few words.
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
        self._objective_of = cache(problem.objective)
        self.objective = self._objective_of(None)
        reference = problem.reference(self.objective)
        self.front = Front(
            (), problem.cost, reference, parametrisation=problem.parametrisation,
            variation=float(f"{self.objective.variation:.6g}"),
        )  # fmt: skip
        self._known: dict[Key, Point] = {} if journal is None else dict(journal.points)
        self.asked: dict[Key, Point] = {}
        self.stage = ""

    @property
    def left(self) -> int:
        """Number of evaluations that the strategy may still ask for."""
        return self.total - self.front.evaluations

    def evaluate(self, vectors: np.ndarray, layers: int | None = None) -> np.ndarray:
        """Objectives [n, 2] of vectors [n, variables]; infinite if values explode.

        Args:
            vectors: the integers of settings.
            layers: number of blocks in the early-layer proxy; None for the whole model.
        """
        points = self.points_of([self.objective.space.decode(v) for v in vectors], layers)
        cost = self.problem.cost
        pairs = [(p.cost(cost), p.error) if p.valid else (np.inf, np.inf) for p in points]
        return np.array(pairs, dtype=np.float64).reshape(-1, 2)

    def points_of(self, batch: Sequence[Settings], layers: int | None = None) -> list[Point]:
        """Points of settings in canonical form. Probes, which leave ops exact, are allowed."""
        new = {s for s in batch if (layers, s) not in self._known}
        known = self.front.evaluations + len(batch) - len(new)
        for done, point in enumerate(self._new_points(new, layers), known + 1):
            self._known[layers, point.settings] = point
            if self._journal is not None:
                self._journal.add(point, layers)
            self.report(EVALUATING, done, self.total)
        points = [self._known[layers, settings] for settings in batch]
        self.asked.update(((layers, point.settings), point) for point in points)
        best = self.front.points
        if layers is None:
            whole = [p for p in points if not is_partial(p.settings)]
            best = tuple(non_dominated([*best, *whole], self.problem.cost))
        front = replace(
            self.front,
            points=best,
            evaluations=self.front.evaluations + len(batch),
            distinct=len(self.asked),
            seconds=time.monotonic() - self._started,
        )
        moment = Moment(front.evaluations, front.seconds, front.hypervolume)
        self.front = replace(front, history=(*front.history, moment))
        self.report(EVALUATING, self.front.evaluations, self.total)
        return points

    def report(self, work: str, done: int, total: int, note: str = "") -> None:
        """Report progress; without a note, the note is the stage and the least error."""
        if self._progress is not None:
            points = self.front.points
            best = f"best error {points[-1].error:.2g}" if points else "none finite yet"
            note = note or (f"{self.stage}, {best}" if self.stage else best)
            self._progress(Progress(self.front, work, done, total, note))

    def _new_points(self, settings: set[Settings], layers: int | None) -> Iterator[Point]:
        if self._pool is None:
            return self._objective_of(layers).points(sorted(settings))
        ordered = sorted(sorted(settings), key=self.objective.prefix)
        return self._pool.evaluate(layers, ordered)


@dataclass(frozen=True)
class Strategy(ABC):
    """A way to search. Its fields are its options; all have defaults.

    Attributes:
        name: name on the command line.
        seed: equal seeds give equal fronts.
    """

    name: ClassVar[str]
    seed: int = 0

    @property
    @abstractmethod
    def evaluations(self) -> int | None:
        """Number of evaluations; None if it depends on the problem's size (see `filled`)."""

    @abstractmethod
    def run(self, run: SearchRun) -> None:
        """Ask the run for evaluations until the budget is spent."""

    def filled(self, problem: SearchProblem) -> Strategy:
        """The same strategy with the options that depend on the problem filled in.

        Raises:
            AtlasError: the budget is too small for this problem.
        """
        return self

    @staticmethod
    def within(evaluations: int) -> dict[str, int]:
        """Options of a strategy without the option `evaluations` that make at most this many.

        Raises:
            AtlasError: the budget is too small.
        """
        raise NotImplementedError

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The strategy with options by name; all strategies have the option `evaluations`.

        Raises:
            AtlasError: an option is unknown, or a value is out of bounds.
        """
        known = [option.name for option in fields(cls)]
        if "evaluations" in values and "evaluations" not in known:
            rest = {name: value for name, value in values.items() if name != "evaluations"}
            values = {**cls.within(values["evaluations"]), **rest}
        unknown = sorted(set(values) - set(known))
        if unknown:
            raise AtlasError(
                f"the strategy {cls.name} has no option {unknown[0]!r}",
                remedy=f"its options: {', '.join(known)}",
            )
        return cls(**values)

    @classmethod
    def modest(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """These options, with a modest number of evaluations unless they name one."""
        usual = cls().evaluations
        if usual is None:
            return dict(values)  # the number follows the model's size already
        return {"evaluations": min(usual, MODEST_EVALUATIONS), **values}

    def identity(self) -> dict[str, Any]:
        """The name, and the options that decide which settings are asked for and in which order."""
        fixed = [f.name for f in fields(self) if not f.metadata.get("extends")]
        return {"strategy": self.name, **{option: getattr(self, option) for option in fixed}}

    @contextmanager
    def journal(self, problem: SearchProblem) -> Iterator[Journal | None]:
        """The open journal of a search; None if the problem names no file.

        Raises:
            AtlasError: the journal cannot be used, or the budget is too small for this problem.
        """
        if problem.journal is None:
            yield None
            return
        identity = {**problem.identity(), **self.filled(problem).identity()}
        with Journal.open(problem.journal, identity, problem.note) as journal:
            yield journal

    def search(self, problem: SearchProblem, progress: ProgressCallback | None = None) -> Front:
        """Search a problem; `progress` is called after every evaluation. An interrupt from the
        keyboard ends the search, and the front so far is returned.

        Raises:
            AtlasError: the budget is too small for this problem; the journal cannot be used; the
                workers cannot be started.
        """
        filled = self.filled(problem)
        with ExitStack() as opened:
            pool = None
            journal = opened.enter_context(filled.journal(problem))
            if problem.workers is not None:
                pool = opened.enter_context(RayPool(problem, problem.workers))
            opened.enter_context(blas_threads(1))
            started = time.monotonic()
            run = SearchRun(problem, filled.evaluations or 0, progress, journal, pool)
            complete = True
            try:
                filled.run(run)
            except KeyboardInterrupt:
                complete = False
            seconds = time.monotonic() - started
        return replace(run.front, strategy=self.name, complete=complete, seconds=seconds)
