"""The stage ``lower`` on its own: an IR text or a model, with settings that were found before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.compilation.checks import check_memory
from atlasc.compilation.lowering import MAGNITUDE_INPUTS, lower_module
from atlasc.compilation.options import LowerOptions
from atlasc.compilation.prepare import trace_model
from atlasc.compilation.steps import Steps, silent
from atlasc.figures.summary import costs_summary
from atlasc.files import new_folder, require_new
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.arrays import read_npz
from atlasc.ir.files.plain import GIB
from atlasc.ir.module import Module
from atlasc.ir.text.storage import load_module, save_module
from atlasc.loading.models import load_model
from atlasc.passes.approximation.approximate import apply_recipe, apply_settings
from atlasc.passes.approximation.depth import depth_of
from atlasc.passes.calibration.calibrate import read_calibration
from atlasc.passes.calibration.centre_keys import with_centred_keys
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.costs import program_costs
from atlasc.passes.pipeline import Lowered
from atlasc.passes.search.front import Front
from atlasc.targets import find_target

MAX_DATA = 4 * GIB
"""Bytes of the arrays of a data file."""


def lower_alone(
    source: str,
    output: Path,
    options: LowerOptions,
    steps: Steps,
    note: Callable[[str, str], None],
) -> tuple[Lowered, dict[str, Any]]:
    """Write ``poly.air``, ``program.air`` and ``client.air``; returns them and what they cost.

    Args:
        source: an nn module (``.air``), or a model.
        output: a new folder.
        options: approximations, ranges and target.
        steps: shows progress.
        note: called with a warning, and its reason.

    Raises:
        AtlasError: ops have no approximation, ranges are not known, or the module cannot be
            lowered.
    """
    require_new(output)
    find_target(options.target)
    check_memory(options.target, options.key_memory, options.device_memory)
    if options.recipe is not None and options.settings is not None:
        raise AtlasError("--recipe and --settings exclude each other", remedy="give one of them")
    front = None if options.settings is None else Front.load(options.settings)
    module = _with_approximations(_module(source, options, steps), options, front, note)
    inputs = None if options.data is None else _arrays(module, options.data)
    fastest = front is not None and front.cost == "latency"
    lowered = lower_module(module, inputs, options, steps, fastest=fastest)
    with new_folder(output) as draft:
        for name in ("poly", "program", "client"):
            save_module(getattr(lowered, name), draft / f"{name}.air")
    parameters: Any = lowered.parameters
    if inputs is None and parameters.bootstrap_level is not None:
        note(
            "the magnitudes of the values are not known",
            "  why: a bootstrap is right for values in [-1, 1] only\n"
            "  what to do: give inputs with --data before this program is run",
        )
    return lowered, costs_summary(program_costs(lowered.program), parameters, depth_of(module))


def _module(source: str, options: LowerOptions, steps: Steps = silent) -> Module:
    if Path(source).suffix != ".air":
        with steps("loading the model"):
            loaded = load_model(source, trust_pickle=options.trust_pickle)
        with steps("tracing"):
            return trace_model(loaded, options.batch, options.sequence_length)
    with steps(f"reading {source}"):
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
    options: LowerOptions,
    front: Front | None,
    note: Callable[[str, str], None],
) -> Module:
    if options.recipe is None and front is None:
        bare = next((o for o in nonlinear_ops(module) if "approximation" not in o.attributes), None)
        if bare is None:
            return module
        raise AtlasError(
            f"{bare.name} has no approximation",
            where=bare.location,
            remedy="give --recipe or --settings, and --calibration",
        )
    if options.calibration is None:
        raise AtlasError(
            "the ranges of the nonlinear ops are not known",
            why="a polynomial is right on the range that it was fitted on, and explodes outside",
            remedy="write them with atlasc calibrate -o FILE, and give --calibration FILE",
        )
    ranges = read_calibration(options.calibration)
    module = with_centred_keys(module, ranges.keys)
    if front is None:
        return apply_recipe(module, options.recipe or "", ranges)
    point = front.pick(options.wanted, int(options.out_of_range * front.held_back))
    if point.out_of_range:
        note(
            f"{point.out_of_range} of {front.held_back} held-back inputs leave a range under the "
            "setting that was picked",
            f"  why: no setting on the front within {options.wanted} has fewer",
        )
    return apply_settings(module, point.settings, ranges, front.parametrisation)


def _arrays(module: Module, path: Path) -> dict[str, np.ndarray]:
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
