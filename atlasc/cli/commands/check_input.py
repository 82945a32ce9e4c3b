"""``atlasc check-input``: whether an input is safe, before it is encrypted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from atlasc.cli.output import print_json, print_table
from atlasc.cli.parameters import BundleFolder, Count, Index, InputFile, Json
from atlasc.cli.progress import progress
from atlasc.cli.selection import selected

if TYPE_CHECKING:
    from atlasc.run.session import Verdict

UNSAFE = 1
"""Exit code where an input leaves a range."""


def check_input(
    bundle: BundleFolder,
    data: InputFile,
    index: Index = "",
    count: Count = None,
    as_json: Json = False,
) -> None:
    """Say in the clear whether inputs may be encrypted and stay in all ranges.

    Evaluates the program's polynomials without encryption, so it needs the whole bundle, and no
    keys. A polynomial explodes outside its range, and nothing in a ciphertext says so. Exit code:
    0 if all inputs are safe, 1 if one is not, 2 if they could not be checked.
    """
    from atlasc.api.admission import require_polynomials, verdicts
    from atlasc.bundle.folder import load_bundle

    loaded = require_polynomials(load_bundle(bundle, "client"))
    found = verdicts(loaded, selected(loaded, data, index, count), progress)
    safe = all(verdict.safe for verdict in found)
    if as_json:
        print_json({"safe": safe, "inputs": [verdict.to_dict() for verdict in found]})
    else:
        _show(found)
    if not safe:
        raise typer.Exit(UNSAFE)


def _show(verdicts: list[Verdict]) -> None:
    from atlasc.api.admission import UNSAFE_REMEDY

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
