"""``atlasc compile``."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options, search_options
from atlasc.cli.errors import warn
from atlasc.cli.output import say
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.bundle.folder import Bundle
    from atlasc.compilation.stages import Compiled


def compile_command(
    context: typer.Context,
    model: options.Model,
    data: options.Data,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write.", show_default=False)
    ],
    target: options.ForTarget = "desilo",
    recipe: Annotated[
        str | None,
        typer.Option(
            "--recipe",
            help="Named settings instead of a search: is, nexus, thor, moai, arion, polaris.",
            show_default=False,
        ),
    ] = None,
    front: Annotated[
        Path | None,
        typer.Option(
            "--front",
            help="Folder that search -o wrote: pick from it, without another search.",
            show_default=False,
        ),
    ] = None,
    max_error: options.MaxError = None,
    max_depth: options.MaxDepth = None,
    max_levels: options.MaxLevels = None,
    max_seconds: options.MaxSeconds = None,
    out_of_range: options.OutOfRange = 0.0,
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
    workers: search_options.Workers = "serial",
    worker_count: search_options.WorkerCount = None,
    ray_address: search_options.RayAddress = None,
    threads: search_options.Threads = None,
    sequence_length: options.SequenceLength = None,
    batch: options.Batch = 1,
    margin: options.Margin = None,
    held_back: options.HeldBack = 0.2,
    centre_keys: options.CentreKeys = True,
    seed: options.Seed = 0,
    costs: options.Costs = None,
    key_memory: options.KeyMemory = None,
    device_memory: options.DeviceMemory = None,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Compile a model and its data to a program on encrypted inputs.

    Without --recipe and --front the settings of the polynomials are searched, with a modest budget.
    The cheapest setting within --max-error is taken; where only --max-depth, --max-levels or
    --max-seconds are given, the most accurate one within these. --max-seconds implies --cost
    latency, and --max-levels without --max-depth --cost levels. Settings under which a held-back
    input leaves a range are avoided.
    """
    from atlasc.compilation.compile import compile_model
    from atlasc.compilation.options import Options

    budget, switches = search_options.budget(context), search_options.switches(context)
    searching = options.given(strategy=strategy, cost=cost, space=space, **switches, **budget)
    _refuse_contradictions(recipe, front, {**searching, **options.given(margin=margin)})
    options.warn_of_costs(target)
    evaluators = search_options.workers(workers, worker_count, ray_address, threads)
    if cost is None and max_seconds is not None:
        cost = "latency"
    elif cost is None:
        cost = "levels" if max_levels is not None and max_depth is None else "depth"
    chosen = Options(
        target=target,
        recipe=recipe,
        front=front,
        **options.given(strategy=strategy),
        budget=budget,
        max_error=max_error,
        max_depth=max_depth,
        max_levels=max_levels,
        max_seconds=max_seconds,
        out_of_range=out_of_range,
        cost=cost,  # type: ignore[arg-type]  # checked with the other options
        parametrisation=search_options.parametrisation(space, **switches),
        sequence_length=sequence_length,
        batch=batch,
        margin=margin,
        held_back=held_back,
        centre_keys=centre_keys,
        seed=seed,
        trust_pickle=trust_pickle,
        key_memory=key_memory,
        device_memory=device_memory,
    )
    bundle, compiled = compile_model(
        model, data, output, chosen, progress, threads=threads, workers=evaluators, note=warn
    )
    _show(bundle, compiled, data)
    if key_memory is None and device_memory is None:
        options.say_of_keys(compiled.lowered.program)


def _refuse_contradictions(
    recipe: str | None, front: Path | None, searching: dict[str, Any]
) -> None:
    """Raise AtlasError for options that a recipe or a saved front would silently ignore."""
    from atlasc.ir.errors import AtlasError

    if recipe is not None and front is not None:
        raise AtlasError("--recipe and --front exclude each other", remedy="give one of them")
    chosen = "--recipe" if recipe is not None else "--front"
    if recipe is not None and searching.get("cost") == "latency":
        del searching["cost"]  # it places the bootstraps of a recipe, too
    names = [name for name in searching if name != "margin" or front is not None]
    if names and (recipe is not None or front is not None):
        raise AtlasError(
            f"{chosen} and --{names[0].replace('_', '-')} exclude each other",
            why="a recipe is not searched" if recipe else "the front was searched with its own",
            remedy="give one of them",
        )


def _show(bundle: Bundle, compiled: Compiled, data: Path) -> None:
    from atlasc.cli.commands.calibrate import report_held_back
    from atlasc.cli.commands.inspect import summary_lines
    from atlasc.compilation.stages import PROJECT
    from atlasc.targets import find_target

    report_held_back(compiled.calibration)
    for violation in compiled.calibration.violations[:1]:
        warn(
            "new inputs may leave the ranges",
            f"  why: {violation}\n  what to do: give more --data, or a larger --margin",
        )
    settings = compiled.facts["settings"]
    how = settings.get("recipe") or f"search ({settings.get('strategy')})"
    say(f"settings: {how}, mean error of the polynomials {settings['error']:.3g}")
    _show_held_back(settings)
    for line in summary_lines(compiled.facts["costs"]):
        say(line)
    place = shlex.quote(str(bundle.folder))
    say(f"written to {bundle.folder} for {bundle.target}; {bundle.folder / 'report.html'}")
    if find_target(bundle.target).writes_project:
        project = shlex.quote(str(bundle.folder / PROJECT))
        say(f"next, where CUDA and Phantom are: see {bundle.folder / PROJECT / 'README.md'};")
        say(f"  cmake -S {project} -B {project}/build && cmake --build {project}/build")
        return
    _warn_of_machine(bundle.target, compiled.facts["costs"]["memory_bytes"])
    say(f"next: atlasc run {place} --input {shlex.quote(str(data))} --index 0")


def _show_held_back(settings: dict[str, Any]) -> None:
    """Say what the chosen setting does on inputs that the search did not see."""
    leaving, held_back = settings.get("out_of_range"), settings.get("held_back")
    if leaving is None:
        return
    error = float(settings["held_back_error"])
    place = "the range of a polynomial"
    say(f"on {held_back} held-back inputs: error {error:.3g}, {leaving} leave {place}")
    if leaving:
        warn(
            f"{leaving} of {held_back} held-back inputs leave {place}",
            "  why: no setting within the target is left by fewer, or --out-of-range allows it\n"
            "  what to do: relax the target, give more --data, or a larger --margin",
        )


def _warn_of_machine(target: str, needed: int) -> None:
    """Say now what would stop a run here; the program may be meant for another machine."""
    from atlasc.ir.errors import AtlasError
    from atlasc.targets import find_target
    from atlasc.targets.machine import available_bytes

    found = find_target(target)
    if not found.encrypted:
        return
    try:
        found.check()
    except AtlasError as error:
        warn(error.what, f"  what to do: {error.remedy}" if error.remedy else "")
    free = available_bytes()
    if free is not None and free < needed:
        warn(
            "this machine has too little free memory to run the program",
            f"  why: it needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
        )
