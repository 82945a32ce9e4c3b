"""What the commands that encrypt do with inputs that spoil a batch: they are left out, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.ir.errors import AtlasError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atlasc.bundle.folder import Bundle
    from atlasc.client.admission import Reach
    from atlasc.loading.inputs import Inputs

UncheckedOption = Annotated[
    bool,
    typer.Option(
        "--unchecked",
        help="Take inputs and show answers that are far outside what calibration saw.",
    ),
]
LISTED = 5
"""Inputs that are named one by one."""


def admit(bundle: Bundle, inputs: Inputs, strict: bool = False, unchecked: bool = False) -> Inputs:
    """The inputs that may be encrypted; the others are warned of and left out.

    Args:
        bundle: its client's part is enough.
        inputs: any number of them.
        strict: refuse all if one is to be left out.
        unchecked: leave out only what is not finite.

    Raises:
        AtlasError: none is left, or ``strict``.
    """
    from atlasc.cli.errors import warn
    from atlasc.client.admission import REMEDY

    found = bundle.client.examine(inputs.arrays)
    kept = [
        row for row, reach in enumerate(found) if not _left_out(reach, unchecked and reach.finite)
    ]
    out = [row for row in range(len(found)) if row not in set(kept)]
    if out:
        who = "1 input is" if len(out) == 1 else f"{len(out)} inputs are"
        why = _listed(inputs.names, found, out)
        if strict or not kept:
            raise AtlasError(f"{who} not fit to be encrypted", why=why, remedy=REMEDY)
        warn(
            f"{who} left out: one that explodes spoils the whole batch",
            f"  why: {why}\n  what to do: {REMEDY}",
        )
    large = [row for row in kept if found[row].large]
    if large:
        who = "1 input is" if len(large) == 1 else f"{len(large)} inputs are"
        warn(
            f"{who} larger than all that calibration saw: answers of the batch may be wrong",
            f"  why: {_listed(inputs.names, found, large)}\n"
            "  what to do: compile with data that has such inputs; atlasc check-input tells "
            "whether one leaves a range, which this cannot",
        )
    return inputs.take(kept) if out else inputs


def _left_out(reach: Reach, anyway: bool) -> bool:
    return reach.refused and not anyway


def _listed(names: Sequence[str], found: Sequence[Reach], rows: Sequence[int]) -> str:
    lines = [f"{names[row]}: {found[row].why}" for row in rows[:LISTED]]
    if len(rows) > LISTED:
        lines.append(f"and {len(rows) - LISTED} more")
    return "\n       ".join(lines)
