"""What a module keeps from call to call, in attributes and buffers, and the lines that write it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from atlasc.ir.bounds import as_location

if TYPE_CHECKING:
    import torch

Kept = Mapping[tuple[str, str], Any]
"""(path of a module, name of what it keeps) -> a value that differs when this does."""


def remembered(module: torch.nn.Module) -> Kept:
    """What a module and its parts keep."""
    import torch

    usual, found = vars(torch.nn.Module()).keys(), {}
    for path, part in module.named_modules():
        own = {name: one for name, one in vars(part).items() if name not in usual}
        for name, value in {**own, **part._buffers, **part._parameters}.items():
            found[path, name] = _mark(value)
    return found


def is_attribute(module: torch.nn.Module, path: str, name: str) -> bool:
    """Whether a part keeps something in a plain attribute of Python."""
    return name in vars(module.get_submodule(path))


def _mark(value: Any) -> Any:
    """A value that differs when this one, or what it holds, is another."""
    import torch

    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, bool | int | float | str | None):
        return value
    if isinstance(value, dict):
        return "dict", tuple((str(key), _mark(one)) for key, one in value.items())
    if isinstance(value, list | tuple | set):
        return type(value).__name__, tuple(map(_mark, value))
    return id(value)


def changed(module: torch.nn.Module, before: Kept) -> list[tuple[str, str]]:
    """What a module keeps that is another than before: the path of the part, and the name."""
    return [key for key, mark in remembered(module).items() if before.get(key) != mark]


def writer(module: torch.nn.Module, path: str, name: str) -> str:
    """What a part keeps, with the line that writes it where it is found."""
    part = module.get_submodule(path)
    shown = as_location(f"{path}.{name}" if path else name)
    for code in (type(part).forward, type(part)):
        with suppress(OSError, TypeError):
            lines, first = inspect.getsourcelines(code)
            numbers = range(max(first, 1), max(first, 1) + len(lines))
            known = dict(zip(numbers, lines, strict=True))
            used = [n for n, line in known.items() if re.search(rf"\b\w+\.{name}\b", line)]
            wrote = rf"\b\w+\.{name}\b[^=]*(=[^=]|_\()"
            if chosen := [n for n in used if re.search(wrote, known[n])] or used:
                file = f"{inspect.getsourcefile(code)}:{chosen[0]}"
                return f"self.{name} of {path or '(top level)'} ({file})"
    return shown
