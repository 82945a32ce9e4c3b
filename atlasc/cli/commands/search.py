"""``atlasc search``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.output import JsonFlag, print_json, print_table
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.passes.search.front import Front


def search(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for front.json, front.png and calibration.json.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[str, typer.Option("--strategy", help="How to search.")] = "atlas",
    cost: options.Cost = "depth",
    softmax_ranges: options.SoftmaxRanges = "paper",
    inputs: Annotated[
        int, typer.Option("--inputs", min=1, help="Inputs on which settings are compared.")
    ] = 10,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, help="Of one evaluation [default: all].", show_default=False
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(
            "--journal",
            help="File that keeps evaluations: the same command goes on after an interrupt.",
            show_default=False,
        ),
    ] = None,
    sequence_length: options.SequenceLength = None,
    margin: options.Margin = None,
    held_back: options.HeldBack = 0.2,
    seed: options.Seed = 0,
    population: options.Population = None,
    generations: options.Generations = None,
    layer_population: options.LayerPopulation = None,
    layer_generations: options.LayerGenerations = None,
    early_layers: options.EarlyLayers = None,
    as_json: JsonFlag = False,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Search the polynomials' settings: a front of cost against error.

    The budget is the paper's, 24,144 evaluations, unless the options say less. Interrupted, it
    shows the front that it has.
    """
    from atlasc.compilation import Options, check_options, prepare
    from atlasc.compilation import search as run_search

    budget = options.budget(
        population, generations, layer_population, layer_generations, early_layers
    )
    chosen = Options(
        target="sim",
        strategy=strategy,
        budget=budget,
        cost=cost,  # type: ignore[arg-type]  # checked with the other options
        softmax_ranges=softmax_ranges,  # type: ignore[arg-type]
        sequence_length=sequence_length,
        margin=margin,
        held_back=held_back,
        seed=seed,
        trust_pickle=trust_pickle,
    )
    check_options(output, chosen)
    prepared = prepare(model, data, chosen, progress)
    front = run_search(prepared, chosen, progress, inputs=inputs, threads=threads, journal=journal)
    if output is not None:
        _write(output, front, prepared.calibration.to_dict())
    if as_json:
        print_json(front.to_dict())
    else:
        _show(front)
    if not front.complete:
        raise KeyboardInterrupt(
            "the front is that of the evaluations so far"
            if journal is None
            else f"the same command goes on with what is in {journal}"
        )


def _write(output: Path, front: Front, calibration: dict[str, Any]) -> None:
    from atlasc.bundle import new_folder

    with new_folder(output) as draft:
        front.save(draft / "front.json")
        front.plot(draft / "front.png")
        text = json.dumps(calibration, indent=1) + "\n"
        (draft / "calibration.json").write_text(text, encoding="utf-8")


def _show(front: Front) -> None:
    if not front.points:
        warn("no setting stays finite", "  what to do: more --data, or a larger budget")
        return
    print_table(
        ("depth", "levels", "mean error", "settings (softmax | norms | activation), by layer"),
        [
            (p.depth, p.levels, p.error, "  ".join(_layer(layer) for layer in p.settings))
            for p in front.points
        ],
    )
    print(
        f"{front.evaluations} evaluations, {front.distinct} of them different, in "
        f"{front.seconds:.1f} s; hypervolume {front.hypervolume:.4f}"
    )


def _layer(layer: tuple[int, ...]) -> str:
    softmax = ",".join(str(p) for p in layer[:5] if p)
    return f"{softmax}|{layer[5]},{layer[6]}|{layer[7]}"
