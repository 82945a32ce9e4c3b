"""A group of commands in sections of the help; the module of a command is imported on demand."""

from __future__ import annotations

import difflib
import importlib
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import typer
from typer.core import TyperCommand, TyperGroup

from atlasc.api.words import command_line
from atlasc.cli.help import COLUMN, records
from atlasc.cli.keys import Declared, Keyed
from atlasc.cli.output import reported
from atlasc.cli.parameters import expanded


class SectionedCommand(TyperCommand):
    """A command whose help lists each option in its section, and whose options may take keys.

    Attributes:
        declared: how the options are declared, by name.
        keyed: the options that take keys.
        everything: whether the help is the long one.
    """

    declared: Declared
    keyed: Keyed
    everything = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; an option that has become a key is refused with the key."""
        self.keyed.refuse_old(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, then options without a section, then the options of each section."""
        for title, rows in records(self, ctx, self.everything).items():
            with formatter.section(title):
                formatter.write_dl(rows, col_max=COLUMN)


class CommandGroup(TyperGroup):
    """Commands given as data. Only the requested command is built.

    :func:`atlasc.cli.output.reported` shows its errors.

    Attributes:
        package: the package with the modules of the commands.
        sections: title -> its commands as "module:function"; a command has the function's name.
    """

    package: ClassVar[str]
    sections: ClassVar[Mapping[str, Sequence[str]]]

    def list_commands(self, ctx: Any) -> list[str]:
        """All names, in the order of the sections."""
        return [_name(target) for targets in self.sections.values() for target in targets]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The built command, or None if there is none; typer then tells the user."""
        targets = (target for targets in self.sections.values() for target in targets)
        target = next((target for target in targets if _name(target) == cmd_name), None)
        if target is None:
            return None
        single = typer.Typer(
            add_completion=False,
            rich_markup_mode=None,
            context_settings={"help_option_names": ["-h", "--help"]},
        )
        call: Any = expanded(self._load(target))
        single.command(cmd_name, cls=SectionedCommand)(call)
        command: Any = typer.main.get_command(single)
        command.declared, command.keyed = call.declared, call.keyed
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the arguments name; a misspelled name gets a suggestion."""
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else " 'atlasc --help' lists them."
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

    def make_context(self, *args: Any, **options: Any) -> Any:
        """Read the options of the group; ``--help`` prints here."""
        with reported():
            return super().make_context(*args, **options)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; a user's mistake becomes a message and exit code 2."""
        with reported(), command_line():
            if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # see atlasc/__main__.py
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write each section with the first line of each command's docstring."""
        width = max(map(len, self.list_commands(ctx)))
        for title, targets in self.sections.items():
            summaries = [
                (self._load(target).__doc__ or "").partition("\n")[0] for target in targets
            ]
            with formatter.section(title):
                formatter.write_dl(list(zip((_name(t).ljust(width) for t in targets), summaries)))

    def _load(self, target: str) -> Callable[..., Any]:
        module, _, function = target.partition(":")
        return getattr(importlib.import_module(f"{self.package}.{module}"), function)


def _name(target: str) -> str:
    return target.partition(":")[2].replace("_", "-")
