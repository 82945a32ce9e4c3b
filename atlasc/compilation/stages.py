"""The stages of ``atlasc compile``, each of which is also a command of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from atlasc import __version__
from atlasc.bundle.folder import Bundle, load_bundle, write_bundle
from atlasc.client.program import client_program
from atlasc.compilation.key_planning import plan_keys
from atlasc.compilation.noise_bound import with_noise
from atlasc.emit.project import write_project
from atlasc.figures.summary import costs_summary
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.configs import image_size, size
from atlasc.loading.data import load_inputs
from atlasc.loading.inputs import Inputs
from atlasc.loading.models import LoadedModel, load_model
from atlasc.passes.approximation.depth import depth_of
from atlasc.passes.calibration.calibrate import Calibration, calibrate
from atlasc.passes.costs.counts import program_costs
from atlasc.passes.frontend.trace import ShapeSpec, trace
from atlasc.passes.pipeline import AfterEach, Lowered, lower_nn
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import with_parameters
from atlasc.targets.security import estimate_of

MAGNITUDE_INPUTS = 64
"""Inputs on which the magnitudes of all intermediate values are measured."""
DEFAULT_LENGTH = 128
PROJECT = "project"
"""Folder of a bundle for the C++ project of a target that has no library for Python."""


@dataclass(frozen=True)
class Source:
    """A model and the data that it is compiled with.

    Attributes:
        model: the loaded model.
        inputs: what calibration and search may look at.
        held_back: what ranges are tried on.
        length: tokens of a text, None for images.
    """

    model: LoadedModel
    inputs: Inputs
    held_back: Inputs
    length: int | None


def load_source(
    model: str,
    data: Path,
    *,
    sequence_length: int | None = None,
    held_back: float = 0.2,
    seed: int = 0,
    trust_pickle: bool = False,
) -> Source:
    """Load a model and its data; a part of the data is held back.

    Raises:
        AtlasError: of the model or of the data.
    """
    loaded = load_model(model, trust_pickle=trust_pickle)
    everything = load_inputs(data, loaded, sequence_length).require_finite()
    used, kept = everything.split(held_back, seed)
    main = next(iter(everything.arrays.values()))
    length = main.shape[1] if "input_ids" in everything.arrays else None
    return Source(loaded, used, kept, length)


def input_specs(
    model: LoadedModel, batch: int = 1, sequence_length: int | None = None
) -> dict[str, ShapeSpec]:
    """Shapes of a model's inputs, where no data are at hand.

    Raises:
        AtlasError: neither the config nor the arguments tell the shapes.
    """
    specs: dict[str, ShapeSpec] = {}
    for name in model.input_names:
        known = model.exported_shape(name)
        if known is not None and None not in known:
            specs[name] = ShapeSpec((batch, *known[1:]), "f32" if name == "pixel_values" else "i64")  # type: ignore[arg-type]
        elif name == "pixel_values":
            channels = size(model.config, "num_channels") or 3
            height, width = image_size(model.config)
            if height is None or width is None:
                raise AtlasError("the model's config does not tell the image size")
            specs[name] = ShapeSpec((batch, channels, height, width), "f32")
        else:
            length = sequence_length or DEFAULT_LENGTH
            limit = size(model.config, "max_position_embeddings")
            if limit is not None and length > limit:
                raise AtlasError(
                    f"--sequence-length {length} is longer than the model allows",
                    why=f"it has {limit} positions",
                )
            specs[name] = ShapeSpec((batch, length), "i64")
    return specs


def trace_model(
    model: LoadedModel,
    batch: int = 1,
    sequence_length: int | None = None,
    output: str | None = None,
) -> Module:
    """The nn module of a model for a batch of inputs."""
    program: Any = model.exported if model.exported is not None else model.module
    name = re.sub(r"[\W_]+", "_", model.name[:64], flags=re.ASCII).strip("_") or "model"
    name = f"m{name}" if name[0].isdigit() else name
    specs = input_specs(model, batch, sequence_length)
    return trace(program, specs, name=name, output=output)


def calibrate_source(
    module: Module,
    source: Source,
    *,
    margin: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Calibration:
    """Ranges of all nonlinear ops on all inputs, tried on the held-back ones."""
    held = source.held_back
    return calibrate(
        module,
        source.inputs.arrays,
        held_back=held.arrays if len(held) else None,
        margin=margin,
        names=held.names,
        progress=progress,
    )


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
    after_each: AfterEach | None = None,
    *,
    fastest: bool = False,
    key_memory: str | None = None,
    device_memory: str | None = None,
    target: str = "desilo",
) -> Lowered:
    """Lower an nn module with approximations; the target's parameters are chosen on the way.

    ``sim`` has the parameter sets of ``desilo``, so that it shows what would be run.

    Args:
        module: nn module with approximations.
        inputs: raw calibration inputs, for the magnitudes that bootstraps need.
        after_each: see ``lower_nn``.
        fastest: place bootstraps for the least predicted time; else for the fewest bootstraps, and
            of such placements the fastest.
        key_memory, device_memory: see ``plan_keys``.
        target: whose parameter sets and costs.
    """
    measured = None
    if inputs is not None:
        measured = {name: array[:MAGNITUDE_INPUTS] for name, array in inputs.items()}
    found = find_target(target)
    whose = found.latency
    lowered = lower_nn(module, whose.choose, measured, after_each, whose.costs, not fastest)
    parameters = cast(ParameterSet, lowered.parameters)
    program = plan_keys(lowered.program, parameters, key_memory, device_memory)
    program = with_noise(program, parameters.noise_model())
    return replace(lowered, program=with_parameters(program, found, parameters))


def finish(
    source: Source,
    module: Module,
    calibration: Calibration,
    target: str,
    settings: Mapping[str, Any],
    after_each: AfterEach | None = None,
    *,
    fastest: bool = False,
    key_memory: str | None = None,
    device_memory: str | None = None,
) -> Compiled:
    """Lower the module that carries the chosen approximations, and collect the manifest's facts."""
    batch = module.inputs[0].attributes["shape"][0]
    lowered = lower_module(
        module,
        source.inputs.arrays,
        after_each,
        fastest=fastest,
        key_memory=key_memory,
        device_memory=device_memory,
        target=target,
    )
    compiled = Compiled(source, module, calibration, lowered)
    costs, parameters = program_costs(lowered.program), compiled.parameters
    compiled.facts = {
        "atlasc": __version__,
        "model": {"name": source.model.name, "kind": source.model.kind},
        "target": target,
        "parameters": parameters.to_dict(),
        "security_bits": parameters.security_bits,
        "security": estimate_of(parameters),
        "insecure": parameters.security_bits < 128,
        "batch": batch,
        "sequence_length": source.length,
        "settings": dict(settings),
        "data": {"inputs": len(source.inputs), "digest": source.inputs.digest()},
        "calibration": calibration.to_dict(),
        "costs": costs_summary(costs, parameters, depth_of(module)),
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
