"""Messages in the words of Python: ``max_error`` for ``--max-error``, and ``fits`` for ``fits of
--space``.

Messages are written in the words of the command line, in one place each. What reaches a caller of
the Python interface is translated here. The command line switches this off for its process.
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields
from functools import lru_cache
from importlib import import_module
from typing import Any

CALLS = {
    "compile": "atlasc.compile()",
    "keygen": "atlasc.keygen()",
    "run": "Program.run()",
    "check-input": "Program.check()",
    "evaluate": "Program.evaluate()",
    "generate": "Program.generate()",
    "inspect": "Program.inspect()",
    "split": "Program.save(part=...)",
    "encrypt": "Client.encrypt()",
    "decrypt": "Client.decrypt()",
    "execute": "Server.execute()",
}
"""A command, and what does its work in Python."""
SWITCHES = {"next": "TextSession.say()", "anew": "TextSession.anew()"}
"""A switch of a command that is a call in Python."""
_WORDS = re.compile(
    r"(?P<other>\b(?:python3? -m|pip|cmake|minisign|llama-[\w-]+) [^,;()]*)"
    r"|\batlasc (?P<command>[a-z][a-z-]*)(?P<options>(?: --?[a-z][\w-]*(?: [\w.]+)?)*)"
    r"|(?<![\w-])--without (?P<off>[a-z]+(?:[,-][a-z]+)*)"
    r"|\b(?P<key>[a-z]+(?:-[a-z]+)*) of --(?P<of>[a-z]+)\b"
    r"|(?<![\w-])--(?P<holder>[a-z]+) '(?P<name>[a-z][\w-]*)\{(?P<pairs>[^{}']*)\}'"
    r"|(?<![\w-])--(?P<flag>[a-z][a-z-]*)(?: (?P<value>\d[\w.%]*|[a-z]+)\b)?"
)
_command_line = ContextVar("_command_line", default=False)


@contextmanager
def command_line() -> Iterator[None]:
    """Leave messages in the words of the command line."""
    token = _command_line.set(True)
    try:
        yield
    finally:
        _command_line.reset(token)


def in_python(text: str) -> str:
    """A message for who calls the Python interface: parameters instead of options, calls instead of
    commands. What Python lacks stays as it is.
    """
    return text if _command_line.get() else _WORDS.sub(_translated, text)


def warned(headline: str, details: str = "") -> None:
    """A note as a Python warning, for functions that return no notes."""
    text = f"{headline}\n{details}" if details else headline
    warnings.warn(in_python(text), stacklevel=2)


def collecting(notes: list[str]) -> Callable[..., None]:
    """A note that appends to ``notes``."""

    def note(headline: str, details: str = "") -> None:
        notes.append(in_python(f"{headline}\n{details}" if details else headline))

    return note


def _translated(found: re.Match[str]) -> str:
    if found["other"]:
        return found[0]
    if command := found["command"]:
        call = CALLS.get(command)
        return found[0] if call is None or found["options"] else call
    if found["off"]:
        return ", ".join(f"{name.replace('-', '_')}=False" for name in found["off"].split(","))
    if found["key"]:
        other = f"{found['key']} of {in_python('--' + found['of'])}"
        return _keys().get((found["of"], found["key"]), other)
    if found["holder"]:
        pairs = (pair.partition("=") for pair in found["pairs"].split(","))
        own = [_assigned(_keys().get((found["holder"], key), key), v) for key, _, v in pairs]
        return ", ".join([f'{found["holder"]}="{found["name"]}"', *own])
    name, value = found["flag"].replace("-", "_"), found["value"]
    after = f" {value}" if value else ""
    known = _parameters()
    if name in SWITCHES:
        return SWITCHES[name] + after
    if name not in known:
        return found[0]
    choices = known[name]
    if choices is bool:
        return f"{name}=True{after}"
    if value and value[0].isdigit():
        return _assigned(name, value)
    return f'{name}="{value}"' if value in choices else name + after


def _assigned(name: str, value: str) -> str:
    return f"{name}={value}" if value.replace(".", "").isdigit() else f'{name}="{value}"'


@lru_cache(maxsize=1)
def _keys() -> dict[tuple[str, str], str]:
    """(option, key of the option) -> parameter of the Python interface."""
    from atlasc.compilation.options import CompileOptions

    facts = {one.name: one.metadata["option"] for one in fields(CompileOptions)}
    return {
        (own.of, own.key or name.replace("_", "-")): name for name, own in facts.items() if own.of
    }


@lru_cache(maxsize=1)
def _parameters() -> dict[str, Any]:
    """Parameter of the Python interface -> ``bool`` for a switch, or the words that it may be."""
    from atlasc.compilation.options import CompileOptions
    from atlasc.polynomials.recipes import recipe_names
    from atlasc.targets import target_names

    program, roles = import_module("atlasc.api.program"), import_module("atlasc.api.roles")
    found: dict[str, Any] = {}
    for owner in (program.compile, roles.keygen, program.Program, roles.Client, roles.Server):
        members = vars(owner).values() if inspect.isclass(owner) else [owner]
        for call in filter(inspect.isfunction, members):
            for one in inspect.signature(call).parameters.values():
                found[one.name] = bool if isinstance(one.default, bool) else ()
    for option in fields(CompileOptions):
        words = option.metadata["option"].choices
        found[option.name] = bool if isinstance(option.default, bool) else words
    found |= {"target": tuple(target_names()), "recipe": recipe_names()}
    return found
