"""The reference of the Python API: the names of ``atlasc.__all__`` with their docstrings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

import atlasc
from documentation.markdown import GENERATED, docstring

INTRODUCTION = """\
# Python API

`import atlasc` gives these names. `help(atlasc.compile)` says the same.
"""


def page() -> str:
    """All public names, functions first."""
    named = {name: getattr(atlasc, name) for name in atlasc.__all__ if not name.startswith("_")}
    functions = [_function(name, one) for name, one in named.items() if inspect.isfunction(one)]
    classes = [_class(name, one) for name, one in named.items() if inspect.isclass(one)]
    return "\n".join([GENERATED, INTRODUCTION, *functions, *classes]).rstrip() + "\n"


def _function(name: str, function: Any, level: str = "##") -> str:
    return (
        f"{level} `{name}`\n\n```text\n{_signature(name, function)}\n```\n\n"
        f"{docstring(inspect.getdoc(function) or '')}\n"
    )


def _class(name: str, kind: type) -> str:
    """A class with the public methods and properties that its package defines."""
    parts = [f"## `{name}`\n"]
    if "__init__" in vars(kind) and not dataclasses.is_dataclass(kind):
        parts.append(f"```text\n{_signature(name, kind)}\n```\n")
    parts.append(docstring(inspect.getdoc(kind) or "") + "\n")
    members: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("atlasc"):
            members |= vars(base)
    for member, value in members.items():
        if member.startswith("_"):
            continue
        if isinstance(value, property):
            text = docstring(inspect.getdoc(value) or "")
            parts.append(f"### `{name}.{member}`\n\n{text}\n")
        elif inspect.isfunction(value) or isinstance(value, (classmethod, staticmethod)):
            parts.append(_function(f"{name}.{member}", getattr(kind, member), "###"))
    return "\n".join(parts)


def _signature(name: str, function: Any) -> str:
    """A signature without ``self``, an argument a line if it is long."""
    signature = inspect.signature(function)
    kept = [_named(one) for one in signature.parameters.values() if one.name != "self"]
    text = re.sub(r"'([^']*)'", r"\1", str(signature.replace(parameters=kept)))
    if len(name + text) <= 90:
        return name + text
    shown = [re.sub(r": '([^']*)'", r": \1", str(one)) for one in kept]
    if any(one.kind is inspect.Parameter.KEYWORD_ONLY for one in kept):
        first = next(i for i, one in enumerate(kept) if one.kind is one.KEYWORD_ONLY)
        shown.insert(first, "*")
    returns = text.rpartition(" -> ")[2] if " -> " in text else ""
    lines = "".join(f"    {one},\n" for one in shown)
    return f"{name}(\n{lines})" + (f" -> {returns}" if returns else "")


def _named(parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter whose default has no address in memory."""
    if not callable(parameter.default) or parameter.default is inspect.Parameter.empty:
        return parameter
    return parameter.replace(default=_Name(parameter.default.__name__))


class _Name(str):
    """A text that is shown without quotes."""

    __slots__ = ()
    __repr__ = str.__str__
