"""Options that choose inputs from a file, and what several commands say of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.ir.errors import AtlasError, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from atlasc.bundle.folder import Bundle
    from atlasc.loading.inputs import Inputs
    from atlasc.run.ranges import CleartextRun, Verdict

IndexOption = Annotated[
    str, typer.Option("--index", help="Take these inputs of the file: 0,1,5 or 3-7.")
]
CountOption = Annotated[
    int | None, typer.Option("--count", min=1, help="Take the first inputs of the file.")
]
TargetOption = Annotated[
    str, typer.Option("--target", help="Another backend than the bundle was compiled for.")
]
SHOWN = 5
"""Inputs outside a range that are listed one by one."""
UNSAFE_REMEDY = (
    "leave these inputs out, or compile with data that has such inputs, or a wider margin"
)


def select(inputs: Inputs, index: str, count: int | None) -> Inputs:
    """The chosen inputs; all without a choice.

    Raises:
        AtlasError: both options, an index that is no number, or one that the file does not have.
    """
    if index and count is not None:
        raise AtlasError("--index and --count exclude each other", remedy="give one of them")
    if count is not None:
        if count > len(inputs):
            raise AtlasError(f"--count {count}, but the file has {len(inputs)} inputs")
        return inputs.take(range(count))
    if not index:
        return inputs
    wanted: list[int] = []
    for part in index.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdecimal() or (last and not last.isdecimal()):
            raise AtlasError(f"--index {index} is no list of numbers", remedy="write it as 0,1,5-7")
        wanted += range(int(first), int(last or first) + 1)
    outside = [row for row in wanted if row >= len(inputs)]
    if outside or not wanted:
        raise AtlasError(
            f"--index {index} chooses inputs that the file does not have",
            why=f"it has the inputs 0 to {len(inputs) - 1}",
        )
    return inputs.take(wanted)


def polynomials_at_hand(bundle: Bundle) -> Bundle:
    """The whole bundle, checked.

    Raises:
        AtlasError: only the client's part of it is here.
    """
    from atlasc.bundle.folder import load_bundle

    if not bundle.has_server:
        raise AtlasError(
            "the ranges cannot be checked here",
            where=str(bundle.folder),
            why="that needs the polynomials, which are in the server's part of the bundle",
            remedy="give the whole bundle, or ask whoever has it to check (docs/security.md)",
        )
    return load_bundle(bundle.folder)


def try_in_the_clear(bundle: Bundle, inputs: Inputs) -> CleartextRun:
    """The polynomials' answers to inputs, and who leaves which range; shows progress."""
    from atlasc.cli.progress import progress
    from atlasc.run.ranges import simulate

    with progress("polynomials in the clear", total=len(inputs)) as step:
        return simulate(bundle.client, bundle.poly, inputs.arrays, inputs.names, step.report)


def judge_ranges(verdicts: Sequence[Verdict], strict: bool) -> None:
    """Warn of inputs that leave a range, or refuse them.

    Raises:
        AtlasError: there are some and ``strict`` is set.
    """
    from atlasc.cli.errors import warn

    first = [verdict.first for verdict in verdicts if verdict.first is not None]
    if not first:
        return
    who = "1 input leaves" if len(first) == 1 else f"{len(first)} inputs leave"
    lines = [printable(str(excess)) for excess in first[:SHOWN]]
    if len(first) > SHOWN:
        lines.append(f"and {len(first) - SHOWN} more")
    headline = f"{who} the range that the program was compiled for"
    why = "\n       ".join(lines)
    if strict:
        raise AtlasError(headline, why=why, remedy=UNSAFE_REMEDY)
    warn(
        f"{headline}: encrypted answers of their batch may be wrong",
        f"  why: {why}\n  what to do: {UNSAFE_REMEDY}; --strict makes this an error",
    )
