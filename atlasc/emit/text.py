"""Small pieces of C++ source text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

import numpy as np

from atlasc.ir.module import Value

WIDTH = 100
_TAKEN = frozenset(
    re.findall(
        r"\w+",
        """
        alignas alignof and asm auto bool break case catch char class const constexpr continue
        decltype default delete do double else enum explicit export extern false float for friend
        goto if inline int long mutable namespace new noexcept not operator or private protected
        public register return short signed sizeof static struct switch template this throw true try
        typedef typeid typename union unsigned using virtual void volatile while xor atlasc main std
        """,
    )
)
"""Names that C++ or the runtime has taken."""


def string(text: str) -> str:
    """A string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda m: f"\\{ord(m[0]):03o}", escaped) + '"'


def number(value: float) -> str:
    """A float literal that reads back exactly."""
    return repr(float(value))


def lines(items: Iterable[str], indent: int) -> str:
    """Items of an initialiser list in indented lines."""
    start = " " * indent
    text = ", ".join(items) + ","
    return textwrap.fill(text, WIDTH, initial_indent=start, subsequent_indent=start)


def numbers(values: Iterable[float], indent: int = 0) -> str:
    """An initialiser list; a long one over several lines, the last one indented."""
    text = ", ".join(map(number, np.ravel(np.asarray(values, dtype=np.float64))))
    if indent + len(text) + 3 <= WIDTH:
        return "{" + text + "}"
    inner = " " * (indent + 4)
    whole = textwrap.fill(text, WIDTH, initial_indent=inner, subsequent_indent=inner)
    return "{\n" + whole + "\n" + " " * indent + "}"


def braced(head: str, items: Iterable[str]) -> list[str]:
    """An initialiser list in pieces between which a line may end."""
    pieces = list(items)
    pieces[0] = f"{head}{{{pieces[0]}"
    pieces[-1] += "}"
    return pieces


def integers(values: Iterable[int]) -> str:
    """An initialiser list."""
    return "{" + ", ".join(map(str, values)) + "}"


def identifier(path: str) -> str:
    """A name made of a module's path."""
    name = re.sub(r"[\W_]+", "_", path, flags=re.ASCII).strip("_") or "unnamed"
    return f"m{name}" if name[0].isdigit() else f"{name}_" if name in _TAKEN else name


def variable(value: Value) -> str:
    """The variable that holds a value: v and its name in the IR."""
    return f"v{value.name}" if value.name[0].isdigit() else f"v_{value.name}"


def call(head: str, arguments: list[str], tail: str = ");", indent: int = 4) -> str:
    """``head(arguments);``, broken between arguments into lines of at most 100 columns."""
    start = " " * indent
    line = f"{start}{head}({', '.join(arguments)}{tail}"
    if len(line) <= WIDTH:
        return line
    broken, current = [f"{start}{head}("], ""
    for position, argument in enumerate(arguments):
        piece = argument + ("," if position + 1 < len(arguments) else tail)
        if current and indent + 5 + len(current) + len(piece) > WIDTH:
            broken.append(f"{start}    {current}")
            current = piece
        else:
            current = f"{current} {piece}".lstrip()
    return "\n".join([*broken, f"{start}    {current}"])
