"""``atlasc compile``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.bundle import Bundle
    from atlasc.driver import Compiled


def compile_command(
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write.", show_default=False)
    ],
    target: Annotated[str, typer.Option("--target", help="desilo or sim.")] = "desilo",
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Named settings instead of a search: is, nexus, thor, moai, arion, polaris.",
            show_default=False,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="Of the search [default: atlas].", show_default=False),
    ] = None,
    max_error: options.MaxError = None,
    cost: options.Cost = "depth",
    softmax_ranges: options.SoftmaxRanges = "paper",
    sequence_length: options.SequenceLength = None,
    batch: options.Batch = 1,
    margin: options.Margin = None,
    held_back: options.HeldBack = 0.2,
    seed: options.Seed = 0,
    population: options.Population = None,
    generations: options.Generations = None,
    layer_population: options.LayerPopulation = None,
    layer_generations: options.LayerGenerations = None,
    early_layers: options.EarlyLayers = None,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Compile a model and its data to a program on encrypted inputs.

    Without --recipe the settings of the polynomials are searched, with a modest budget of 936
    evaluations (24 settings and 10 generations, then 32 and 20), which the options change.
    """
    from atlasc.compilation import Options, compile_model
    from atlasc.ir.errors import AtlasError

    if recipe is not None and strategy is not None:
        raise AtlasError("--recipe and --strategy exclude each other", remedy="give one of them")
    budget = options.budget(
        population, generations, layer_population, layer_generations, early_layers
    )
    chosen = Options(
        target=target,
        recipe=recipe,
        strategy=strategy or "atlas",
        budget=budget,
        max_error=max_error,
        cost=cost,  # type: ignore[arg-type]  # checked with the other options
        softmax_ranges=softmax_ranges,  # type: ignore[arg-type]
        sequence_length=sequence_length,
        batch=batch,
        margin=margin,
        held_back=held_back,
        seed=seed,
        trust_pickle=trust_pickle,
    )
    bundle, compiled = compile_model(model, data, output, chosen, progress)
    _show(bundle, compiled, data)


def _show(bundle: Bundle, compiled: Compiled, data: Path) -> None:
    from atlasc.cli.commands.calibrate import report_held_back
    from atlasc.cli.commands.inspect import summary_lines

    report_held_back(compiled.calibration)
    for violation in compiled.calibration.violations[:1]:
        warn(
            "new inputs may leave the ranges",
            f"  why: {violation}\n  what to do: give more --data, or a larger --margin",
        )
    settings = compiled.facts["settings"]
    how = settings.get("recipe") or f"search ({settings.get('strategy')})"
    print(f"settings: {how}, mean error of the polynomials {settings['error']:.3g}")
    for line in summary_lines(compiled.facts["costs"]):
        print(line)
    _warn_of_machine(bundle.target, compiled.facts["costs"]["memory_bytes"])
    place = shlex.quote(str(bundle.folder))
    print(f"written to {bundle.folder} for {bundle.target}; {bundle.folder / 'report.html'}")
    print(f"next: atlasc run {place} --input {shlex.quote(str(data))} --index 0")


def _warn_of_machine(target: str, needed: int) -> None:
    """Say now what would stop a run here; the program may be meant for another machine."""
    from atlasc.backends import get_backend
    from atlasc.backends.memory import available_bytes
    from atlasc.ir.errors import AtlasError

    backend = get_backend(target)
    if not backend.encrypted:
        return
    try:
        backend.check()
    except AtlasError as error:
        warn(error.what, f"  what to do: {error.remedy}" if error.remedy else "")
    free = available_bytes()
    if free is not None and free < needed:
        warn(
            "this machine has too little free memory to run the program",
            f"  why: it needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
        )
