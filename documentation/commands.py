"""The reference of the commands: what their help says."""

from __future__ import annotations

import inspect
from typing import Any

import click
from typer.main import get_command

from atlasc.cli import SECTIONS, app
from atlasc.cli.help import records as help_records
from documentation.markdown import GENERATED, cell, table

INTRODUCTION = """\
# Commands

`atlasc COMMAND --help-all` says the same, and `--help` the first sentence of each option. Every \
command has both, and `--quiet` (no progress and no tables). A row such as `generations=INT` below \
an option is a key of it: `--strategy 'atlas{generations=10}'`; a plain name below `--without` is \
what it can leave out: `--without prefill`. `atlasc --install-completion` teaches your shell the \
commands.

| Exit code | Meaning |
|---|---|
| 0 | done |
| 1 | the result is a no: inputs are unsafe, or a comparison goes beyond its bound |
| 2 | a mistake that the message tells how to mend ([errors](errors.md)) |
| 3 | an input has no answer |
| 70 | a fault of atlasc |
| 130 | interrupted |
| 141 | the reader of the output left (`atlasc ... \\| head`): the command ends without a message |
"""


EVERYWHERE = ("--help", "--help-all", "--quiet")
"""Options of every command, which the introduction names."""


def page() -> str:
    """All commands, in the order of ``atlasc --help``."""
    root = get_command(app)
    context = click.Context(root, info_name="atlasc")
    parts = [GENERATED, INTRODUCTION]
    for title, targets in SECTIONS.items():
        parts.append(f"## {title}\n")
        for target in targets:
            name = target.partition(":")[2].replace("_", "-")
            parts.append(_command(root.get_command(context, name), context))  # type: ignore[attr-defined]
    return "\n".join(parts).rstrip() + "\n"


def _command(command: Any, parent: Any) -> str:
    context = click.Context(command, parent=parent, info_name=command.name)
    usage = " ".join(command.collect_usage_pieces(context))
    text = inspect.cleandoc(command.help or "").replace("\\b\n", "")
    parts = [f"### atlasc {command.name}\n", f"`atlasc {command.name} {usage}`\n", f"{text}\n"]
    sections: dict[str, list[list[str]]] = {}
    for title, records in help_records(command, context, everything=True).items():
        rows = [one for one in records if not one[0].endswith(EVERYWHERE)]
        sections[title] = [[f"`{_code(name)}`", cell(said)] for name, said in rows]
    for title, rows in sections.items():
        parts.append(table([title, "Meaning"], rows) + "\n")
    return "\n".join(parts)


def _code(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
