"""``atlasc search``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from atlasc.cli.costs import warn_of_costs
from atlasc.cli.errors import warn
from atlasc.cli.output import print_json, print_table, say
from atlasc.cli.parameters import DATA, JSON, Model
from atlasc.cli.progress import progress
from atlasc.compilation.declared import option
from atlasc.compilation.options import SearchOptions

if TYPE_CHECKING:
    from atlasc.passes.search.front import Front
    from atlasc.passes.search.point import Point

SHOWN = 8
"""Points that are printed; the files and ``--json`` have all of them."""


def search(
    model: Model,
    options: SearchOptions,
    data: Path = DATA,
    output: Path | None = option(
        None, "New folder for front.json, front.png, front.html and calibration.json.", "-o"
    ),
    inputs: str = option(
        "10",
        "Inputs on which settings are compared, beside up to 10 extreme inputs.",
        metavar="N|all",
    ),
    journal: Path | None = option(
        None,
        "File that keeps evaluations, to go on after an interrupt [default: beside the output].",
    ),
    as_json: bool = JSON,
) -> None:
    """Search the polynomials' settings: a front of cost against error.

    Interrupted, it shows the front that it has; with -o or --journal the same command goes on,
    whatever ended it.
    """
    from atlasc.compilation.checks import check_search
    from atlasc.compilation.fronts import journal_place, save_front
    from atlasc.compilation.prepare import prepare
    from atlasc.compilation.search import search as run_search
    from atlasc.files import require_new

    compared = _count(inputs)
    if output is not None:
        require_new(output)
    check_search(options)
    if options.minimised == "latency":
        warn_of_costs("sim", options.costs)
    place = journal_place(output, journal)
    prepared = prepare(model, data, options, progress)
    front = run_search(prepared, options, progress, inputs=compared, journal=place, note=warn)
    if output is not None and front.complete:
        save_front(output, front, prepared.calibration, place)
    if as_json:
        print_json(front.to_dict())
    else:
        _show(front)
        if output is not None and front.complete and front.points:
            _say_next(output, model, data, options)
    if not front.complete:
        raise KeyboardInterrupt(
            "the front is that of the evaluations so far"
            if place is None
            else f"the same command goes on with what is in {place}"
        )


def _count(inputs: str) -> int | None:
    """A number of inputs; None for all."""
    from atlasc.ir.errors import AtlasError

    if inputs == "all":
        return None
    if not inputs.isdecimal() or int(inputs) < 1:
        raise AtlasError(
            f"--inputs cannot be {inputs!r}", remedy="give a number of 1 or more, or 'all'"
        )
    return int(inputs)


def _show(front: Front) -> None:
    if not front.points:
        warn("no setting stays finite", "  what to do: more --data, or a larger budget")
        return
    last, shown = len(front.points) - 1, min(SHOWN, len(front.points))
    places = sorted({round(last * step / max(shown - 1, 1)) for step in range(shown)})
    rows = [(str(place + 1), *_figures(front.points[place])) for place in places]
    if front.expert is not None:
        rows.append(("is", *_figures(front.expert)))
    columns = (
        "point", "depth", "levels", "predicted seconds", "mean error", "held-back error",
        "out of range",
    )  # fmt: skip
    known = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
    print_table(
        [columns[index] for index in known], [[row[index] for index in known] for row in rows]
    )
    print(
        f"{len(places)} of the {len(front.points)} points of the front, from cheap to accurate"
        + ("" if front.expert is None else "; is: the recipe of that name")
    )
    if front.held_back:
        print(f"out of range: of {front.held_back} held-back inputs")
    print(
        f"{front.evaluations} evaluations, {front.distinct} of them different, in "
        f"{front.seconds:.1f} s; hypervolume {front.hypervolume:.4f}"
    )


def _figures(point: Point) -> tuple[object, ...]:
    return (
        point.depth, point.levels, point.seconds, point.error, point.held_back_error,
        point.out_of_range,
    )  # fmt: skip


def _say_next(output: Path, model: str, data: Path, options: SearchOptions) -> None:
    length = options.sequence_length
    command = ["atlasc", "compile", model, "--data", str(data), "--front", str(output)]
    command += [] if length is None else ["--sequence-length", str(length)]
    say(f"all settings: {output / 'front.html'}")
    say(f"next: {shlex.join(command)} --max-error 0.01 -o BUNDLE")
