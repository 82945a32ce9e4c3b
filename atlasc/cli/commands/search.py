"""``atlasc search``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options, search_options
from atlasc.cli.errors import warn
from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.passes.search.front import Front
    from atlasc.passes.search.point import Point


def search(
    context: typer.Context,
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for front.json, .png and .html and calibration.json.",
            show_default=False,
        ),
    ] = None,
    strategy: search_options.Strategy = None,
    evaluations: search_options.Evaluations = None,
    cost: search_options.Cost = None,
    space: search_options.Space = None,
    softmax_ranges: search_options.SoftmaxRanges = None,
    fits: search_options.Fits = None,
    degrees: search_options.Degrees = None,
    softmax_algorithms: search_options.SoftmaxAlgorithms = None,
    channels: search_options.Channels = None,
    population: search_options.Population = None,
    generations: search_options.Generations = None,
    layer_population: search_options.LayerPopulation = None,
    layer_generations: search_options.LayerGenerations = None,
    early_layers: search_options.EarlyLayers = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            "--inputs",
            metavar="N|all",
            help="Inputs on which settings are compared, beside up to 10 extreme ones "
            "[default: 10].",
            show_default=False,
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal",
            help="File that keeps evaluations, to go on after an interrupt "
            "[default: beside the output].",
            show_default=False,
        ),
    ] = None,
    workers: search_options.Workers = "serial",
    worker_count: search_options.WorkerCount = None,
    ray_address: search_options.RayAddress = None,
    threads: search_options.Threads = None,
    sequence_length: options.SequenceLength = None,
    margin: options.Margin = None,
    held_back: options.HeldBack = 0.2,
    centre_keys: options.CentreKeys = True,
    seed: options.Seed = 0,
    costs: options.Costs = None,
    as_json: JsonFlag = False,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Search the polynomials' settings: a front of cost against error.

    Interrupted, it shows the front that it has; with -o or --journal the same command goes on,
    whatever ended it.
    """
    from atlasc.compilation.evaluations import drop_journal, journal_place, kept_evaluations
    from atlasc.compilation.options import Options, check_options
    from atlasc.compilation.prepare import prepare
    from atlasc.compilation.search import SEARCH_INPUTS
    from atlasc.compilation.search import search as run_search

    budget, switches = search_options.budget(context), search_options.switches(context)
    compared = _count(inputs or str(SEARCH_INPUTS))
    chosen = Options(
        target="sim",
        **options.given(strategy=strategy, cost=cost),
        budget=budget,
        parametrisation=search_options.parametrisation(space, **switches),
        sequence_length=sequence_length,
        margin=margin,
        held_back=held_back,
        centre_keys=centre_keys,
        seed=seed,
        trust_pickle=trust_pickle,
    )
    check_options(output, chosen)
    if chosen.cost == "latency":
        options.warn_of_costs()
    evaluators = search_options.workers(workers, worker_count, ray_address, threads)
    place = journal_place(output, journal)
    prepared = prepare(model, data, chosen, progress)
    front = run_search(
        prepared, chosen, progress, inputs=compared, threads=threads, journal=place,
        workers=evaluators, note=warn,
    )  # fmt: skip
    if output is not None and front.complete:
        kept = kept_evaluations(output, place)
        _write(output, front, prepared.calibration.to_dict(), kept)
        drop_journal(output, place)
    if as_json:
        print_json(front.to_dict())
    else:
        _show(front)
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


def _write(output: Path, front: Front, calibration: dict[str, Any], texts: dict[str, str]) -> None:
    from atlasc.files import new_folder
    from atlasc.report.front_page import front_html

    with new_folder(output) as draft:
        front.save(draft / "front.json")
        front.plot(draft / "front.png")
        (draft / "front.html").write_text(front_html(front), encoding="utf-8")
        text = json.dumps(calibration, indent=1) + "\n"
        for name, content in {"calibration.json": text, **texts}.items():
            (draft / name).write_text(content, encoding="utf-8")


def _show(front: Front) -> None:
    if not front.points:
        warn("no setting stays finite", "  what to do: more --data, or a larger budget")
        return
    rows = [(*_figures(p), "  ".join(map(_layer, p.settings))) for p in front.points]
    if front.expert is not None:
        rows.append((*_figures(front.expert), "is"))
    columns = (
        "depth", "levels", "predicted seconds", "mean error", "held-back error", "out of range",
        "settings (softmax | norms | activation), by layer",
    )  # fmt: skip
    known = [index for index in range(len(columns)) if any(row[index] is not None for row in rows)]
    print_table(
        [columns[index] for index in known], [[row[index] for index in known] for row in rows]
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


def _layer(layer: tuple[int, ...]) -> str:
    softmax = ",".join(str(p) for p in layer[:5] if p)
    more = "".join(f"|{value}" for value in layer[8:])
    return f"{softmax}|{layer[5]},{layer[6]}|{layer[7]}{more}"
