"""Mutations of the IR's text form, by tokens; layouts, pipelines and plain texts have such too."""

from __future__ import annotations

import re
from functools import lru_cache
from random import Random

_TOKEN = re.compile(
    r"//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|[a-z]+\.[a-z_0-9]+|[%@]?[A-Za-z_][A-Za-z0-9_.\-/]*"
    r"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\s+|."
)
_NUMBER = re.compile(r"-?\d")
_WORD = re.compile(r"[A-Za-z%@]")

NUMBERS = (
    "0", "1", "-1", "2", "3", "7", "63", "64", "65", "1000000", "4294967296",
    "10000000000000000000", "-9223372036854775809", "9" * 5000, "1" * 400, "1e308", "1e999",
    "-0.0", "1e-320", "0.5", "nan", "1" + "x1" * 70, "3x0x5", "9223372036854775807",
)  # fmt: skip
WORDS = (
    "nn", "poly", "ckks", "module", "symbol", "loc", "true", "false", "patch", "@w", '@""', "%x",
    "%", "f64", "i64", "client", "server", "public", "float64", "float32", "object", "O", "int8",
    "void", "nn.gelu", "nn.softmax", "poly.chebyshev", "ckks.bootstrap", "ckks.linear_transform",
    "ckks.add", "ckks.rotate_sum", "nn.select", "nn.linear", "nn.matmul", "nn.output", "nn.input",
    "*:5", "?:2", "g.3:2", "b:10000000000000000000", "d=0", "t=-1", "patch = 0", "shape = []",
    "axis = 99", "x.y",
)  # fmt: skip
PUNCTUATION = ("{", "}", "[", "]", "<", ">", "=", ",", ":", "|", '"', "//", "\n", "\x00", "\x1b[2J")
TEXTS = (
    '"\x1b[31mred"', '"a\\n// b"', '"\\r"', '"{{ x }}"', '"*/ int main() {"', '"../../x"', '""',
    '"\x9b2J"', '"x' + "y" * 3000 + '"', '"\u202e"', '"\\"', '"#include </etc/passwd>"',
    '"<script>"',
)  # fmt: skip


def program(rng: Random, data: bytes, other: bytes) -> bytes:
    """A text with one to four tokens changed."""
    tokens = list(_tokens(data))
    if not tokens:
        return rng.choice(WORDS).encode()
    for _ in range(rng.choice((1, 1, 2, 4))):
        rng.choice(_CHANGES)(rng, tokens)
        if not tokens:
            return b""
    return "".join(tokens).encode("utf-8", "surrogatepass")


def _number(rng: Random, tokens: list[str]) -> None:
    places = [n for n, token in enumerate(tokens) if _NUMBER.match(token)]
    if places:
        at = rng.choice(places)
        new = [rng.choice(NUMBERS), tokens[rng.choice(places)], "-" + tokens[at]]
        if tokens[at].isdigit() and len(tokens[at]) < 20:
            new += [str(int(tokens[at]) + step) for step in (-1, 1)]
        tokens[at] = rng.choice(new)


def _word(rng: Random, tokens: list[str]) -> None:
    places = [n for n, token in enumerate(tokens) if _WORD.match(token)]
    if places:
        at = rng.choice(places)
        alike = [tokens[n] for n in places if _kind(tokens[n]) == _kind(tokens[at])]
        tokens[at] = rng.choice((rng.choice(WORDS), *[rng.choice(alike) for _ in range(3)]))


def _kind(token: str) -> object:
    """Values, symbols, ops and names are words of different kinds."""
    return "." in token, token[0] in "%@" and token[0]


def _string(rng: Random, tokens: list[str]) -> None:
    places = [n for n, token in enumerate(tokens) if token.startswith('"')]
    if places:
        tokens[rng.choice(places)] = rng.choice(TEXTS)


def _deleted(rng: Random, tokens: list[str]) -> None:
    at = rng.randrange(len(tokens))
    del tokens[at : at + rng.choice((1, 1, 2, 6, 30))]


def _attribute_deleted(rng: Random, tokens: list[str]) -> None:
    places = [n for n, token in enumerate(tokens) if token == "="]
    if places:
        start = rng.choice(places)
        end = start
        while end < len(tokens) and tokens[end] not in (",", "}", "\n"):
            end += 1
        while start and tokens[start] not in (",", "{"):
            start -= 1
        del tokens[start + 1 : min(end + 1, len(tokens)) if tokens[start] == "{" else end]


def _doubled(rng: Random, tokens: list[str]) -> None:
    at = rng.randrange(len(tokens))
    part = tokens[at : at + rng.choice((1, 2, 6, 30))]
    tokens[at:at] = part * rng.choice((1, 1, 40))


def _swapped(rng: Random, tokens: list[str]) -> None:
    one, two = rng.randrange(len(tokens)), rng.randrange(len(tokens))
    tokens[one], tokens[two] = tokens[two], tokens[one]


def _lines(rng: Random, tokens: list[str]) -> None:
    rows = "".join(tokens).split("\n")
    one, two = rng.randrange(len(rows)), rng.randrange(len(rows))
    match rng.randrange(3):
        case 0:
            rows[one], rows[two] = rows[two], rows[one]
        case 1:
            del rows[one]
        case 2:
            rows.insert(two, rows[one])
    tokens[:] = _TOKEN.findall("\n".join(rows))


def _inserted(rng: Random, tokens: list[str]) -> None:
    at = rng.randint(0, len(tokens))
    tokens.insert(at, rng.choice((*PUNCTUATION, *WORDS, *NUMBERS[:8])))


def _after_the_end(rng: Random, tokens: list[str]) -> None:
    tokens.append(rng.choice(("}", "x", "{", '"', "%y", "module @a : nn {\n}\n", "\x00", "é")))


def _nested(rng: Random, tokens: list[str]) -> None:
    places = [n for n, token in enumerate(tokens) if _NUMBER.match(token)]
    if places:
        deep = rng.choice((3, 3, 20, 20, 300, 3000))
        left, right = rng.choice((("[", "]"), ("{a = ", "}")))
        tokens[rng.choice(places)] = left * deep + "1" + right * rng.choice((deep, deep, deep - 1))


_CHANGES = (
    _number, _number, _number, _number, _number, _word, _word, _word, _word, _string, _deleted,
    _attribute_deleted, _doubled, _swapped, _lines, _inserted, _after_the_end, _nested,
)  # fmt: skip


@lru_cache(maxsize=256)
def _tokens(data: bytes) -> tuple[str, ...]:
    return tuple(_TOKEN.findall(data.decode("utf-8", "replace")))
