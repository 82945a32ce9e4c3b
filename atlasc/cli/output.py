"""Output for the user: results on standard output, failures on standard error.

Results are one JSON object with ``--json``, otherwise text and tables. A failure is a message. A
user's mistake shows no traceback.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TextIO

import typer

from atlasc.api.errors import as_atlas_error
from atlasc.api.progress import hidden, is_terminal
from atlasc.cli.streams import flush, reader_left, throw_away
from atlasc.ir.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

PIPE_WIDTH = 180
"""Columns of a table that is printed to a file or a pipe."""


_product: ContextVar[TextIO | None] = ContextVar("_product", default=None)
"""Standard output, while a command is silenced."""


@contextmanager
def silenced() -> Iterator[None]:
    """``--quiet``: show no progress, and print nothing on standard output but a command's product.

    Warnings and errors are shown.
    """
    token = _product.set(sys.stdout)
    try:
        with open(os.devnull, "w") as nowhere, hidden(), redirect_stdout(nowhere):
            yield
    finally:
        _product.reset(token)


def is_silenced() -> bool:
    """Whether ``--quiet`` was given."""
    return _product.get() is not None


def print_product(text: str, end: str = "\n") -> None:
    """Print what a command is run for, such as an IR text: also with ``--quiet``."""
    print(text, end=end, file=_product.get() or sys.stdout, flush=True)


def print_written(text: str) -> None:
    """Print a text that a model wrote. Its tokens are those of a bundle, their choice is a
    server's: on a terminal control characters are spelled out, but for ends of lines and tabs.
    """
    if is_terminal(_product.get() or sys.stdout):
        lines = (map(printable, line.split("\t")) for line in text.split("\n"))
        text = "\n".join(map("\t".join, lines))
    print_product(text)


@contextmanager
def product() -> Iterator[None]:
    """What the block prints is what the command is run for: shown also with ``--quiet``."""
    with redirect_stdout(_product.get() or sys.stdout):
        yield


def print_json(record: Mapping[str, Any]) -> None:
    """Print one JSON object; numpy scalars and arrays become numbers and lists.

    Infinities and NaN, which JSON lacks, become null.
    """
    print_product(json.dumps(_plain(record), indent=2, allow_nan=False))


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str = ""
) -> None:
    """Print a table: numbers aligned to the right, floats with four digits, None as a dash.

    A table that is wider than the terminal is printed in parts, one below the other; each part
    begins with the first column. Control characters are spelled out, except in a rich ``Text``.
    """
    from rich.table import Table
    from rich.text import Text

    body = [list(row) for row in rows]
    shown = [[v if isinstance(v, Text) else Text(printable(_cell(v))) for v in row] for row in body]
    heads = [Text(printable(column)) for column in columns]
    # A pipe has no width, so nothing is folded there.
    console = _console(width=None if is_terminal(sys.stdout) else PIPE_WIDTH)
    widths = [_width(head, [row[at] for row in shown]) for at, head in enumerate(heads)]
    for number, part in enumerate(_parts(widths, console.width)):
        named = Text(printable(title)) if title and number == 0 else None
        table = Table(title=named, title_justify="left")
        wide = [max(widths[at], heads[at].cell_len) for at in range(len(heads))]
        # Where whole heads do not fit they are broken; where that is not enough, cells are folded.
        broken = _total(widths, part) <= console.width < _total(wide, part)
        for at in part:
            values = [row[at] for row in body if row[at] is not None]
            numeric = bool(values) and all(isinstance(value, Real) for value in values)
            table.add_column(
                heads[at],
                justify="right" if numeric else "left",
                overflow="fold",
                width=widths[at] if broken else None,
            )
        for row in shown:
            table.add_row(*(row[at] for at in part))
        console.print(table)


def _console(**options: Any) -> Console:
    """A console that leaves a pipe without a reader to :func:`reported`."""
    from rich.console import Console

    class Plain(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return Plain(**options)


def _width(head: Text, cells: Sequence[Text]) -> int:
    """Columns of the terminal that a column needs: heads are broken between words, cells are
    not.
    """
    from rich.cells import cell_len

    words = head.plain.split()
    lines = [line for cell in cells for line in cell.plain.split("\n")]
    return max(map(cell_len, [*words, *lines]), default=0)


def _total(widths: Sequence[int], part: Sequence[int]) -> int:
    # Each column has a space on both sides and a line; one more line closes the table.
    return sum(widths[at] + 3 for at in part) + 1


def _parts(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    """The numbers of the columns of each part of a table, for a terminal of ``room`` columns."""
    part = [0]
    for at in range(1, len(widths)):
        if len(part) > 1 and _total(widths, [*part, at]) > room:
            yield part
            part = [0]
        part.append(at)
    yield part


def say(text: str) -> None:
    """Print lines that may name files, inputs or modules, with control characters spelled out."""
    print(printable_lines(text))


def printable_lines(text: str) -> str:
    """Several lines with control characters spelled out."""
    return "\n".join(map(printable, text.split("\n")))


def bar(share: float | None, width: int = 20) -> str:
    """A share of 1 as a bar of at most ``width`` characters, drawn in eighths of a character."""
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


TRACEBACK_VARIABLE = "ATLASC_TRACEBACK"
"""If this environment variable is 1, every failure shows its Python traceback first."""

USER_ERROR, INTERNAL_ERROR, INTERRUPTED, UNREAD = 2, 70, 130, 141
"""Exit codes; 1 and 3 belong to commands whose result is a no. The last one is that of a program
that the system ends because nobody reads its output."""


@contextmanager
def reported() -> Iterator[None]:
    """Show exceptions as messages on standard error.

    Raises:
        typer.Exit: code 2 for an AtlasError or a file that cannot be used, 130 for Ctrl-C, 70 for
            a fault of the program itself, 141 without a message if the reader of the output left.
            typer's own exceptions pass unchanged.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # spell out what its encoding lacks
            with suppress(OSError):  # the stream was written to and cannot seek
                stream.reconfigure(errors="backslashreplace")
    try:
        with _messages():
            try:
                yield
            finally:
                flush()
    except BrokenPipeError:
        throw_away()
        raise typer.Exit(UNREAD) from None


