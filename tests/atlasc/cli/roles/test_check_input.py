"""``atlasc check-input``: verdicts, exit codes, and where it cannot tell."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tiny_model import Tiny

from tests.atlasc.cli.command import Outcome, refused, run


def test_safe_inputs_exit_with_0(tiny: Tiny) -> None:
    outcome = run("check-input", tiny.bundle, "--input", tiny.data, "--count", 3)
    assert "3 inputs, all safe" in outcome.out
    found = json.loads(run("check-input", tiny.bundle, "--input", tiny.data, "--json").out)
    assert found["safe"]
    assert len(found["inputs"]) == 24
    assert found["inputs"][0] == {
        "input": "images.npz[0]", "safe": True, "verdict": "safe", "why": None, "fault": None,
        "error": found["inputs"][0]["error"], "promised": None, "stated": None,
        "cosine": found["inputs"][0]["cosine"], "agreement": None, "first": None, "worst": None,
        "ops": 0,
    }  # fmt: skip
    assert 0 < found["inputs"][0]["error"] < 0.1


def test_an_unsafe_input_is_named_and_exits_with_1(tiny: Tiny, wild: Path) -> None:
    outcome = Outcome(("check-input", tiny.bundle, "--input", wild), None)
    assert outcome.code == 1
    assert "1 of 3 inputs are unsafe" in outcome.out
    assert "compile with data that has such inputs" in outcome.out
    row = next(line for line in outcome.out.splitlines() if "wild.npz[1]" in line)
    assert "unsafe" in row
    assert "softmax" in row
    assert "%" in row


def test_json_tells_where_and_by_how_much(tiny: Tiny, wild: Path) -> None:
    outcome = Outcome(("check-input", tiny.bundle, "--input", wild, "--json"), None)
    assert outcome.code == 1
    found = json.loads(outcome.out)
    assert [entry["safe"] for entry in found["inputs"]] == [True, False, True]
    assert not found["safe"]
    bad = found["inputs"][1]
    low, high = bad["first"]["range"]
    assert not low <= bad["first"]["reached"] <= high
    assert bad["ops"] >= 1
    assert bad["worst"]["share"] is None or bad["worst"]["share"] >= bad["first"]["share"] > 0
    # It says what run says.
    told = Outcome(("run", tiny.bundle, "--input", wild, "--json"), None)
    assert told.code == 3
    assert json.loads(told.out)["refused"] == {bad["input"]: bad["why"]}


def test_chosen_inputs_alone_are_judged(tiny: Tiny, wild: Path) -> None:
    assert (
        "2 inputs, all safe"
        in run("check-input", tiny.bundle, "--input", wild, "--index", "0,2").out
    )


def test_what_cannot_be_checked_exits_with_2(tiny: Tiny, tmp_path: Path) -> None:
    client = Path(shutil.copytree(tiny.bundle, tmp_path / "bundle"))
    shutil.rmtree(client / "server")
    message = refused("check-input", client, "--input", tiny.data)
    assert "the ranges cannot be checked here" in message
    assert "docs/security.md" in message
    assert "not found" in refused("check-input", tmp_path / "no", "--input", tiny.data)
    assert "not found" in refused("check-input", tiny.bundle, "--input", tmp_path / "no.npz")
