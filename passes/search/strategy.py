"""What a search strategy is: a dataclass of its options that runs a search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from typing_extensions import Self

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.front import Front
from atlasc.passes.search.journal import Journal
from atlasc.passes.search.ray_workers import RayPool
from atlasc.passes.search.search_problem import SearchProblem
from atlasc.passes.search.search_run import ProgressCallback, SearchRun

MODEST_EVALUATIONS = 936
"""At most, of the search inside ``compile``, where the user says nothing."""
EXTENDS = {"extends": True}
"""Metadata of an option that makes a search longer: a search may go on with another value of it,
and finds what it has in common with the shorter one."""


@dataclass(frozen=True)
class Strategy(ABC):
    """A way to search. Its fields are its options; all have defaults.

    Attributes:
        name: what the command line calls it.
        seed: equal seeds give equal fronts.
    """

    name: ClassVar[str]
    seed: int = 0

    @property
    @abstractmethod
    def evaluations(self) -> int | None:
        """Evaluations in all; None where they follow the problem's size (see `filled`)."""

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
        """Options of a strategy without the option `evaluations` that make so many at most.

        Raises:
            AtlasError: the budget is too small.
        """
        raise NotImplementedError

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The strategy with options by name; all strategies take `evaluations`.

        Raises:
            AtlasError: an unknown option, or a value out of bounds.
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
        """These options, with a modest number of evaluations where they name none."""
        usual = cls().evaluations
        if usual is None:
            return dict(values)  # it follows the model's size already
        return {"evaluations": min(usual, MODEST_EVALUATIONS), **values}

    def identity(self) -> dict[str, Any]:
        """The name and the options that decide which settings are asked for, in which order."""
        fixed = [f.name for f in fields(self) if not f.metadata.get("extends")]
        return {"strategy": self.name, **{option: getattr(self, option) for option in fixed}}

    def search(self, problem: SearchProblem, progress: ProgressCallback | None = None) -> Front:
        """Search a problem.

        Args:
            problem: what to search.
            progress: called after every batch. An interrupt from the keyboard ends the search, and
                the front so far is returned.

        Raises:
            AtlasError: the budget is too small for this problem; the journal cannot be used; the
                workers cannot be started.
        """
        filled = self.filled(problem)
        with ExitStack() as opened:
            journal = pool = None
            if problem.journal is not None:
                identity = {**problem.identity(), **filled.identity()}
                journal = Journal.open(problem.journal, identity, problem.note)
                opened.enter_context(journal)
            if problem.workers is not None:
                pool = opened.enter_context(RayPool(problem, problem.workers))
            run = SearchRun(problem, filled.evaluations or 0, progress, journal, pool)
            try:
                filled.run(run)
            except KeyboardInterrupt:
                run.complete = False
        return run.front(self.name)
