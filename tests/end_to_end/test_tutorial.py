"""The notebooks hold what their cells give; the first one runs from its first cell to its last."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from documentation.tutorials import ROOT, TUTORIALS, code_cells, digest, read, run, source_of, write

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?")
MOST_BYTES = 50_000
"""Of a notebook with its outputs."""


def shown(notebook: dict[str, Any]) -> list[str]:
    """The stored text of each cell of code."""
    texts = []
    for cell in code_cells(notebook):
        parts = [one.get("text") or one["data"]["text/plain"] for one in cell["outputs"]]
        texts.append("".join(line for part in parts for line in part))
    return texts


def differences(stored: list[str], given: list[str]) -> list[tuple[str, str]]:
    """Outputs that differ in more than the size of a measured number.

    Whole numbers are equal. Others are errors, predicted seconds and shares of a search, which
    vary from machine to machine: they are equal to within a half.
    """
    return [pair for pair in zip(stored, given, strict=True) if not _same(*pair)]


def _same(stored: str, given: str) -> bool:
    if NUMBER.sub("#", stored) != NUMBER.sub("#", given):
        return False
    pairs = list(zip(NUMBER.findall(stored), NUMBER.findall(given), strict=True))
    return all(
        abs(float(a) - float(b)) <= 0.5 * abs(float(a)) if {".", "e"} & {*a, *b} else a == b
        for a, b in pairs
    )


@pytest.mark.deep("pages")
def test_the_first_tutorial_gives_its_stored_outputs() -> None:
    found, names = run(TUTORIALS[0])
    assert differences(shown(read(TUTORIALS[0])), shown(found)) == []
    assert (names["decrypted"].argmax(axis=1) == names["original"].argmax(axis=1)).all()
    np.testing.assert_allclose(names["decrypted"], names["simulated"].outputs["logits"], atol=1e-3)
    assert names["costs"]["security_bits"] >= 128
    assert hasattr(names["program"], "_repr_html_")


def test_other_outputs_are_found() -> None:
    stored = ["[3, 4] in 10 levels, error 0.0021", "[True, True]"]
    assert differences(stored, ["[3, 4] in 10 levels, error 0.0025", "[True, True]"]) == []
    for changed in ("[3, 5] in 10 levels, error 0.0021", "[3, 4] in 10 levels, error 0.021"):
        assert len(differences(stored, [changed, "[True, True]"])) == 1
    assert len(differences(stored, [stored[0], "[True, False]"])) == 1


def test_all_notebooks_are_known() -> None:
    assert sorted(ROOT.glob("docs/**/*.ipynb")) == sorted(TUTORIALS)


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_outputs_are_of_these_cells(path: Path) -> None:
    notebook = read(path)
    stale = f"the outputs of {path.name} are of other code; run: make tutorials"
    assert notebook["metadata"]["atlasc"]["digest_of_code"] == digest(notebook), stale
    cells = code_cells(notebook)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    for cell in cells:
        compile(source_of(cell), path.name, "exec")
    assert all(shown(notebook)), "a cell that shows nothing"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_the_outputs_tell_nothing_of_a_machine(path: Path) -> None:
    text = "\n".join(shown(read(path)))
    assert not re.search(r"(?<![\w.>-])/\w+/|~/|Traceback|[Ww]arning|Intel|AMD|CPU\b", text)
    kinds = {key for cell in code_cells(read(path)) for one in cell["outputs"] for key in one}
    assert kinds <= {"output_type", "name", "text", "execution_count", "data", "metadata"}
    assert path.stat().st_size < MOST_BYTES


def test_a_changed_cell_is_found_and_a_run_mends_it(tmp_path: Path) -> None:
    cell = {"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": []}
    cells = [{**copy.deepcopy(cell), "source": ["x = 2\n", "print(x)"]}, {**cell, "source": ["x"]}]
    path = tmp_path / "small.ipynb"
    path.write_text(json.dumps({"cells": cells, "metadata": {}}))
    write(path, run(path)[0])
    done = read(path)
    assert shown(done) == ["2\n", "2"]
    done["cells"][1]["source"] = ["x + 1"]
    assert digest(done) != done["metadata"]["atlasc"]["digest_of_code"]
    write(path, done)
    assert shown(run(path)[0]) == ["2\n", "3"]
