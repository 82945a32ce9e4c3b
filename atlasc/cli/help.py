"""The help of a command: a short one of a line or two for each option, and a long one with all that
is declared of an option, and its keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atlasc.cli.keys import Declared, Key, Keyed, facts_of
from atlasc.compilation.declared import WITHOUT

COLUMN = 24
"""Greatest width of the column of options in the short help."""
KINDS = {"int": "INT", "float": "FLOAT", "Path": "PATH", "str": "TEXT"}
"""Part of a type's name -> what stands for a value in the help."""


def records(command: Any, context: Any, everything: bool) -> dict[str, list[tuple[str, str]]]:
    """Title of a section -> its options and what the help says of each.

    Args:
        command: a command of :class:`atlasc.cli.group.SectionedCommand`.
        context: the context in which it is called.
        everything: whether the long help is meant.
    """
    sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
    declared, keyed = command.declared, command.keyed
    for parameter in command.get_params(context):
        if parameter.param_type_name != "option":
            sections["Arguments"].append(parameter.get_help_record(context))
        elif parameter.name not in declared:
            sections["Options"].append(parameter.get_help_record(context))
        else:
            title = facts_of(declared[parameter.name][0]).section or "Options"
            rows = sections.setdefault(title, [])
            rows += _rows(parameter, declared, keyed, everything)
    return {title: rows for title, rows in sections.items() if rows}


def _rows(
    parameter: Any, declared: Declared, keyed: Keyed, everything: bool
) -> Iterator[tuple[str, str]]:
    """An option; in the long help also its keys."""
    one, kind = declared[parameter.name]
    keys = keyed.keys.get(parameter.name, {})
    names = ", ".join(sorted(parameter.opts, key=lambda name: name.startswith("--")))
    names += "".join(f" / {name}" for name in parameter.secondary_opts)
    yield f"{names} {_value(one, kind)}".rstrip(), _said(one, keys, everything)
    for key in keys.values() if everything else ():
        which = f"{key.name}={_value(key.declared, key.kind)}".rstrip("=")
        yield f"  {which}", _said(key.declared, {}, everything, _takers(key, declared))


def _value(one: Any, kind: Any) -> str:
    facts = facts_of(one)
    if facts.metavar or kind is bool or "bool" in str(kind):
        return facts.metavar or ""
    return next((shown for part, shown in KINDS.items() if part in str(kind)), "TEXT")


def _said(one: Any, keys: dict[str, Key], everything: bool, takers: str = "") -> str:
    facts = facts_of(one)
    text = facts.help if everything else f"{facts.help.partition('. ')[0].rstrip('.')}."
    default = facts.shown_default(one.default)
    notes = [f"default: {default}" if default else "required"]
    if everything and facts.minimum is not None:
        notes.append(f"{facts.minimum:g} or more")
        notes += [f"less than {facts.below:g}"] if facts.below else []
    if keys and not everything and WITHOUT not in {key.facts.of for key in keys.values()}:
        text += f" Keys: {', '.join(keys)}."
    return f"{takers}{text} [{'; '.join(notes)}]"


def _takers(key: Key, declared: Declared) -> str:
    """For which names of its option a key is, if not for all."""
    if key.facts.of == WITHOUT:
        return ""
    choices = facts_of(declared[key.facts.of][0]).choices
    return "" if set(key.facts.names) >= set(choices) else f"{', '.join(key.facts.names)}: "
