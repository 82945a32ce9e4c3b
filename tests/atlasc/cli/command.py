"""Runs the command line in this process, as a user would in a shell."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from atlasc.cli import app

ROOT = Path(__file__).resolve().parents[3]
DIGITS = ROOT / "examples" / "digits_vit"
MODEL, DATA = DIGITS / "model", DIGITS / "calibration.npz"
CONFIGS = ROOT / "examples" / "configs"


class Outcome:
    """What a command printed, and its exit code."""

    def __init__(self, arguments: tuple[object, ...], stdin: str | None = None) -> None:
        result = CliRunner().invoke(app, [str(a) for a in arguments], input=stdin)
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr
        self.exception = result.exception


def run(*arguments: object, stdin: str | None = None) -> Outcome:
    """A command that must succeed."""
    outcome = Outcome(arguments, stdin)
    assert outcome.code == 0, f"{outcome.err}\n{outcome.exception!r}"
    return outcome


def refused(*arguments: object, stdin: str | None = None) -> str:
    """The message of a command that must fail with exit code 2, and print no result."""
    outcome = Outcome(arguments, stdin)
    assert outcome.code == 2, f"{outcome.code}: {outcome.err}\n{outcome.exception!r}"
    assert outcome.out == ""
    assert "Traceback" not in outcome.err
    assert outcome.err.count("error:") == 1
    return outcome.err
