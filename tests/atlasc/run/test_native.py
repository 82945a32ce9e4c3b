"""The runtime library: what is said where it is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tiny_model import Tiny
from typer.testing import CliRunner

from atlasc.cli import app


@pytest.mark.parametrize(
    "command",
    [["run", "BUNDLE", "--input", "DATA", "--count", "1"], ["keygen", "BUNDLE", "--keys", "NEW"]],
)
@pytest.mark.parametrize("target", ["sim", "cpu"])
def test_a_missing_library_is_one_sentence_with_the_remedy(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], target: str
) -> None:
    monkeypatch.setitem(sys.modules, "atlasc.runtime._native", None)
    named = {"BUNDLE": str(tiny.bundle), "DATA": str(tiny.data), "NEW": str(tmp_path / "keys")}
    words = [named.get(word, word) for word in command]
    result = CliRunner().invoke(app, [*words, "--target", target])
    assert result.exit_code == 2 and result.stdout == ""
    assert result.stderr.startswith("error: the runtime of atlasc cannot be loaded")
    assert "with a C++17 compiler" in result.stderr
    assert "Traceback" not in result.stderr and not (tmp_path / "keys").exists()
