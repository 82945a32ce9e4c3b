"""The facts in the header of a sealed file (a key, a query, an answer), read without its content.

They say what a file claims to be. A service uses them to find the program of a query before it
takes the query's bytes, and to refuse a secret key before it is stored. Whoever uses the content
checks the facts again: the runtime library does.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import JsonValue

from atlasc.bundle.ledger import LEDGER
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, open_plain, parse_json

LENGTH = 8
"""Bytes before the header, which tell its length."""
HEAD = LENGTH + MIB
"""Bytes that hold the header of any sealed file."""
EVALUATION_KEYS, SECRET_KEY = "evaluation keys", "secret key"
"""Kinds of key files."""


def header_bytes(head: bytes) -> int:
    """Number of bytes that hold the header, given at least its first ``LENGTH`` bytes.

    Raises:
        AtlasError: this is not the beginning of a sealed file.
    """
    length = int.from_bytes(head[:LENGTH], "little")
    if len(head) < LENGTH or not 2 <= length <= HEAD - LENGTH:
        raise _no_file("it does not begin with the length of a header")
    return LENGTH + length


def sealed_facts(head: bytes) -> Mapping[str, str]:
    """The facts of a file that begins with these bytes: ``kind``, ``program``, ``query``, ...

    Raises:
        AtlasError: this is not the beginning of a sealed file.
    """
    end = header_bytes(head)
    if len(head) < end:
        raise _no_file("its header is cut off")
    try:
        facts = parse_json(head[LENGTH:end], dict[str, JsonValue]).get("__metadata__")
    except ValueError as error:
        raise _no_file(f"its header cannot be read: {error}") from None
    if not isinstance(facts, dict):
        raise _no_file("its header has no facts")
    return {name: str(fact) for name, fact in facts.items()}


def facts_of(source: Path | bytes, *, links: bool = True) -> Mapping[str, str]:
    """The facts of a sealed file, from its path or its bytes. ``links``: whether the path may be a
    symbolic link.

    Raises:
        AtlasError: it is no sealed file, or cannot be opened.
    """
    if isinstance(source, bytes):
        return sealed_facts(source)
    with open_plain(source, 2**63, links=links) as file:
        head = file.read(LENGTH)
        return sealed_facts(head + file.read(header_bytes(head) - LENGTH))


def require_no_secret(folder: Path) -> None:
    """Refuse a server's folder in which a secret key, or the ledger of one, lies at any depth.

    A file counts by its content: another name hides no key.

    Raises:
        AtlasError: there is such a file.
    """
    for place, _, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            if name == LEDGER or _kind(path) == SECRET_KEY:
                raise AtlasError(
                    "a secret key, or the ledger of one, lies in a folder of the server",
                    where=str(path),
                    why="whoever reads this machine could decrypt every query of that key",
                    remedy="move it to the client; make new keys if somebody may have read it",
                )


def _kind(path: Path) -> str:
    with suppress(AtlasError, OSError):
        return facts_of(path, links=False).get("kind", "")
    return ""


def _no_file(why: str) -> AtlasError:
    return AtlasError(
        "this is no key, query or answer of atlasc",
        why=why,
        remedy="send the file that atlasc wrote",
    )
