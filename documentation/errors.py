"""The reference of errors: what each message says, why, and what to do; read off the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from atlasc.ir.errors import AtlasError
from documentation.markdown import GENERATED, cell, docstring, table

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"AtlasError": 0, "Refusal": 1}
"""Errors with the place of their message among the arguments."""
_PLACES = re.compile(r"⟨[^⟩]*⟩|[^\w]")
INTRODUCTION = f"""\
# Errors: message, cause, what to do

An error of a user is an `{AtlasError.__name__}`: what went wrong, where, why, and what to do; the \
command line prints it and exits with 2. This page lists the messages of the Python code by the \
module that raises them. `⟨name⟩` stands for what the message names, and a cell is empty where \
the code composes the text at run time. Messages of libatlasc, the C++ library, are not listed. \
[How to read a failed check](../how-to/failed-check.md) says more on the most frequent ones.
"""


def page() -> str:
    """All messages, by module."""
    parts = [GENERATED, INTRODUCTION]
    for path in _sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        rows = sorted({row for row in _rows(tree) if _PLACES.sub("", row[0]).strip()})
        if rows:
            about = (ast.get_docstring(tree) or "").split("\n\n")[0]
            name = path.relative_to(ROOT).as_posix()
            parts += [f"## `{name}`\n", docstring(" ".join(about.split())) + "\n"]
            parts.append(table(["Message", "Cause", "What to do"], rows) + "\n")
    return "\n".join(parts).rstrip() + "\n"


def _sources() -> list[Path]:
    """The Python files of the package; links within it are followed once."""
    found = [
        path for folder in ("atlasc", "ir", "passes") for path in (ROOT / folder).rglob("*.py")
    ]
    links = [one for one in (ROOT / "atlasc").iterdir() if one.is_symlink()]
    return sorted(path for path in found if not any(map(path.is_relative_to, links)))


def _rows(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS:
            place = KINDS[node.func.id]
            what = node.args[place] if len(node.args) > place else None
            parts = {word.arg: word.value for word in node.keywords}
            yield (
                cell(_text(what)), cell(_text(parts.get("why"))), cell(_text(parts.get("remedy")))
            )  # fmt: skip


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
