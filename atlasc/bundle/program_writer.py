"""Makes the file of a compiled program (:mod:`atlasc.bundle.program_file`) from its module."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from pydantic import JsonValue

from atlasc.bundle.program_file import (
    FORMAT,
    INTERFACE,
    PROGRAM,
    ArrayFacts,
    CallFacts,
    InterfaceFacts,
    KeyFacts,
    OutputFacts,
    ProgramFacts,
    StoredProgram,
    stored_attribute,
)
from atlasc.client.program import stand_in
from atlasc.ir.arrays.tensor_files import TYPES, write_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import is_printable
from atlasc.ir.module import Module, Op
from atlasc.program.costs import program_costs
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.program.kinds import kind_of
from atlasc.program.record_arrays import record_arrays
from atlasc.program.rotation_plan import RotationPlan, rotation_reach
from atlasc.report.summary import memory_parts
from atlasc.runtime.interface import output_facts
from atlasc.targets.costs import costs_of, measured_costs
from atlasc.targets.parameters import ParameterSet

_ATTRIBUTES = ("slots",)
"""Attributes of the program that its server reads, beside the plan of its keys."""


def write_program(
    path: Path,
    program: Module,
    identity: str,
    parameters: ParameterSet,
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write the file of a program; see :func:`program_content`."""
    write_safetensors(path, *program_content(program, identity, parameters, arrays))


