"""From a module with approximations to a packed program for a target, and to a bundle on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from atlasc.bundle.folder import Bundle, load_bundle, write_bundle
from atlasc.client.program import client_program
from atlasc.compilation.key_planning import plan_keys
from atlasc.compilation.noise_bound import with_noise
from atlasc.compilation.options import TargetOptions
from atlasc.compilation.prepare import Source
from atlasc.compilation.steps import Steps, silent
from atlasc.emit.project import write_project
from atlasc.figures.summary import costs_summary
from atlasc.files import new_folder
from atlasc.ir.module import Module
from atlasc.passes.approximation.depth import depth_of
from atlasc.passes.calibration.calibrate import Calibration
from atlasc.passes.costs import program_costs
from atlasc.passes.pipeline import STEPS, Lowered, lower_nn
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import with_parameters
from atlasc.targets.security import estimates_of
from atlasc.version import __version__

MAGNITUDE_INPUTS = 64
"""Inputs on which the magnitudes of all intermediate values are measured."""
PROJECT = "project"
"""Folder of a bundle for the C++ project of a target that has no library for Python."""


@dataclass
class Compiled:
    """What ``compile`` made, before it is written.

    Attributes:
        source: model and data.
        module: nn module with the chosen approximations.
        calibration: measured ranges.
        lowered: the lowered program.
        facts: for the manifest.
    """

    source: Source
    module: Module
    calibration: Calibration
    lowered: Lowered
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> ParameterSet:
        """The parameter set that the program runs with."""
        return cast(ParameterSet, self.lowered.parameters)


def lower_module(
    module: Module,
    inputs: Mapping[str, np.ndarray] | None,
    options: TargetOptions | None = None,
    steps: Steps = silent,
    *,
    fastest: bool = False,
) -> Lowered:
    """Lower an nn module with approximations; the target's parameters are chosen on the way.

    ``sim`` has the parameter sets of ``desilo``, so that it shows what would be run.

    Args:
        module: nn module with approximations.
        inputs: raw calibration inputs, for the magnitudes that bootstraps need.
        options: target, and memory for keys.
        steps: shows progress.
        fastest: place bootstraps for the least predicted time; else for the fewest bootstraps, and
            of such placements the fastest.
    """
    options = options or TargetOptions()
    measured = None
    if inputs is not None:
        measured = {name: array[:MAGNITUDE_INPUTS] for name, array in inputs.items()}
    target = find_target(options.target)
    whose = target.latency(options.costs)
    with steps("lowering", STEPS) as step:
        lowered = lower_nn(
            module,
            whose.choose,
            measured,
            lambda kind, result, report: step(note=kind.name),
            whose.costs,
            not fastest,
        )
        parameters = cast(ParameterSet, lowered.parameters)
        program = plan_keys(lowered.program, parameters, options.key_memory, options.device_memory)
        program = with_noise(program, parameters.noise_model())
        return replace(lowered, program=with_parameters(program, target, parameters))


def compile_module(
    source: Source,
    module: Module,
    calibration: Calibration,
    settings: Mapping[str, Any],
    options: TargetOptions | None = None,
    steps: Steps = silent,
    *,
    fastest: bool = False,
) -> Compiled:
    """Lower the module that carries the chosen approximations, and collect the manifest's facts."""
    options = options or TargetOptions()
    lowered = lower_module(module, source.inputs.arrays, options, steps, fastest=fastest)
    compiled = Compiled(source, module, calibration, lowered)
    parameters = compiled.parameters
    compiled.facts = {
        "atlasc": __version__,
        "model": {"name": source.model.name, "kind": source.model.kind},
        "target": options.target,
        "parameters": parameters.to_dict(),
        "security_bits": parameters.security_bits,
        "security": estimates_of(parameters.secrets),
        "insecure": parameters.security_bits < 128,
        "batch": module.inputs[0].attributes["shape"][0],
        "sequence_length": source.length,
        "settings": dict(settings),
        "data": {"inputs": len(source.inputs), "digest": source.inputs.digest()},
        "calibration": calibration.to_dict(),
        "costs": costs_summary(program_costs(lowered.program), parameters, depth_of(module)),
    }
    return compiled


def save(compiled: Compiled, output: Path, extra: Mapping[str, str] | None = None) -> Bundle:
    """Write a bundle; it appears whole or not at all. For ``phantom`` it has a C++ project in it.

    Args:
        compiled: what to write.
        output: a folder that does not exist.
        extra: further files by name (``front.json``, ``report.html``).
    """
    lowered = compiled.lowered
    with new_folder(output) as draft:
        for name, text in (extra or {}).items():
            (draft / name).write_text(text, encoding="utf-8")
        client = client_program(lowered.client, lowered.program)
        directory = compiled.source.model.directory
        write_bundle(draft, client, lowered.program, lowered.poly, directory, compiled.facts)
        target = find_target(compiled.facts["target"])
        if target.writes_project:
            # It is to be built there, and may be changed: no digest in the manifest.
            engine = target.runtime_engine
            write_project(draft / PROJECT, lowered.program, compiled.parameters, engine)
    return load_bundle(output)
