"""Makes the file of a compiled program (:mod:`atlasc.bundle.program_file`) from its module."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import JsonValue

from atlasc.bundle.program_file import (
    FORMAT,
    PROGRAM,
    ArrayFacts,
    CallFacts,
    KeyFacts,
    OutputFacts,
    ProgramFacts,
    StoredProgram,
    stored_attribute,
)
from atlasc.client.program import stand_in
from atlasc.ir.arrays.tensor_files import TYPES, write_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.program.costs import program_costs
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.program.kinds import kind_of
from atlasc.program.record_arrays import record_arrays
from atlasc.program.rotation_plan import rotation_reach
from atlasc.targets.costs import costs_of, measured_costs
from atlasc.targets.parameters import BootstrapNeeds, ParameterSet
from atlasc.targets.program import identity_of

_ATTRIBUTES = ("slots",)
"""Attributes of the program that its server reads, beside the plan of its keys."""
_LEVELS = ("relinearization_level", "conjugation_level")


def write_program(
    path: Path, program: Module, parameters: ParameterSet, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the file of a program.

    Args:
        path: the file.
        program: ckks module with levels and a plan of rotations.
        parameters: the set that it was lowered for.
        arrays: arrays of the program, and others that the file is to hold.
    """
    facts, recorded = facts_of(program, parameters)
    whole = {**arrays, **recorded}
    if PROGRAM in arrays or recorded.keys() & arrays.keys():
        raise AtlasError(f"an array cannot be called {PROGRAM!r}, and no name begins with record/")
    names = {np.dtype(dtype): name for name, dtype in TYPES.items()}
    listed = tuple(
        ArrayFacts(
            name=name,
            type=names[array.dtype],
            shape=array.shape,
            sha256=hashlib.sha256(np.ascontiguousarray(array)).hexdigest(),
        )
        for name, array in whole.items()
    )
    text = _text(facts.model_copy(update={"arrays": listed}))
    told = {PROGRAM: identity_of(program), "sha256": hashlib.sha256(text).hexdigest()}
    write_safetensors(path, {**whole, PROGRAM: np.frombuffer(text, np.uint8)}, told)


def stored_program(program: Module, parameters: ParameterSet) -> StoredProgram:
    """The program as its file would have it, in memory."""
    facts, recorded = facts_of(program, parameters)
    return StoredProgram.of(facts, {**program.arrays_used(), **recorded})


def facts_of(
    program: Module, parameters: ParameterSet
) -> tuple[ProgramFacts, dict[str, np.ndarray]]:
    """What the file tells of a program, without its arrays; and the arrays of its record."""
    shape = EngineParameters.of(parameters)
    calls = Functions(program, shape).named()
    functions = list(dict.fromkeys(calls.values()))
    costs = program_costs(program)
    inputs = program.inputs
    numbers = {op.value: at for at, op in enumerate([*inputs, *calls])}
    facts = ProgramFacts(
        format=FORMAT,
        model=program.name,
        parameters=_parameters(parameters),
        attributes={name: program.attributes[name] for name in _ATTRIBUTES},
        keys=_keys(key_plan(program)),
        needs=_needs(program, parameters),
        inputs=tuple(map(_attributes, inputs)),
        publics=tuple(_attributes(op) for op in program.ops if op.name == "ckks.public_input"),
        outputs=tuple(_output(op, numbers) for op in program.outputs),
        calls=tuple(
            CallFacts(
                op=op.name,
                kind=kind_of(op),
                location=op.location,
                layer=op.layer,
                function=function.name,
                arrays=tuple(function.arrays(op)),
                operands=tuple(numbers[one] for one in op.operands if one.encrypted),
                seconds=costs.per_op[op].seconds(costs_of(parameters)),
            )
            for op, function in calls.items()
        ),
        measured=int(measured_costs(parameters) is not None),
        memory=0,
        arrays=(),
    )
    return facts, record_arrays([*functions, *bootstraps_of(functions, parameters)])


def bootstraps_of(functions: Sequence[Function], parameters: ParameterSet) -> list[Function]:
    """The functions of the bootstraps that some functions call, where the engine is the
    runtime's.
    """
    if not parameters.in_runtime:
        return []
    periods = {period for function in functions for period in function.periods}
    return [one for period in sorted(periods) for one in parameters.circuit(period)]


def _parameters(parameters: ParameterSet) -> dict[str, Any]:
    """See ``Parameters`` in ``atlasc/interface.hpp``."""
    facts: dict[str, Any] = _known(EngineParameters.of(parameters)._asdict())
    if parameters.in_runtime:
        moduli = parameters.moduli
        facts["moduli"] = {
            "primes": list(moduli.primes), "special": list(moduli.special), "scale": moduli.scale,
            "log_scales": list(parameters.log_scales),
        }  # fmt: skip
    return facts


def _keys(plan: KeyPlan) -> KeyFacts:
    return KeyFacts(
        rotations=tuple(sorted(plan.rotations.items())),
        relinearization_level=plan.relinearization_level,
        conjugation_level=plan.conjugation_level,
    )


def _needs(program: Module, parameters: ParameterSet) -> KeyFacts:
    """All keys of an engine of the runtime: those of the plan, and of bootstraps."""
    needs = parameters.needs if parameters.in_runtime else BootstrapNeeds()
    plan = key_plan(program)
    levels = plan.relinearization_level, plan.conjugation_level
    reach = needs.with_own(rotation_reach(program, parameters.max_level))
    own = KeyPlan(reach, *levels)
    return _keys(own.union(KeyPlan({}, *needs.key_levels)) if needs.key_levels else own)


def _attributes(op: Op) -> dict[str, JsonValue]:
    return {name: stored_attribute(value) for name, value in op.attributes.items()}


def _output(op: Op, numbers: Mapping[Value, int]) -> OutputFacts:
    value = op.operands[0]
    result = stand_in(op)
    return OutputFacts(
        value=numbers[value],
        result={name: stored_attribute(part) for name, part in result.items()},
        output=_attributes(op),
    )


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _text(facts: ProgramFacts) -> bytes:
    """The JSON text, without members that are not known, one call a line."""
    whole = facts.model_dump(mode="json", exclude_none=True)
    calls = ",\n  ".join(map(json.dumps, whole.pop("calls")))
    return f'{json.dumps(whole)[:-1]}, "calls": [\n  {calls}\n]}}\n'.encode()
