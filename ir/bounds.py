"""Bounds on the size and the characters of a module's parts: its text may come from anyone.

Everything that reads, prints, lowers or emits a module relies on these bounds. They are far above
the sizes of programs that finish in an acceptable time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MAX_INTEGER = 2**63 - 1
"""Largest integer in an attribute; the smallest is −2⁶³."""
MAX_NESTING = 32
"""Greatest number of items of lists and dictionaries in an attribute."""
MAX_AXES = 16
MAX_ELEMENTS = 2**30
"""Greatest number of elements of a value. The scores of 32 heads and 4096 tokens have 2²⁹."""
MAX_STORED = 2**36
"""Greatest number of elements of a symbol's array; a declared array takes no memory."""
MAX_SLOT_BITS = 20
"""Greatest number of bits of a slot's index."""
MAX_INDEX_BITS = 30
"""Greatest number of bits of slot and ciphertext indices together."""
MAX_LEVEL = 1000
MAX_COEFFICIENTS = 4096
"""Greatest number of coefficients of a Chebyshev sum; recipes use some hundred."""
MAX_TIMES = 100
"""Greatest number of doublings in one op."""
MAX_PATH = 300
"""Greatest length of a location, and of a symbol's or a module's name."""
MAX_NAME = 100
"""Greatest length of an input's or an output's name."""

_ODD = re.compile(r"[^\w .:/\[\]<>()@+,=\-$]", re.ASCII)
_NAME = re.compile(r"\w+([.\-/]\w+)*", re.ASCII)


def is_location(text: str) -> bool:
    """Whether a text is allowed as the location of an op."""
    return len(text) <= MAX_PATH and not _ODD.search(text)


class Location(str):
    """The location of an op, with the line of the user's code that made it.

    The line is no part of the text: it is for messages, and no module that was printed, stored or
    sent has it.

    Attributes:
        line: ``file:line``, or empty.
    """

    __slots__ = ("line",)
    line: str

    def __new__(cls, text: str, line: str = "") -> Location:
        """A location; ``line`` may be left out."""
        made = super().__new__(cls, text)
        made.line = line
        return made

    def __reduce__(self) -> tuple[type[Location], tuple[str, str]]:
        """How a copy, and another process, make it anew."""
        return Location, (str(self), self.line)


def as_location(text: str, line: str = "") -> Location:
    """A model's own path as a location: other characters become underscores."""
    return Location(_ODD.sub("_", text[:MAX_PATH]), line)


def shown_location(text: str) -> str:
    """A location for a message, with the line of the user's code where it is known."""
    line = line_of(text)
    return f"{text} ({line})" if text and line else line or text


def line_of(location: str) -> str:
    """The line of the user's code that made an op, or an empty string."""
    return location.line if isinstance(location, Location) else ""


def is_name(text: str) -> bool:
    """Whether a text is allowed as the name of an input or an output, which may become part of a
    path.
    """
    return len(text) <= MAX_NAME and _NAME.fullmatch(text) is not None


def as_name(text: str) -> str:
    """A model's own name of an input or an output, made valid."""
    words = re.findall(r"\w+|[.\-/]+", text[:MAX_NAME], re.ASCII)
    return text if is_name(text) else "_".join(w for w in words if w[0] not in ".-/") or "unnamed"


def is_symbol(text: str) -> bool:
    """Whether a text is allowed as the name of an array or a module."""
    return len(text) <= MAX_PATH and text.isprintable()


def as_symbol(text: str) -> str:
    """A model's own name of an array, made valid, and short enough for suffixes that passes add."""
    return "".join(c if c.isprintable() else "_" for c in text[: MAX_PATH - 100])


def is_shape(extents: Sequence[int], elements: int = MAX_ELEMENTS, least: int = 1) -> bool:
    """Whether a value, or an array, may have this shape."""
    if len(extents) > MAX_AXES or any(not least <= n <= elements for n in extents):
        return False
    return math.prod(max(n, 1) for n in extents) <= elements
