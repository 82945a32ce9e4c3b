"""Fronts: sets of settings in which no setting is both cheaper and more accurate than another."""

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
from atlasc.simulation.output_errors import ERRORS

MAX_FRONT = 64 * MIB
"""Greatest size in bytes of a front; a front of 200 points has 100 KiB."""


class Moment(NamedTuple):
    """The state of a search after a batch.

    Attributes:
        evaluations: evaluations so far, repeated ones included.
        seconds: seconds since the start.
        hypervolume: hypervolume of the front so far; see `Front.hypervolume`.
    """

    evaluations: int
    seconds: float
    hypervolume: float


@dataclass(frozen=True)
class Wanted:
    """Limits that a point must keep; None for no limit.

    Attributes:
        error: greatest error on the search inputs (see `output_errors`).
        depth: greatest depth of the blocks, in the paper's convention.
        levels: greatest number of levels of the blocks.
        seconds: greatest predicted seconds of one encrypted run.
        accuracy: least accuracy on labelled inputs.
        agreement: least share of inputs whose answers agree with the model's.
    """

    error: float | None = None
    depth: int | None = None
    levels: int | None = None
    seconds: float | None = None
    accuracy: float | None = None
    agreement: float | None = None

    @property
    def limits_quality(self) -> bool:
        """Whether the limits ask for the cheapest point of some quality, not for the best point
        at some cost.
        """
        return any(limit is not None for limit in (self.error, self.accuracy, self.agreement))

    def allows(self, point: Point) -> bool:
        """Whether a point is within all limits, as far as it was measured."""
        return self._accurate(point) and self.cost_ratio(point) <= 1

    def _accurate(self, point: Point) -> bool:
        shares = (point.accuracy, self.accuracy), (point.agreement, self.agreement)
        return (self.error is None or point.error <= self.error) and all(
            found is None or least is None or found >= least for found, least in shares
        )

    def cost_ratio(self, point: Point) -> float:
        """The largest share of an allowed cost that the point takes; 0 without a limit on costs."""
        named = (
            (point.depth, self.depth),
            (point.levels, self.levels),
            (point.cost("latency"), self.seconds),
        )
        ratios = [cost / max(limit, 1e-9) for cost, limit in named if limit is not None]
        return max(ratios, default=0.0)

    def nearest(self, points: Sequence[Point]) -> Point:
        """The cheapest of the points that are accurate enough; if there is none, the most
        accurate.
        """
        accurate = [point for point in points if self._accurate(point)]
        if not accurate:
            return min(points, key=lambda point: point.error)
        return min(accurate, key=self.cost_ratio)

    def __str__(self) -> str:
        named = (
            (self.error, "an error of {:g}"),
            (self.depth, "depth {}"),
            (self.levels, "levels by formula {}"),
            (self.seconds, "{:g} predicted seconds"),
        )
        most = [text.format(limit) for limit, text in named if limit is not None]
        shares = (self.accuracy, "an accuracy of {:g}"), (self.agreement, "an agreement of {:g}")
        least = [text.format(limit) for limit, text in shares if limit is not None]
        parts = [" and ".join(most) + " or less"] if most else []
        return " and ".join(parts + ([" and ".join(least) + " or more"] if least else []))


