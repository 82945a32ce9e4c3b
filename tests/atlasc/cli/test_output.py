"""Results as one JSON object or as tables."""

from __future__ import annotations

import json
import math
import re
import sys
from typing import Any

import numpy as np
import pytest

from atlasc.cli import output
from atlasc.cli.output import bar, print_json, print_table, print_written, say


def test_json_of_numpy_values_and_infinities(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": np.float64(0.5), "b": np.arange(3), 3: (math.inf, np.nan), "c": {"d": None}})
    assert json.loads(capsys.readouterr().out) == {
        "a": 0.5,
        "b": [0, 1, 2],
        "3": [None, None],
        "c": {"d": None},
    }


def test_table_has_every_cell(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(
        ["layer", "depth"],
        [["encoder.layer.0", 101], ["[pooler]", None], ["x", 1 / 3]],
        title="Costs",
    )
    shown = capsys.readouterr().out
    for text in (
        "Costs",
        "layer",
        "depth",
        "encoder.layer.0",
        " 101",
        "[pooler]",
        "    –",
        "0.3333",
    ):
        assert text in shown


def _printed(width: int, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> list[str]:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    columns = [
        "point",
        "predicted seconds",
        "mean error",
        "agreement",
        "accuracy",
        "ciphertexts",
        "",
    ]
    row = [12, 1234.5, 1e-7, "100.00%", "97.22%", "7 15 31", "disagrees with the model"]
    print_table(columns, [row, row], title="Points")
    return re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out).splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_keeps_whole_cells_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(width, monkeypatch, capsys)
    assert max(map(len, lines)) <= width
    assert {line.rstrip()[-1] for line in lines[1:]} == set("┓┃┩│┘"), "no column is cut off"
    text = "\n".join(lines)
    for cell in ("1234", "1e-07", "100.00%", "97.22%", "7 15 31", "disagrees with the model"):
        assert text.count(cell) == 2
    for word in ("predicted", "agreement", "accuracy", "ciphertexts"):
        assert text.count(word) == 1
    parts = text.count("point")
    assert parts == {60: 2, 80: 2, 120: 1}[width]
    assert text.count(" 12 ") == 2 * parts


def test_bars_are_proportional() -> None:
    assert bar(0.0) == bar(None) == ""
    assert bar(1.0, 4) == "████"
    assert bar(0.5, 4) == "██"
    assert bar(3 / 32, 4) == "▍"
    assert bar(17.0, 2) == "██"


def test_text_from_elsewhere_is_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2Jb\rc"
    print_table([hostile], [[hostile]], title=hostile)
    say(f"{hostile}\nsecond")
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\r" not in shown
    assert shown.count(r"a\x1b[2Jb\rc") == 4
    assert shown.endswith("\nsecond\n")


def test_a_written_text_does_nothing_to_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that reads it gets the text as it is."""
    text = "a\x1b[2J\x9b1m\u202e\tb\r\nc\x07"
    print_written(text)
    monkeypatch.setattr(output, "is_terminal", lambda stream: True)
    print_written(text)
    assert capsys.readouterr().out == (f"{text}\n" + "a\\x1b[2J\\x9b1m\\u202e\tb\\r\nc\\x07\n")
