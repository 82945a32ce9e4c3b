"""``atlasc compare`` on the simulator with and without noise."""

from __future__ import annotations

import json

from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.cli import app


def test_table_and_verdict(tiny: Tiny) -> None:
    result = CliRunner().invoke(app, ["compare", str(tiny.bundle), "--input", str(tiny.data)])
    assert result.exit_code == 0, result.stderr
    for text in ("sim against sim", "linear_transform", "ct_matmul_qk", "no difference above"):
        assert text in result.stdout


def test_a_tight_tolerance_names_the_first_op(tiny: Tiny) -> None:
    arguments = ["compare", str(tiny.bundle), "--input", str(tiny.data), "--tolerance", "1e-12"]
    result = CliRunner().invoke(app, [*arguments, "--isolate", "--json"])
    assert result.exit_code == 1
    record = json.loads(result.stdout)
    assert record["isolated"] is True
    parting = [op for op in record["ops"] if op["parts"]]
    assert record["first"] == parting[0]
    assert record["first"]["op"] == "ckks.linear_transform"
    assert record["first"]["location"] == "patch"
    assert record["max_difference"] < 1e-5
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 1
    assert "they part at ckks.linear_transform" in shown.stdout


def test_unknown_backend(tiny: Tiny) -> None:
    arguments = ["compare", str(tiny.bundle), "--input", str(tiny.data), "--against", "truth"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "there is no target 'truth'" in result.stderr
