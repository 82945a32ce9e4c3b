"""Inputs before they are encrypted: unfit ones are left out, and warned of are those out of range.

One input that explodes spoils the answers of its whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.client.checks import REMEDY
from atlasc.compilation.steps import Note, Steps, silent
from atlasc.ir.errors import AtlasError, printable
from atlasc.loading.inputs import Inputs
from atlasc.run.session import CleartextRun, Verdict, simulate

LISTED = 5
"""Inputs that are named one by one."""
UNSAFE_REMEDY = (
    "leave these inputs out, or compile with data that has such inputs, or a wider margin"
)


class Admitted(NamedTuple):
    """Inputs that may be encrypted, which rows of all that were given they are, and why the others
    are left out, by row.
    """

    inputs: Inputs
    rows: tuple[int, ...]
    left_out: Mapping[int, str]


def admit(
    bundle: Bundle, inputs: Inputs, note: Note, *, strict: bool = False, unchecked: bool = False
) -> Admitted:
    """Leave out the inputs that are not finite or far larger than those of calibration.

    Args:
        bundle: its client's part is enough.
        strict: refuse all inputs if one would be left out.
        unchecked: leave out only inputs that are not finite.

    Raises:
        AtlasError: no input is left, or ``strict``.
    """
    found = bundle.client.examine(inputs.arrays)
    out = {
        row: reach.why
        for row, reach in enumerate(found)
        if reach.refused and not (unchecked and reach.finite)
    }
    rows = tuple(row for row in range(len(found)) if row not in out)
    if out:
        count = counted(len(out), "input is", "inputs are")
        why = _listed([f"{inputs.names[row]}: {why}" for row, why in out.items()])
        if strict or not rows:
            raise AtlasError(f"{count} not fit to be encrypted", why=why, remedy=REMEDY)
        note(
            f"{count} left out: one that explodes spoils the whole batch",
            f"  why: {why}\n  what to do: {REMEDY}",
        )
    large = [f"{inputs.names[row]}: {found[row].why}" for row in rows if found[row].large]
    if large:
        note(
            f"{counted(len(large), 'input is', 'inputs are')} larger than all that calibration "
            "saw: answers of the batch may be wrong",
            f"  why: {_listed(large)}\n"
            "  what to do: compile with data that has such inputs; atlasc check-input tells "
            "whether one leaves a range, which this cannot",
        )
    return Admitted(inputs.take(rows) if out else inputs, rows, out)


def require_polynomials(bundle: Bundle) -> Bundle:
    """The whole bundle, checked.

    Raises:
        AtlasError: only the client's part of it is here.
    """
    if not bundle.has_server:
        raise AtlasError(
            "the ranges cannot be checked here",
            where=str(bundle.folder),
            why="that needs the polynomials, which are in the server's part of the bundle",
            remedy="give the whole bundle, or ask whoever has it to check (docs/security.md)",
        )
    return bundle if bundle.role is None else load_bundle(bundle.folder)


def simulated(bundle: Bundle, inputs: Inputs, steps: Steps = silent) -> CleartextRun:
    """The polynomials' answers in the clear, and which inputs leave which range."""
    with steps("polynomials in the clear", total=len(inputs)) as step:
        return simulate(bundle.client, bundle.poly, inputs.arrays, inputs.names, step.report)


def judge_ranges(verdicts: Sequence[Verdict], note: Note, strict: bool = False) -> None:
    """Warn of inputs that leave a range, or refuse them.

    Raises:
        AtlasError: there are some and ``strict`` is set.
    """
    first = [verdict.first for verdict in verdicts if verdict.first is not None]
    if not first:
        return
    count = counted(len(first), "input leaves", "inputs leave")
    headline = f"{count} the range that the program was compiled for"
    why = _listed([printable(str(excess)) for excess in first])
    if strict:
        raise AtlasError(headline, why=why, remedy=UNSAFE_REMEDY)
    note(
        f"{headline}: encrypted answers of their batch may be wrong",
        f"  why: {why}\n  what to do: {UNSAFE_REMEDY}; --strict makes this an error",
    )


def verdicts(bundle: Bundle, inputs: Inputs, steps: Steps = silent) -> list[Verdict]:
    """Whether each input may be encrypted and stays in all ranges.

    An input that is not finite is not evaluated.
    """
    found = bundle.client.examine(inputs.arrays)
    finite = inputs.take([row for row, reach in enumerate(found) if reach.finite])
    evaluated = simulated(bundle, finite, steps).verdicts(finite.names) if len(finite) else ()
    ranges = {verdict.input: verdict for verdict in evaluated}
    return [
        replace(ranges.get(name, Verdict(name)), fault=reach.why if reach.refused else "")
        for name, reach in zip(inputs.names, found, strict=True)
    ]


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun."""
    return f"{number} {one if number == 1 else many}"


def _listed(lines: Sequence[str]) -> str:
    shown = list(lines[:LISTED])
    if len(lines) > LISTED:
        shown.append(f"and {len(lines) - LISTED} more")
    return "\n       ".join(shown)
