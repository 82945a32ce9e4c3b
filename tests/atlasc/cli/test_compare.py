"""``atlasc compare`` on the simulator with and without noise."""

from __future__ import annotations

import json
from pathlib import Path

from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.cli import app


def test_table_and_verdict(tiny: Tiny) -> None:
    result = CliRunner().invoke(app, ["compare", str(tiny.bundle), "--input", str(tiny.data)])
    assert result.exit_code == 0, result.stderr
    for text in (
        "sim against sim",
        "linear_transform",
        "row_scores",
        "every op stays within its bound",
    ):
        assert text in result.stdout


def test_a_tight_tolerance_names_the_first_op(tiny: Tiny) -> None:
    arguments = ["compare", str(tiny.bundle), "--input", str(tiny.data), "--tolerance", "1e-12"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert record["first"] == record["ops"][-1]
    assert record["first"]["op"] == "ckks.input"  # encryption errs too
    assert record["first"]["location"] == "patch"
    assert record["first"]["error"] <= record["first"]["bound"]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 1
    assert "the targets first differ at ckks.input" in shown.stdout
    going = CliRunner().invoke(app, [*arguments, "--keep-going", "--json"])
    assert len(json.loads(going.stdout)["ops"]) > len(record["ops"])


def test_a_checkpoint_is_gone_when_the_comparison_has_ended(tiny: Tiny, tmp_path: Path) -> None:
    arguments = ["compare", str(tiny.bundle), "--input", str(tiny.data), "--checkpoint"]
    done = CliRunner().invoke(app, [*arguments, str(tmp_path / "state.npz")])
    assert done.exit_code == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    refused = CliRunner().invoke(app, [*arguments, str(tmp_path / "state.txt")])
    assert refused.exit_code == 2


def test_unknown_backend(tiny: Tiny) -> None:
    arguments = ["compare", str(tiny.bundle), "--input", str(tiny.data), "--against", "truth"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "there is no target 'truth'" in result.stderr
