"""What the help of the commands that search says holds."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from atlasc.cli import app
from atlasc.polynomials.parametrisation import DEGREES, PRESETS, SWITCHES
from atlasc.search.points import COSTS
from atlasc.search.strategies import DEFAULT, STRATEGIES
from atlasc.search.strategies.hybrid import default_evaluations


@pytest.mark.parametrize("command", ["search", "compile"])
def test_the_help_names_what_there_is(command: str) -> None:
    words = " ".join(CliRunner().invoke(app, [command, "--help-all"]).stdout.split())
    six, seven = default_evaluations(6 * 4), default_evaluations(7 * 4)
    assert f"[default: {DEFAULT}]" in words
    assert f"for hybrid {six} with six layers, {seven - six} more for each" in words
    for name in (*STRATEGIES, *COSTS):
        assert name in words
    for choices in (PRESETS, DEGREES, *SWITCHES.values()):
        assert "|".join(choices) in words
