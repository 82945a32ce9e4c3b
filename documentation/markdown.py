"""Markdown from docstrings and from the code."""

from __future__ import annotations

import re
from collections.abc import Sequence

GENERATED = "<!-- make docs writes this page from the code: do not edit it by hand -->\n"
_SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$")
_ITEM = re.compile(r"^    (\S.*?): (.*)$")
_ROLE = re.compile(r":\w+:`~?([^`]+)`")


def cell(text: str) -> str:
    """A text as a cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the texts of its cells are Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def docstring(text: str) -> str:
    """A docstring as Markdown: its words for code, and its sections as lists."""
    text = _ROLE.sub(r"`\1`", text).replace("``", "`")
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        found = _SECTION.match(line)
        if found:
            inside = True
            lines += [f"**{found[1]}**", ""]
        elif inside and line and not line.startswith(" "):
            inside = False
            lines += ["", line]
        elif inside and (item := _ITEM.match(line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif inside and line:
            text = line.strip()
            lines.append(
                f"- {text}" if line.startswith("    ") and lines[-1] == "" else f"  {text}"
            )
        else:
            lines.append(line)
    return "\n".join(lines).rstrip()