@contextmanager
def _messages() -> Iterator[None]:
    """Show exceptions but that of a reader that left, see :func:`reported`."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        _traceback()
        # progress() puts into the exception how to continue, if that is possible.
        show("interrupted", str(interrupt) or "the command did not finish")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if _is_typers_own(error) or (isinstance(error, BrokenPipeError) and reader_left()):
            raise
        _traceback()
        known = as_atlas_error(error)
        if known is not None:
            headline, _, details = known.render().partition("\n")
            show("error", headline, details)
            raise typer.Exit(USER_ERROR) from None
        show(
            "internal error",
            f"{type(error).__name__}: {error}",
            "  why: a fault of atlasc, not of the input\n"
            f"  what to do: run again with {TRACEBACK_VARIABLE}=1 and report what it prints",
        )
        raise typer.Exit(INTERNAL_ERROR) from None


def show(kind: str, headline: str, details: str = "") -> None:
    """Print ``kind: headline`` and the details below it on standard error, coloured on a terminal.

    Args:
        kind: "error", "warning", ...
        headline: one sentence.
        details: further lines, already indented.
    """
    from rich.text import Text

    console = _console(stderr=True, highlight=False, soft_wrap=True)
    colour = "bold yellow" if kind in ("warning", "interrupted") else "bold red"
    console.print(Text.assemble((f"{kind}: ", colour), (printable_lines(headline), "bold")))
    if details:
        console.print(Text(printable_lines(details)))


def warn(headline: str, details: str = "") -> None:
    """Print a warning on standard error."""
    show("warning", headline, details)


def _is_typers_own(error: Exception) -> bool:
    # Usage errors come from click, which recent typers bundle: recognised by their attributes.
    return isinstance(error, (typer.Exit, typer.Abort)) or (
        hasattr(error, "exit_code") and hasattr(error, "format_message")
    )


def _traceback() -> None:
    if os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0"):
        traceback.print_exc(file=sys.stderr)
