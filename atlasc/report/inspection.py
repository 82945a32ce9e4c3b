"""What a model, a bundle or an IR text costs, without running it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from atlasc.bundle.folder import MANIFEST, load_bundle
from atlasc.compilation import stages
from atlasc.compilation.key_planning import ALL
from atlasc.compilation.steps import Steps, silent
from atlasc.figures.summary import costs_summary
from atlasc.ir.module import Module
from atlasc.ir.text.storage import load_module
from atlasc.passes.approximation.assign import apply_recipe
from atlasc.passes.approximation.depth import Depth, depth_of
from atlasc.passes.calibration.calibrate import nominal_calibration
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.costs.counts import ProgramCosts, program_costs
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


def bare_module(
    model: str,
    *,
    sequence_length: int | None = None,
    batch: int = 1,
    trust_pickle: bool = False,
    steps: Steps = silent,
) -> Module:
    """The nn module of a model of which only the shapes matter; a config is enough."""
    from atlasc.loading.models import load_model

    is_file = Path(model).is_file()
    with steps("loading the model"):
        loaded = load_model(model, weights=is_file, trust_pickle=trust_pickle)
    with steps("tracing"):
        return stages.trace_model(loaded, batch, sequence_length)


def inspect(
    path: str,
    *,
    recipe: str = "is",
    sequence_length: int | None = None,
    batch: int = 1,
    steps: Steps = silent,
    target: str = "desilo",
    device_memory: str | None = None,
) -> Inspection:
    """Costs of a bundle, an IR text of any level, a model, or a bare config.

    Args:
        path: what to look at.
        recipe: approximations of an nn module whose ops carry none.
        sequence_length: tokens of a text model; 128 where it is None.
        batch: inputs of one run, for a model.
        steps: shows progress.
        target: what a module above the ckks level is lowered for.
        device_memory: see ``plan_keys``.

    Raises:
        AtlasError: it is none of these, or cannot be lowered.
    """
    file = Path(path)
    if (file / MANIFEST).is_file():
        return _bundle(file, steps)
    if file.suffix == ".air":
        with steps(f"reading {file.name}"):
            module = load_module(file, _arrays_beside(file))
    else:
        module = bare_module(path, sequence_length=sequence_length, batch=batch, steps=steps)
    return inspect_module(module, recipe, steps, target=target, device_memory=device_memory)


def _arrays_beside(file: Path) -> Path | None:
    """The arrays of an IR text; those of a bundle's server lie in one file for all its texts."""
    shared = file.with_name("weights.safetensors")
    own = file.with_suffix(".safetensors").exists()
    return shared if shared.exists() and not own else None


def inspect_module(
    module: Module,
    recipe: str = "is",
    steps: Steps = silent,
    *,
    target: str = "desilo",
    device_memory: str | None = None,
) -> Inspection:
    """Costs of a module of any level; see :func:`inspect`."""
    depth: Depth | None = None
    nominal = False
    parameters: ParameterSet | None
    if module.level == "ckks":
        require_slots(module)
        program, parameters = module, parameters_of(module)
    else:
        with steps("lowering", STEPS) as step:

            def after(kind: Any, result: Module, report: Any) -> None:
                step(note=kind.name)

            if module.level == "nn":
                if any("approximation" not in op.attributes for op in nonlinear_ops(module)):
                    module = apply_recipe(module, recipe, nominal_calibration(module))
                    nominal = True
                depth = depth_of(module)
                lowered = stages.lower_module(
                    module,
                    None,
                    after,
                    key_memory=ALL if device_memory is None else None,
                    device_memory=device_memory,
                    target=target,
                )
                program, found = lowered.program, lowered.parameters
            else:
                program, found = lower_poly(module, find_target(target).choose_parameters, after)
        parameters = cast(ParameterSet, found)
    with steps("counting"):
        costs = program_costs(program)
    summary = costs_summary(costs, parameters, depth)
    return Inspection(program, costs, parameters, summary, nominal)


def _bundle(folder: Path, steps: Steps) -> Inspection:
    with steps("checking the bundle"):
        bundle = load_bundle(folder)
        program = bundle.program
    parameters = bundle.parameters
    with steps("counting"):
        costs = program_costs(program)
    known = bundle.manifest.costs
    # The nn module, whose depth it is, is no part of a bundle.
    summary = costs_summary(costs, parameters)
    summary |= {"depth": known.get("depth"), "depth_outside": known.get("depth_outside")}
    by_layer = {row["layer"]: row.get("depth") for row in known["per_layer"]}
    for row in summary["per_layer"]:
        row["depth"] = by_layer.get(row["layer"])
    return Inspection(program, costs, parameters, summary)
