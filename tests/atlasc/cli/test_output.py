"""Results as one JSON object or as tables."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from atlasc.cli.output import bar, print_json, print_table, say


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
