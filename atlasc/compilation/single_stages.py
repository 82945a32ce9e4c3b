"""Single stages of compile: ``inspect``, ``lower`` and ``opt``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from atlasc.bundle.folder import MANIFEST, Bundle, load_bundle
from atlasc.bundle.sent import Sent, sent_by
from atlasc.bundle.split import held_role
from atlasc.calibration.calibrate import (
    Outlier,
    nominal_calibration,
    outliers_of,
    read_calibration,
)
from atlasc.calibration.measure import nonlinear_ops
from atlasc.compilation.checks import check_target
from atlasc.compilation.declared import ALL_MEMORY, title
from atlasc.compilation.generation.programs import Decoder, head_side
from atlasc.compilation.lowering import MAGNITUDE_INPUTS, each_pass, key_model, lower_module
from atlasc.compilation.options import BatchOptions
from atlasc.compilation.prepare import trace_model
from atlasc.compilation.stage_options import InspectOptions, LowerOptions
from atlasc.files import new_folder, require_new
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import GIB, read_npz
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import MAX_TEXT, load_module, print_module, save_module
from atlasc.ir.verifier import verify
from atlasc.latency.model import LatencyTarget
from atlasc.loading.models import load_model
from atlasc.passes.approximation.approximate import Depth, apply_recipe, apply_settings, depth_of
from atlasc.passes.calibration.adjusted import adjusted
from atlasc.passes.framework.pass_base import Pass, require_slots, run_passes
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.pipeline import (
    STEPS,
    AfterEach,
    Lowered,
    lower_poly,
    to_poly,
)
from atlasc.polynomials.recipes import recipe as find_recipe
from atlasc.program.costs import ProgramCosts, program_costs
from atlasc.progress import Note, Steps, silent
from atlasc.report.summary import costs_summary
from atlasc.search.front import Front
from atlasc.targets import find_target
from atlasc.targets.base import Target
from atlasc.targets.costs import costs_of
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import (
    PARAMETERS,
    TARGET,
    parameters_of,
    parameters_on,
    with_matching_parameters,
)

MAX_DATA = 4 * GIB
"""Greatest number of bytes of the arrays of a data file."""


@dataclass(frozen=True)
class Inspection:
    """Costs of a program and where they arise.

    Attributes:
        program: the ckks module.
        costs: costs counted on ``program``.
        parameters: parameter set of the program, if one suits it.
        summary: see ``costs_summary``.
        target: name of the target whose seconds and memory these are.
        sent: what a client sends and gets; None where the target cannot tell. ``summary`` has it
            at the usual speed of an upload.
        nominal: whether the ranges are nominal, not measured; then only the costs are meaningful.
        outliers: of a bundle: tokens and channels of the model that stand out.
    """

    program: Module
    costs: ProgramCosts
    parameters: ParameterSet | None
    summary: dict[str, Any]
    target: str
    sent: Sent | None
    nominal: bool = False
    outliers: tuple[Outlier, ...] = ()


def traced(model: str, options: BatchOptions, steps: Steps, weights: bool = True) -> Module:
    """The nn module of a model; without weights a config is enough, but only shapes are right."""
    with steps("loading the model"):
        loaded = load_model(model, weights=weights, trust_pickle=options.trust_pickle)
    with steps("tracing"):
        return trace_model(loaded, options.batch, options.sequence_length, outputs=options.outputs)


def bare_module(model: str, options: BatchOptions, steps: Steps = silent) -> Module:
    """The nn module of a model with shapes but no weights; a config is enough."""
    return traced(model, options, steps, weights=Path(model).is_file())


def inspect(path: str, options: InspectOptions | None = None, steps: Steps = silent) -> Inspection:
    """Costs of a bundle, an IR text of any level, a model, or a bare config.

    The options say how a model, or a module above the ckks level, is lowered.

    Raises:
        AtlasError: ``path`` is none of these, or cannot be lowered.
    """
    options = options or InspectOptions()
    find_recipe(options.recipe)
    check_target(options.filled())
    file = Path(path)
    if (file / MANIFEST).is_file():
        options.require_lowered(path)
        with steps("checking the bundle"):
            bundle = load_bundle(file, held_role(file))
            _ = bundle.program
        return inspect_bundle(bundle, steps, options.costs, options.target)
    if file.suffix != ".air":
        return inspect_module(bare_module(path, options, steps), options, steps)
    # All texts of a bundle's server share one file of arrays.
    shared = (file.with_name(name) for name in ("program.safetensors", "weights.safetensors"))
    found = next((one for one in shared if one.exists()), None)
    own = file.with_suffix(".safetensors").exists()
    with steps(f"reading {file.name}"):
        module = load_module(file, None if own else found)
    return inspect_module(module, options, steps)


def inspect_module(
    module: Module, options: InspectOptions | None = None, steps: Steps = silent
) -> Inspection:
    """Costs of a module of any level; see :func:`inspect`."""
    given = options or InspectOptions()
    options = given.filled()
    depth: Depth | None = None
    nominal = False
    parameters: Any
    if module.level == "ckks":
        given.require_lowered(f"@{module.name}")
        require_slots(module)
        program, parameters = module, parameters_of(module)
        if parameters is not None:
            known = module.attributes[TARGET], module.attributes[PARAMETERS]
            options = replace(options, target=given.target or known[0])
            parameters = parameters_on(*known, given.target).costed_by(options.costs)
    elif module.level == "nn":
        nominal = any("approximation" not in op.attributes for op in nonlinear_ops(module))
        if nominal:
            module = apply_recipe(module, options.recipe, nominal_calibration(module))
        depth = depth_of(module)
        if options.key_memory is None and options.device_memory is None:
            options = replace(options, key_memory=ALL_MEMORY)
        if options.generate:
            window, side = to_poly(module)[1], head_side(module, None)
            lowered = Decoder.of(module, window, None, side, None, options, steps).step()
        else:
            lowered = lower_module(module, None, options, steps)
        program, parameters = lowered.program, lowered.parameters
    else:
        limits = ("key_memory", "device_memory", "upload_at_most")
        if limit := next((one for one in limits if getattr(options, one) is not None), ""):
            raise AtlasError(
                f"{title(options, limit)} changes nothing of @{module.name}",
                why="the rotation keys of a poly module are not planned",
                remedy="leave it out, or inspect the model itself",
            )
        module = run_passes(module, [DecodeStep()]) if options.generate else module
        choose = LatencyTarget.of(find_target(options.target), options.costs).choose
        with steps("lowering", len(STEPS)) as step:
            _, program, parameters = lower_poly(module, choose, each_pass(step))
    with steps("counting"):
        costs = program_costs(program)
    summary = costs_summary(costs, parameters, depth)
    sent = sent_by(program, parameters, options.target, summary["seconds"])
    summary["sent"] = None if sent is None else sent.to_dict()
    return Inspection(program, costs, parameters, summary, options.target, sent, nominal)


def inspect_bundle(
    bundle: Bundle, steps: Steps = silent, table: Path | None = None, target: str = ""
) -> Inspection:
    """Costs of a compiled program by a cost table (None: the table in use).

    The depth is read from the manifest.

    Args:
        bundle: the program.
        steps: progress.
        table: a cost table; None for the one in use.
        target: the target that would run it; empty for the one that it was compiled for.

    Raises:
        AtlasError: that target has other parameters.
    """
    own = bundle.parameters  # which checks their security
    parameters = parameters_on(bundle.target, own.to_dict(), target).costed_by(table)
    with steps("counting"):
        costs = program_costs(bundle.program)
    known = bundle.manifest.costs
    summary = costs_summary(costs, parameters)
    summary |= {"depth": known.get("depth"), "depth_outside": known.get("depth_outside")}
    if public := bundle.manifest.settings.get("public_tokens"):
        summary["public_tokens"] = public
    by_layer = {row["layer"]: row.get("depth") for row in known["per_layer"]}
    for row in summary["per_layer"]:
        row["depth"] = by_layer.get(row["layer"])
    found = outliers_of(bundle.manifest.calibration)
    name = target or bundle.target
    sent = sent_by(bundle.program, parameters, name, summary["seconds"])
    summary["sent"] = None if sent is None else sent.to_dict()
    return Inspection(bundle.program, costs, parameters, summary, name, sent, outliers=found)


def lower_alone(
    source: str, output: Path, options: LowerOptions, steps: Steps, note: Note
) -> tuple[Lowered, dict[str, Any]]:
    """Write ``poly.air``, ``program.air`` and ``client.air``; return the modules and their costs.

    Args:
        source: path of an nn module (``.air``), or a model.
        output: a new folder.

    Raises:
        AtlasError: ops have no approximation, ranges are not known, or the module cannot be
            lowered.
    """
    require_new(output)
    check_target(options)
    if options.recipe is not None and options.settings is not None:
        raise AtlasError("--recipe and --settings exclude each other", remedy="give one of them")
    front = None if options.settings is None else Front.load(options.settings)
    module = _with_approximations(_nn_module(source, options, steps), options, front, note)
    inputs = None if options.data is None else _arrays(module, options.data)
    lowered = lower_module(module, inputs, options, steps)
    with new_folder(output) as draft:
        for name in ("poly", "program", "client"):
            save_module(getattr(lowered, name), draft / f"{name}.air")
    parameters = cast(ParameterSet, lowered.parameters)
    if inputs is None and parameters.bootstrap_level is not None:
        note(
            "the magnitudes of the values are not known",
            "  why: a bootstrap is right for values in [-1, 1] only\n"
            "  what to do: give inputs with --data before you run this program",
        )
    return lowered, costs_summary(program_costs(lowered.program), parameters, depth_of(module))


def _nn_module(source: str, options: LowerOptions, steps: Steps) -> Module:
    if Path(source).suffix != ".air":
        return traced(source, options, steps)
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
    module: Module, options: LowerOptions, front: Front | None, note: Note
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
            why="a polynomial is right on the range of its fit only, and explodes outside it",
            remedy="write ranges with atlasc calibrate -o FILE, and give --calibration FILE",
        )
    ranges = read_calibration(options.calibration)
    module = adjusted(module, ranges)
    if front is None:
        return apply_recipe(module, options.recipe or "", ranges)
    point = options.pick(front)
    if not point.agrees(front.measure):
        note(
            f"only {point.agreement:.2%} of the held-back inputs get the same answer as from the "
            "model under the setting that was picked",
            f"  why: no setting on the front within {options.wanted(front)} has more",
        )
    if point.unsafe:
        note(
            f"{point.unsafe} of {front.held_back} held-back inputs are unsafe under the setting "
            "that was picked",
            f"  why: no setting on the front within {options.wanted(front)} has fewer",
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
                why=f"the file has {have}",
            )
        if arrays[name].dtype.kind not in "biuf" or not np.isfinite(arrays[name]).all():
            raise AtlasError(f"{name} in {path} must hold finite numbers only")
        if not len(arrays[name]):
            raise AtlasError(f"{name} in {path} holds no input")
    return {op.attributes["name"]: arrays[op.attributes["name"]] for op in module.inputs}


def read_ir(file: str, standard_input: BinaryIO) -> tuple[Module, bool]:
    """The verified module of an IR text (``-`` for standard input), and whether its arrays
    exist.
    """
    path = Path(file)
    if file != "-":
        module, arrays = load_module(path), path.with_suffix(".safetensors").exists()
    else:
        content = standard_input.read(MAX_TEXT + 1)
        if len(content) > MAX_TEXT:
            why = f"a text has at most {MAX_TEXT} bytes"
            raise AtlasError("standard input is too large", why=why)
        with explained("standard input is not UTF-8 text"):
            text = content.decode("utf-8-sig")
        module, arrays = parse(text, {}, "standard input"), False
    verify(module)
    return module, arrays


def optimised(module: Module, steps: Sequence[Pass], target: Target, after: AfterEach) -> Module:
    """A module after some passes, which know the target's costs of ops and of keys."""
    for step in steps:
        equipped = step
        if isinstance(step, PlaceBootstraps):
            slots = module.attributes["slots"]
            found = target.parameters.matching(slots, step.levels, step.bootstrap)
            equipped = replace(step, costs=None if found is None else costs_of(found))
        elif isinstance(step, RotationKeys) and (known := parameters_of(module)) is not None:
            equipped = replace(step, model=key_model(known))
        module = run_passes(module, [equipped], after_each=after)
        if isinstance(step, PlaceBootstraps):
            module = with_matching_parameters(module, target)
    return module


def require_round_trip(step: Pass, module: Module) -> None:
    """Raise AtlasError unless the text of a pass's result reads back as the same module."""
    text = print_module(module)
    if print_module(parse(text, module.symbols, f"after {step.name}")) != text:
        raise AtlasError(
            f"after {step.name}: the text of the module does not read back as the same module",
            remedy="this is a bug in the pass; please report it with the module's text",
        )