@dataclass(frozen=True)
class Front:
    """The result of a search, and the schema of its JSON form except for one member.

    Attributes:
        points: points that are non-dominated in (cost, error), and a mended point, from cheap to
            accurate.
        cost: the cost that was minimised.
        reference: reference point (cost, error) of the hypervolume.
        evaluations: number of settings that the search asked for.
        distinct: number of different settings among these.
        seconds: duration of the search; 0 in a bundle, which does not depend on it.
        strategy: name of the strategy.
        complete: False for a search that was interrupted.
        parametrisation: meaning of the integers of settings.
        history: growth of the hypervolume, batch by batch.
        held_back: number of inputs on which `held_back_error` and `unsafe` were measured.
        expert: the setting `is`, to compare with.
        facts: model, inputs and options of the search, as JSON values.
        rank_correlation: Spearman's correlation of the errors that `hybrid` predicted for its last
            front with the measured errors; None for other strategies.
        variation: variation of the outputs from input to input, to compare errors with.
        measure: how agreement with the model is judged (`atlasc.simulation.agreement`).
        labelled: number of labelled inputs on which `accuracy` was measured.
        model_accuracy: accuracy of the model in the clear on these; None without such inputs.
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
        cost: the saved error times the saved share of the cost.
        """
        return hypervolume([(p.cost(self.cost), p.error) for p in self.points], self.reference)

    def untimed(self) -> Front:
        """The front without the duration of the search, so that it depends on the inputs alone."""
        history = tuple(moment._replace(seconds=0.0) for moment in self.history)
        return replace(self, seconds=0.0, history=history)

    def thinned(self, most: int) -> Front:
        """The front with at most ``most`` points.

        Of points with similar errors the cheapest is kept; the most accurate point is always kept.
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
        """The cheapest point within limits that name an error, an accuracy or an agreement; for
        other limits the most accurate point within them.

        Some points are avoided: those whose answers do not agree with the model's, and those under
        which more than `tolerated` held-back inputs are unsafe. They are only taken if there is no
        other point, and then one with the fewest unsafe inputs. If the limits name an agreement,
        reaching it is enough.

        Args:
            wanted: the limits, at least one.
            tolerated: number of held-back inputs that may be unsafe; points without this
                measurement pass.

        Raises:
            AtlasError: no point keeps the limits (the error names the nearest), or the limits name
                seconds, an accuracy or an agreement that no point has.
        """
        if not self.points:
            raise AtlasError(
                "the search found no setting that stays finite",
                remedy="calibrate on more inputs, or give the search a larger budget",
            )
        if wanted == Wanted():
            raise AtlasError(
                "no limit is given", remedy="give a limit on error, depth, levels or seconds"
            )
        if wanted.accuracy is not None and not self.labelled:
            raise AtlasError(
                f"no setting can be picked by {wanted}",
                why="the search had no labelled inputs to measure accuracy on",
                remedy="give labels in --data, or labelled inputs with --labelled, to the search",
            )
        if wanted.agreement is not None and not self.held_back:
            raise AtlasError(
                f"no setting can be picked by {wanted}",
                why="the search had no held-back inputs to measure agreement on",
                remedy="search with a share above 0 as held-back of --ranges",
            )
        if wanted.seconds is not None and all(point.seconds is None for point in self.points):
            raise AtlasError(
                f"no setting can be picked by {wanted}",
                why=f"the search minimised {self.cost} and predicted no seconds",
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

    def with_point(self, point: Point) -> Front:
        """The front with other figures of the setting of a point."""
        same = (point if one.settings == point.settings else one for one in self.points)
        return replace(self, points=tuple(same))

    @property
    def every_point(self) -> tuple[Point, ...]:
        """All points, and the expert's after them."""
        return (*self.points, *(() if self.expert is None else (self.expert,)))

    def numbered(self, number: int) -> Point:
        """A point by its number from 1; raises AtlasError if there is none."""
        if not 1 <= number <= len(self.points):
            raise AtlasError(
                f"the front has no point {number}",
                remedy=f"give a number from 1 to {len(self.points)}; front.html shows them",
            )
        return self.points[number - 1]

    def recommended(self, error: float, tolerated: int = 0) -> Point:
        """The point that is taken without limits: the cheapest with at most this error, otherwise
        the most accurate; see `pick`.
        """
        wanted = Wanted(error)
        if not any(map(wanted.allows, self.points)):
            wanted = Wanted(levels=max((point.levels for point in self.points), default=1))
        return self.pick(wanted, tolerated)

    def to_dict(self) -> dict[str, Any]:
        """The front as JSON values."""
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
        """Write the front as JSON."""
        path.write_text(json.dumps(self.to_dict(), indent=1) + "\n", encoding="utf-8")

    @staticmethod
    def load(path: Path) -> Front:
        """Read a front from JSON; raises AtlasError if the file is no front."""
        read = read_json(path, _FrontFile, "the front", MAX_FRONT, remedy="search again")
        return Front(*(getattr(read, member.name) for member in fields(Front)))

    def plot(self, path: Path) -> None:
        """Write a PNG of error over cost; points that are not `Point.trusted` are red.

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
            axes.set(xlabel=self.cost, ylabel=ERRORS[self.measure])
            if self.points:
                axes.set_yscale("log")


@with_config(ConfigDict({**STRICT, "extra": "allow"}))
class _Facts(TypedDict, total=False):
    """The members of a front's facts that are read; other members are only shown."""

    options: dict[str, JsonValue]
    seed: int | None


@dataclass(frozen=True)
class _FrontFile(Front):
    """The JSON form of a front; its hypervolume is not read but computed again."""

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
    """Axes of a figure with panels side by side; the figure is written when the block ends.

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
