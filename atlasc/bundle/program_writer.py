"""Makes the file of a compiled program (:mod:`atlasc.bundle.program_file`) from its module."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from atlasc.bundle.program_file import FORMAT, INTERFACE, PROGRAM, Call, StoredProgram
from atlasc.ir.arrays.tensor_files import TYPES, write_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import is_printable
from atlasc.ir.module import Module, Op, Value
from atlasc.program.costs import program_costs
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function
from atlasc.program.key_plan import KEYS, KeyPlan, key_plan
from atlasc.program.kinds import kind_of
from atlasc.program.record_arrays import RECORD, Recorded, record_arrays
from atlasc.program.rotation_plan import RotationPlan, rotation_reach
from atlasc.report.summary import memory_parts
from atlasc.runtime.interface import input_facts, interface_of, maps_of, output_facts
from atlasc.targets.costs import costs_of, measured_costs
from atlasc.targets.parameters import ParameterSet


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
    text, whole = _text_of(program, parameters, arrays)
    for name in arrays:
        if name == PROGRAM or name in RECORD or not is_printable(name):
            raise AtlasError(f"an array cannot be called {name!r}")
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
    path: Path, program: Module, identity: str, parameters: ParameterSet, keys: KeyPlan
) -> None:
    """Write the client's file: the interface without the state that the server keeps.

    Args:
        path: the file.
        program: its module.
        identity: its identity.
        parameters: the set that it was lowered for.
        keys: those that the client makes.
    """
    arrays: dict[str, np.ndarray] = {}
    facts = _interface_facts(program, parameters, keys)
    for number, (op, told) in enumerate(zip(program.outputs, facts["outputs"], strict=True)):
        for name, values in maps_of(op, program).items():
            told[name] = float(values[0])
            if values.size > 1:
                place = f"{INTERFACE}/{number}/{name}"
                arrays[place], told[name] = values, {"array": place}
    for part in ("inputs", "outputs"):
        facts[part] = [told for told in facts[part] if not told.get("state")]
    write_safetensors(path, *_content(INTERFACE, _text(facts), arrays, identity))


def _content(
    name: str, text: bytes, arrays: Mapping[str, np.ndarray], identity: str
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays and the facts of a file with a JSON text under a name."""
    told = {PROGRAM: identity, "sha256": hashlib.sha256(text).hexdigest()}
    return {**arrays, name: np.frombuffer(text, np.uint8)}, told


def stored_program(program: Module, parameters: ParameterSet, identity: str) -> StoredProgram:
    """The program as its file would have it, in memory."""
    functions = _functions(program, parameters)
    calls, values = _calls(program, parameters, functions)
    arrays = {**program.arrays_used(), **_record(functions, parameters)}
    return StoredProgram(
        interface_of(program, identity=identity),
        calls,
        {op.attributes["name"]: values[op.operands[0]] for op in program.outputs},
        measured_costs(parameters) is not None,
        Recorded(arrays, EngineParameters.of(parameters)),
        arrays,
    )


def _text_of(
    program: Module, parameters: ParameterSet, arrays: Mapping[str, np.ndarray]
) -> tuple[bytes, dict[str, np.ndarray]]:
    """The JSON text of a program, and all arrays of its file: its record and ``arrays``."""
    functions = _functions(program, parameters)
    calls, values = _calls(program, parameters, functions)
    whole = {**arrays, **_record(functions, parameters)}
    facts = _interface_facts(program, parameters, key_plan(program))
    for op, told in zip(program.outputs, facts["outputs"], strict=True):
        told["value"] = values[op.operands[0]]
    facts["calls"] = [_known(asdict(call)) for call in calls]
    facts["measured"] = int(measured_costs(parameters) is not None)
    facts["memory"] = memory_of(program, parameters)
    facts["arrays"] = [_array(name, array) for name, array in whole.items()]
    return _text(facts), whole


def _functions(program: Module, parameters: ParameterSet) -> dict[Op, Function]:
    """The named function of each op that computes.

    Raises:
        AtlasError: the program has no plan of rotations.
    """
    if RotationPlan.of(program) is None:
        raise AtlasError(
            f"the rotations of @{program.name} are not planned",
            remedy="run the pass rotation-keys on the program, or compile the model",
        )
    return Functions(program, EngineParameters.of(parameters)).named()


def _calls(
    program: Module, parameters: ParameterSet, functions: Mapping[Op, Function]
) -> tuple[tuple[Call, ...], dict[Value, int]]:
    """The calls, and the numbers of the values."""
    costs, table = program_costs(program), costs_of(parameters)
    numbers = {op.value: at for at, op in enumerate([*program.inputs, *functions])}
    calls = tuple(
        Call(
            name=op.name,
            kind=kind_of(op),
            location=op.location,
            layer=op.layer,
            seconds=costs.per_op[op].seconds(table),
            function=function.name,
            arrays=tuple(function.arrays(op)),
            operands=tuple(numbers[one] for one in op.operands if one.encrypted),
        )
        for op, function in functions.items()
    )
    return calls, numbers


def _record(functions: Mapping[Op, Function], parameters: ParameterSet) -> dict[str, np.ndarray]:
    """The arrays of the functions, and of those that bootstrap."""
    own = list(dict.fromkeys(functions.values()))
    return record_arrays([*own, *bootstraps_of(own, parameters)])


def _interface_facts(program: Module, parameters: ParameterSet, keys: KeyPlan) -> dict[str, Any]:
    """The members that the texts of both roles have."""
    # An engine of the runtime has a key of its own for what the bootstrap key rotates elsewhere.
    reach = rotation_reach(program, parameters.max_level)
    every = keys.union(KeyPlan(reach))
    public = (op.attributes for op in program.ops if op.name == "ckks.public_input")
    return {
        "format": FORMAT,
        "model": program.name,
        "parameters": _parameters(parameters),
        "keys": _keys(keys),
        "needs": _keys(keys_of_engine(every, parameters)),
        "inputs": [_told(input_facts(op)) for op in program.inputs],
        "publics": [{"name": of["name"], "shape": of["shape"]} for of in public],
        "outputs": [_told(facts) for facts in output_facts(program)],
        **({"engine": parameters.device} if parameters.in_runtime and parameters.device else {}),
    }


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


def _keys(plan: KeyPlan) -> dict[str, Any]:
    """A level that is missing means no key."""
    rotations = sorted(plan.rotations.items())
    facts = {"rotations": rotations} | {n: getattr(plan, n) for n in KEYS[1:]}
    if plan.derivation.roots:
        derivation = asdict(plan.derivation)
        facts["derivation"] = derivation | {"roots": sorted(plan.derivation.roots.items())}
    return _known(facts)


def _array(name: str, array: np.ndarray) -> dict[str, Any]:
    """An array of the file, as the library checks it."""
    digest = hashlib.sha256(cast(Any, np.ascontiguousarray(array))).hexdigest()
    kind = next(name for name, dtype in TYPES.items() if np.dtype(dtype) == array.dtype)
    return {"name": name, "type": kind, "shape": array.shape, "sha256": digest}


def _told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts that differ from what a reader takes where they are missing."""
    return {name: fact for name, fact in facts.items() if fact or type(fact) in (int, float)}


def _known(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fact for name, fact in facts.items() if fact is not None}


def _text(facts: Mapping[str, Any]) -> bytes:
    """The JSON text, one member a line and one call a line."""
    lines = (f"{json.dumps(name)}: {_value(value)}" for name, value in facts.items())
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


def _value(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, dict) for one in value):
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "]"
    return json.dumps(value)
