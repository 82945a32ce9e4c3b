"""What a user sees when a command fails: a message, no traceback for a mistake of their own."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import typer

from atlasc.api.errors import as_atlas_error
from atlasc.cli.output import printable_lines

TRACEBACK_VARIABLE = "ATLASC_TRACEBACK"
"""Set to 1 in the environment, every failure shows its Python traceback first."""

USER_ERROR, INTERNAL_ERROR, INTERRUPTED = 2, 70, 130
"""Exit codes; 1 and 3 are those of commands whose result is a no."""


@contextmanager
def reported() -> Iterator[None]:
    """Show exceptions as messages on standard error.

    Raises:
        typer.Exit: code 2 for an AtlasError or a file that cannot be used, 130 for Ctrl-C, 70 for
            a fault of the program itself. typer's own exceptions pass unchanged.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # what its encoding lacks is spelled out
            with suppress(OSError):  # a stream that is written to and cannot be sought
                stream.reconfigure(errors="backslashreplace")
    try:
        yield
    except KeyboardInterrupt as interrupt:
        _traceback()
        # progress() leaves in the exception how to continue, where that is possible.
        show("interrupted", str(interrupt) or "the command did not finish")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if _is_typers_own(error) or getattr(error, "errno", None) == errno.EPIPE:
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
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    colour = "bold yellow" if kind in ("warning", "interrupted") else "bold red"
    console.print(Text.assemble((f"{kind}: ", colour), (printable_lines(headline), "bold")))
    if details:
        console.print(Text(printable_lines(details)))


def warn(headline: str, details: str = "") -> None:
    """Print a warning on standard error."""
    show("warning", headline, details)


def _is_typers_own(error: Exception) -> bool:
    # Usage errors are click's, which recent versions of typer carry inside: known by their shape.
    return isinstance(error, (typer.Exit, typer.Abort)) or (
        hasattr(error, "exit_code") and hasattr(error, "format_message")
    )


def _traceback() -> None:
    if os.environ.get(TRACEBACK_VARIABLE, "") not in ("", "0"):
        traceback.print_exc(file=sys.stderr)
