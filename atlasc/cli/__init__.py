"""The command line ``atlasc``.

Each command is one function in a module of its own, listed in :data:`SECTIONS`. A command module
imports only the standard library, typer and :mod:`atlasc.cli` at its top level; everything heavy is
imported inside the function, so that ``atlasc --help`` answers at once.
"""

from __future__ import annotations

import gc
import resource
from typing import Annotated

import typer

from atlasc.cli.group import CommandGroup, Section

SECTIONS: tuple[Section, ...] = (
    (
        "Compile a model",
        (
            ("compile", "atlasc.cli.commands.compile:compile_command"),
            ("search", "atlasc.cli.commands.search:search"),
        ),
    ),
    (
        "Answer encrypted inputs",
        (
            ("check-input", "atlasc.cli.commands.check_input:check_input"),
            ("run", "atlasc.cli.commands.run:run"),
            ("keygen", "atlasc.cli.commands.roles:keygen"),
            ("encrypt", "atlasc.cli.commands.roles:encrypt"),
            ("execute", "atlasc.cli.commands.roles:execute"),
            ("decrypt", "atlasc.cli.commands.roles:decrypt"),
            ("compare", "atlasc.cli.commands.compare:compare"),
            ("sign", "atlasc.cli.commands.sign:sign"),
            ("verify", "atlasc.cli.commands.sign:verify"),
        ),
    ),
    (
        "Deploy without Python",
        (
            ("emit", "atlasc.cli.commands.emit:emit"),
            ("embed", "atlasc.cli.commands.emit:embed"),
        ),
    ),
    (
        "What does it cost?",
        (
            ("depth", "atlasc.cli.commands.inspect:depth"),
            ("inspect", "atlasc.cli.commands.inspect:inspect"),
            ("calibrate-backend", "atlasc.cli.commands.calibrate_backend:calibrate_backend"),
        ),
    ),
    (
        "Single stages",
        (
            ("trace", "atlasc.cli.commands.stages:trace"),
            ("calibrate", "atlasc.cli.commands.stages:calibrate"),
            ("lower", "atlasc.cli.commands.stages:lower"),
            ("opt", "atlasc.cli.commands.opt:opt"),
        ),
    ),
)
"""What ``atlasc --help`` lists: (title, ((command name, "module:function"), ...))."""


class _Commands(CommandGroup):
    sections = SECTIONS


app = typer.Typer(
    cls=_Commands,
    name="atlasc",
    no_args_is_help=True,
    # rich's help panels and tracebacks cost more start-up time than the rest of the program.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from atlasc.version import __version__

        typer.echo(f"atlasc {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Compile Transformers from HuggingFace to programs on encrypted inputs (CKKS)."""


def main() -> None:
    """Run the command line; exits 0, 2 on a user's mistake, 130 when interrupted."""
    # torch and transformers make a million objects that live on; looking through them again and
    # again costs a tenth of the time that a short command takes.
    gc.set_threshold(100_000, 20, 20)
    # A core dump would hold the secret key, or inputs and answers in the clear.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    app(prog_name="atlasc")
