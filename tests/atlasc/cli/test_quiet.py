"""``--json`` and ``--quiet`` of every command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tiny_model import Tiny

from atlasc.cli import SECTIONS
from tests.atlasc.cli.command import CONFIGS, Outcome, run

COMMANDS = [
    target.partition(":")[2].replace("_", "-") for some in SECTIONS.values() for target in some
]
TEXT = {"opt", "serve", "demo"}
"""Commands whose result is a text in a form of its own, or that run until they are ended."""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_both(command: str) -> None:
    shown = run(command, "--help").out
    assert "--quiet" in shown
    assert ("--json" in shown) == (command not in TEXT)


def test_a_quiet_command_prints_its_product_alone(tiny: Tiny, tmp_path: Path) -> None:
    quiet = run("check-input", tiny.bundle, "--input", tiny.data, "--count", 2, "--quiet")
    assert quiet.out == quiet.err == ""
    loud = run("check-input", tiny.bundle, "--input", tiny.data, "--count", 2)
    assert loud.out
    both = run("check-input", tiny.bundle, "--input", tiny.data, "--count", 2, "-q", "--json")
    assert json.loads(both.out)
    file = tmp_path / "poly.air"
    file.write_text((tiny.bundle / "server" / "poly.air").read_text())
    assert run("opt", file, "--quiet").out == run("opt", file).out != ""
    assert run("depth", CONFIGS / "bert-base", "--recipe", "is", "-q").out == "1212\n"


def test_a_quiet_command_shows_warnings_and_errors(tiny: Tiny) -> None:
    failed = Outcome(("verify", tiny.bundle / "none", "--quiet"))
    assert failed.code == 2 and "error:" in failed.err and not failed.out


def test_a_verified_bundle_as_json(tiny: Tiny) -> None:
    found = json.loads(run("verify", tiny.bundle, "--json").out)
    assert found["signed_by"] is None and found["identity"]
