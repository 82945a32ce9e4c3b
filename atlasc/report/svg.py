"""A drawing as SVG text, which opens without any library or network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from atlasc.ir.errors import printable

INK, BLUE, ORANGE = "#222", "#2f6db3", "#d98324"
PALETTE = (BLUE, ORANGE, "#7a9e6d", "#8e6bb0", "#c9a227", "#4aa3a2", "#b0656f", "#99a3ad")
"""Colours of the kinds of ops, from the largest share down; the rest share the last colour."""
LETTER = 6.5
"""Width of a letter of a legend, in pixels: an upper bound on the mean."""
Shares = Sequence[tuple[str, Mapping[str, float]]]
"""Pairs of a name and the seconds by kind of op."""


class Drawing:
    """Collects shapes; coordinates are pixels from the upper left corner.

    Attributes:
        width, height: in pixels.
        shapes: elements of SVG, in the order in which they are drawn.
    """

    def __init__(self, width: float, height: float) -> None:
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
    texts = {kind: f"{kind} {total[kind] / (total.total() or 1):.0%}" for kind in colours}
    entry = 30 + LETTER * max(map(len, texts.values()), default=0)
    per_row = max(1, int((drawing.width - x) // entry))
    for place, (kind, colour) in enumerate(colours.items()):
        left, top = x + place % per_row * entry, y + place // per_row * 16
        drawing.rect(left, top, 10, 10, colour)
        drawing.text(left + 15, top + 9, texts[kind])
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
