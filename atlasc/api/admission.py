"""Checks inputs before they are encrypted, and leaves out inputs without a right answer.

One input that explodes spoils the answers of its whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from atlasc.bundle.folder import Bundle
from atlasc.client.checks import Reach
from atlasc.client.verdict import Verdict, verdicts
from atlasc.ir.errors import AtlasError, counted, listed
from atlasc.loading.inputs import Inputs
from atlasc.progress import Note, Steps, silent
from atlasc.runtime.native import load_library

UNSAFE_REMEDY = (
    "compile with data that has such inputs, or a larger margin of --ranges; --unchecked encrypts "
    "the inputs anyway"
)


def what_answers(settings: Mapping[str, Any]) -> list[str]:
    """What would answer unsafe inputs, and what it costs: a line each.

    Args:
        settings: of the bundle's manifest.
    """
    kind, found = settings.get("cost"), ["more data: --data with inputs like these; the surest way"]
    unit = {"latency": "predicted seconds"}.get(str(kind), str(kind))
    own = settings.get("seconds" if kind == "latency" else str(kind))
    if kind is not None:
        found.append(
            "wider ranges: --ranges 'measured{margin=0.5}', for half of the width more at each "
            f"end; the search then says their {unit}"
        )
    if own is not None and settings.get("is_cost") is not None:
        found.append(
            f"the most accurate polynomials: --recipe is, {settings['is_cost']:.3g} {unit} instead "
            f"of {own:.3g}"
        )
    return found


class Admitted(NamedTuple):
    """Inputs that may be encrypted.

    Attributes:
        inputs: the inputs that may be encrypted.
        rows: their row numbers among all given inputs.
        left_out: row of an input that is left out -> why.
        doubt: the first reason why the bound on the errors may not hold for the answers; empty if
            there is none.
    """

    inputs: Inputs
    rows: tuple[int, ...]
    left_out: Mapping[int, str]
    doubt: str = ""


def admit(
    bundle: Bundle,
    inputs: Inputs,
    note: Note,
    *,
    strict: bool = False,
    unchecked: bool = False,
    steps: Steps = silent,
) -> Admitted:
    """Leave out inputs that are not finite, or far larger than the inputs of calibration.

    If the whole bundle is here, inputs whose answers would be wrong are left out, too.

    Args:
        bundle: the compiled program; its client's part is enough.
        inputs: the inputs to check.
        note: called with a headline and details for each warning.
        strict: refuse all inputs if one would be left out.
        unchecked: leave out only inputs that are not finite, and warn of the others.
        steps: progress of the cleartext evaluation.

    Raises:
        AtlasError: no input is left; or one would be left out and ``strict`` is set.
    """
    reached = _reached(bundle, inputs)
    if bundle.has_server:
        found = _judged(require_polynomials(bundle), inputs, reached, steps)
        unsafe = {row: verdict.why for row, verdict in enumerate(found) if verdict.unsafe}
        tell_undecided(found, note)
    else:
        unsafe = {row: reach.why for row, reach in enumerate(reached) if reach.refused}
    out = {row: why for row, why in unsafe.items() if not (unchecked and reached[row].finite)}
    rows = tuple(row for row in range(len(inputs)) if row not in out)
    if out:
        count = counted(len(out), "input is", "inputs are")
        why = listed([f"{inputs.names[row]}: {why}" for row, why in out.items()])
        refused = [reached[row] for row in out if reached[row].refused]
        remedy = UNSAFE_REMEDY if not refused else load_library().LARGE_REMEDY
        if refused and not any(reach.finite for reach in refused):
            remedy = "leave them out, or repair them"
        if strict or not rows:
            raise AtlasError(f"{count} not fit to be encrypted", why=why, remedy=remedy)
        note(
            f"{count} left out: one bad input spoils the answers of its whole batch",
            f"  why: {why}\n  what to do: {remedy}",
        )
    if taken := [f"{inputs.names[row]}: {unsafe[row]}" for row in rows if row in unsafe]:
        count = counted(len(taken), "input is", "inputs are")
        note(f"{count} unsafe: all answers of the batch may be wrong", f"  why: {listed(taken)}")
    large = [row for row in rows if reached[row].large and row not in unsafe]
    if large and not bundle.has_server:
        note(
            f"{counted(len(large), 'input is', 'inputs are')} larger than the inputs of "
            "calibration: all answers of the batch may be wrong",
            f"  why: {listed([f'{inputs.names[row]}: {reached[row].why}' for row in large])}\n"
            "  what to do: compile with data that has such inputs; or run atlasc check-input with "
            "the whole bundle, which tells whether an answer will be wrong",
        )
    doubts = [f"{inputs.names[row]}: {unsafe[row]}" for row in rows if row in unsafe]
    doubts += [f"{inputs.names[row]}: {reached[row].why}" for row in rows if reached[row].large]
    chosen = inputs.take(rows) if out else inputs
    return Admitted(chosen, rows, out, next(iter(doubts), ""))


def tell_undecided(found: Sequence[Verdict], note: Note) -> None:
    """Note the inputs whose answers keep the promised error but may have another class."""
    lines = [f"{one.input}: {one.why}" for one in found if one.kind == "undecided"]
    if lines:
        count = counted(len(lines), "input is", "inputs are")
        note(
            f"{count} answered, but the class may not be the model's",
            f"  why: {listed(lines)}\n  what to do: look at the scores, not at the class alone",
        )


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
    return bundle.whole()


def checked(bundle: Bundle, inputs: Inputs, steps: Steps = silent) -> list[Verdict]:
    """A verdict on each input: whether it may be encrypted, and whether its answer will be right.

    Inputs that are not finite are not evaluated.
    """
    return _judged(bundle, inputs, _reached(bundle, inputs), steps)


def _reached(bundle: Bundle, inputs: Inputs) -> list[Reach]:
    """The magnitude of each input; infinite for a row of the data without an input."""
    reached = bundle.client.examine(inputs.arrays)
    for row, fault in enumerate(inputs.faults):
        if fault:
            reached[row] = Reach(float("inf"), fault)
    return reached


def _judged(
    bundle: Bundle, inputs: Inputs, reached: Sequence[Reach], steps: Steps
) -> list[Verdict]:
    finite = inputs.take([row for row, reach in enumerate(reached) if reach.finite])
    with steps("polynomials in the clear", total=len(finite)) as step:
        evaluated = (
            verdicts(bundle.client, bundle.poly, finite.arrays, finite.names, step.report)
            if len(finite)
            else []
        )
    remaining = iter(evaluated)
    return [
        replace(
            next(remaining) if reach.finite else Verdict(name),
            fault=reach.why if reach.refused else "",
        )
        for name, reach in zip(inputs.names, reached, strict=True)
    ]
