"""``atlasc calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.output import JsonFlag, print_json, print_table, say
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.passes.calibration.calibrate import Calibration

SHOWN = 20
"""Violations that are listed; ``--json`` and the file have all of them."""


def calibrate(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File to write, .json.", show_default=False),
    ] = None,
    sequence_length: options.SequenceLength = None,
    margin: options.Margin = None,
    held_back: options.HeldBack = 0.2,
    centre_keys: options.CentreKeys = True,
    seed: options.Seed = 0,
    as_json: JsonFlag = False,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Measure the ranges of all nonlinear ops; try them on held-back inputs."""
    from atlasc.compilation.options import Options, check_options
    from atlasc.compilation.prepare import prepare
    from atlasc.files import require_file_place, write_text

    if output is not None:
        require_file_place(output, ".json")
    chosen = Options(
        target="sim",
        sequence_length=sequence_length,
        margin=margin,
        held_back=held_back,
        centre_keys=centre_keys,
        seed=seed,
        trust_pickle=trust_pickle,
    )
    check_options(None, chosen)
    found = prepare(model, data, chosen, progress).calibration
    if output is not None:
        import json

        write_text(output, json.dumps(found.to_dict(), indent=1) + "\n")
    if as_json:
        print_json({**found.to_dict(), "leaving": found.leaving})
        return
    _show(found)


def _show(found: Calibration) -> None:
    print_table(
        ("module", "op", "range of", "low", "high", "seen low", "seen high", "left by"),
        [
            (
                row["location"], row["op"], row["kind"], row["low"], row["high"],
                row["seen_low"], row["seen_high"], row["leaving"],
            )
            for row in found.table()
        ],
    )  # fmt: skip
    margin = "margins from the tail" if found.margin is None else f"margin {found.margin:g}"
    print(f"{found.inputs} inputs, {margin}")
    report_held_back(found)


def report_held_back(found: Calibration) -> None:
    """Say how many held-back inputs leave a range, and which one."""
    if not found.held_back:
        warn("no input was held back", "  why: nobody knows how often a new input leaves a range")
        return
    print(f"{found.leaving} of {found.held_back} held-back inputs leave a range")
    for violation in found.violations[:SHOWN]:
        say(f"  {violation}")
    if len(found.violations) > SHOWN:
        print(f"  and {len(found.violations) - SHOWN} more")
