"""From a module with approximations to a packed program for a target, with its rotation keys.

A program gets as many rotation keys as the user allows, or as fit the machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from atlasc.calibration.measure import blas_threads
from atlasc.compilation.noise_bound import with_noise
from atlasc.compilation.options import TargetOptions
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyTarget
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.lowering.keys.choose_rotations import KeyModel, choose_rotations
from atlasc.passes.lowering.keys.derive_rotations import with_derived
from atlasc.passes.lowering.keys.sizes import KeysDoNotFit, size_text
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.passes.pipeline import PACKINGS, STEPS, AfterEach, Lowered, lower_nn
from atlasc.program.costs import program_costs
from atlasc.program.function import EngineParameters
from atlasc.program.kernels.context import layout_of
from atlasc.program.key_plan import DERIVATION, key_plan
from atlasc.program.rotation_plan import PLAN_ATTRIBUTES, RotationPlan
from atlasc.program.transform_work import MOST_SUMS
from atlasc.progress import Step, Steps, silent
from atlasc.report.summary import memory_parts
from atlasc.runtime.interface import interface_of
from atlasc.targets import find_target
from atlasc.targets.costs import costs_of
from atlasc.targets.machine import machine_bytes
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import with_parameters

MAGNITUDE_INPUTS = 64
"""Inputs on which the magnitudes of all intermediate values are measured, with up to as many
extreme inputs besides. On MiniLM, of all 320 inputs the 67 extreme ones had the largest magnitudes.
"""
SHARE = 0.95
"""Share of a machine's memory that a program may fill; the system keeps the rest."""
ROUNDS = 4
"""How often the key budget is corrected for the memory that composed rotations take."""


def lower_module(
    module: Module,
    inputs: Mapping[str, np.ndarray] | None,
    options: TargetOptions | None = None,
    steps: Steps = silent,
) -> Lowered:
    """Lower an nn module with approximations, and choose the target's parameters on the way.

    ``sim`` uses the parameter sets of ``cpu``, to show how the program would run.

    Args:
        module: nn module with approximations.
        inputs: raw calibration inputs, to measure the magnitudes for bootstraps. Typical inputs
            first: only the first few are used to measure how errors grow.
        options: options of the target; None for the defaults.
        steps: progress.
    """
    options = options or TargetOptions()
    if options.upload_at_most is None:
        return _lowered(module, inputs, options, steps)
    found: list[Lowered] = []
    refused: list[AtlasError] = []
    for fewer_keys in range(find_target(options.target).parameters.key_steps):
        try:
            found.append(_lowered(module, inputs, options, steps, fewer_keys))
        except AtlasError as error:
            refused.append(error)
        else:
            if not cast(ParameterSet, found[-1].parameters).bootstrap:
                break
    if not found:
        raise refused[-1]
    return min(found, key=_seconds)


def _lowered(
    module: Module,
    inputs: Mapping[str, np.ndarray] | None,
    options: TargetOptions,
    steps: Steps,
    fewer_keys: int = 0,
) -> Lowered:
    """See `lower_module`. ``fewer_keys``: a step of `ParameterSet.with_fewer_keys`."""
    latency = LatencyTarget.of(find_target(options.target), options.costs, fewer_keys)
    with steps("lowering", len(STEPS)) as step, blas_threads(1):

        def lower(packings: Sequence[bool]) -> Lowered:
            return lower_nn(
                module, latency.choose, inputs, each_pass(step), latency.costs, packings
            )

        lowered = planned_in_memory(lower, options)
    with steps("bounding the errors of encryption"):
        parameters = cast(ParameterSet, lowered.parameters)
        shape = EngineParameters.of(parameters)
        program = with_noise(lowered.program, parameters.noise_model(), shape)
    return replace(lowered, program=program)


def _seconds(lowered: Lowered) -> float:
    """Predicted seconds, or what stands for them without a cost table."""
    return _seconds_of(lowered.program, cast(ParameterSet, lowered.parameters))


def _seconds_of(program: Module, parameters: ParameterSet) -> float:
    return program_costs(program).total.seconds(costs_of(parameters))


def planned_in_memory(
    lower: Callable[[Sequence[bool]], Lowered], options: TargetOptions
) -> Lowered:
    """The program with its plan of keys, and a note of its target and parameters."""

    def planned(lowered: Lowered) -> Lowered:
        parameters = cast(ParameterSet, lowered.parameters)
        budget = options.key_memory, options.device_memory
        program = plan_keys(lowered.program, parameters, *budget)
        if options.upload_at_most is not None:
            program = _sendable(program, parameters, options.target, options.upload_at_most)
        return replace(lowered, program=program)

    lowered, target = _in_memory(lower, planned), find_target(options.target)
    parameters = cast(ParameterSet, lowered.parameters)
    return replace(lowered, program=with_parameters(lowered.program, target, parameters))


