"""The reference of errors: what each message says, why, and what to do; read off the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from atlasc.ir.errors import AtlasError
from documentation.markdown import GENERATED, cell, table

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"AtlasError": 0, "KeysDoNotFit": 0, "Refusal": 1}
"""Errors with the place of their message among the arguments."""
OPTIONS = "An option of a command"
HEADINGS = {
    OPTIONS: (
        "atlasc/cli", "atlasc/compilation/checks.py", "atlasc/compilation/declared.py",
        "atlasc/compilation/options.py", "passes/lowering/keys/sizes.py",
    ),
    "A model and its files": (
        "atlasc/compilation/oracle", "atlasc/loading/checks.py", "atlasc/loading/loaded_model.py",
        "atlasc/loading/model_files", "atlasc/loading/models.py", "passes/frontend",
    ),
    "Inputs, labels and data": (
        "atlasc/compilation/source.py", "atlasc/evaluation", "atlasc/loading",
    ),
    "Compiling": (
        "atlasc/calibration", "atlasc/compilation", "atlasc/latency",
        "atlasc/polynomials/recipes.py", "atlasc/targets", "passes/approximation",
        "passes/lowering",
    ),
    "A search, and the choice of a setting": (
        "atlasc/compilation/fronts.py", "atlasc/compilation/search.py", "atlasc/search",
    ),
    "A compiled program": ("atlasc/bundle", "atlasc/compare", "atlasc/emit", "atlasc/run"),
    "Keys, queries and answers": (
        "atlasc/api", "atlasc/bundle/sealed.py", "atlasc/client", "atlasc/runtime",
        "atlasc/targets/key_folders.py",
    ),
    "Generated text": ("atlasc/api/generation.py", "atlasc/generation", "passes/generation"),
    "A service, its tenants and its clients": ("atlasc/demo", "atlasc/remote", "atlasc/service"),
    "Files and the machine": (
        "atlasc/api/errors.py", "atlasc/files.py", "atlasc/ray_cluster.py",
        "atlasc/targets/machine.py", "ir/arrays", "ir/files.py",
    ),
    "IR text, passes and plug-ins": (
        "atlasc/analyses", "atlasc/polynomials", "atlasc/program", "atlasc/simulation", "ir",
        "passes",
    ),
}  # fmt: skip
"""Heading -> folders of the modules that raise, or single files; the longest path counts."""
_PLACES = re.compile(r"⟨[^⟩]*⟩|[^\w]")
INTRODUCTION = f"""\
# Errors: message, cause, what to do

An error of a user is an `{AtlasError.__name__}`: what went wrong, where, why, and what to do; the \
command line prints it and exits with 2. This page lists the messages of the Python code by what \
they are about, in alphabetical order. `⟨name⟩` stands for what a message names; a message that \
begins with a name stands at the word after it. A message that several places of the code print \
has numbered causes. A cell is empty where there is no text, or where the code composes it at run \
time; {{left_out}} messages of which the page could say nothing else are left out. Messages of \
libatlasc, the C++ library, are not listed either. \
[How to read a failed check](../how-to/failed-check.md) says more on the most frequent ones.
"""


class Row(NamedTuple):
    """What an error says; a text is empty if it has no words of its own."""

    message: str
    cause: str
    remedy: str


def page() -> str:
    """All messages that have a cause or a remedy, by heading."""
    found = messages()
    listed = [row for row in found if row.cause or row.remedy]
    left_out = len({row.message for row in found} - {row.message for row in listed})
    parts = [GENERATED, INTRODUCTION.format(left_out=left_out)]
    for heading in HEADINGS:
        rows = merged(row for row in listed if found[row] == heading)
        parts += [f"## {heading}\n", table(["Message", "Cause", "What to do"], rows) + "\n"]
    return "\n".join(parts).rstrip() + "\n"


def messages() -> dict[Row, str]:
    """All errors of the sources and their headings."""
    return {
        row: heading_of(path.relative_to(ROOT), row.message)
        for path in _sources()
        for row in _rows(ast.parse(path.read_text(encoding="utf-8")))
        if own_words(row.message)
    }


def heading_of(module: Path, message: str) -> str:
    """Where a reader looks for a message; raises LookupError for a module in an unknown folder."""
    if message.startswith("--"):
        return OPTIONS
    known = {place: heading for heading, places in HEADINGS.items() for place in places}
    for place in map(Path.as_posix, (module, *module.parents)):
        if place in known:
            return known[place]
    raise LookupError(f"{module} has no heading: add its folder to HEADINGS of {__file__}")


def own_words(message: str) -> str:
    """A message without what it names, as it is sorted."""
    return " ".join(_PLACES.sub(" ", message).lower().split())


def merged(rows: Iterable[Row]) -> list[Row]:
    """The rows in alphabetical order; those of one message have one row, with numbered parts."""
    found: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (own_words(row.message), row)):
        found.setdefault(row.message, []).append(row)
    return [
        Row(message, *(_numbered(texts) for texts in zip(*(row[1:] for row in same), strict=True)))
        for message, same in found.items()
    ]


def _numbered(texts: tuple[str, ...]) -> str:
    if len(set(texts)) == 1:
        return texts[0]
    return " ".join(f"({number}) {text}" for number, text in enumerate(texts, 1) if text)


def _sources() -> list[Path]:
    """The Python files of the package; links within it are followed once."""
    found = [
        path for folder in ("atlasc", "ir", "passes") for path in (ROOT / folder).rglob("*.py")
    ]
    links = [one for one in (ROOT / "atlasc").iterdir() if one.is_symlink()]
    return sorted(path for path in found if not any(map(path.is_relative_to, links)))


def _rows(tree: ast.Module) -> Iterator[Row]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            place = KINDS[node.func.id]
            what = node.args[place] if len(node.args) > place else None
            parts = {word.arg: word.value for word in node.keywords}
            yield Row(*(cell(_text(one)) for one in (what, parts.get("why"), parts.get("remedy"))))


def _text(node: ast.expr | None) -> str:
    """The text of an expression; empty if it has no words of its own."""
    match node:
        case ast.Constant(value=str() as value):
            return value
        case ast.JoinedStr(values=values):
            return "".join(_text(one) for one in values)
        case ast.FormattedValue(value=ast.IfExp() as choice):
            return _text(choice)
        case ast.FormattedValue(value=value):
            return f"⟨{_name(value)}⟩"
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _text(left) + _text(right)
        case ast.IfExp(body=body, orelse=orelse):
            both = [text for one in (body, orelse) if (text := _text(one))]
            return " / ".join(both)
    return ""


def _name(node: ast.expr) -> str:
    """What an expression is called."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.strip("_").replace("_", " ")
        case ast.Call(func=ast.Name(id="len"), args=[one, *_]):
            return f"number of {_name(one)}"
        case ast.Call(func=ast.Attribute(attr="join"), args=[one, *_]):
            return _name(one)
        case ast.Call(args=[one, *_]):
            return _name(one)
        case ast.Call(func=func):
            return _name(func)
        case ast.Subscript(value=value):
            return _name(value)
    return "…"
