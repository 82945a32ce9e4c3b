"""Real inputs of five kinds and of all lengths, for MiniLM.

    python benchmarks/fidelity/sources.py descriptions --length short --count 400 > texts.txt

A program that holds on inputs of the kind that it was calibrated on may fail on those of another
kind or length. Everything here comes from Python and from the installed packages, so which inputs
there are depends on their versions. Nothing is downloaded. The order is the same every time, and
any part is a fair sample of all.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import distributions
from itertools import islice
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "minilm"))
import texts

TOKENS = texts.TOKENS
CALIBRATION = 400
"""Inputs of each source that are for calibration; the others are unseen."""
LENGTHS = ("full", "short", "mixed")
SHORT = 15
"""Most tokens of a short text, without the special ones."""
LEAST = 0.75
"""The share of the limit that a full text has at least."""
LEFT_OUT = {"site-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "encodings"}
"""Folders in the standard library's that are no part of it, or hold tests or tables."""
GENERATED = "_sysconfigdata"
"""A module of tables, with paths of the machine that built Python."""
MODULES = 4
"""One in so many modules of the standard library is a source of code."""
LICENCE = re.compile(r"licen[cs]e|copying|notice", re.IGNORECASE)
RESERVED = re.compile(r"\[\w+\]")
"""Entries of a vocabulary that come from no text: [CLS], [unused7]."""

Rows = list[str] | list[list[int]]
"""Texts, or token ids with the special ones; `atlasc` takes either as data."""


def rows(source: str, length: str, count: int, *, skip: int = 0, tokens: int = TOKENS) -> Rows:
    """Distinct inputs of a source.

    Args:
        source: one of `SOURCES`.
        length: ``full``: three quarters of the limit at least; ``short``: 1 to 15 tokens, of
            descriptions whole lines; ``mixed``: from 1 token to the limit, each octave as often as
            another. Special tokens are not counted.
        count: how many.
        skip: full inputs to leave out at the start. An input of another length is a part of a full
            one, so it is none of those that were left out either.
        tokens: the limit, with the two special tokens.

    Raises:
        ValueError: the source has fewer.
    """
    most = tokens - 2
    made: Iterator[str | list[int] | None]
    made = random(length, most) if source == "random" else shortened(source, length, most)
    found = list(islice((row for row in islice(made, skip, None) if row), count))
    if len(found) < count:
        raise ValueError(f"{source}, {length}: only {len(found)} are left after the first {skip}")
    return found  # type: ignore[return-value]


def descriptions(most: int) -> Iterator[str]:
    """What modules, classes, functions and packages say of themselves: as many lines, one after
    the other, as the limit allows.
    """
    lines = texts.shuffled(summaries())
    encoded = texts.load_tokenizer().encode_batch(lines, add_special_tokens=False)
    chosen: list[str] = []
    held = 0
    for line, size in zip(lines, map(len, encoded), strict=True):
        if size > most:
            continue
        if held + size > most:
            if held >= LEAST * most:
                yield "\n".join(chosen)
            chosen, held = [], 0
        chosen.append(line)
        held += size


def prose(most: int) -> Iterator[str]:
    """Windows of Python's documentation, and of docstrings without their first paragraphs."""
    documents = map(texts.prose, (*texts.topics(), *texts.docstrings()))
    return windows(unused(documents, summaries()), most)


def code(most: int) -> Iterator[str]:
    """Windows of modules of the standard library, with comments but without docstrings."""
    paths = [path for path in library().glob("*.py") if not path.name.startswith(GENERATED)]
    some = sorted(paths)[::MODULES]
    return windows((without_docstrings(*module) for module in modules(some)), most)


def licences(most: int) -> Iterator[str]:
    """Windows of the licences of Python and of the installed packages, each paragraph once."""
    installed = Path(sysconfig.get_paths()["purelib"]).glob("*.dist-info/**/*")
    named = sorted(path for path in installed if path.is_file() and LICENCE.search(path.name))
    contents = (
        path.read_text(encoding="utf-8", errors="replace")
        for path in [*sorted(library().glob("LICENSE*")), *named]
    )
    return windows(unused(re.split(r"\n\s*\n", content) for content in contents), most)


TEXTS: dict[str, Callable[[int], Iterator[str]]] = {
    "descriptions": descriptions,
    "prose": prose,
    "code": code,
    "licences": licences,
}
SOURCES = (*TEXTS, "random")


@cache
def wholes(source: str, most: int) -> tuple[str, ...]:
    """All full texts of a source; one that consists of lines has them apart."""
    return tuple(TEXTS[source](most))


def random(length: str, most: int) -> Iterator[list[int]]:
    """Token ids, each as likely as another, between the two special ones; without end."""
    tokenizer = texts.load_tokenizer()
    start, end = tokenizer.encode("").ids
    vocabulary = np.array(
        [id for name, id in sorted(tokenizer.get_vocab().items()) if not RESERVED.fullmatch(name)]
    )
    generator = np.random.default_rng(0)
    seen: set[tuple[int, ...]] = set()
    for width in widths(length, most):
        drawn = generator.choice(vocabulary, most)
        while (row := tuple(drawn[:width].tolist())) in seen:
            width += 1
        seen.add(row)
        yield [start, *row, end]


