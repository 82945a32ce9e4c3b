"""Small charts as SVG text, for reports that need no library and no network to be read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from atlasc.report.html import escaped

INK, FAINT, BLUE, ORANGE, RED = "#222", "#d8dde3", "#2f6db3", "#d98324", "#c0392b"
PALETTE = (BLUE, ORANGE, "#7a9e6d", "#8e6bb0", "#c9a227", "#4aa3a2", "#b0656f", "#99a3ad")
"""Colours of the kinds of ops, from the largest share down; the rest share the last one."""
LEGEND = 150.0
"""Pixels of an entry of a legend."""
FONT = 'font-family="system-ui, sans-serif" font-size="11"'


@dataclass
class Drawing:
    """Collects shapes; coordinates are pixels from the upper left corner."""

    width: float
    height: float
    parts: list[str] = field(default_factory=list)

    def rect(
        self, x: float, y: float, width: float, height: float, fill: str, more: str = ""
    ) -> None:
        """A filled rectangle; ``more`` holds further attributes."""
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
            f'height="{max(height, 0):.1f}" fill="{fill}" {more}/>'
        )

    def line(
        self, x1: float, y1: float, x2: float, y2: float, stroke: str = FAINT, more: str = ""
    ) -> None:
        """A straight line."""
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" '
            f"{more}/>"
        )

    def circle(
        self, x: float, y: float, radius: float, fill: str, title: str = "", more: str = ""
    ) -> None:
        """A dot, with a text that shows when the mouse rests on it."""
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}" {more}>'
            f"<title>{escaped(title)}</title></circle>"
        )

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", fill: str = INK, more: str = ""
    ) -> None:
        """A line of text, (x, y) being the end that ``anchor`` names, on the base line."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" {more}>'
            f"{escaped(text)}</text>"
        )

    def raw(self, shape: str) -> None:
        """Any other SVG element."""
        self.parts.append(shape)

    def render(self, label: str) -> str:
        """The SVG element; ``label`` says to a screen reader what it shows."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} '
            f'{self.height:.0f}" width="{self.width:.0f}" height="{self.height:.0f}" role="img" '
            f'aria-label="{escaped(label)}" {FONT}>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


def columns(
    names: Sequence[str], series: Sequence[tuple[str, Sequence[float], str]], width: float = 860
) -> str:
    """Columns side by side for every name.

    Args:
        names: under the columns.
        series: (title, a value for each name, colour); each has a scale of its own.
        width: in pixels.
    """
    height, top, bottom = 190.0, 26.0, 26.0
    drawing = Drawing(width, height)
    step = width / max(len(names), 1)
    bar = min(step * 0.8 / max(len(series), 1), 60)
    for number, (title, values, colour) in enumerate(series):
        drawing.rect(10 + number * 180, 6, 10, 10, colour)
        drawing.text(25 + number * 180, 15, f"{title} (up to {max(values, default=0):,.0f})")
        greatest = max(values, default=0) or 1
        for index, value in enumerate(values):
            x = index * step + (step - bar * len(series)) / 2 + number * bar
            size = (height - top - bottom) * value / greatest
            drawing.rect(x, height - bottom - size, bar - 1, size, colour)
    drawing.line(0, height - bottom, width, height - bottom, INK)
    every = max(1, math.ceil(len(names) * 28 / width))
    for index, name in enumerate(names):
        if index % every == 0 or not name.isdigit():
            drawing.text(index * step + step / 2, height - 10, name, "middle")
    return drawing.render("; ".join(title for title, _, _ in series) + " by layer")


def shares(
    drawing: Drawing, x: float, y: float, rows: Sequence[tuple[str, Mapping[str, float]]]
) -> None:
    """Seconds of parts as bars of coloured pieces, all bars on one scale, below a legend.

    Args:
        drawing: what to draw on, from (x, y) down to :func:`shares_height` below.
        x, y: upper left corner.
        rows: (name, seconds by kind).
    """
    total: dict[str, float] = {}
    for _, parts in rows:
        for kind, seconds in parts.items():
            total[kind] = total.get(kind, 0.0) + seconds
    kinds = sorted(total, key=lambda kind: -total[kind])
    colours = {kind: PALETTE[min(n, len(PALETTE) - 1)] for n, kind in enumerate(kinds)}
    per_row = max(1, int((drawing.width - x) // LEGEND))
    for place, kind in enumerate(kinds):
        left, top = x + place % per_row * LEGEND, y + place // per_row * 16
        drawing.rect(left, top, 10, 10, colours[kind])
        share = total[kind] / (sum(total.values()) or 1)
        drawing.text(left + 15, top + 9, f"{kind} {share:.0%}")
    top = y + -(-len(kinds) // per_row) * 16 + 8
    scale = (drawing.width - x - 180) / (max((sum(p.values()) for _, p in rows), default=0) or 1)
    for name, parts in rows:
        left = x + 80
        drawing.text(left - 8, top + 11, name, "end")
        for kind in kinds:
            size = parts.get(kind, 0.0) * scale
            drawing.rect(left, top, size, 14, colours[kind])
            left += size
        drawing.text(left + 6, top + 11, f"{sum(parts.values()):.3g} s", fill="#667")
        top += 20


def shares_height(rows: Sequence[tuple[str, Mapping[str, float]]], width: float) -> float:
    """Pixels that :func:`shares` needs in a width."""
    kinds = {kind for _, parts in rows for kind in parts}
    per_row = max(1, int(width // LEGEND))
    return 16.0 * -(-len(kinds) // per_row) + 8 + 20.0 * len(rows)


def stacked(rows: Sequence[tuple[str, Mapping[str, float]]], width: float = 860) -> str:
    """:func:`shares` as a picture of its own."""
    drawing = Drawing(width, shares_height(rows, width) + 4)
    shares(drawing, 0, 2, rows)
    return drawing.render("predicted seconds by kind of op")


def ranges(rows: Sequence[tuple[str, float, float, float, float, bool]], width: float = 860) -> str:
    """Calibrated ranges with what the inputs reached inside them, each row on a scale of its own.

    Args:
        rows: (name, low, high, seen low, seen high, whether held-back inputs leave it).
        width: in pixels.
    """
    left, right, pitch = 330.0, 90.0, 18.0
    drawing = Drawing(width, pitch * len(rows) + 6)
    for index, (name, low, high, seen_low, seen_high, left_by) in enumerate(rows):
        y, span = index * pitch + 4, (high - low) or 1
        scale = (width - left - right) / span
        drawing.text(left - 60, y + 10, name, "end", RED if left_by else INK)
        drawing.text(left - 6, y + 10, f"{low:.3g}", "end", "#777")
        drawing.rect(left, y, width - left - right, 12, FAINT, 'rx="3"')
        inside = left + max(seen_low - low, 0) * scale
        drawing.rect(inside, y + 2, (seen_high - seen_low) * scale, 8, RED if left_by else BLUE)
        drawing.text(width - right + 6, y + 10, f"{high:.3g}", fill="#777")
    return drawing.render("calibrated ranges and what the inputs reached")


class Dot(NamedTuple):
    """A point of a front.

    Attributes:
        cost, error: where it lies; errors of 0 are drawn at 1e-16.
        text: shows when the mouse rests on it.
        colour: its own.
    """

    cost: float
    error: float
    text: str
    colour: str = BLUE


def front(dots: Sequence[Dot], cost: str, reference: Dot | None = None, width: float = 860) -> str:
    """Error over cost, the error on a logarithmic axis.

    Args:
        dots: from cheap to accurate; they are numbered by an attribute ``data-point``.
        cost: what the cost is called.
        reference: drawn beside them, in orange.
        width: in pixels.
    """
    height, left, bottom, top = 300.0, 70.0, 40.0, 14.0
    drawing = Drawing(width, height)
    drawn = [dot for dot in (*dots, reference) if dot is not None and _finite(dot)]
    if not drawn:
        return drawing.render("an empty front")
    logs = [_log(dot) for dot in drawn]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    high = max(high, low + 1)
    costs = [dot.cost for dot in drawn]
    first, last = min(costs), max(max(costs), min(costs) + 1)

    def place(at: float, log: float) -> tuple[float, float]:
        x = left + 10 + (at - first) / (last - first) * (width - left - 40)
        return x, top + (high - log) / (high - low) * (height - top - bottom)

    for exponent in range(low, high + 1):
        _, y = place(first, exponent)
        drawing.line(left, y, width, y)
        drawing.text(left - 6, y + 4, f"1e{exponent}", "end")
    path = ""
    for dot in dots:
        x, y = place(dot.cost, _log(dot))
        path += f"H{x:.1f}V{y:.1f}" if path else f"M{x:.1f} {y:.1f}"
    drawing.raw(f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    for index, dot in enumerate(dots):
        more = f'data-point="{index}"'
        drawing.circle(*place(dot.cost, _log(dot)), 5, dot.colour, dot.text, more)
    if reference is not None and _finite(reference):
        x, y = place(reference.cost, _log(reference))
        drawing.circle(x, y, 5, ORANGE, reference.text)
        drawing.text(x - 8, y + 4, reference.text.partition(":")[0], "end", ORANGE)
    for at in sorted({first, last}):
        drawing.text(place(at, low)[0], height - 22, f"{at:g}", "middle")
    drawing.text(width / 2, height - 6, f"{cost} (mean absolute error on the other axis)", "middle")
    return drawing.render(f"front of {cost} against error")


def _finite(dot: Dot) -> bool:
    return math.isfinite(dot.cost) and math.isfinite(dot.error)


def _log(dot: Dot) -> float:
    return math.log10(max(dot.error, 1e-16))
