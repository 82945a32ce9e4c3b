"""Fronts: the settings of which none is both cheaper and more accurate than another."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.space import Settings

Cost = Literal["depth", "levels"]
COSTS: tuple[Cost, ...] = ("depth", "levels")
REFERENCE_ERROR = 0.2


@dataclass(frozen=True)
class Point:
    """A setting and what it was found to cost.

    Attributes:
        depth: of the blocks, in the paper's convention.
        levels: of the blocks once folded, by formula.
        error: mean absolute error against the cleartext model; infinite where values explode.
        settings: eight integers for each layer.
    """

    depth: int
    levels: int
    error: float
    settings: Settings

    def cost(self, kind: Cost) -> int:
        """Depth or levels."""
        return self.depth if kind == "depth" else self.levels

    @property
    def valid(self) -> bool:
        """Whether all values stayed finite."""
        return bool(np.isfinite(self.error))

    def __str__(self) -> str:
        return f"depth {self.depth}, levels {self.levels}, error {self.error:.3g}"


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
    """

    points: tuple[Point, ...]
    cost: Cost
    reference: tuple[float, float]
    evaluations: int = 0
    distinct: int = 0
    seconds: float = 0.0
    strategy: str = ""
    complete: bool = True

    @property
    def hypervolume(self) -> float:
        """Area between the front and the reference point, with the cost in units of the reference
        cost: the error saved times the share of the cost saved.
        """
        return hypervolume([(p.cost(self.cost), p.error) for p in self.points], self.reference)

    def pick(self, *, max_error: float | None = None, max_cost: float | None = None) -> Point:
        """The cheapest point within `max_error`, or the most accurate one within `max_cost`.

        With both, the cheapest within both.

        Raises:
            AtlasError: no point meets the target; it names the nearest one.
        """
        if not self.points:
            raise AtlasError(
                "the search found no setting that stays finite",
                remedy="calibrate on more inputs, or give the search a larger budget",
            )
        if max_error is None and max_cost is None:
            raise AtlasError("a target is missing", remedy="give a greatest error or cost")
        allowed = [
            p for p in self.points
            if (max_error is None or p.error <= max_error)
            and (max_cost is None or p.cost(self.cost) <= max_cost)
        ]  # fmt: skip
        if allowed:
            return allowed[0] if max_error is not None else allowed[-1]
        if max_error is not None and self.points[-1].error > max_error:
            wanted, nearest = f"an error of {max_error:g} or less", self.points[-1]
        elif max_error is None:
            wanted, nearest = f"{self.cost} {max_cost:g} or less", self.points[0]
        else:
            nearest = next(p for p in self.points if p.error <= max_error)
            wanted = f"an error of {max_error:g} with {self.cost} {max_cost:g} or less"
        raise AtlasError(
            f"no setting on the front has {wanted}",
            why=f"the nearest has {nearest}",
            remedy="relax the target, or give the search a larger budget",
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "strategy": self.strategy,
            "cost": self.cost,
            "front": [
                {"depth": p.depth, "levels": p.levels, "error": p.error,
                 "settings": [list(layer) for layer in p.settings]}
                for p in self.points
            ],
            "evaluations": self.evaluations,
            "distinct_evaluations": self.distinct,
            "seconds": self.seconds,
            "hypervolume": self.hypervolume,
            "reference": list(self.reference),
            "complete": self.complete,
        }  # fmt: skip

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Front:
        """The front that `to_dict` wrote.

        Raises:
            AtlasError: the data are not a front.
        """
        try:
            points = tuple(
                Point(int(p["depth"]), int(p["levels"]), float(p["error"]),
                      tuple(tuple(int(v) for v in layer) for layer in p["settings"]))
                for p in data["front"]
            )  # fmt: skip
            cost, (at_cost, at_error) = data["cost"], data["reference"]
            if cost not in COSTS:
                raise ValueError(f"unknown cost {cost!r}")
            return Front(
                points, cost, (float(at_cost), float(at_error)), int(data["evaluations"]),
                int(data["distinct_evaluations"]), float(data["seconds"]), data["strategy"],
                bool(data["complete"]),
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
        """Write a PNG of error over cost.

        Raises:
            AtlasError: matplotlib is not installed.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise AtlasError("a plot needs matplotlib", remedy="pip install matplotlib") from error
        figure = Figure(figsize=(6, 4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        costs = [p.cost(self.cost) for p in self.points]
        axes.step(costs, [p.error for p in self.points], where="post", marker="o", markersize=4)
        axes.set(xlabel=self.cost, ylabel="mean absolute error", title=title)
        if self.points:
            axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
        figure.savefig(path, dpi=150, format="png")


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