def _in_memory(
    lower: Callable[[Sequence[bool]], Lowered], planned: Callable[[Lowered], Lowered]
) -> Lowered:
    """The program in the faster packing. With features in the low bits every step of a transform
    needs a key of its own; where these do not fit, and the other packing does, features lie in the
    top bits.
    """
    lowered = lower(PACKINGS)
    inputs = [op.value for op in lowered.program.inputs if op.value.encrypted]
    if not any(layout_of(value).features_low for value in inputs):
        return planned(lowered)
    try:
        found = planned(lowered)
    except AtlasError as error:  # the keys do not fit
        try:
            return planned(lower(PACKINGS[:1]))
        except KeysDoNotFit as last:
            if isinstance(error, KeysDoNotFit) and error.least < last.least:
                raise error from None
            raise
    if _excess(found) <= 0:
        return found
    other = planned(lower(PACKINGS[:1]))
    return other if _excess(other) <= 0 else found


def _excess(lowered: Lowered) -> int:
    """Bytes that a program needs beyond those of this machine; none for a device's program."""
    parameters, room = cast(ParameterSet, lowered.parameters), machine_bytes()
    if parameters.device or room is None:
        return 0
    return sum(memory_of(lowered.program, parameters).values()) - int(SHARE * room)


def each_pass(step: Step) -> AfterEach:
    """Progress through the passes.

    A pass that is left out counts as done, because their number is not known beforehand.
    """
    return lambda kind, *_: step.report(kind.name, STEPS.index(kind.name) + 1, len(STEPS))


def key_model(parameters: ParameterSet) -> KeyModel:
    """Sizes and costs of the rotation keys of a parameter set."""
    sizes = tuple(parameters.key_bytes(level) for level in range(parameters.max_level + 1))
    costs, needs = costs_of(parameters), parameters.needs
    return KeyModel(sizes, costs, needs.rotations, frozenset(needs.shared))


def plan_keys(
    program: Module,
    parameters: ParameterSet,
    key_memory: float | None = None,
    device_memory: int | None = None,
) -> Module:
    """Plan the rotations of a program.

    Args:
        program: ckks module with levels.
        parameters: its parameter set.
        key_memory: bytes for rotation keys; infinity for all keys. None takes all keys if the
            program then fits this machine, otherwise as many as fit. If no number of keys makes it
            fit, it gets all keys, because it is meant for another machine; so does a program for a
            device.
        device_memory: bytes of the device, for keys and everything else; None for no limit.

    Raises:
        AtlasError: the memory is too small.
    """
    if parameters.device and device_memory is not None:
        return _within(program, parameters, device_memory)
    if key_memory is not None or parameters.device:
        unlimited = key_memory is None or math.isinf(key_memory)
        return _planned(program, parameters, None if unlimited else int(key_memory or 0))
    full, room = _planned(program, parameters, None), machine_bytes()
    parts = memory_of(full, parameters)
    over = 0 if room is None else sum(parts.values()) - int(SHARE * room)
    if over <= 0 or over > parts["rotation_keys"]:
        return full
    try:
        return _planned(program, parameters, parts["rotation_keys"] - over)
    except AtlasError:
        return full


def _planned(
    program: Module, parameters: ParameterSet, limit: int | None, model: KeyModel | None = None
) -> Module:
    """The program with its rotations planned; the bootstrap's keys are used where possible.

    ``model``: sizes and costs of keys, by default those of the set.
    """
    planned = run_passes(program, [RotationKeys(limit, model or key_model(parameters))])
    plan = RotationPlan.of(planned)
    if not parameters.needs.shared or plan is None or not plan.bootstrap:
        return planned
    shared = dict.fromkeys(plan.bootstrap, parameters.max_level)
    plan = replace(plan, keys={**plan.keys, **shared}, bootstrap=frozenset())
    return replace(planned, attributes=_without_plan(planned) | plan.attributes())


def _without_plan(program: Module) -> dict[str, Any]:
    plan = {*PLAN_ATTRIBUTES, *DERIVATION}
    return {k: v for k, v in program.attributes.items() if k not in plan}


def memory_of(program: Module, parameters: ParameterSet) -> dict[str, int]:
    """Purpose -> bytes of peak memory of a program."""
    costs = program_costs(program)
    return memory_parts(costs.total, parameters, costs)


def _within(program: Module, parameters: ParameterSet, room: int) -> Module:
    """The program with as many sums of a transform at once, and then with as many rotation keys, as
    leave room for everything else. To make baby steps anew takes less than composed rotations.

    Raises:
        AtlasError: even the smallest plan of keys does not fit; the error names the least memory.
    """
    most_sums = program.attributes.get("most_sums", MOST_SUMS)
    while True:
        planned = _planned(program, parameters, None)
        parts = memory_of(planned, parameters)
        if sum(parts.values()) <= room or most_sums <= MOST_SUMS:
            break
        most_sums //= 2
        program = replace(program, attributes=program.attributes | {"most_sums": most_sums})
    planned = _with_fewer_keys(
        planned, parameters, lambda one: sum(memory_of(one, parameters).values()) - room
    )
    least = memory_of(planned, parameters)
    needed = sum(least.values())
    if needed <= room:
        return planned
    listed = ", ".join(
        f"{name.replace('_', ' ')} {size_text(size)}" for name, size in least.items() if size
    )
    raise AtlasError(
        f"the program does not fit a device of {size_text(room)}",
        why=f"with the fewest rotation keys it needs {size_text(needed)}: {listed}",
        remedy=f"use a device memory of {-(-needed // 2**20)}M or more, or a shorter sequence",
    )