def widths(length: str, most: int) -> Iterator[int]:
    """Without end, how many tokens each of the next inputs should have."""
    generator = np.random.default_rng(LENGTHS.index(length))
    while True:
        if length == "full":
            yield most
        elif length == "short":
            yield int(generator.integers(1, min(SHORT, most) + 1))
        else:
            yield int(np.exp(generator.uniform(0, np.log(most + 1))))


def shortened(source: str, length: str, most: int) -> Iterator[str | None]:
    """For each full text itself or a beginning of it, which was not met before, or None.

    A beginning ends with a word. It is longer than asked for where a shorter one was met. A short
    text is one of the lines that a full text consists of, where it has lines and one is short.
    """
    tokenizer, seen = texts.load_tokenizer(), set[tuple[int, ...]]()
    limit = min(SHORT, most) if length == "short" else most
    for whole, width in zip(wholes(source, most), widths(length, most)):
        lines = whole.split("\n")
        found = [" ".join(lines)]
        if length != "full":
            encoded = tokenizer.encode(whole, add_special_tokens=False)
            ends = [end for end in word_ends(encoded.word_ids) if end <= limit]
            order = sorted(ends, key=lambda end: (end < width, end))
            found = [" ".join(whole[: encoded.offsets[end - 1][1]].split()) for end in order]
        if length == "short" and len(lines) > 1:
            sizes = map(len, tokenizer.encode_batch(lines, add_special_tokens=False))
            found[:0] = [line for line, size in zip(lines, sizes) if size <= limit]
        for text in found:
            ids = tuple(tokenizer.encode(text, add_special_tokens=False).ids)
            if ids not in seen:
                seen.add(ids)
                yield text
                break
        else:
            yield None


def windows(documents: Iterable[str], most: int) -> Iterator[str]:
    """Windows of running texts that do not overlap: as many whole words as the limit allows."""
    tokenizer = texts.load_tokenizer()
    found: dict[str, None] = {}
    for document in documents:
        text = " ".join(document.split())
        encoded = tokenizer.encode(text, add_special_tokens=False)
        offsets = encoded.offsets
        start = last = 0
        for end in word_ends(encoded.word_ids):
            if end - start > most:
                if last - start >= LEAST * most:
                    found[text[offsets[start][0] : offsets[last - 1][1]]] = None
                start = last
            last = end
    yield from texts.shuffled(found)


def word_ends(words: list[int | None]) -> list[int]:
    """Behind which tokens a word ends, given the word of each token."""
    following = [*words[1:], None]
    return [end for end, pair in enumerate(zip(words, following), 1) if pair[0] != pair[1]]


def unused(documents: Iterable[Iterable[str]], used: Iterable[str] = ()) -> Iterator[str]:
    """Each document's paragraphs that are in none before it, nor among those used elsewhere."""
    seen = set(used)
    for document in documents:
        paragraphs = dict.fromkeys(" ".join(paragraph.split()) for paragraph in document)
        new = [paragraph for paragraph in paragraphs if paragraph not in seen]
        seen.update(new)
        yield " ".join(new)


@cache
def summaries() -> tuple[str, ...]:
    """First paragraphs of the docstrings of the standard library and of the installed packages'
    top modules, and what the packages' metadata say, each on a line.
    """
    installed = Path(sysconfig.get_paths()["purelib"])
    paths = [
        path
        for path in library().rglob("*.py")
        if not LEFT_OUT & set(path.relative_to(library()).parts)
    ]
    first = [package.metadata["Summary"] or "" for package in distributions()]
    for _, tree in modules([*paths, *installed.glob("*/__init__.py")]):
        first += [docstring.split("\n\n")[0] for _, docstring in docstrings(tree)]
    return tuple(sorted({" ".join(line.split()) for line in first} - {""}))


def library() -> Path:
    """The folder of the standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


def modules(paths: Iterable[Path]) -> Iterator[tuple[str, ast.Module]]:
    """Modules as text and as a tree; those that this Python cannot read are left out."""
    for path in sorted(paths):
        try:
            source = path.read_text(encoding="utf-8")
            yield source, ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.stmt, str]]:
    """All docstrings of a module, and the statements that they are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0], docstring


def without_docstrings(source: str, tree: ast.Module) -> str:
    """A module's text with the lines of its docstrings left out."""
    lines = source.split("\n")
    for statement, _ in docstrings(tree):
        first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
        lines[first:last] = [""] * (last - first)
    return "\n".join(lines)


def main() -> None:
    """Print inputs, one a line: texts, or JSON as `.jsonl` files hold it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", choices=SOURCES)
    parser.add_argument("--length", choices=LENGTHS, default="full")
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--skip", type=int, default=0, help="full texts to leave out at the start")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="longest input, in tokens")
    chosen = parser.parse_args()
    for row in rows(
        chosen.source, chosen.length, chosen.count, skip=chosen.skip, tokens=chosen.tokens
    ):
        print(row if isinstance(row, str) else json.dumps({"input_ids": row}))


if __name__ == "__main__":
    main()
