"""The notation ``name{key=value,...}``, in which passes and options are written.

The module imports no library.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection

from atlasc.ir.errors import AtlasError

NAME = r"[a-z][a-z0-9-]*"
"""The names of passes and of choices, which stand in commands."""
_ITEM = re.compile(rf"\s*({NAME})\s*(?:\{{([^{{}}]*)\}})?\s*(?:,|$)")


def items(text: str, what: str, example: str) -> list[tuple[str, str]]:
    """Read a list of names, each with the text of its keys: ``a,b{x=1}`` is a with "", b with
    "x=1".

    Args:
        text: the list.
        what: what the text is, for messages.
        example: a text that can be read, for messages.

    Raises:
        AtlasError: the text is no such list.
    """
    found: list[tuple[str, str]] = []
    position = len(text) - len(text.lstrip())
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None or match.end() == position:
            raise AtlasError(
                f"cannot read {what} at {text[position:]!r}",
                where=f"column {position + 1} of {text!r}",
                remedy=f"write {example}",
            )
        found.append((match[1], match[2] or ""))
        position = match.end()
    if text.rstrip().endswith(","):
        raise AtlasError(f"{what} ends with a comma", where=f"column {len(text.rstrip())}")
    return found


def keys(text: str, owner: str, known: Collection[str], word: str = "key") -> dict[str, str]:
    """Read what stands between the braces: the text of a value by its key.

    Args:
        text: ``x=1,y=text``; a key may be written with ``_`` for ``-``.
        owner: what has the keys, for messages.
        known: the keys that the owner has.
        word: what a key is called in messages.

    Raises:
        AtlasError: the owner has no such key, or a key is given twice.
    """
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, value = (piece.strip() for piece in part.partition("="))
        name = key.replace("_", "-")
        if name not in known:
            mine = f"its {word}s: {', '.join(sorted(known)) or 'none'}"
            raise AtlasError(f"{owner} has no {word} {key!r}", remedy=f"{near(name, known)}{mine}")
        if name in found:
            raise AtlasError(f"{word} {name} of {owner} is given twice")
        found[name] = value
    return found


def near(name: str, known: Collection[str]) -> str:
    """A question after the known name that is most like a name; empty if none is like it."""
    found = difflib.get_close_matches(name, sorted(known), n=1)
    return f"did you mean {found[0]}? " if found else ""
