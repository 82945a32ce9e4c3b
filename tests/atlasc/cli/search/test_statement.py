"""The bound on the share of unsafe inputs that compile states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atlasc.client.verdict import Verdict
from atlasc.compilation.declared import parse_share
from atlasc.compilation.statement import Statement, _by_length, clopper_pearson, require
from atlasc.ir.errors import AtlasError
from tests.atlasc.cli.command import DATA, MODEL, refused, run


def test_known_bounds() -> None:
    """The rule of three, and the table of Clopper and Pearson 1934."""
    assert clopper_pearson(0, 300) == pytest.approx(1 - 0.05 ** (1 / 300))
    assert clopper_pearson(0, 300) == pytest.approx(3 / 300, rel=1e-2)
    assert clopper_pearson(1, 10) == pytest.approx(0.3942, abs=1e-4)
    assert clopper_pearson(5, 5) == 1.0


@pytest.mark.parametrize("share", [0.002, 0.02, 0.2])
def test_the_bound_holds_in_95_of_100_samples(share: float) -> None:
    drawn = np.random.default_rng(1).binomial(80, share, 4000)
    held = np.mean([clopper_pearson(int(unsafe), 80) >= share for unsafe in drawn])
    assert held >= 0.945


def test_texts_are_told_apart_by_length() -> None:
    mask = (np.arange(8) < np.array([1, 2, 3, 8, 8])[:, None]).astype(int)
    judged = [Verdict("", fault="explodes" if row in (0, 3) else "") for row in range(5)]
    found = list(_by_length(mask, judged))
    assert [(one.tokens, one.inputs, one.unsafe) for one in found] == [
        ((1, 2), 2, 1),
        ((3, 4), 1, 0),
        ((7, 8), 2, 1),
    ]


def test_shares() -> None:
    assert parse_share("0.1%") == pytest.approx(1e-3) and parse_share("0.5") == 0.5
    for text in ("few", "nan", "inf%", "-inf", "1e999"):
        with pytest.raises(AtlasError, match="is not a share"):
            parse_share(text)


def test_compile_states_a_bound_and_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    command = ("compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "sim", "-o")
    shown = run(*command, tmp_path / "bundle").out
    settings = json.loads((tmp_path / "bundle" / "manifest.json").read_text())["settings"]
    (found,) = [Statement(**one) for one in settings["statements"]]
    assert found.tokens is None and found.unsafe == 0 and found.inputs > 100
    assert found.bound == clopper_pearson(0, found.inputs)
    assert str(found) in shown
    assert f"{100 * found.bound:.2f}%" in (tmp_path / "bundle" / "report.html").read_text()
    message = refused(*command, tmp_path / "other", "--unsafe-at-most", "0.1%")
    assert "at most 0.001 of the inputs are unsafe" in message
    assert "hold back at least 2995 inputs" in message
    assert f"{found.inputs} held-back inputs are too few" in message
    assert not (tmp_path / "other").exists()


def test_a_program_that_is_wrong_on_most_inputs_is_refused() -> None:
    for unsafe, refuses in ((24, True), (13, True), (12, False), (0, False)):
        found = [Statement(None, 24, unsafe, clopper_pearson(unsafe, 24))]
        if refuses:
            with pytest.raises(AtlasError, match=f"{unsafe} of 24 held-back inputs would"):
                require(found, None)
        else:
            require(found, None)
    require([], None)  # nothing was held back


def test_compile_refuses_a_recipe_that_is_wrong_on_most_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wrong(*arguments: Any, **others: Any) -> list[Verdict]:
        return [Verdict(name, fault="its answer is wrong") for name in arguments[3]]

    monkeypatch.setattr("atlasc.compilation.statement.verdicts", wrong)
    message = refused(
        "compile", MODEL, "--data", DATA, "--recipe", "is", "--target", "sim",
        "-o", tmp_path / "bundle",
    )  # fmt: skip
    assert "the program is of no use" in message and "leave --recipe out" in message
    assert not (tmp_path / "bundle").exists()
