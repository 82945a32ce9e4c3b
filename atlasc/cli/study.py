"""``atlasc search --study``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from atlasc.cli import search_options
from atlasc.cli.output import print_json, print_table
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.compilation.options import Options
    from atlasc.compilation.prepare import Prepared
    from atlasc.passes.search.study import Study


def refuse_searching(context: typer.Context) -> None:
    """Raise AtlasError for options of a search, which a study would silently ignore."""
    from atlasc.ir.errors import AtlasError

    names = ("strategy", *search_options.BUDGET_NAMES, "journal", "worker_count", "ray_address",
             "threads")  # fmt: skip
    given = [name for name in names if context.params[name] is not None]
    given += ["workers"] if context.params["workers"] != "serial" else []
    if given:
        raise AtlasError(
            f"--study and --{given[0].replace('_', '-')} exclude each other",
            why="a study compares random settings and neighbours of the best, in this process, on "
            "one thread",
            remedy="leave one of them out",
        )


def run_study(
    prepared: Prepared,
    options: Options,
    output: Path | None,
    inputs: int | None,
    settings: int,
    as_json: bool,
) -> None:
    """Compare surrogates; print the result, and write study.json and study.png.

    Args:
        prepared: the model with its data.
        options: for the seed and the search space.
        output: a new folder, or None.
        inputs: random ones, of the true error; None for all that calibration saw.
        settings: how many are compared.
        as_json: print one JSON object.
    """
    from atlasc.compilation.search import search_problem
    from atlasc.files import new_folder
    from atlasc.passes.search.study import StudyOptions, study

    problem = search_problem(prepared, options, inputs, extremes=0)
    with progress("comparing surrogates") as step:
        found = study(problem, StudyOptions(options.seed, settings), step.report)
    if output is not None:
        with new_folder(output) as draft:
            text = json.dumps(found.to_dict(), indent=1) + "\n"
            (draft / "study.json").write_text(text, encoding="utf-8")
            found.plot(draft / "study.png")
    if as_json:
        print_json(found.to_dict())
    else:
        _show(found)


def _show(study: Study) -> None:
    for size, title, surrogates in (
        ("inputs", "the first inputs, all layers", study.subsets),
        ("layers", "the first layers, all inputs", study.early_layers),
    ):
        print_table(
            (size, "Spearman", "seconds an evaluation", "speed-up"),
            [(getattr(s, size), s.correlation, s.seconds, s.speed_up) for s in surrogates],
            title=title,
        )
    print(
        f"{len(study.errors)} settings with errors from {min(study.errors):.2g} to "
        f"{max(study.errors):.2g}: the finite ones of {study.drawn} that were drawn"
    )
