"""Small charts as SVG text, for reports that open without any library or network."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from atlasc.ir.errors import printable
from atlasc.search.front import Front
from atlasc.search.points import Point
from atlasc.simulation.output_errors import ERRORS

INK, FAINT, BLUE, ORANGE, RED = "#222", "#d8dde3", "#2f6db3", "#d98324", "#c0392b"
PALETTE = (BLUE, ORANGE, "#7a9e6d", "#8e6bb0", "#c9a227", "#4aa3a2", "#b0656f", "#99a3ad")
"""Colours of the kinds of ops, from the largest share down; the rest share the last colour."""
LEGEND = 150.0
"""Width of an entry of a legend, in pixels."""
WIDTH = 860.0
"""Width of a chart, in pixels."""
Shares = Sequence[tuple[str, Mapping[str, float]]]
"""Pairs of a name and the seconds by kind of op."""


class Drawing:
    """Collects shapes; coordinates are pixels from the upper left corner.

    Attributes:
        width, height: in pixels.
        shapes: elements of SVG, in the order in which they are drawn.
    """

    def __init__(self, width: float = WIDTH, height: float = 0.0) -> None:
        self.width, self.height = width, height
        self.shapes = ElementTree.Element("svg")

    def add(self, tag: str, text: str = "", title: str = "", **attributes: str | float) -> None:
        """Add a shape. Its title shows when the mouse rests on it.

        Control characters are spelled out. A ``_`` in the name of an attribute becomes a hyphen.
        """
        shown = {
            name.replace("_", "-"): printable(value) if isinstance(value, str) else f"{value:.1f}"
            for name, value in attributes.items()
        }
        shape = ElementTree.SubElement(self.shapes, tag, shown)
        shape.text = printable(text) or None
        if title:
            ElementTree.SubElement(shape, "title").text = printable(title)

    def rect(self, x: float, y: float, width: float, height: float, fill: str, **more: Any) -> None:
        """Add a filled rectangle."""
        width, height = max(width, 0.0), max(height, 0.0)
        self.add("rect", x=x, y=y, width=width, height=height, fill=fill, **more)

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", fill: str = INK, **more: Any
    ) -> None:
        """Add a line of text; (x, y) is the end of its base line that ``anchor`` names."""
        self.add("text", text, x=x, y=y, text_anchor=anchor, fill=fill, **more)

    def render(self, label: str) -> str:
        """The SVG element; ``label`` is its description for a screen reader."""
        self.shapes.attrib |= {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {self.width:.0f} {self.height:.0f}",
            "width": f"{self.width:.0f}",
            "height": f"{self.height:.0f}",
            "role": "img",
            "aria-label": printable(label),
            "font-family": "system-ui, sans-serif",
            "font-size": "11",
        }
        ElementTree.indent(self.shapes, "")
        return ElementTree.tostring(self.shapes, encoding="unicode") + "\n"


def columns(names: Sequence[str], series: Sequence[tuple[str, Sequence[float], str]]) -> str:
    """Columns side by side for every name.

    Args:
        names: labels under the columns.
        series: (title, one value for each name, colour); each series has its own scale.
    """
    height, top, bottom = 190.0, 26.0, 26.0
    drawing = Drawing(height=height)
    step = WIDTH / max(len(names), 1)
    bar = min(step * 0.8 / max(len(series), 1), 60)
    for number, (title, values, colour) in enumerate(series):
        drawing.rect(10 + number * 180, 6, 10, 10, colour)
        drawing.text(25 + number * 180, 15, f"{title} (up to {max(values, default=0):,.0f})")
        greatest = max(values, default=0) or 1
        for index, value in enumerate(values):
            x = index * step + (step - bar * len(series)) / 2 + number * bar
            size = (height - top - bottom) * value / greatest
            drawing.rect(x, height - bottom - size, bar - 1, size, colour)
    floor = height - bottom
    drawing.add("line", x1=0, y1=floor, x2=WIDTH, y2=floor, stroke=INK)
    every = max(1, math.ceil(len(names) * 28 / WIDTH))
    for index, name in enumerate(names):
        if index % every == 0 or not name.isdigit():
            drawing.text(index * step + step / 2, height - 10, name, "middle")
    return drawing.render("; ".join(title for title, _, _ in series) + " by layer")


def times(costs: Mapping[str, Any]) -> Shares:
    """Predicted seconds by kind of op for each layer, from ``costs_summary``; empty without
    predictions.
    """
    if costs["seconds"] is None:
        return []
    return [
        ("outside" if row["layer"] is None else f"layer {row['layer']}", row["kinds"])
        for row in costs["per_layer"]
    ]


def shares(drawing: Drawing, x: float, y: float, rows: Shares) -> float:
    """Draw parts of a whole as bars of coloured pieces, below a legend.

    All bars have one scale. The drawing starts at (x, y); its lower end is returned.
    """
    total: Counter[str] = Counter()
    for _, parts in rows:
        total.update(parts)
    colours = {
        kind: PALETTE[min(n, len(PALETTE) - 1)] for n, (kind, _) in enumerate(total.most_common())
    }
    per_row = max(1, int((drawing.width - x) // LEGEND))
    for place, (kind, colour) in enumerate(colours.items()):
        left, top = x + place % per_row * LEGEND, y + place // per_row * 16
        drawing.rect(left, top, 10, 10, colour)
        drawing.text(left + 15, top + 9, f"{kind} {total[kind] / (total.total() or 1):.0%}")
    top = y + -(-len(colours) // per_row) * 16 + 8
    scale = (drawing.width - x - 180) / (max((sum(p.values()) for _, p in rows), default=0) or 1)
    for name, parts in rows:
        left = x + 80
        drawing.text(left - 8, top + 11, name, "end")
        for kind, colour in colours.items():
            size = parts.get(kind, 0.0) * scale
            drawing.rect(left, top, size, 14, colour)
            left += size
        drawing.text(left + 6, top + 11, f"{sum(parts.values()):.3g} s", fill="#667")
        top += 20
    return top


def stacked(rows: Shares) -> str:
    """:func:`shares` as a picture of its own."""
    drawing = Drawing()
    drawing.height = shares(drawing, 0, 2, rows) + 2
    return drawing.render("predicted seconds by kind of op")


def ranges(rows: Sequence[tuple[str, float, float, float, float, bool]]) -> str:
    """Calibrated ranges, with the values that the inputs reached inside them.

    Each row has its own scale: (name, low, high, seen low, seen high, whether held-back inputs
    leave the range).
    """
    left, right, pitch = 330.0, 90.0, 18.0
    drawing = Drawing(height=pitch * len(rows) + 6)
    for index, (name, low, high, seen_low, seen_high, left_by) in enumerate(rows):
        y, span = index * pitch + 4, (high - low) or 1
        scale = (WIDTH - left - right) / span
        drawing.text(left - 60, y + 10, name, "end", RED if left_by else INK)
        drawing.text(left - 6, y + 10, f"{low:.3g}", "end", "#777")
        drawing.rect(left, y, WIDTH - left - right, 12, FAINT, rx=3)
        inside = left + max(seen_low - low, 0) * scale
        drawing.rect(inside, y + 2, (seen_high - seen_low) * scale, 8, RED if left_by else BLUE)
        drawing.text(WIDTH - right + 6, y + 10, f"{high:.3g}", fill="#777")
    return drawing.render("calibrated ranges and what the inputs reached")


def front_chart(front: Front) -> str:
    """Error over cost; the error axis is logarithmic, and errors of 0 are drawn at 1e-16.

    The points are numbered by an attribute ``data-point``. Points whose answers agree with the
    model's (`Point.trusted`) are blue, others red. The setting ``is`` is added in orange.
    """
    height, left, bottom, top = 300.0, 70.0, 40.0, 14.0
    drawing = Drawing(height=height)
    expert = None if front.expert is None else _place(front.expert, front)
    dots = [_place(point, front) for point in front.points]
    drawn = [dot for dot in (*dots, expert) if dot is not None and all(map(math.isfinite, dot))]
    if not drawn:
        return drawing.render("an empty front")
    costs, logs = zip(*drawn, strict=True)
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    high = max(high, low + 1)
    first, last = min(costs), max(*costs, min(costs) + 1)

    def place(cost: float, log: float) -> tuple[float, float]:
        x = left + 10 + (cost - first) / (last - first) * (WIDTH - left - 40)
        return x, top + (high - log) / (high - low) * (height - top - bottom)

    for exponent in range(low, high + 1):
        _, y = place(first, exponent)
        drawing.add("line", x1=left, y1=y, x2=WIDTH, y2=y, stroke=FAINT)
        drawing.text(left - 6, y + 4, f"1e{exponent}", "end")
    steps = [place(*dot) for dot in dots]
    path = "".join(f"H{x:.1f}V{y:.1f}" for x, y in steps).replace("H", "M", 1).replace("V", " ", 1)
    drawing.add("path", d=path, fill="none", stroke=BLUE, stroke_width=1.5)
    for index, ((x, y), point) in enumerate(zip(steps, front.points, strict=True)):
        fill = BLUE if point.trusted(front.measure) else RED
        drawing.add("circle", title=str(point), cx=x, cy=y, r=5, fill=fill, data_point=str(index))
    if expert in drawn and expert is not None:
        x, y = place(*expert)
        drawing.add("circle", title=f"is: {front.expert}", cx=x, cy=y, r=5, fill=ORANGE)
        drawing.text(x - 8, y + 4, "is", "end", ORANGE)
    for at in sorted({first, last}):
        drawing.text(place(at, low)[0], height - 22, f"{at:g}", "middle")
    axes = f"{front.cost} (vertical axis: {ERRORS[front.measure]})"
    drawing.text(WIDTH / 2, height - 6, axes, "middle")
    return drawing.render(f"front of {front.cost} against error")


def accuracy_chart(front: Front) -> str:
    """Accuracy on labelled inputs over cost; a line shows the accuracy of the model in the
    clear.
    """
    height, left, bottom, top = 200.0, 70.0, 40.0, 14.0
    drawing, model = Drawing(height=height), front.model_accuracy or 0.0
    points = [
        (p.cost(front.cost), p.accuracy, p)
        for p in front.points
        if p.accuracy is not None and math.isfinite(p.cost(front.cost))
    ]
    costs = [cost for cost, _, _ in points]
    shares = [accuracy for _, accuracy, _ in points] + [model]
    low, high = min(shares) - 0.01, max(shares) + 0.01
    first, last = min(costs, default=0), max(*costs, min(costs, default=0) + 1)

    def place(cost: float, accuracy: float) -> tuple[float, float]:
        x = left + 10 + (cost - first) / (last - first) * (WIDTH - left - 40)
        return x, top + (high - accuracy) / (high - low) * (height - top - bottom)

    _, line = place(first, model)
    drawing.add("line", x1=left, y1=line, x2=WIDTH, y2=line, stroke=ORANGE)
    drawing.text(left - 6, line + 4, f"{model:.1%}", "end", ORANGE)
    for cost, accuracy, point in points:
        x, y = place(cost, accuracy)
        fill = BLUE if point.trusted(front.measure) else RED
        drawing.add("circle", title=str(point), cx=x, cy=y, r=5, fill=fill)
    for at in sorted({first, last}):
        drawing.text(place(at, low)[0], height - 22, f"{at:g}", "middle")
    drawing.text(WIDTH / 2, height - 6, f"{front.cost} (vertical axis: accuracy)", "middle")
    return drawing.render(f"accuracy against {front.cost}")


def _place(point: Point, front: Front) -> tuple[float, float]:
    """Cost, and decimal logarithm of the error."""
    return point.cost(front.cost), math.log10(max(point.error, 1e-16))
