"""Runs tutorials and stores what their cells show: ``python -m documentation.tutorials FILE...``.

A notebook is run from its first cell to its last in one process, in its own folder. The standard
output and the value of the last expression of each cell are stored as plain text. What goes to
standard error, such as progress and warnings about this machine, is not. The digest of the code is
stored beside the outputs, so that a cell that changed afterwards is found (:func:`digest`).
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TUTORIALS = (
    ROOT / "docs" / "tutorial.ipynb",
    ROOT / "docs" / "tutorials" / "text.ipynb",
    ROOT / "docs" / "tutorials" / "decoder.ipynb",
)
"""The notebooks of the documentation."""
Cell = dict[str, Any]


def read(path: Path) -> dict[str, Any]:
    """A notebook."""
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def code_cells(notebook: dict[str, Any]) -> list[Cell]:
    """The cells of code, in their order."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def digest(notebook: dict[str, Any]) -> str:
    """SHA-256 of the code of all cells."""
    code = [source_of(cell) for cell in code_cells(notebook)]
    return hashlib.sha256(json.dumps(code).encode()).hexdigest()


def source_of(cell: Cell) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def run_cell(source: str, names: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell as a notebook does.

    Args:
        source: the code.
        names: variables of the notebook; changed in place.

    Returns:
        What it printed, and the value of its last expression, else None.
    """
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    return printed.getvalue(), value


def outputs_of(printed: str, value: Any, number: int) -> list[dict[str, Any]]:
    """What a notebook stores of a cell: the printed text, and its value as plain text."""
    found: list[dict[str, Any]] = []
    if printed:
        lines = printed.splitlines(keepends=True)
        found.append({"output_type": "stream", "name": "stdout", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        result = {"execution_count": number, "data": data, "metadata": {}}
        found.append({"output_type": "execute_result", **result})
    return found


def run(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run a notebook in its folder.

    Returns:
        The notebook with the outputs of this run and the digest of its code; and its variables.
    """
    notebook, names, before = read(path), {"__name__": "__main__"}, Path.cwd()
    os.chdir(path.parent)
    try:
        for number, cell in enumerate(code_cells(notebook), start=1):
            printed, value = run_cell(source_of(cell), names)
            cell["outputs"] = outputs_of(printed, value, number)
            cell["execution_count"] = number
    finally:
        os.chdir(before)
    notebook["metadata"]["atlasc"] = {"digest_of_code": digest(notebook)}
    return notebook, names


def write(path: Path, notebook: dict[str, Any]) -> None:
    """Write a notebook in place of the old one."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(draft, path)


if __name__ == "__main__":
    for name in sys.argv[1:] or TUTORIALS:
        place = Path(name).resolve()
        print(place.name, file=sys.stderr, flush=True)
        write(place, run(place)[0])
