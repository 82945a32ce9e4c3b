"""The only error type that users see: what went wrong, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from atlasc.ir.bounds import shown_location

INDENT = "\n    "
"""Separator between the lines of a reason."""
LISTED = 5
"""Number of names that a message lists."""


def printable(text: str) -> str:
    """Foreign text, made safe to display.

    Control characters (line breaks included), and characters that reverse the direction of text,
    become escapes such as ``\\x1b``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class AtlasError(Exception):
    """A user's mistake or an impossible request; the command line prints it and exits with 2.

    Args:
        what: one sentence that names the fault, with the op if there is one.
        where: module path, file and line, or line and column of an IR text; or several of them.
        why: the reason, with the decisive figures.
        remedy: what the user can do.
    """

    def __init__(
        self, what: str, *, where: str | Sequence[str] = "", why: str = "", remedy: str = ""
    ) -> None:
        self.what, self.remedy = printable(what), printable(remedy)
        places = [where] if isinstance(where, str) else ["", *where]
        self.where = INDENT.join(printable(shown_location(place)) for place in places)
        # A reason may be the output of another program: its lines are kept and indented.
        self.why = INDENT.join(printable(line) for line in why.replace(INDENT, "\n").splitlines())
        super().__init__(self.render())

    def reword(self, change: Callable[[str], str]) -> None:
        """Change the words of all parts."""
        self.what, self.where = change(self.what), change(self.where)
        self.why, self.remedy = change(self.why), change(self.remedy)
        self.args = (self.render(),)

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        """Another process made it anew of its message, as if that were ``what``."""
        super().__setstate__(state)
        self.args = (self.render(),)

    def render(self) -> str:
        """The message as plain text, one aspect per line."""
        aspects = {"where": self.where, "why": self.why, "what to do": self.remedy}
        return "\n".join(
            [self.what, *(f"  {one}: {text}" for one, text in aspects.items() if text)]
        )


def named(names: Sequence[str], separator: str = ", ") -> str:
    """The first of some names, for a message; each name stays on one line, whatever it contains."""
    shown = [printable(name) for name in names[:LISTED]]
    if len(names) > LISTED:
        shown.append(f"and {len(names) - LISTED} more")
    return separator.join(shown)


def listed(lines: Sequence[str]) -> str:
    """The first of some lines, for a message, one below the other."""
    return named(lines, "\n       ")


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else many}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a ``why``.

    A line that only announces what follows has the next one behind it, and a ``KeyError``, whose
    message is a key alone, its name before it.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first, *rest = lines or [type(error).__name__]
    if rest and first.endswith(":"):
        first = f"{first} {rest[0]}"
    return f"KeyError: {first}" if type(error) is KeyError else first


@contextmanager
def blaming(what: str, where: str = "") -> Iterator[None]:
    """Errors in the block name what was being done, and where, if that is known."""
    try:
        yield
    except AtlasError as error:
        raise AtlasError(
            f"{what}: {error.what}",
            where=where or error.where,
            why=error.why,
            remedy=error.remedy,
        ) from None


@contextmanager
def explained(what: str, where: object = "", remedy: str = "") -> Iterator[None]:
    """Turn whatever a library raises on damaged content into an :class:`AtlasError` of one line."""
    try:
        yield
    except (AtlasError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of a Rust library is no Exception
        raise AtlasError(what, where=str(where), why=first_line(error), remedy=remedy) from error
