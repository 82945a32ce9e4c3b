"""Commands as data: found by name, summed up in the help, near misses suggested."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import MappingProxyType

import pytest
import typer
from typer.testing import CliRunner

from atlasc.cli import SECTIONS
from atlasc.cli.group import CommandGroup
from atlasc.compilation.options import CompileOptions
from tests.atlasc.cli.command import ROOT

COMMANDS = '''
import typer
from typing import Annotated
from atlasc.compilation.declared import option
from atlasc.ir.errors import AtlasError

def greet(
    name: str,
    times: Annotated[int, typer.Option("--times", help="How often.")] = 1,
    tone: str = option("How.", default="calm", section="Manners"),
) -> None:
    """Greet someone.

    With more words below.
    """
    print(" ".join(["hello", name] * times))

def fail_now() -> None:
    """Fail as a user's mistake does."""
    raise AtlasError("no such model", where="models/x", why="no config.json", remedy="look again")
'''


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> typer.Typer:
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "commands.py").write_text(COMMANDS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("some", "some.commands"):
        monkeypatch.delitem(sys.modules, name, raising=False)

    class Commands(CommandGroup):
        package = "some"
        sections = MappingProxyType(
            {"First": ("commands:greet",), "Second": ("commands:fail_now",)}
        )

    app = typer.Typer(cls=Commands, rich_markup_mode=None, add_completion=False)
    app.callback()(lambda: None)
    return app


def test_help_lists_the_sections_with_summaries(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    lines = [line.strip() for line in result.stdout.splitlines()]
    assert lines[lines.index("First:") + 1].split(maxsplit=1) == ["greet", "Greet someone."]
    assert lines[lines.index("Second:") + 1].split(maxsplit=1)[0] == "fail-now"


def test_options_are_listed_in_their_sections(app: typer.Typer) -> None:
    text = CliRunner().invoke(app, ["greet", "--help"]).stdout
    plain, _, manners = text.partition("Manners:")
    assert "--times" in plain.partition("Options:")[2]
    assert "--help" in plain
    assert "--tone" in manners
    assert "--times" not in manners


def test_a_command_runs_with_its_options(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["greet", "Ada", "--times", "2"])
    assert (result.exit_code, result.stdout) == (0, "hello Ada hello Ada\n")
    assert "How often." in CliRunner().invoke(app, ["greet", "--help"]).stdout


def test_a_near_miss_is_suggested(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["gret"])
    assert result.exit_code == 2
    assert "Did you mean 'greet'?" in result.stderr


def test_wrong_option_is_a_usage_error(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["greet", "Ada", "--often", "2"])
    assert result.exit_code == 2
    assert "--often" in result.stderr


def test_a_users_mistake_exits_with_2_and_all_four_parts(app: typer.Typer) -> None:
    result = CliRunner().invoke(app, ["fail-now"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "error: no such model\n  where: models/x\n  why: no config.json\n  what to do: look again\n"
    )


def test_every_listed_command_has_a_function_and_a_summary() -> None:
    for target in (target for targets in SECTIONS.values() for target in targets):
        module, function = target.split(":")
        found = importlib.import_module(f"atlasc.cli.commands.{module}")
        summary = getattr(found, function).__doc__.strip()
        assert len(summary.partition("\n")[0]) <= 75, target


def test_a_shell_completes_commands_and_options() -> None:
    for words, expected in (("atlasc comp", "compile"), ("atlasc compile --max-l", "--max-levels")):
        done = subprocess.run(
            [sys.executable, "-m", "atlasc"],
            env={
                **os.environ,
                "_ATLASC_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(words.count(" ")),
            },
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        )
        assert expected in done.stdout.split()


def test_the_groups_of_options_document_themselves() -> None:
    assert "    max_levels: Greatest levels of the blocks" in (CompileOptions.__doc__ or "")
    assert "    key_memory: Memory for rotation keys" in (CompileOptions.__doc__ or "")
