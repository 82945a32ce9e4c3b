"""Fronts: the settings of which none is both cheaper and more accurate than another."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, JsonValue, model_validator

from atlasc.ir.files import MIB, STRICT, Amount, Count, Schema, read_json
from atlasc.passes.approximation.parametrisation import ALGORITHM, PAPER, Parametrisation
from atlasc.passes.search.pick import Wanted, pick
from atlasc.passes.search.plots import chart
from atlasc.passes.search.point import Cost, Point, hypervolume

MAX_FRONT = 64 * MIB
"""Bytes of a front; one of 200 points has 100 KiB."""


class Moment(NamedTuple):
    """The state of a search after a batch.

    Attributes:
        evaluations: asked for so far, equal ones counted each time.
        seconds: since the start.
        hypervolume: of the front so far; see `Front.hypervolume`.
    """

    evaluations: int
    seconds: float
    hypervolume: float


@dataclass(frozen=True)
class Front:
    """What a search found.

    Attributes:
        points: non-dominated in (cost, error), from cheap to accurate.
        cost: what was searched for.
        reference: (cost, error) that the hypervolume is measured from.
        evaluations: settings that the search asked for.
        distinct: of these, how many differed.
        seconds: that it took.
        strategy: its name.
        complete: False for a search that was interrupted.
        parametrisation: what the integers of settings stand for.
        history: how the hypervolume grew, batch by batch.
        held_back: inputs on which `held_back_error` and `out_of_range` were measured.
        expert: the setting `is`, to compare with.
        facts: what was searched, on what and with which options, as JSON values.
        rank_correlation: Spearman's, of the errors that `hybrid` predicted for its last front and
            those that it found; None for other strategies.
    """

    points: tuple[Point, ...]
    cost: Cost
    reference: tuple[float, float]
    evaluations: int = 0
    distinct: int = 0
    seconds: float = 0.0
    strategy: str = ""
    complete: bool = True
    parametrisation: Parametrisation = PAPER
    history: tuple[Moment, ...] = ()
    held_back: int = 0
    expert: Point | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    rank_correlation: float | None = None

    @property
    def hypervolume(self) -> float:
        """Area between the front and the reference point, with the cost in units of the reference
        cost: the error saved times the share of the cost saved.
        """
        return hypervolume([(p.cost(self.cost), p.error) for p in self.points], self.reference)

    def pick(self, wanted: Wanted, tolerated: int = 0) -> Point:
        """The point that suits what is wanted best; see `pick`."""
        return pick(self.points, self.cost, wanted, tolerated)

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "strategy": self.strategy,
            "cost": self.cost,
            "front": [point.to_dict() for point in self.points],
            "evaluations": self.evaluations,
            "distinct_evaluations": self.distinct,
            "seconds": self.seconds,
            "hypervolume": self.hypervolume,
            "reference": list(self.reference),
            "complete": self.complete,
            "history": [list(moment) for moment in self.history],
            "parametrisation": self.parametrisation.to_dict(),
            "held_back": self.held_back,
            "expert": None if self.expert is None else self.expert.to_dict(),
            "facts": dict(self.facts),
            "rank_correlation": self.rank_correlation,
        }

    def save(self, path: Path) -> None:
        """Write JSON."""
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Front:
        """Read JSON; raises AtlasError when it is not a front."""
        return read_json(path, _File, "the front", MAX_FRONT, remedy="search again").front_of()

    def plot(self, path: Path, title: str = "") -> None:
        """Write a PNG of error over cost; red are points under which inputs leave a range.

        Raises:
            AtlasError: matplotlib is not installed.
        """
        with chart(path) as (axes,):
            costs = [p.cost(self.cost) for p in self.points]
            errors = [p.error for p in self.points]
            colours = ["tab:red" if p.out_of_range else "tab:blue" for p in self.points]
            axes.step(costs, errors, where="post", zorder=1)
            axes.scatter(costs, errors, s=18, c=colours, zorder=2)
            at = (np.inf, np.inf)
            if self.expert is not None:
                at = self.expert.cost(self.cost), self.expert.error
            if np.isfinite(at).all():
                axes.scatter(*at, s=18, c="tab:orange", zorder=2)
                axes.annotate("is", at, xytext=(-4, 4), textcoords="offset points", ha="right")
            axes.set(xlabel=self.cost, ylabel="mean absolute error", title=title)
            if self.points:
                axes.set_yscale("log")


class _Facts(Schema):
    """What is read of a front's facts; others are shown as they are."""

    model_config = ConfigDict({**STRICT, "extra": "allow"})
    options: dict[str, JsonValue] = Field(default_factory=dict)
    seed: int | None = None


class _File(Schema):
    """The JSON form of a front."""

    strategy: str
    cost: Cost
    front: tuple[Point, ...]
    evaluations: Count
    distinct_evaluations: Count
    seconds: Amount
    hypervolume: float = 0.0
    reference: tuple[Annotated[float, Field(gt=0)], Amount]
    complete: bool
    history: tuple[Moment, ...] = ()
    parametrisation: Parametrisation = PAPER
    held_back: Count = 0
    expert: Point | None = None
    facts: _Facts = _Facts()
    rank_correlation: float | None = None

    @model_validator(mode="after")
    def _settings_suit(self) -> _File:
        variables, algorithms = self.parametrisation.variables, self.parametrisation.algorithms
        for point in (*self.front, *([] if self.expert is None else [self.expert])):
            for layer in point.settings:
                if len(layer) != variables or layer[ALGORITHM[0] :] > (len(algorithms) - 1,):
                    raise ValueError(f"{layer} are not the {variables} integers of a layer")
        return self

    def front_of(self) -> Front:
        """What it says; the hypervolume follows."""
        return Front(
            self.front, self.cost, self.reference, self.evaluations, self.distinct_evaluations,
            self.seconds, self.strategy, self.complete, self.parametrisation, self.history,
            self.held_back, self.expert, self.facts.model_dump(exclude_unset=True),
            self.rank_correlation,
        )  # fmt: skip
