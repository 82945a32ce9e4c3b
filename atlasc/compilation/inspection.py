"""What a model, a bundle or an IR text costs, without running it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from atlasc.bundle.folder import MANIFEST, Bundle, load_bundle
from atlasc.compilation.checks import check_memory
from atlasc.compilation.lowering import lower_module
from atlasc.compilation.options import ALL_MEMORY, BatchOptions, InspectOptions
from atlasc.compilation.prepare import trace_model
from atlasc.compilation.steps import Steps, silent
from atlasc.figures.summary import costs_summary
from atlasc.ir.module import Module
from atlasc.ir.text.storage import load_module
from atlasc.loading.models import load_model
from atlasc.passes.approximation.approximate import apply_recipe
from atlasc.passes.approximation.depth import Depth, depth_of
from atlasc.passes.approximation.recipes import recipe as find_recipe
from atlasc.passes.calibration.calibrate import nominal_calibration
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.costs import ProgramCosts, program_costs
from atlasc.passes.pipeline import STEPS, lower_poly
from atlasc.passes.registry import require_slots
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import parameters_of


@dataclass(frozen=True)
class Inspection:
    """Costs of a program and where they come from.

    Attributes:
        program: the ckks module.
        costs: read off it.
        parameters: what it runs with, if there is such a set.
        summary: see ``costs_summary``.
        nominal: True where the ranges are no measured ones: only the costs mean something.
    """

    program: Module
    costs: ProgramCosts
    parameters: ParameterSet | None
    summary: dict[str, Any]
    nominal: bool = False


def bare_module(model: str, options: BatchOptions, steps: Steps = silent) -> Module:
    """The nn module of a model of which only the shapes matter; a config is enough."""
    with steps("loading the model"):
        loaded = load_model(model, weights=Path(model).is_file(), trust_pickle=options.trust_pickle)
    with steps("tracing"):
        return trace_model(loaded, options.batch, options.sequence_length)


def inspect(path: str, options: InspectOptions | None = None, steps: Steps = silent) -> Inspection:
    """Costs of a bundle, an IR text of any level, a model, or a bare config.

    Args:
        path: what to look at.
        options: how a model, or a module above the ckks level, is lowered.
        steps: shows progress.

    Raises:
        AtlasError: it is none of these, or cannot be lowered.
    """
    options = options or InspectOptions()
    find_recipe(options.recipe)
    find_target(options.target)
    check_memory(options.target, options.key_memory, options.device_memory)
    file = Path(path)
    if (file / MANIFEST).is_file():
        with steps("checking the bundle"):
            bundle = load_bundle(file)
            _ = bundle.program
        return inspect_bundle(bundle, steps, options.costs)
    if file.suffix == ".air":
        # The arrays of a bundle's server lie in one file for all its texts.
        shared, own = file.with_name("weights.safetensors"), file.with_suffix(".safetensors")
        with steps(f"reading {file.name}"):
            module = load_module(file, shared if shared.exists() and not own.exists() else None)
    else:
        module = bare_module(path, options, steps)
    return inspect_module(module, options, steps)


def inspect_module(
    module: Module, options: InspectOptions | None = None, steps: Steps = silent
) -> Inspection:
    """Costs of a module of any level; see :func:`inspect`."""
    options = options or InspectOptions()
    depth: Depth | None = None
    nominal = False
    parameters: ParameterSet | None
    if module.level == "ckks":
        require_slots(module)
        program, parameters = module, _costed(parameters_of(module), options)
    elif module.level == "nn":
        nominal = any("approximation" not in op.attributes for op in nonlinear_ops(module))
        if nominal:
            module = apply_recipe(module, options.recipe, nominal_calibration(module))
        depth = depth_of(module)
        if options.key_memory is None and options.device_memory is None:
            options = replace(options, key_memory=ALL_MEMORY)
        lowered = lower_module(module, None, options, steps)
        program, parameters = lowered.program, cast(ParameterSet, lowered.parameters)
    else:
        with steps("lowering", STEPS) as step:
            program, found = lower_poly(
                module,
                find_target(options.target).latency(options.costs).choose,
                lambda kind, result, report: step(note=kind.name),
            )
        parameters = cast(ParameterSet, found)
    with steps("counting"):
        costs = program_costs(program)
    return Inspection(program, costs, parameters, costs_summary(costs, parameters, depth), nominal)


def _costed(parameters: ParameterSet | None, options: InspectOptions) -> ParameterSet | None:
    return None if parameters is None else parameters.costed_by(options.costs)


def inspect_bundle(bundle: Bundle, steps: Steps = silent, table: Path | None = None) -> Inspection:
    """Costs of a compiled program; its depth is that of the manifest.

    Args:
        bundle: the program.
        steps: shows progress.
        table: a cost table; None for the table in use.
    """
    parameters = bundle.parameters.costed_by(table)
    with steps("counting"):
        costs = program_costs(bundle.program)
    known = bundle.manifest.costs
    summary = costs_summary(costs, parameters)
    summary |= {"depth": known.get("depth"), "depth_outside": known.get("depth_outside")}
    by_layer = {row["layer"]: row.get("depth") for row in known["per_layer"]}
    for row in summary["per_layer"]:
        row["depth"] = by_layer.get(row["layer"])
    return Inspection(bundle.program, costs, parameters, summary)
