"""The one error type that users see: what went wrong, where, why, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INDENT = "\n    "
"""Between the lines of a reason."""
LISTED = 5
"""Names that a message lists one by one."""


def printable(text: str) -> str:
    """Text from somewhere else as it may be shown: what a terminal would obey is spelled out.

    Control characters, line breaks among them, and characters that reverse the direction of text
    become escapes such as ``\\x1b``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class AtlasError(Exception):
    """A user's mistake or an impossible request; the command line prints it and exits with 2.

    Args:
        what: one sentence that names the fault, with the op where there is one.
        where: module path, file and line, or line and column of an IR text.
        why: the reason, with the figures that decided it.
        remedy: what the user can do.
    """

    def __init__(self, what: str, *, where: str = "", why: str = "", remedy: str = "") -> None:
        self.what, self.where, self.remedy = map(printable, (what, where, remedy))
        # A reason may be what another program printed: its lines stay, moved to the right.
        self.why = INDENT.join(printable(line) for line in why.replace(INDENT, "\n").splitlines())
        super().__init__(self.render())

    def render(self) -> str:
        """The message as plain text, one aspect a line."""
        aspects = {"where": self.where, "why": self.why, "what to do": self.remedy}
        return "\n".join(
            [self.what, *(f"  {one}: {text}" for one, text in aspects.items() if text)]
        )


def named(names: Sequence[str], separator: str = ", ") -> str:
    """The first of some names, for a message; each stays one line, whatever is in it."""
    shown = [printable(name) for name in names[:LISTED]]
    if len(names) > LISTED:
        shown.append(f"and {len(names) - LISTED} more")
    return separator.join(shown)


def listed(lines: Sequence[str]) -> str:
    """The first of some lines, likewise, one below another."""
    return named(lines, "\n       ")


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else many}"


def first_line(error: BaseException) -> str:
    """The first line of an error's message, for a ``why``."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


@contextmanager
def explained(what: str, where: object = "", remedy: str = "") -> Iterator[None]:
    """Whatever a library raises on damaged content, as an :class:`AtlasError` of one line."""
    try:
        yield
    except (AtlasError, KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # a panic of a library in Rust is no Exception
        raise AtlasError(what, where=str(where), why=first_line(error), remedy=remedy) from error
