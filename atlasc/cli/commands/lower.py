"""``atlasc lower``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atlasc.cli import options
from atlasc.cli.errors import warn
from atlasc.cli.progress import progress

if TYPE_CHECKING:
    from atlasc.ir.module import Module
    from atlasc.passes.lowering.pipeline import Lowered


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
            help="front.json of a search; --max-error picks from it.",
            show_default=False,
        ),
    ] = None,
    max_error: Annotated[
        float | None, typer.Option("--max-error", help="Of the setting that is picked.")
    ] = None,
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
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Lower an nn module with approximations to poly.air and program.air."""
    from atlasc import driver
    from atlasc.cli.commands.inspect import summary_lines
    from atlasc.files import require_new
    from atlasc.passes.approximation.depth import depth_of
    from atlasc.passes.lowering.costs import program_costs
    from atlasc.summary import costs_summary

    require_new(output)
    module = _module(source, sequence_length, batch, trust_pickle)
    module = _with_approximations(module, recipe, settings, max_error, calibration)
    inputs = None if data is None else _arrays(module, data)
    with progress("lowering", 8) as step:
        lowered = driver.lower_module(
            module, inputs, lambda kind, result, report: step(note=kind.name)
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


def _module(source: str, sequence_length: int | None, batch: int, trust_pickle: bool) -> Module:
    from atlasc import driver
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.storage import load_module
    from atlasc.loading.models import load_model

    if Path(source).suffix != ".air":
        with progress("loading the model"):
            loaded = load_model(source, trust_pickle=trust_pickle)
        with progress("tracing"):
            return driver.trace_model(loaded, batch, sequence_length)
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
    settings: Path | None,
    max_error: float | None,
    calibration: Path | None,
) -> Module:
    from atlasc.compilation import MAX_ERROR
    from atlasc.ir.errors import AtlasError
    from atlasc.passes.approximation.approximate import read_calibration
    from atlasc.passes.approximation.assign import apply_recipe, apply_settings
    from atlasc.passes.approximation.measure import nonlinear_ops
    from atlasc.passes.search.front import Front

    if recipe is None and settings is None:
        bare = next((o for o in nonlinear_ops(module) if "approximation" not in o.attributes), None)
        if bare is None:
            return module
        raise AtlasError(
            f"{bare.name} has no approximation",
            where=bare.location,
            remedy="give --recipe or --settings, and --calibration",
        )
    if recipe is not None and settings is not None:
        raise AtlasError("--recipe and --settings exclude each other", remedy="give one of them")
    if calibration is None:
        raise AtlasError(
            "the ranges of the nonlinear ops are not known",
            why="a polynomial is right on the range that it was fitted on, and explodes outside",
            remedy="write them with atlasc calibrate -o FILE, and give --calibration FILE",
        )
    ranges = read_calibration(calibration)
    if recipe is not None:
        return apply_recipe(module, recipe, ranges)
    assert settings is not None
    point = Front.load(settings).pick(max_error=MAX_ERROR if max_error is None else max_error)
    return apply_settings(module, point.settings, ranges)


def _arrays(module: Module, path: Path) -> dict[str, Any]:
    import numpy as np

    from atlasc.driver import MAGNITUDE_INPUTS
    from atlasc.ir.errors import AtlasError

    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name][:MAGNITUDE_INPUTS] for name in archive.files}
    except Exception as error:
        raise AtlasError(f"data {path} cannot be read as an .npz", why=str(error)) from None
    for op in module.inputs:
        name, shape = op.attributes["name"], op.attributes["shape"]
        if name not in arrays or list(arrays[name].shape[1:]) != list(shape[1:]):
            have = {key: array.shape for key, array in arrays.items()}
            raise AtlasError(
                f"data {path} has no {name} of shape [N, {', '.join(map(str, shape[1:]))}]",
                why=f"it has {have}",
            )
    return {op.attributes["name"]: arrays[op.attributes["name"]] for op in module.inputs}


def _write(output: Path, lowered: Lowered) -> None:
    from atlasc.bundle import new_folder
    from atlasc.ir.storage import save_module

    with new_folder(output) as draft:
        for name in ("poly", "program"):
            save_module(getattr(lowered, name), draft / f"{name}.air")
        save_module(lowered.client, draft / "client.air")
