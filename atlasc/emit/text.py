"""Small pieces of C++ source text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

from atlasc.ir.errors import AtlasError
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
"""Names that are taken by C++ or by the runtime."""
_COMMENT = 80
"""Columns for the text of a comment."""


def string(text: str) -> str:
    """A C++ string literal of the text in UTF-8: printable ASCII without trigraphs.

    Raises:
        AtlasError: the text has a zero byte, which would end it in C++, or cannot be encoded.
    """
    try:
        coded = text.encode()
    except UnicodeEncodeError:
        coded = b"\0"
    if 0 in coded:
        raise AtlasError(f"a name cannot be emitted: {text!r}", remedy="rename it in the model")
    return '"' + "".join(map(_escaped, coded)) + '"'


def _escaped(byte: int) -> str:
    """A byte as an octal escape; it ends after three digits, whatever follows."""
    if chr(byte) in '\\"?':
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def comment(text: str) -> str:
    """The text of a one-line comment, without characters that would end or continue the line."""
    return re.sub(r"[^A-Za-z0-9_ .,:()\[\]-]", "_", text)[:_COMMENT].strip()


def _filled(text: str, indent: int) -> str:
    lines = textwrap.wrap(text, WIDTH - indent, break_long_words=False, break_on_hyphens=False)
    return textwrap.indent("\n".join(lines), " " * indent)


def braced(items: Iterable[str]) -> list[str]:
    """An initialiser list in pieces, between which a line may be broken."""
    pieces = list(items)
    pieces[0] = "{" + pieces[0]
    pieces[-1] += "}"
    return pieces


def identifier(path: str) -> str:
    """A C++ name made from the path of a module."""
    name = re.sub(r"[\W_]+", "_", path, flags=re.ASCII).strip("_") or "unnamed"
    return f"m{name}" if name[0].isdigit() else f"{name}_" if name in _TAKEN else name


def variable(value: Value) -> str:
    """The variable of a value: "v" and the value's name in the IR.

    Raises:
        AtlasError: the name is not a word.
    """
    if not re.fullmatch("[A-Za-z0-9_]+", value.name):
        raise AtlasError(f"a value cannot be called {value.name!r}")
    return f"v{value.name}" if value.name[0].isdigit() else f"v_{value.name}"


def call(head: str, arguments: list[str], tail: str = ");", indent: int = 4) -> str:
    """``head(arguments);``, broken between arguments into lines of at most 100 columns."""
    start = " " * indent + f"{head}("
    line = f"{start}{', '.join(arguments)}{tail}"
    if len(line) <= WIDTH:
        return line
    whole = [argument.replace(" ", "\0") for argument in arguments]
    return f"{start}\n" + _filled(", ".join(whole) + tail, indent + 4).replace("\0", " ")