def program_content(
    program: Module,
    identity: str,
    parameters: ParameterSet,
    arrays: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the facts of the file of a program.

    Args:
        program: ckks module with levels and a plan of rotations.
        identity: its identity, for which all its arrays are read.
        parameters: the set that it was lowered for.
        arrays: arrays of the program, and others that the file is to hold.

    Raises:
        AtlasError: the name of an array, an input or an output is not allowed, or used twice.
    """
    public = [op for op in program.ops if op.name == "ckks.public_input"]
    for ops in ([*program.inputs, *public], program.outputs):
        _require_names([op.attributes["name"] for op in ops])
    facts, recorded = facts_of(program, parameters)
    whole = {**arrays, **recorded}
    for name in arrays:
        if name == PROGRAM or name in recorded or not is_printable(name):
            raise AtlasError(f"an array cannot be called {name!r}")
    names = {np.dtype(dtype): name for name, dtype in TYPES.items()}
    listed = tuple(
        ArrayFacts(
            name=name,
            type=names[array.dtype],
            shape=array.shape,
            sha256=hashlib.sha256(cast(Any, np.ascontiguousarray(array))).hexdigest(),
        )
        for name, array in whole.items()
    )
    text = _text(facts.model_copy(update={"arrays": listed}))
    return _content(PROGRAM, text, whole, identity)


def _require_names(names: Sequence[str]) -> None:
    """Messages have arrays of these names, and NAME/NUMBER for each ciphertext."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name) or names.count(name) > 1:
            raise AtlasError(
                f"an input or output cannot be called {name!r}",
                why="only letters, digits and ._- are allowed, and no name may occur twice",
                remedy="rename it in the model",
            )


def write_interface(
    path: Path,
    interface: Module,
    identity: str,
    parameters: ParameterSet,
    arrays: Mapping[str, np.ndarray],
) -> None:
    """Write the client's file: the interface, as the C++ client reads it.

    Args:
        path: the file.
        interface: module of the program's inputs and outputs.
        identity: identity of the program.
        parameters: the set that it was lowered for.
        arrays: others that the file is to hold.
    """
    whole, outputs = dict(arrays), []
    facts = output_facts(interface)
    for number, (op, told) in enumerate(zip(interface.outputs, facts, strict=True)):
        found: dict[str, JsonValue] = {}
        for name in ("factor", "shift"):
            values = np.ravel(np.asarray(told[name], np.float64))
            found[name] = float(values[0])
            if values.size > 1:
                place = f"{INTERFACE}/{number}/{name}"
                whole[place], found[name] = values, {"array": place}
        outputs.append(_output(op).model_copy(update=found))
    text = _text(_interface_facts(interface, parameters, outputs))
    write_safetensors(path, *_content(INTERFACE, text, whole, identity))


def _content(
    name: str, text: bytes, arrays: Mapping[str, np.ndarray], identity: str
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the facts of a file with a JSON text under a name."""
    told = {PROGRAM: identity, "sha256": hashlib.sha256(text).hexdigest()}
    return {**arrays, name: np.frombuffer(text, np.uint8)}, told


def stored_program(program: Module, parameters: ParameterSet) -> StoredProgram:
    """The program as its file would have it, in memory."""
    facts, recorded = facts_of(program, parameters)
    return StoredProgram.of(facts, {**program.arrays_used(), **recorded})


def facts_of(
    program: Module, parameters: ParameterSet
) -> tuple[ProgramFacts, dict[str, np.ndarray]]:
    """What the file tells of a program, without its arrays; and the arrays of its record.

    Raises:
        AtlasError: the program has no plan of rotations.
    """
    if RotationPlan.of(program) is None:
        raise AtlasError(
            f"the rotations of @{program.name} are not planned",
            remedy="run the pass rotation-keys on the program, or compile the model",
        )
    shape = EngineParameters.of(parameters)
    calls = Functions(program, shape).named()
    functions = list(dict.fromkeys(calls.values()))
    costs, table = program_costs(program), costs_of(parameters)
    numbers = {op.value: at for at, op in enumerate([*program.inputs, *calls])}
    outputs = [
        _output(op).model_copy(update={"value": numbers[op.operands[0]]}) for op in program.outputs
    ]
    facts = ProgramFacts(
        **vars(_interface_facts(program, parameters, outputs)),
        calls=tuple(
            CallFacts(
                op=op.name,
                kind=kind_of(op),
                location=op.location,
                layer=op.layer,
                function=function.name,
                arrays=tuple(function.arrays(op)),
                operands=tuple(numbers[one] for one in op.operands if one.encrypted),
                seconds=costs.per_op[op].seconds(table),
            )
            for op, function in calls.items()
        ),
        measured=int(measured_costs(parameters) is not None),
        memory=memory_of(program, parameters),
        arrays=(),
    )
    return facts, record_arrays([*functions, *bootstraps_of(functions, parameters)])


def _interface_facts(
    program: Module, parameters: ParameterSet, outputs: Sequence[OutputFacts]
) -> InterfaceFacts:
    plan = key_plan(program)
    # An engine of the runtime has a key of its own for what the bootstrap key rotates elsewhere.
    every = replace(plan, rotations=rotation_reach(program, parameters.max_level))
    return InterfaceFacts(
        format=FORMAT,
        model=program.name,
        parameters=_parameters(parameters),
        attributes={name: program.attributes[name] for name in _ATTRIBUTES},
        keys=_keys(plan),
        needs=_keys(keys_of_engine(every, parameters)),
        inputs=tuple(map(_attributes, program.inputs)),
        publics=tuple(_attributes(op) for op in program.ops if op.name == "ckks.public_input"),
        outputs=tuple(outputs),
    )


def memory_of(program: Module, parameters: ParameterSet) -> int:
    """Bytes of an execution, without its keys and without the plaintexts that an engine keeps if
    there is room; 0 where the engine is not the runtime's.
    """
    if not parameters.in_runtime:
        return 0
    costs = program_costs(program)
    parts = memory_parts(costs.total, parameters, costs)
    return sum(size for name, size in parts.items() if not name.endswith(("keys", "diagonals")))


def keys_of_engine(plan: KeyPlan, parameters: ParameterSet) -> KeyPlan:
    """All keys of an engine of the runtime: those of a plan, and of bootstraps."""
    return parameters.needs.with_plan(plan) if parameters.in_runtime else plan


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


def _attributes(op: Op) -> dict[str, JsonValue]:
    return {name: stored_attribute(value) for name, value in op.attributes.items()}


def _output(op: Op) -> OutputFacts:
    result = {name: stored_attribute(part) for name, part in stand_in(op).items()}
    return OutputFacts(result=result, output=_attributes(op))


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _text(facts: InterfaceFacts) -> bytes:
    """The JSON text, one member a line and one call a line, without what is not known."""
    members = facts.model_dump(mode="json", exclude_none=True).items()
    lines = (f"{json.dumps(name)}: {_value(value)}" for name, value in members)
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _value(value: JsonValue) -> str:
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "]"
    return json.dumps(value)
