"""Passages of real texts of several kinds for a language model, cut by its own tokenizer.

Unlike `sources.py`, line breaks and indentation stay, because a language model writes them too.
All texts come from Python and from the installed packages. Nothing is downloaded.
"""

from __future__ import annotations

import html.entities
import random
import unicodedata
import zoneinfo
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.fidelity import sources

LEAST = 3
"""Least characters of a document for each token of a passage."""


def prose() -> Iterable[str]:
    """Python's documentation, and docstrings without their first paragraphs."""
    for document in (*sources.texts.topics(), *sources.texts.docstrings()):
        yield "\n\n".join(sources.texts.prose(document))


def code() -> Iterable[str]:
    """Modules of the standard library, with comments but without docstrings."""
    paths = sorted(sources.library().glob("*.py"))
    kept = [path for path in paths if not path.name.startswith(sources.GENERATED)]
    return (sources.without_docstrings(*module) for module in sources.modules(kept))


def lists() -> Iterable[str]:
    """Names of characters, time zones, and entities of HTML."""
    named = (unicodedata.name(chr(code), "") for code in range(0x20, 0x3000))
    yield "\n".join(name.title() for name in named if name)
    yield ", ".join(sorted(zoneinfo.available_timezones()))
    yield "\n".join(f"{name} {sign}" for name, sign in sorted(html.entities.html5.items()))


KINDS: dict[str, Callable[[], Iterable[str]]] = {"prose": prose, "code": code, "lists": lists}


def passages(kind: str, tokenizer: Any, count: int, tokens: int) -> list[str]:
    """Distinct passages of a kind, of so many tokens each, in an order that is always the same.

    Args:
        kind: one of `KINDS`.
        tokenizer: a fast tokenizer of HuggingFace.
        count: how many.
        tokens: of a passage.

    Raises:
        ValueError: the kind has fewer.
    """
    found: dict[str, None] = {}
    for document in KINDS[kind]():
        if len(document) < LEAST * tokens:
            continue
        encoded = tokenizer(document, add_special_tokens=False, return_offsets_mapping=True)
        places = encoded["offset_mapping"]
        for start in range(0, len(places) - tokens, tokens):
            found[document[places[start][0] : places[start + tokens - 1][1]]] = None
    order = list(found)
    random.Random(0).shuffle(order)
    if len(order) < count:
        raise ValueError(f"{kind}: only {len(order)} passages of {tokens} tokens")
    return order[:count]
