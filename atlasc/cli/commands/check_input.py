"""``atlasc check-input``: is an input safe, before anyone pays for an encrypted run?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.selection import (
    UNSAFE_REMEDY,
    CountOption,
    IndexOption,
    polynomials_at_hand,
    select,
    try_in_the_clear,
)

if TYPE_CHECKING:
    from atlasc.bundle.folder import Bundle
    from atlasc.loading.inputs import Inputs
    from atlasc.run.ranges import Verdict

UNSAFE = 1
"""Exit code where an input leaves a range."""


def check_input(
    bundle: Annotated[Path, typer.Argument(help="Folder that compile wrote.")],
    data: Annotated[Path, typer.Option("--input", help="Inputs: .txt, .jsonl, .npz, images.")],
    index: IndexOption = "",
    count: CountOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Say in the clear whether inputs may be encrypted and stay in all ranges.

    Evaluates the program's polynomials without encryption, so it needs the whole bundle, and no
    keys. A polynomial explodes outside its range, and nothing in a ciphertext says so. Exit code:
    0 if all inputs are safe, 1 if one is not, 2 if they could not be checked.
    """
    from atlasc.bundle.folder import load_bundle

    loaded = polynomials_at_hand(load_bundle(bundle, "client"))
    verdicts = _verdicts(loaded, select(loaded.load_inputs(data), index, count))
    safe = all(verdict.safe for verdict in verdicts)
    if as_json:
        print_json({"safe": safe, "inputs": [verdict.to_dict() for verdict in verdicts]})
    else:
        _show(verdicts)
    if not safe:
        raise typer.Exit(UNSAFE)


def _verdicts(loaded: Bundle, inputs: Inputs) -> list[Verdict]:
    """On each input; what is not finite is not evaluated."""
    from atlasc.run.ranges import Verdict

    found = loaded.client.examine(inputs.arrays)
    finite = inputs.take([row for row, reach in enumerate(found) if reach.finite])
    ranges: dict[str, Verdict] = {}
    if len(finite):
        verdicts = try_in_the_clear(loaded, finite).verdicts(finite.names)
        ranges = {verdict.input: verdict for verdict in verdicts}
    return [
        replace(ranges.get(name, Verdict(name)), fault=reach.why if reach.refused else "")
        for name, reach in zip(inputs.names, found, strict=True)
    ]


def _show(verdicts: list[Verdict]) -> None:
    rows: list[tuple[object, ...]] = []
    for verdict in verdicts:
        first = verdict.first
        if first is None:
            rows.append((verdict.input, verdict.fault or "safe", *[None] * 6))
            continue
        rows.append(
            (
                verdict.input, verdict.fault or "unsafe", first.op, first.location, first.reached,
                f"{first.low:.4g} … {first.high:.4g}", f"{first.share:.2%}",
                len(verdict.excesses) - 1,
            )
        )  # fmt: skip
    print_table(
        (
            "input", "", "first left: op", "module", "reaches", "range", "beyond, of its width",
            "polynomials after it",
        ),
        rows,
    )  # fmt: skip
    unsafe = sum(not verdict.safe for verdict in verdicts)
    if unsafe:
        print(f"{unsafe} of {len(verdicts)} inputs are unsafe; {UNSAFE_REMEDY}")
    else:
        print(f"{len(verdicts)} inputs, all safe")
