"""Pieces that the HTML pages share; every value that goes in is escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

from atlasc.ir.errors import printable

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 900px; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: 0; } h2 { font-size: 1.15rem; margin-top: 2.2rem;
       border-bottom: 1px solid #d8dde3; }
p.sub { color: #667; margin-top: .2rem; }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; }
.card { background: #f3f6f9; border-radius: 8px; padding: .5rem .9rem; min-width: 7.5rem; }
.card b { display: block; font-size: 1.25rem; } .card span { color: #667; font-size: .8rem; }
.warn { background: #fdf0e3; border-left: 4px solid #d98324; padding: .5rem .9rem; }
.bad { background: #fbe9e7; border-left: 4px solid #c0392b; padding: .5rem .9rem; }
table { border-collapse: collapse; font-size: .85rem; width: 100%; }
th, td { padding: .2rem .5rem; text-align: right; border-bottom: 1px solid #eef1f4; }
th { color: #667; font-weight: 600; } td:first-child, th:first-child { text-align: left; }
.text td { text-align: left; } .scroll { overflow-x: auto; } svg { max-width: 100%; height: auto; }
code { background: #f3f6f9; padding: 0 .2rem; }
"""


def escaped(text: str) -> str:
    """A text from anywhere, for an element or an attribute of HTML or SVG.

    Control characters are spelled out, which SVG does not know, and so are those that turn text.
    """
    return escape(printable(text))


def cards(figures: Iterable[tuple[str, object]]) -> str:
    """Figures with their names below them."""
    body = "".join(
        f'<div class="card"><b>{cell(value)}</b><span>{escaped(name)}</span></div>'
        for name, value in figures
    )
    return f'<div class="cards">{body}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[object]], kind: str = "") -> str:
    """A table; ``kind`` is its class."""
    body = "\n".join(
        "<tr>" + "".join(f"<td>{cell(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f'<div class="scroll"><table class="{kind}"><thead><tr>{heads(head)}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def heads(names: Iterable[str]) -> str:
    """Cells of a table's head."""
    return "".join(f"<th>{escaped(name)}</th>" for name in names)


def cell(value: object) -> str:
    """A value as text: a dash for None, four digits of a float."""
    if value is None:
        return "–"
    if value == math.inf:
        return "∞"
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else escaped(str(value))


def duration(seconds: float | None) -> str:
    """Seconds in a unit that suits them."""
    if seconds is None:
        return "–"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
