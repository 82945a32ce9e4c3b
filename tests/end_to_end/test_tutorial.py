"""The tutorial notebook runs from its first cell to its last, and says what it promises."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "tutorial.ipynb"


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; the value of its last expression, else None."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is None:
        return None
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)  # type: ignore[attr-defined]


def test_the_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(NOTEBOOK.parent)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = [
        run_cell("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"
    ]
    assert any(hasattr(value, "_repr_html_") for value in shown)
    assert (names["decrypted"].argmax(axis=1) == names["original"].argmax(axis=1)).all()
    np.testing.assert_allclose(names["decrypted"], names["simulated"].outputs["logits"], atol=1e-3)
    assert names["costs"]["security_bits"] >= 128


def test_the_notebook_holds_no_outputs() -> None:
    """Outputs in a repository grow old; whoever runs the notebook gets them."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
