"""Fronts: the settings of which none is both cheaper and more accurate than another."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field, JsonValue, model_validator, with_config
from typing_extensions import TypedDict

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, STRICT, Amount, Count, read_json
from atlasc.polynomials.parametrisation import ALGORITHM, PAPER, Parametrisation
from atlasc.search.points import Cost, Point, hypervolume
from atlasc.simulation.agreement import Measure

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
class Wanted:
    """Limits that a point must keep; None where there is none.

    Attributes:
        error: mean absolute error on the search inputs.
        depth: of the blocks, in the paper's convention.
        levels: of the blocks.
        seconds: predicted, of one encrypted run.
        accuracy: at least, on labelled inputs.
        agreement: share of inputs whose answers agree with the model's, at least.
    """

    error: float | None = None
    depth: int | None = None
    levels: int | None = None
    seconds: float | None = None
    accuracy: float | None = None
    agreement: float | None = None

    @property
    def limits_quality(self) -> bool:
        """Whether the cheapest point is wanted that is good enough, not the best affordable one."""
        return any(limit is not None for limit in (self.error, self.accuracy, self.agreement))

    def allows(self, point: Point) -> bool:
        """Whether the point is within all of them, as far as it was measured."""
        return self._accurate(point) and self.cost_ratio(point) <= 1

    def _accurate(self, point: Point) -> bool:
        shares = (point.accuracy, self.accuracy), (point.agreement, self.agreement)
        return (self.error is None or point.error <= self.error) and all(
            found is None or least is None or found >= least for found, least in shares
        )

    def cost_ratio(self, point: Point) -> float:
        """The largest share of an allowed cost that the point takes; 0 where none is named."""
        named = (
            (point.depth, self.depth),
            (point.levels, self.levels),
            (point.cost("latency"), self.seconds),
        )
        ratios = [cost / max(limit, 1e-9) for cost, limit in named if limit is not None]
        return max(ratios, default=0.0)

    def nearest(self, points: Sequence[Point]) -> Point:
        """The cheapest of those that are accurate enough, or the most accurate one."""
        accurate = [point for point in points if self._accurate(point)]
        if not accurate:
            return min(points, key=lambda point: point.error)
        return min(accurate, key=self.cost_ratio)

    def __str__(self) -> str:
        named = (
            (self.error, "an error of {:g}"),
            (self.depth, "depth {}"),
            (self.levels, "levels {}"),
            (self.seconds, "{:g} predicted seconds"),
        )
        most = [text.format(limit) for limit, text in named if limit is not None]
        shares = (self.accuracy, "an accuracy of {:g}"), (self.agreement, "an agreement of {:g}")
        least = [text.format(limit) for limit, text in shares if limit is not None]
        parts = [" and ".join(most) + " or less"] if most else []
        return " and ".join(parts + ([" and ".join(least) + " or more"] if least else []))


@dataclass(frozen=True)
class Front:
    """What a search found, and all but one member of the schema of its JSON form.

    Attributes:
        points: non-dominated in (cost, error), and one that was mended, from cheap to accurate.
        cost: what was searched for.
        reference: (cost, error) that the hypervolume is measured from.
        evaluations: settings that the search asked for.
        distinct: of these, how many differed.
        seconds: that it took; 0 in a bundle, which does not depend on it.
        strategy: its name.
        complete: False for a search that was interrupted.
        parametrisation: what the integers of settings stand for.
        history: how the hypervolume grew, batch by batch.
        held_back: inputs on which `held_back_error` and `unsafe` were measured.
        expert: the setting `is`, to compare with.
        facts: what was searched, on what and with which options, as JSON values.
        rank_correlation: Spearman's, of the errors that `hybrid` predicted for its last front and
            those that it found; None for other strategies.
        variation: of the outputs from input to input, to compare errors with.
        measure: of the agreement with the model (`atlasc.simulation.agreement`).
        labelled: on how many labelled inputs `accuracy` was measured.
        model_accuracy: of the model in the clear, on these; None where there are none.
    """

    __pydantic_config__ = STRICT

    points: Annotated[tuple[Point, ...], Field(alias="front")]
    cost: Cost
    reference: tuple[Annotated[float, Field(gt=0)], Amount]
    evaluations: Count = 0
    distinct: Annotated[Count, Field(alias="distinct_evaluations")] = 0
    seconds: Amount = 0.0
    strategy: str = ""
    complete: bool = True
    parametrisation: Parametrisation = PAPER
    history: tuple[Moment, ...] = ()
    held_back: Count = 0
    expert: Point | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    rank_correlation: float | None = None
    variation: Annotated[float, Field(gt=0)] = 1.0
    measure: Measure = "values"
    labelled: Count = 0
    model_accuracy: Annotated[float, Field(ge=-1, le=1)] | None = None

    @property
    def hypervolume(self) -> float:
        """Area between the front and the reference point, with the cost in units of the reference
        cost: the error saved times the share of the cost saved.
        """
        return hypervolume([(p.cost(self.cost), p.error) for p in self.points], self.reference)

    def untimed(self) -> Front:
        """Without the time that the search took: what is left follows from the inputs alone."""
        history = tuple(moment._replace(seconds=0.0) for moment in self.history)
        return replace(self, seconds=0.0, history=history)

    def thinned(self, most: int) -> Front:
        """The front with so many points at most. Where errors are near to each other, the cheapest
        point stays; the most accurate point always does.
        """
        kept, ratio = list(self.points), 1.0
        while len(kept) > most:
            ratio *= 1.01
            kept = []
            for point in self.points[:-1]:
                if not kept or point.error * ratio <= kept[-1].error:
                    kept.append(point)
            kept.append(self.points[-1])
        return replace(self, points=tuple(kept))

    def pick(self, wanted: Wanted, tolerated: int = 0) -> Point:
        """The cheapest point within limits that name an error, an accuracy or an agreement;
        otherwise the most accurate one.

        Points whose answers do not agree with the model's, and points under which more held-back
        inputs than `tolerated` are unsafe, are taken only where there is no other, and then those
        with the fewest such inputs. An agreement that the limits name is enough.

        Args:
            wanted: names at least one limit.
            tolerated: held-back inputs that may leave a range; points where this was not measured
                pass.

        Raises:
            AtlasError: no point keeps the limits; it names the nearest one. Or it limits seconds
                that no point has.
        """
        if not self.points:
            raise AtlasError(
                "the search found no setting that stays finite",
                remedy="calibrate on more inputs, or give the search a larger budget",
            )
        if wanted == Wanted():
            raise AtlasError(
                "no limit is given", remedy="give a greatest error, depth, levels or seconds"
            )
        if wanted.accuracy is not None and not self.labelled:
            raise AtlasError(
                f"no setting can be picked by {wanted}",
                why="accuracy was measured on no labelled input",
                remedy="give labels in --data, or labelled inputs with --labelled, to the search",
            )
        if wanted.agreement is not None and not self.held_back:
            raise AtlasError(
                f"no setting can be picked by {wanted}",
                why="no input was held back, on which agreement could be measured",
                remedy="search with a --held-back share that is more than 0",
            )
        if wanted.seconds is not None and all(point.seconds is None for point in self.points):
            raise AtlasError(
                f"no setting can be picked by {wanted}",
                why=f"the search, by {self.cost}, predicted no seconds",
                remedy="search with --cost latency",
            )
        allowed = [point for point in self.points if wanted.allows(point)]
        if not allowed:
            raise AtlasError(
                f"no setting on the front has {wanted}",
                why=f"the nearest has {wanted.nearest(self.points)}",
                remedy="relax the limit, or give the search a larger budget",
            )
        if wanted.agreement is None:
            allowed = [point for point in allowed if point.agrees(self.measure)] or allowed
        fewest = max(tolerated, min(point.unsafe or 0 for point in allowed))
        safe = [point for point in allowed if (point.unsafe or 0) <= fewest]
        if wanted.limits_quality:
            return min(safe, key=lambda point: (point.cost(self.cost), point.error))
        return min(safe, key=lambda point: (point.error, point.cost(self.cost)))

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
            "variation": self.variation,
            "measure": self.measure,
            "labelled": self.labelled,
            "model_accuracy": self.model_accuracy,
        }

    def save(self, path: Path) -> None:
        """Write JSON."""
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Front:
        """Read JSON; raises AtlasError when it is not a front."""
        read = read_json(path, _FrontFile, "the front", MAX_FRONT, remedy="search again")
        return Front(*(getattr(read, member.name) for member in fields(Front)))

    def plot(self, path: Path) -> None:
        """Write a PNG of error over cost; red are points that are not `Point.trusted`.

        Raises:
            AtlasError: matplotlib is not installed.
        """
        with chart(path) as (axes,):
            costs = [p.cost(self.cost) for p in self.points]
            errors = [p.error for p in self.points]
            colours = ["tab:blue" if p.trusted(self.measure) else "tab:red" for p in self.points]
            axes.step(costs, errors, where="post", zorder=1)
            axes.scatter(costs, errors, s=18, c=colours, zorder=2)
            at = (np.inf, np.inf)
            if self.expert is not None:
                at = self.expert.cost(self.cost), self.expert.error
            if np.isfinite(at).all():
                axes.scatter(*at, s=18, c="tab:orange", zorder=2)
                axes.annotate("is", at, xytext=(-4, 4), textcoords="offset points", ha="right")
            axes.set(xlabel=self.cost, ylabel="mean absolute error")
            if self.points:
                axes.set_yscale("log")


@with_config(ConfigDict({**STRICT, "extra": "allow"}))
class _Facts(TypedDict, total=False):
    """What is read of a front's facts; others are shown as they are."""

    options: dict[str, JsonValue]
    seed: int | None


