"""Results on standard output: one JSON object with ``--json``, otherwise text and tables."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from atlasc.ir.errors import printable

PIPE_WIDTH = 180
"""Columns of a table that is not printed on a terminal."""


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object; numpy scalars and arrays become numbers and lists.

    Infinities and NaN, which JSON lacks, become null.
    """
    print(json.dumps(_plain(record), indent=2, allow_nan=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = ""
) -> None:
    """Print a table; numbers are aligned to the right, floats have four digits, None is a dash.
    What a terminal would obey is spelled out, but not in a rich ``Text``.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    table = Table(title=Text(printable(title)) if title else None, title_justify="left")
    for index, column in enumerate(columns):
        values = [row[index] for row in body if row[index] is not None]
        numeric = bool(values) and all(isinstance(value, Real) for value in values)
        table.add_column(
            Text(printable(column)), justify="right" if numeric else "left", overflow="fold"
        )
    for row in body:
        table.add_row(*(v if isinstance(v, Text) else Text(printable(_cell(v))) for v in row))
    # A pipe has no width: there, nothing is folded.
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)


def say(text: str) -> None:
    """Print lines that may name files, inputs or modules, without what a terminal would obey."""
    print(printable_lines(text))


def printable_lines(text: str) -> str:
    """Several lines without what a terminal would obey."""
    return "\n".join(map(printable, text.split("\n")))


def bar(share: float | None, width: int = 20) -> str:
    """A share of 1 as a bar of at most ``width`` characters, in eighths of one."""
    whole, rest = divmod(round(8 * width * min(max(share or 0.0, 0.0), 1.0)), 8)
    return "█" * whole + " ▏▎▍▌▋▊▉"[rest].strip()


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return (
        str(value) if isinstance(value, Integral) or not isinstance(value, Real) else f"{value:.4g}"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
