"""How decrypted answers are shown, and those that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from atlasc.cli.errors import show
from atlasc.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np

NO_ANSWER = 3
"""Exit code where an answer is none; the others are shown."""


def outputs_record(
    outputs: Mapping[str, np.ndarray], refused: Mapping[int, float]
) -> dict[str, list[Any]]:
    """Outputs for JSON; None in the rows that are refused."""
    return {
        name: [None if row in refused else value for row, value in enumerate(values)]
        for name, values in outputs.items()
    }


def print_outputs(
    outputs: Mapping[str, np.ndarray], refused: Mapping[int, float], hint: bool
) -> None:
    """Tables of the outputs that have a row of numbers for each input.

    Args:
        outputs: by name.
        refused: rows without an answer.
        hint: say of larger outputs how to get them.
    """
    for name, values in outputs.items():
        if values.ndim == 2:
            columns = ["row", "answer", *map(str, range(values.shape[1]))]
            rows = [
                [row, *[None] * (1 + len(v))]
                if row in refused
                else [row, int(v.argmax()), *map(float, v)]
                for row, v in enumerate(values)
            ]
            print_table(columns, rows, title=name)
        elif hint:
            print(f"{name}: shape {list(values.shape)}; -o FILE.npz or --json gives the numbers")


def end_with(
    refused: Mapping[int, float], names: Sequence[str] | None = None, unchecked: bool = False
) -> None:
    """Say which answers are none, and leave with a code of its own.

    Args:
        refused: row to the share of its slots that cannot be right.
        names: of the inputs, by row.
        unchecked: they were shown all the same.

    Raises:
        typer.Exit: there are such answers, and they were not shown.
    """
    if not refused:
        return
    called = {row: names[row] if names else f"input {row}" for row in refused}
    rows = [f"{called[row]}: {share:.1%} of its slots" for row, share in refused.items()]
    who = "1 answer is" if len(rows) == 1 else f"{len(rows)} answers are"
    show(
        "warning" if unchecked else "error",
        f"{who} none: far outside what calibration saw, or copies that differ",
        "  why: " + "\n       ".join(rows) + "\n"
        "  what to do: ask again without the inputs that leave a range (atlasc check-input tells), "
        "or compile\n       with data that has such inputs; --unchecked shows the numbers all the "
        "same. Do not tell the server.",
    )
    if not unchecked:
        raise typer.Exit(NO_ANSWER)