@dataclass(frozen=True)
class _FrontFile(Front):
    """The JSON form of a front; the hypervolume in it is not read, but follows."""

    evaluations: Count = field()
    distinct: Annotated[Count, Field(alias="distinct_evaluations")] = field()
    seconds: Amount = field()
    strategy: str = field()
    complete: bool = field()
    facts: _Facts = field(default_factory=_Facts)
    hypervolume: float = 0.0

    @model_validator(mode="after")
    def _settings_suit(self) -> _FrontFile:
        variables, algorithms = self.parametrisation.variables, self.parametrisation.algorithms
        for point in (*self.points, *([] if self.expert is None else [self.expert])):
            for layer in point.settings:
                if len(layer) != variables or layer[ALGORITHM[0] :] > (len(algorithms) - 1,):
                    raise ValueError(f"{layer} are not the {variables} integers of a layer")
        return self


@contextmanager
def chart(path: Path, panels: int = 1) -> Iterator[list[Any]]:
    """Axes of a figure with panels side by side, which is written at the end.

    Raises:
        AtlasError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise AtlasError("a plot needs matplotlib", remedy="pip install matplotlib") from error
    figure = Figure(figsize=(6 * panels, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = [figure.add_subplot(1, panels, index + 1) for index in range(panels)]
    for panel in axes:
        panel.grid(visible=True, alpha=0.3)
    yield axes
    figure.savefig(path, dpi=150, format="png")
