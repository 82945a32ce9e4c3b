"""Mutations of JSON: members, numbers that are none, deep nesting, control characters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Any

RAW = "\x00raw\x00"
"""In a string value or a key: what follows stands in the text as it is."""

NUMBERS = (
    0, -1, 1, 2, 1000000000, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**19, 10**40, -(2**63), 0.5,
    -0.0, 1e-320, 1e308, 1e300, True, False,
)  # fmt: skip
LITERALS = (
    "NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, "-" + "1" * 5000, "1" * 400,
    "00", "1.", "0x10", "truE", "[" * 2000 + "]" * 2000, "[" * 100000,
    '{"a":' * 5000 + "1" + "}" * 5000, "{}", "[]", "[[]]", "null", '""', '"2"', '"\\ud800"',
    '"\\u0000"', '"\\u001b[2J"',
)  # fmt: skip
TEXTS = (
    "", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\r\n", "a\x00b", "\x7f\x9b2J",
    "../../etc/passwd", "/dev/zero", "..", "x" * 3000, "\u202e\u2066", "\U0001f511", "{{ x }}",
    "${HOME}", "%s%n", "__class__", "1", "nan", "inf", "-1", "\ud800", "*/ int f() { */",
    "<script>", " ",
)  # fmt: skip

_RAW = re.compile(r'"\\u0000raw\\u0000((?:[^"\\]|\\.)*)"')
Path = tuple[Any, ...]


def document(rng: Random, data: bytes, other: bytes) -> bytes:
    """A JSON text with one to three values or members changed."""
    try:
        value = _parsed(data)
    except (ValueError, RecursionError):
        return _text(rng, data)
    if rng.random() < 0.15:
        return _text(rng, data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = change(rng, value)
    return dumped(value)


def lines(rng: Random, data: bytes, other: bytes) -> bytes:
    """A JSON text a line: one line changed, or lines moved."""
    rows = data.split(b"\n")
    at = rng.randrange(len(rows))
    match rng.randrange(8):
        case 0:
            del rows[at]
        case 1:
            rows.insert(at, rows[rng.randrange(len(rows))])
        case 2:
            rows[at] = rng.choice((b"", b" ", b"null", b"[]", b"{}", b"\xff\xfe", b"\r"))
        case 3:
            second = rng.randrange(len(rows))
            rows[at], rows[second] = rows[second], rows[at]
        case _:
            rows[at] = document(rng, rows[at], other).replace(b"\n", b" ")
    return b"\n".join(rows)


def change(rng: Random, value: Any) -> Any:
    """A value of JSON with one place in it changed; the value itself stays."""
    places = list(_places(value))
    at = rng.choice(places)
    return _at(value, at, lambda found: _changed(rng, found))


def dumped(value: Any) -> bytes:
    """The text of a value, with raw parts as they are."""
    text = json.dumps(value, indent=1)
    plain = _RAW.sub(lambda match: json.loads(f'"{match[1]}"'), text)
    return plain.encode("utf-8", "surrogatepass")


def _changed(rng: Random, value: Any) -> Any:
    kinds = [_replaced, _replaced, _wrapped]
    if isinstance(value, (int, float)):
        kinds += [_near, _near]
    if isinstance(value, (dict, list)) and value:
        kinds += [_removed, _doubled, _renamed, _moved]
    return rng.choice(kinds)(rng, value)


def _replaced(rng: Random, value: Any) -> Any:
    match rng.randrange(4):
        case 0:
            return rng.choice(NUMBERS)
        case 1:
            return RAW + rng.choice(LITERALS)
        case 2:
            return rng.choice(TEXTS)
    return rng.choice((None, [], {}, "", [value], str(value)[:200]))


def _wrapped(rng: Random, value: Any) -> Any:
    return rng.choice(([value], {"a": value}, [[value]] * 3, [value] * rng.choice((2, 200))))


def _near(rng: Random, value: Any) -> Any:
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 256, 2**32))
    return rng.choice((-value, value * 2, value / 3, value * 1e30, float(value), value == 1))


def _removed(rng: Random, value: Any) -> Any:
    gone = rng.randrange(len(value))
    if isinstance(value, list):
        return value[:gone] + value[gone + 1 :]
    return {k: v for n, (k, v) in enumerate(value.items()) if n != gone}


def _doubled(rng: Random, value: Any) -> Any:
    chosen = rng.randrange(len(value))
    if isinstance(value, list):
        return (
            value[:chosen]
            + value[chosen : chosen + 1] * rng.choice((2, 2, 150))
            + value[chosen + 1 :]
        )
    key = list(value)[chosen]
    twice = rng.choice((value[key], *NUMBERS[:4]))
    return {**value, RAW + json.dumps(key): twice}


def _renamed(rng: Random, value: Any) -> Any:
    if isinstance(value, list):
        return dict(enumerate(value))
    chosen, new = rng.choice(list(value)), rng.choice((*TEXTS[:12], "unknown", "format"))
    return {new if key == chosen else key: v for key, v in value.items()}


def _moved(rng: Random, value: Any) -> Any:
    items = list(value.values()) if isinstance(value, dict) else list(value)
    rng.shuffle(items)
    return dict(zip(value, items)) if isinstance(value, dict) else items


def _text(rng: Random, data: bytes) -> bytes:
    """Changes that a value cannot show: what stands around it, and how it is encoded."""
    deep = rng.choice((500, 5000, 100000))
    match rng.randrange(7):
        case 0:
            return data + rng.choice((b"{}", b"\x00", b"]", b"nul", b"\xff", b"//"))
        case 1:
            return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"//\n")) + data
        case 2:
            return b"[" * deep + data + b"]" * rng.choice((deep, 0))
        case 3:
            return data.decode("utf-8", "replace").encode(
                rng.choice(("utf-16", "utf-32")), "replace"
            )
        case 4:
            return rng.choice(LITERALS).encode()
        case 5:
            return b'{"a":' * deep + data + b"}" * deep
    return data.replace(rng.choice((b'"', b":", b",", b"{", b"]")), b"", 1)


@lru_cache(maxsize=256)
def _parsed(data: bytes) -> Any:
    return json.loads(data)


def _places(value: Any, at: Path = ()) -> Iterator[Path]:
    yield at
    if isinstance(value, (dict, list)):
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        for number, (key, child) in enumerate(inner):
            if number < 40:  # of a long list, its beginning is enough
                yield from _places(child, (*at, key))


def _at(value: Any, at: Path, change: Any) -> Any:
    if not at:
        return change(value)
    if isinstance(value, dict):
        return {k: _at(v, at[1:], change) if k == at[0] else v for k, v in value.items()}
    return [_at(v, at[1:], change) if n == at[0] else v for n, v in enumerate(value)]
