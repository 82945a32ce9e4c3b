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

from atlasc.cli.group import CommandGroup
from atlasc.cli.streams import open_closed

SECTIONS = {
    "Compile a model": ("compile:compile", "compile:search"),
    "Answer encrypted inputs": (
        "run:check_input",
        "run:run",
        "generate:generate",
        "split:split",
        "evaluate:evaluate",
        "roles:keygen",
        "roles:encrypt",
        "roles:execute",
        "roles:decrypt",
        "text:ask",
        "text:answer",
        "text:read",
        "compare:compare",
        "sign:sign",
        "sign:verify",
    ),
    "Serve, and ask a service": (
        "serve:serve",
        "serve:tokens",
        "serve:keys",
        "query:query",
        "demo:demo",
    ),
    "Deploy without Python": ("emit:emit", "emit:embed"),
    "What does it cost?": (
        "inspect:depth",
        "inspect:inspect",
        "inspect:fronts",
        "inspect:calibrate_backend",
    ),
    "Single stages": ("stages:trace", "stages:calibrate", "stages:lower", "stages:opt"),
}
"""The sections of ``atlasc --help``: title -> commands, each as module:function."""


class _Commands(CommandGroup):
    package, sections = "atlasc.cli.commands", SECTIONS


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
    open_closed()
    # torch and transformers make a million objects that live on. Looking through them again at
    # every collection takes a tenth of the time of a short command.
    gc.set_threshold(100_000, 20, 20)
    # A core dump would hold the secret key, or inputs and answers in the clear.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    app(prog_name="atlasc")
