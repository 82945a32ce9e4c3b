"""Fronts: the settings of which none is both cheaper and more accurate than another."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.parametrisation import PAPER, Parametrisation
from atlasc.passes.search.history import Moment
from atlasc.passes.search.pick import Target, pick
from atlasc.passes.search.plots import chart
from atlasc.passes.search.space import Settings

Cost = Literal["depth", "levels", "latency"]
COSTS: tuple[Cost, ...] = ("depth", "levels", "latency")
REFERENCE_ERROR = 0.2


@dataclass(frozen=True)
class Point:
    """A setting and what it was found to cost.

    Attributes:
        depth: of the blocks, in the paper's convention.
        levels: of the blocks once folded, by formula.
        error: mean absolute error against the cleartext model; infinite where values explode.
        settings: the integers of each layer; see `Front.parametrisation`.
        seconds: predicted latency of one encrypted run; None where it was not predicted.
        held_back_error: as `error`, on the inputs that calibration held back; None where it was not
            measured.
        out_of_range: how many of these leave the range of a polynomial; None likewise.
        exploded_at: where values explode, as "module path: op"; None where they stay finite.
    """

    depth: int
    levels: int
    error: float
    settings: Settings
    seconds: float | None = None
    held_back_error: float | None = None
    out_of_range: int | None = None
    exploded_at: str | None = None

    def cost(self, kind: Cost) -> float:
        """Depth, levels, or predicted seconds: infinite where they are not known."""
        if kind == "latency":
            return math.inf if self.seconds is None else self.seconds
        return self.depth if kind == "depth" else self.levels

    @property
    def valid(self) -> bool:
        """Whether all values stayed finite."""
        return bool(np.isfinite(self.error))

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, without what was not measured; an infinite error is the text "inf"."""
        return {
            "depth": self.depth,
            "levels": self.levels,
            "error": _number(self.error),
            "settings": [list(layer) for layer in self.settings],
            **{
                name: _number(value)
                for name in OPTIONAL
                if (value := getattr(self, name)) is not None
            },
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Point:
        """The point that `to_dict` wrote; raises KeyError, TypeError or ValueError for another."""
        later = {name: kind(data[name]) for name, kind in OPTIONAL.items() if name in data}
        return Point(
            int(data["depth"]),
            int(data["levels"]),
            float(data["error"]),
            tuple(tuple(int(v) for v in layer) for layer in data["settings"]),
            **later,
        )

    def __str__(self) -> str:
        seconds = "" if self.seconds is None else f", {self.seconds:.4g} predicted seconds"
        return f"depth {self.depth}, levels {self.levels}, error {self.error:.3g}{seconds}"


OPTIONAL: dict[str, Any] = {
    "seconds": float,
    "held_back_error": float,
    "out_of_range": int,
    "exploded_at": str,
}
"""Attributes of a `Point` that may be None, and what their JSON values become."""


def _number(value: Any) -> Any:
    """JSON knows no infinity."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def non_dominated(points: Iterable[Point], cost: Cost = "depth") -> list[Point]:
    """The valid points that no other one dominates, from cheap to accurate; equals appear once."""
    front: list[Point] = []
    ordered = sorted(points, key=lambda p: (p.cost(cost), p.error, p.settings))
    for point in ordered:
        if point.valid and (not front or point.error < front[-1].error):
            front.append(point)
    return front


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

    def pick(self, target: Target, tolerated: int = 0) -> Point:
        """The point that suits a target best; see `pick`."""
        return pick(self.points, self.cost, target, tolerated)

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

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Front:
        """The front that `to_dict` wrote.

        Raises:
            AtlasError: the data are not a front.
        """
        try:
            points = tuple(Point.from_dict(point) for point in data["front"])
            cost, (at_cost, at_error) = data["cost"], data["reference"]
            if cost not in COSTS:
                raise ValueError(f"unknown cost {cost!r}")
            return Front(
                points, cost, (float(at_cost), float(at_error)), int(data["evaluations"]),
                int(data["distinct_evaluations"]), float(data["seconds"]), data["strategy"],
                bool(data["complete"]), Parametrisation.from_dict(data.get("parametrisation", {})),
                history=tuple(Moment(*moment) for moment in data.get("history", ())),
                held_back=int(data.get("held_back", 0)), facts=data.get("facts", {}),
                expert=Point.from_dict(data["expert"]) if data.get("expert") else None,
                rank_correlation=data.get("rank_correlation"),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError) as error:
            raise AtlasError(
                "the front cannot be read", why=f"{type(error).__name__}: {error}",
                remedy="search again",
            ) from error  # fmt: skip

    def save(self, path: Path) -> None:
        """Write JSON."""
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Front:
        """Read JSON; raises AtlasError when it is not a front."""
        try:
            return Front.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, json.JSONDecodeError) as error:
            raise AtlasError(
                f"the front {path} cannot be read", why=str(error), remedy="search again"
            ) from error

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


def hypervolume(points: Sequence[tuple[float, float]], reference: tuple[float, float]) -> float:
    """Area that points of (cost, error) dominate below a reference point, over its cost."""
    at_cost, at_error = reference
    inside = sorted((c, e) for c, e in points if c < at_cost and e < at_error)
    area, best = 0.0, at_error
    for cost, error in inside:
        if error < best:
            area += (at_cost - cost) * (best - error)
            best = error
    return area / at_cost
