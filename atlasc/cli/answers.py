"""How decrypted answers are shown, and inputs that have none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from atlasc.cli.errors import show
from atlasc.cli.output import print_table

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    import numpy as np

    from atlasc.bundle.folder import Bundle
    from atlasc.bundle.ledger import Entry, Ledger
    from atlasc.client.checks import Answers

NO_ANSWER = 3
"""Exit code where an input has no answer; the answers to the others are shown."""


def outputs_record(
    outputs: Mapping[str, np.ndarray], refused: Container[int]
) -> dict[str, list[Any]]:
    """Outputs for JSON; None in the rows that are refused."""
    return {
        name: [None if row in refused else value for row, value in enumerate(values)]
        for name, values in outputs.items()
    }


def print_outputs(outputs: Mapping[str, np.ndarray], refused: Container[int], hint: bool) -> None:
    """Tables of the outputs that have a row of numbers for each input.

    Args:
        outputs: by name.
        refused: rows without an answer.
        hint: say how to get the numbers of larger outputs.
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
    """Say which inputs have no answer, and leave with an exit code of its own.

    Args:
        refused: row to the share of its slots that cannot be right.
        names: of the inputs, by row.
        unchecked: the numbers were shown all the same.

    Raises:
        typer.Exit: there are such inputs, and their numbers were not shown.
    """
    if not refused:
        return
    called = {row: names[row] if names else f"input {row}" for row in refused}
    rows = [f"{called[row]}: {share:.1%} of its slots" for row, share in refused.items()]
    count = "1 answer is none" if len(rows) == 1 else f"{len(rows)} answers are none"
    show(
        "warning" if unchecked else "error",
        f"{count}: far outside what calibration saw, or copies that differ",
        "  why: " + "\n       ".join(rows) + "\n"
        "  what to do: ask again without the inputs that leave a range (atlasc check-input tells), "
        "or compile\n       with data that has such inputs; --unchecked shows the numbers all the "
        "same. Do not tell the server.",
    )
    if not unchecked:
        raise typer.Exit(NO_ANSWER)


def shared(
    answers: Answers, bundle: Bundle, ledger: Ledger, entry: Entry, bits: int, shares: int
) -> Answers:
    """The answers with noise that hides the secret key, after they were counted in the ledger.

    Args:
        answers: exact ones, none of them refused: the bound holds for no other.
        bundle: its client's part is enough.
        ledger: of the client's keys.
        entry: of the answer that they are from.
        bits: of statistical security.
        shares: answers that the keys are to share in all.

    Raises:
        AtlasError: no digit is left for so many inputs, or the keys shared all that they may.
    """
    from atlasc.client.sharing import require_digits, share

    count = len(next(iter(answers.outputs.values())))
    flooding = require_digits(bundle.client.interface, count, bits, shares)
    number = ledger.share(entry, bits, shares)
    for name, flood in flooding.items():
        show(
            "note",
            f"{name}: {flood.digits} digits are left and may be passed on, at {bits} bits",
            f"  noise of {flood.deviation:.2g} hides the error of encryption; answer {number} of "
            f"{shares} that these keys share",
        )
    return replace(answers, outputs=share(answers.outputs, flooding))
