"""Charts of a front for pages: they fill their place at any width, and their text keeps its size.

Horizontal places are shares of the width, vertical ones are pixels. Colours are those of the page
(``templates/style.css``), by the classes of the marks. A mark has a shape beside its colour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from xml.etree import ElementTree

from markupsafe import Markup

from atlasc.ir.errors import printable
from atlasc.report.words import UNIT_WORDS, percent, unit_of
from atlasc.search.front import Front
from atlasc.search.points import Cost, Point
from atlasc.simulation.agreement import Measure

SHAPES = {
    "good": "M0-6A6 6 0 0 1 0 6A6 6 0 0 1 0-6z",  # a disc
    "bad": "M-5.5-5.5L5.5 5.5M-5.5 5.5L5.5-5.5",  # a cross
    "recipe": "M0-7L7 0L0 7L-7 0z",  # a diamond
}
"""Kind of a mark -> its outline around the origin."""
SERIES = (
    "M0-5A5 5 0 0 1 0 5A5 5 0 0 1 0-5z",
    "M-4.5-4.5H4.5V4.5H-4.5z",
    "M0-6L6 5H-6z",
    "M0-6L6 0L0 6L-6 0z",
    "M0 6L6-5H-6z",
    "M-2-6H2V-2H6V2H2V6H-2V2H-6V-2H-2z",
)
"""Outlines of the fronts of one chart; more would not be told apart."""
OUTLINES = SHAPES | {f"s{number}": outline for number, outline in enumerate(SERIES)}
"""Kind of any mark -> its outline; the kind of the first front is s0."""
TICKS = 5
"""About as many ticks of a linear axis."""


@dataclass(frozen=True)
class Axis:
    """An axis.

    Attributes:
        title: what it shows, with the unit.
        low, high: its ends, in its own measure.
        ticks: places and their texts.
    """

    title: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]

    def share(self, value: float) -> float:
        """The place of a value: 0 at the low end, 1 at the high end."""
        return (value - self.low) / (self.high - self.low or 1.0)


@dataclass(frozen=True)
class Mark:
    """A point of a chart; ``number`` is its place on the front that the page is about."""

    x: float
    y: float
    kind: str
    title: str
    number: int | None = None


@dataclass(frozen=True)
class Chart:
    """A chart as the page places it.

    Attributes:
        title, x_title, y_title: texts beside the drawing.
        labels: the texts of the vertical axis, an SVG.
        plot: the drawing, an SVG.
    """

    title: str
    x_title: str
    y_title: str
    labels: Markup
    plot: Markup


def linear_axis(title: str, values: Sequence[float], text: Callable[[float], str]) -> Axis:
    """An axis a little longer than the values need, with ticks at round numbers."""
    low, high = min(values), max(values)
    room = 0.05 * (high - low or abs(high) or 1.0)
    low, high = low - room, high + room
    rough = (high - low) / TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    places = [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Axis(title, low, high, [(at, text(at)) for at in places])


def cost_axis(cost: Cost, costs: Sequence[float]) -> tuple[Axis, float]:
    """The axis of a cost, and the seconds (or levels) of its unit."""
    if cost != "latency":
        words = "Levels by formula, of the blocks" if cost == "levels" else "Depth of the blocks"
        return linear_axis(words, costs, lambda value: f"{value:g}"), 1.0
    unit, size = unit_of(max(costs))
    title = f"Predicted time of one answer ({UNIT_WORDS.get(unit, unit)})"
    return linear_axis(title, [c / size for c in costs], lambda value: f"{value:g}"), size


def error_chart(front: Front) -> Chart | None:
    """Error over cost; the axis of errors is logarithmic. None without a point to draw."""
    drawn = _finite(front)
    if not drawn:
        return None
    x_axis, size = cost_axis(front.cost, [p.cost(front.cost) for p in drawn])
    y_axis, height = _error_axis([p.error / front.variation for p in drawn], front.measure)
    marks = _marks(front, lambda p: height(p.error / front.variation), x_axis, size)
    return _chart("Error against cost", x_axis, y_axis, marks, 300, steps=True)


def fronts_chart(fronts: Sequence[tuple[str, Front]], cost: Cost) -> Chart | None:
    """The fronts of several searches over one cost; None without a point to draw."""
    drawn = [
        (kind, name, p.cost(cost), p.error / front.variation)
        for kind, (name, front) in enumerate(fronts)
        for p in front.points
        if p.valid and math.isfinite(p.cost(cost))
    ]
    if not drawn:
        return None
    x_axis, size = cost_axis(cost, [at for _, _, at, _ in drawn])
    y_axis, height = _error_axis([error for *_, error in drawn], fronts[0][1].measure)
    marks = [
        Mark(x_axis.share(at / size), height(error), f"s{kind}", f"{name}: {percent(error)}")
        for kind, name, at, error in drawn
    ]
    return _chart("Error against cost", x_axis, y_axis, marks, 340, steps=True)


def _error_axis(errors: Sequence[float], measure: Measure) -> tuple[Axis, Callable[[float], float]]:
    """A logarithmic axis of errors, and the place of an error on it."""
    positive = [error for error in errors if error > 0] or [1.0]
    least = math.log10(min(positive))
    if 0 in errors:
        least -= 1  # an error of 0 has no logarithm
    low, high = math.floor(least), math.ceil(math.log10(max(positive)) + 1e-9)
    high = max(high, low + 1)
    every = max(1, math.ceil((high - low) / 8))
    ticks = [(float(e), percent(10.0**e)) for e in range(low, high + 1, every)]
    kind = "sqrt(2 KL) of the scores" if measure == "tokens" else "Mean error of an answer"
    axis = Axis(f"{kind}, in % of how answers vary", low, high, ticks)
    return axis, lambda error: math.log10(error) if error else least


def quality_chart(front: Front) -> Chart | None:
    """Accuracy on labelled inputs over cost, with a line for the model in the clear; without
    labels, agreement with the model. None if neither was measured.
    """
    labelled = front.model_accuracy is not None and any(
        p.accuracy is not None for p in front.every_point
    )

    def value(point: Point) -> float | None:
        return point.accuracy if labelled else point.agreement

    drawn = [
        p for p in front.every_point if value(p) is not None and math.isfinite(p.cost(front.cost))
    ]
    if not drawn:
        return None
    values = [100 * (value(p) or 0.0) for p in drawn]
    if labelled:
        values.append(100 * (front.model_accuracy or 0.0))
        what = "Correlation with the labels" if front.measure == "values" else "Right answers"
        title = f"{what}, in % ({front.labelled} labelled inputs)"
    else:
        title = f"Same answers as the model, in % ({front.held_back} held-back inputs)"
    # The axis of costs is that of the chart above, so that points lie below each other.
    x_axis, size = cost_axis(front.cost, [p.cost(front.cost) for p in _finite(front)])
    y_axis = linear_axis(title, [*values, 100.0], lambda share: f"{share:g}%")

    def height(point: Point) -> float | None:
        known = value(point)
        return None if known is None else 100 * known

    marks = _marks(front, height, x_axis, size)
    line = 100 * (front.model_accuracy or 0.0) if labelled else None
    name = "Accuracy against cost" if labelled else "Agreement against cost"
    return _chart(name, x_axis, y_axis, marks, 180, line=line)


def _finite(front: Front) -> list[Point]:
    """The points whose cost and values are finite."""
    return [p for p in front.every_point if math.isfinite(p.cost(front.cost)) and p.valid]


def _marks(
    front: Front, height: Callable[[Point], float | None], x_axis: Axis, size: float
) -> list[Mark]:
    numbered: list[tuple[int | None, Point]] = [*enumerate(front.points)]
    if front.expert is not None:
        numbered.append((None, front.expert))
    marks = []
    for number, point in numbered:
        cost, y = point.cost(front.cost) / size, height(point)
        if y is None or not (point.valid and math.isfinite(cost) and math.isfinite(y)):
            continue
        kind = "good" if point.trusted(front.measure) else "bad"
        kind, name = (kind, f"point {number + 1}") if number is not None else ("recipe", "is")
        marks.append(Mark(x_axis.share(cost), y, kind, f"{name}: {point}", number))
    return marks


def _chart(
    title: str, x_axis: Axis, y_axis: Axis, marks: Sequence[Mark], height: float,
    steps: bool = False, line: float | None = None,
) -> Chart:  # fmt: skip
    top, bottom = 12.0, 24.0

    def down(value: float) -> float:
        return top + (1 - y_axis.share(value)) * (height - top - bottom)

    labels, plot = _Picture(height, "68"), _Picture(height, "100%")
    for value, text in y_axis.ticks:
        labels.add("text", text, x="64", y=f"{down(value) + 4:.1f}", text_anchor="end")
        plot.line(0.0, down(value), 1.0, down(value), "grid")
    for value, text in x_axis.ticks:
        share = x_axis.share(value)
        plot.line(share, height - bottom, share, height - bottom + 4, "axis")
        plot.add("text", text, x=_width(share), y=f"{height - 6:.0f}", text_anchor="middle")
    plot.line(0.0, height - bottom, 1.0, height - bottom, "axis")
    if line is not None:
        plot.line(0.0, down(line), 1.0, down(line), "model")
    if steps:
        joined = [mark for mark in marks if mark.kind != "recipe"]
        for one, other in pairwise(joined):
            series = one.kind if one.number is None else ""
            if series and other.kind != series:
                continue  # the next front begins
            plot.line(one.x, down(one.y), other.x, down(one.y), f"step {series}".strip())
            plot.line(other.x, down(one.y), other.x, down(other.y), f"step {series}".strip())
    for mark in marks:
        plot.mark(mark, down(mark.y))
    described = f"{title}; {x_axis.title} across, {y_axis.title} upwards; {len(marks)} points"
    return Chart(title, x_axis.title, y_axis.title, labels.render(), plot.render(described))


def _width(share: float) -> str:
    return f"{100 * share:.2f}%"


class _Picture:
    """An SVG without a scale of its own."""

    def __init__(self, height: float, width: str) -> None:
        self.root = ElementTree.Element("svg", {"width": width, "height": f"{height:.0f}"})

    def add(self, tag: str, text: str = "", **attributes: str) -> ElementTree.Element:
        known = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
        shape = ElementTree.SubElement(self.root, tag, known)
        shape.text = printable(text) or None
        return shape

    def line(self, x1: float, y1: float, x2: float, y2: float, kind: str) -> None:
        self.add("line", class_=kind, x1=_width(x1), x2=_width(x2), y1=f"{y1:.1f}", y2=f"{y2:.1f}")

    def mark(self, mark: Mark, y: float) -> None:
        """A mark, with a ring around it that shows when the mark is chosen."""
        group = self.add("svg", x=_width(mark.x), y=f"{y:.1f}", class_=f"mark {mark.kind}")
        if mark.number is not None:
            group.set("data-point", str(mark.number))
        ElementTree.SubElement(group, "title").text = printable(mark.title)
        ElementTree.SubElement(group, "circle", {"r": "12", "class": "ring"})
        ElementTree.SubElement(group, "path", {"d": OUTLINES[mark.kind]})

    def render(self, label: str = "") -> Markup:
        """The SVG; without a label it is hidden from screen readers."""
        self.root.attrib |= (
            {"role": "img", "aria-label": printable(label)} if label else {"aria-hidden": "true"}
        )
        return Markup(ElementTree.tostring(self.root, encoding="unicode"))


def shape(kind: str) -> Markup:
    """A mark for a legend."""
    return Markup(  # the shapes are those above
        f'<svg class="mark {kind}" width="16" height="16" viewBox="-8 -8 16 16" '
        f'aria-hidden="true"><path d="{OUTLINES[kind]}"/></svg>'
    )
