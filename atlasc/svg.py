"""Small charts as SVG text, for reports that need no library and no network to be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

INK, FAINT, BLUE, ORANGE, RED = "#222", "#d8dde3", "#2f6db3", "#d98324", "#c0392b"
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

    def circle(self, x: float, y: float, radius: float, fill: str, title: str = "") -> None:
        """A dot, with a text that shows when the mouse rests on it."""
        self.parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{fill}">'
            f"<title>{escape(title)}</title></circle>"
        )

    def text(
        self, x: float, y: float, text: str, anchor: str = "start", fill: str = INK, more: str = ""
    ) -> None:
        """A line of text, (x, y) being the end that ``anchor`` names, on the base line."""
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" {more}>'
            f"{escape(text)}</text>"
        )

    def raw(self, shape: str) -> None:
        """Any other SVG element."""
        self.parts.append(shape)

    def render(self, label: str) -> str:
        """The SVG element; ``label`` says to a screen reader what it shows."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:.0f} '
            f'{self.height:.0f}" width="{self.width:.0f}" height="{self.height:.0f}" role="img" '
            f'aria-label="{escape(label)}" {FONT}>\n' + "\n".join(self.parts) + "\n</svg>\n"
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


def front(points: Sequence[tuple[float, float, str]], cost: str, width: float = 860) -> str:
    """Error over cost, the error on a logarithmic axis.

    Args:
        points: (cost, error > 0, text), from cheap to accurate.
        cost: what the cost is called.
        width: in pixels.
    """
    height, left, bottom, top = 300.0, 70.0, 40.0, 14.0
    drawing = Drawing(width, height)
    if not points:
        return drawing.render("an empty front")
    logs = [math.log10(max(error, 1e-16)) for _, error, _ in points]
    low, high = math.floor(min(logs)), math.ceil(max(logs))
    high = max(high, low + 1)
    first, last = points[0][0], max(points[-1][0], points[0][0] + 1)

    def place(at: float, log: float) -> tuple[float, float]:
        x = left + 10 + (at - first) / (last - first) * (width - left - 40)
        return x, top + (high - log) / (high - low) * (height - top - bottom)

    for exponent in range(low, high + 1):
        _, y = place(first, exponent)
        drawing.line(left, y, width, y)
        drawing.text(left - 6, y + 4, f"1e{exponent}", "end")
    path = ""
    for (at, _, _), log in zip(points, logs, strict=True):
        x, y = place(at, log)
        path += f"H{x:.1f}V{y:.1f}" if path else f"M{x:.1f} {y:.1f}"
    drawing.raw(f'<path d="{path}" fill="none" stroke="{BLUE}" stroke-width="1.5"/>')
    for (at, _, text), log in zip(points, logs, strict=True):
        drawing.circle(*place(at, log), 4, BLUE, text)
    for at in sorted({first, last}):
        drawing.text(place(at, low)[0], height - 22, f"{at:g}", "middle")
    drawing.text(width / 2, height - 6, f"{cost} (mean absolute error on the other axis)", "middle")
    return drawing.render(f"front of {cost} against error")