def _sendable(program: Module, parameters: ParameterSet, target: str, limit: int) -> Module:
    """The planned program. If a client would send more bytes of keys, its server derives some. If
    that is not enough, it has fewer rotation keys: only these cost seconds of a query.

    Raises:
        AtlasError: even the smallest plan of keys has more bytes, or the target cannot tell them.
    """

    def sent(planned: Module) -> int:
        interface = interface_of(planned)
        found = find_target(target).sent_bytes(parameters, key_plan(planned), interface)
        if found is None:
            raise AtlasError(
                f"the target {target} cannot tell the bytes of keys",
                remedy="leave upload-at-most of --target out, or use --target cpu",
            )
        return found.keys

    if sent(program) <= limit:
        return program
    forms = [program]
    if not program.attributes.get("fewer_keys"):
        attributes = program.attributes | {"fewer_keys": True}
        forms.append(replace(program, attributes=attributes))

    def excess(planned: Module) -> int:
        # A client sends half of what a key takes in memory: the other half follows from a seed.
        return 2 * (sent(derived_keys(planned, parameters)) - limit)

    derived = derived_keys(program, parameters)
    model = _priced(derived, parameters, 2 * (sent(program) - sent(derived)))
    fewer = (_with_fewer_keys(form, parameters, excess, model) for form in forms)
    plans = [derived_keys(planned, parameters) for planned in fewer]
    sizes = [sent(one) for one in plans]
    least = min(sizes)
    if least <= limit:
        small = (plan for plan, size in zip(plans, sizes, strict=True) if size <= limit)
        return min(small, key=lambda plan: _seconds_of(plan, parameters))
    raise KeysDoNotFit(
        f"the evaluation keys do not fit into an upload of {limit / 1e6:.0f} MB",
        why=f"with the fewest rotation keys a client sends {least / 1e6:.0f} MB",
        remedy=f"use at least {math.ceil(least / 1e6)}M as upload-at-most of --target",
        least=least,
    )


def _priced(derived: Module, parameters: ParameterSet, saved: int) -> KeyModel:
    """Sizes of keys as their server's derivation leaves them on average: those that it reaches are
    sent in part, and roots beside them.

    Args:
        derived: a program with all keys, some of which its server derives.
        parameters: its parameter set.
        saved: bytes in memory of those keys, less the bytes of their roots.
    """
    model, plan = key_model(parameters), key_plan(derived)
    above = plan.derivation.level + 1
    low = sum(model.key_bytes[at] for at in plan.rotations.values() if at < above)
    in_part = [size - size * saved // low for size in model.key_bytes[:above]]
    return replace(model, key_bytes=(*in_part, *model.key_bytes[above:]))


def derived_keys(planned: Module, parameters: ParameterSet) -> Module:
    """The planned program whose server derives rotation keys, if a client then sends less."""
    sizes, needs = key_model(parameters).key_bytes, parameters.needs
    plan = with_derived(
        key_plan(planned), parameters.roots, sizes, parameters.slots, needs.shared.keys()
    )
    return replace(planned, attributes=planned.attributes | plan.attributes())


def _with_fewer_keys(
    planned: Module,
    parameters: ParameterSet,
    excess: Callable[[Module], int],
    model: KeyModel | None = None,
) -> Module:
    """A planned program with as many rotation keys as leave no excess; otherwise with the fewest.

    Args:
        planned: the program.
        parameters: its parameter set.
        excess: bytes of keys in memory that a planned program has too many; 0 or less for none.
        model: sizes and costs of keys, by default those of the set.
    """
    program, model = planned, model or key_model(parameters)
    for _ in range(ROUNDS):
        over = excess(planned)
        if over <= 0:
            return planned
        budget = model.size(key_plan(planned).rotations) - over
        try:
            planned = _planned(program, parameters, max(budget, 0), model)
        except AtlasError:
            break
    return _smallest(program, parameters, model)


def _smallest(program: Module, parameters: ParameterSet, model: KeyModel | None = None) -> Module:
    """The program with the smallest plan of keys."""
    total = program_costs(replace(program, attributes=_without_plan(program))).total
    uses, required = total.rotation_groups, total.transform_levels
    model = model or key_model(parameters)
    plan = choose_rotations(uses, model, parameters.slots, 0, required)
    return _planned(program, parameters, model.size(plan.keys), model)
