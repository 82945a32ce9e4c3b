"""A group of commands whose modules are imported when they are needed, in sections of the help."""

from __future__ import annotations

import difflib
import importlib
import signal
from collections.abc import Callable
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from atlasc.cli.errors import reported
from atlasc.cli.parameters import expanded

Section = tuple[str, tuple[tuple[str, str], ...]]
"""Title, and the commands under it as (name, "module:function")."""


class SectionedCommand(TyperCommand):
    """A command whose help lists options under the ``rich_help_panel`` that they name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options without a section, then those of each section."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            is_option = parameter.param_type_name == "option"
            title = getattr(parameter, "rich_help_panel", None)
            record = parameter.get_help_record(ctx)
            if record is not None:
                plain = "Options" if is_option else "Arguments"
                sections.setdefault(title or plain, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class CommandGroup(TyperGroup):
    """Commands given as data; a subclass sets ``sections``.

    Only the command that was asked for is built. Its errors are reported by
    :func:`atlasc.cli.errors.reported`.
    """

    sections: ClassVar[tuple[Section, ...]] = ()

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the sections."""
        return [name for _, commands in self.sections for name, _ in commands]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The built command, or None, after which typer tells the user that there is none."""
        target = self._targets().get(cmd_name)
        return None if target is None else _build(cmd_name, _load(target))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name; a near miss gets a suggestion."""
        known = self._targets()
        if args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else " 'atlasc --help' lists them."
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a user's mistake becomes a message and exit code 2."""
        with reported():
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # see atlasc/__main__.py
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each section with the first line of each command's docstring."""
        width = max((len(name) for name in self._targets()), default=0)
        for title, commands in self.sections:
            rows = [(name.ljust(width), _summary(_load(target))) for name, target in commands]
            with formatter.section(title):
                formatter.write_dl(rows)

    def _targets(self) -> dict[str, str]:
        return {name: target for _, commands in self.sections for name, target in commands}


def _load(target: str) -> Callable[..., Any]:
    module, function = target.split(":")
    return getattr(importlib.import_module(module), function)


def _summary(function: Callable[..., Any]) -> str:
    return (function.__doc__ or "").strip().partition("\n")[0]


def _build(name: str, function: Callable[..., Any]) -> Any:
    single = typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    single.command(name, cls=SectionedCommand)(expanded(function))
    return typer.main.get_command(single)
