"""``atlasc lower``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.progress import progress

MAX_DATA = 4 << 30
"""Bytes of the arrays given with --data."""

if TYPE_CHECKING:
    from atlasc.ir.module import Module
    from atlasc.passes.pipeline import Lowered
    from atlasc.passes.search.front import Front
    from atlasc.passes.search.pick import Wanted


def lower(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="nn module (.air), or a model.", show_default=False),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write.", show_default=False)
    ],
    recipe: Annotated[
        str | None,
        typer.Option("--recipe", help="Approximations of ops that carry none.", show_default=False),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            "--settings",
            help="front.json of a search, to pick from as compile does.",
            show_default=False,
        ),
    ] = None,
    max_error: options.MaxError = None,
    max_depth: options.MaxDepth = None,
    max_levels: options.MaxLevels = None,
    max_seconds: options.MaxSeconds = None,
    calibration: Annotated[
        Path | None,
        typer.Option("--calibration", help="Ranges: what calibrate -o wrote.", show_default=False),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            help=".npz of inputs by name: the magnitudes that bootstraps need.",
            show_default=False,
        ),
    ] = None,
    sequence_length: options.SequenceLength = None,
    batch: options.Batch = 1,
    costs: options.Costs = None,
    key_memory: options.KeyMemory = None,
    trust_pickle: options.TrustPickle = False,
    target: options.ForTarget = "desilo",
) -> None:
    """Lower an nn module with approximations to poly.air and program.air."""
    from atlasc.cli.commands.inspect import summary_lines
    from atlasc.compilation import stages
    from atlasc.compilation.key_planning import check_key_memory
    from atlasc.figures.summary import costs_summary
    from atlasc.files import require_new
    from atlasc.ir.errors import AtlasError
    from atlasc.passes.approximation.depth import depth_of
    from atlasc.passes.costs.counts import program_costs
    from atlasc.passes.pipeline import STEPS
    from atlasc.passes.search.front import Front
    from atlasc.passes.search.pick import Wanted

    require_new(output)
    check_key_memory(key_memory)
    options.warn_of_costs(target)
    module = _module(source, sequence_length, batch, trust_pickle)
    wanted = Wanted(max_error, max_depth, max_levels, max_seconds)
    if recipe is not None and settings is not None:
        raise AtlasError("--recipe and --settings exclude each other", remedy="give one of them")
    front = None if settings is None else Front.load(settings)
    module = _with_approximations(module, recipe, front, wanted, calibration)
    inputs = None if data is None else _arrays(module, data)
    with progress("lowering", STEPS) as step:
        lowered = stages.lower_module(
            module,
            inputs,
            lambda kind, result, report: step(note=kind.name),
            fastest=front is not None and front.cost == "latency",
            key_memory=key_memory,
            target=target,
        )
    _write(output, lowered)
    if inputs is None and lowered.parameters.bootstrap_level is not None:
        warn(
            "the magnitudes of the values are not known",
            "  why: a bootstrap is right for values in [-1, 1] only\n"
            "  what to do: give inputs with --data before this program is run",
        )
    parameters = lowered.parameters
    summary = costs_summary(program_costs(lowered.program), parameters, depth_of(module))  # type: ignore[arg-type]
    for line in summary_lines(summary):
        print(line)
    if key_memory is None:
        options.say_of_keys(lowered.program)


def _module(source: str, sequence_length: int | None, batch: int, trust_pickle: bool) -> Module:
    from atlasc.compilation import stages
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.text.storage import load_module
    from atlasc.loading.models import load_model

    if Path(source).suffix != ".air":
        with progress("loading the model"):
            loaded = load_model(source, trust_pickle=trust_pickle)
        with progress("tracing"):
            return stages.trace_model(loaded, batch, sequence_length)
    with progress(f"reading {source}"):
        module = load_module(Path(source))
    if module.level != "nn":
        raise AtlasError(
            f"{source} is at the {module.level} level",
            why="lower starts from an nn module",
            remedy="run single passes on it with atlasc opt",
        )
    return module


def _with_approximations(
    module: Module,
    recipe: str | None,
    front: Front | None,
    wanted: Wanted,
    calibration: Path | None,
) -> Module:
    from atlasc.compilation.options import MAX_ERROR
    from atlasc.ir.errors import AtlasError
    from atlasc.passes.approximation.assign import apply_recipe, apply_settings
    from atlasc.passes.calibration.calibrate import read_calibration
    from atlasc.passes.calibration.centre_keys import with_centred_keys
    from atlasc.passes.calibration.measure import nonlinear_ops
    from atlasc.passes.search.pick import Wanted

    if recipe is None and front is None:
        bare = next((o for o in nonlinear_ops(module) if "approximation" not in o.attributes), None)
        if bare is None:
            return module
        raise AtlasError(
            f"{bare.name} has no approximation",
            where=bare.location,
            remedy="give --recipe or --settings, and --calibration",
        )
    if calibration is None:
        raise AtlasError(
            "the ranges of the nonlinear ops are not known",
            why="a polynomial is right on the range that it was fitted on, and explodes outside",
            remedy="write them with atlasc calibrate -o FILE, and give --calibration FILE",
        )
    ranges = read_calibration(calibration)
    module = with_centred_keys(module, ranges.keys)
    if recipe is not None:
        return apply_recipe(module, recipe, ranges)
    assert front is not None
    wanted = Wanted(MAX_ERROR) if wanted == Wanted() else wanted
    point = front.pick(wanted)
    if point.out_of_range:
        warn(
            f"{point.out_of_range} of {front.held_back} held-back inputs leave a range under the "
            "setting that was picked",
            f"  why: no setting on the front within {wanted} has fewer",
        )
    return apply_settings(module, point.settings, ranges, front.parametrisation)


def _arrays(module: Module, path: Path) -> dict[str, Any]:
    import numpy as np

    from atlasc.compilation.stages import MAGNITUDE_INPUTS
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.files.arrays import read_npz

    found = read_npz(path, MAX_DATA, what="data")
    arrays = {name: array[:MAGNITUDE_INPUTS] for name, array in found.items() if array.ndim}
    for op in module.inputs:
        name, shape = op.attributes["name"], op.attributes["shape"]
        if name not in arrays or list(arrays[name].shape[1:]) != list(shape[1:]):
            have = {key: array.shape for key, array in arrays.items()}
            raise AtlasError(
                f"data {path} has no {name} of shape [N, {', '.join(map(str, shape[1:]))}]",
                why=f"it has {have}",
            )
        if arrays[name].dtype.kind not in "biuf" or not np.isfinite(arrays[name]).all():
            raise AtlasError(f"{name} in {path} holds other things than finite numbers")
        if not len(arrays[name]):
            raise AtlasError(f"{name} in {path} holds no input")
    return {op.attributes["name"]: arrays[op.attributes["name"]] for op in module.inputs}


def _write(output: Path, lowered: Lowered) -> None:
    from atlasc.files import new_folder
    from atlasc.ir.text.storage import save_module

    with new_folder(output) as draft:
        for name in ("poly", "program"):
            save_module(getattr(lowered, name), draft / f"{name}.air")
        save_module(lowered.client, draft / "client.air")
