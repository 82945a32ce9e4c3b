"""``server/program.safetensors``: a compiled program as every server reads it.

The compiler writes it once (:mod:`atlasc.bundle.program_writer`). It has the functions of the
program in primitives (``record/...``), the arrays of the program and, under ``program``, a JSON
text: the interface, the keys that are needed, and the calls, each of one function. A server plays
the calls and parses no IR. IR lies beside the file for people and passes, and names arrays of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, JsonValue

from atlasc.ir.arrays.tensor_files import TensorFile
from atlasc.ir.bounds import MAX_PATH
from atlasc.ir.errors import AtlasError, blaming, explained
from atlasc.ir.files import MIB, Amount, Count, Schema, Sha256, parse_json
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.ir.opdef import Symbol, symbols_in
from atlasc.program.engine import Engine
from atlasc.program.function import EngineParameters
from atlasc.program.key_plan import KeyPlan
from atlasc.program.record_arrays import RECORD, Recorded

PROGRAM = "program"
"""Name of the array with the JSON text, and of the fact with the identity of the program."""
INTERFACE = "interface"
"""Name of the array with the JSON text of a client's file."""
FORMAT = 1
MAX_TEXT, MAX_VALUES = 64 * MIB, 2**18
"""Bytes of the JSON text, and its values; libatlasc reads no more of them either."""
_DAMAGED = "compile the model again, or restore the file"

Ct = TypeVar("Ct")
Name = Annotated[str, Field(max_length=1000)]
Facts = dict[str, JsonValue]
Rotations = tuple[tuple[Count, Count], ...]
"""Amount, and the highest level at which it is used."""


class CallFacts(Schema):
    """A call as it is stored: see :class:`Call`."""

    op: Name
    kind: Name
    location: Annotated[str, Field(max_length=MAX_PATH)] = ""
    layer: Count | None = None
    function: Name
    arrays: tuple[Name, ...] = ()
    operands: tuple[Count, ...]
    seconds: Amount


class KeyFacts(Schema):
    """Keys, each with the highest level of its use; a level that is missing means no key."""

    rotations: Rotations
    relinearization_level: Count | None = None
    conjugation_level: Count | None = None


class OutputFacts(Schema):
    """An output.

    Attributes:
        result, output: attributes of the ops ``ckks.result`` and ``ckks.output``.
        value: number of its value, in a server's file.
        factor, shift: what a client multiplies by and adds, in a client's file: a number, or
            ``{"array": NAME}`` of one for each feature.
    """

    result: Facts
    output: Facts
    value: Count | None = None
    factor: JsonValue = None
    shift: JsonValue = None


class ArrayFacts(Schema):
    """An array of the file, as the C++ runtime checks it."""

    name: Name
    type: Name
    shape: tuple[Count, ...]
    sha256: Sha256


class InterfaceFacts(Schema):
    """What client and server agree on: the JSON text of a client's file.

    Attributes:
        format: of the text.
        model: name of the program.
        parameters: what an engine is made of; see ``Parameters`` in ``atlasc/interface.hpp``.
        attributes: facts of the program that a server reads, as attributes of a module.
        keys: keys of the program's own plan.
        needs: these, and those that the parameter set needs for bootstraps.
        inputs, publics: attributes of the ops ``ckks.input`` and ``ckks.public_input``.
        outputs: results.
    """

    format: Count
    model: Name
    parameters: Facts
    attributes: Facts
    keys: KeyFacts
    needs: KeyFacts
    inputs: tuple[Facts, ...]
    publics: tuple[Facts, ...]
    outputs: tuple[OutputFacts, ...]


class ProgramFacts(InterfaceFacts):
    """The JSON text of a server's file. The inputs are the first values.

    Attributes:
        calls: in their order; each makes the next value.
        measured: whether the seconds of calls are those of a cost table; else relative costs.
        memory: predicted bytes of an execution without keys; 0 if they are not known.
        arrays: all other arrays of the file.
    """

    calls: tuple[CallFacts, ...]
    measured: Count
    memory: Count
    arrays: tuple[ArrayFacts, ...]


@dataclass(frozen=True, eq=False)
class Call:
    """The call of one function.

    Attributes:
        name: name of the op in the IR.
        kind: kind of the op, as reports group it.
        location: path of the model's module.
        layer: number of the Transformer block, if there is one.
        seconds: predicted seconds, by the cost table in use when the program was compiled.
        function: name of the function.
        arrays: an array of the program, or a public input, for each of the function's roles.
        operands: numbers of values.
    """

    name: str
    kind: str
    location: str
    layer: int | None
    seconds: float
    function: str = ""
    arrays: tuple[str, ...] = ()
    operands: tuple[int, ...] = ()


_SHARED = CallFacts.model_fields.keys() - {"op"}


@dataclass(frozen=True, eq=False)
class StoredProgram:
    """A compiled program as its server plays it.

    Attributes:
        interface: ckks module with the program's inputs and outputs alone, state included.
        calls: the calls in their order.
        outputs: output name -> number of its value.
        measured: whether seconds of calls are those of a cost table.
        recorded: the functions.
        arrays: the program's arrays by name.
    """

    interface: Module
    calls: tuple[Call, ...]
    outputs: Mapping[str, int]
    measured: bool
    recorded: Recorded
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def read(cls, path: Path, identity: str) -> StoredProgram:
        """The program in a file.

        Args:
            path: the file.
            identity: identity of the program, as the manifest says it.

        Raises:
            AtlasError: the file is damaged, of another format, or of another program; or a call
                names a function, an array or a value that is not there. libatlasc
                (``program_file.cpp``) refuses the same files in the same words.
        """
        file = _opened(path)
        damaged = f"file {path} is damaged"
        if PROGRAM not in file.entries:
            raise AtlasError(
                f"file {path} has no {PROGRAM}",
                why="it is another file, or of another version of atlasc",
                remedy="compile the model with this version of atlasc, and give the bundle",
            )
        text = file.array(PROGRAM).tobytes()
        if len(text) > MAX_TEXT:
            raise AtlasError(damaged, why="its text is too large", remedy=_DAMAGED)
        if file.metadata.get("sha256") != hashlib.sha256(text).hexdigest():
            why = "its text is not the one that was written"
            raise AtlasError(damaged, why=why, remedy=_DAMAGED)
        with explained(damaged, remedy=_DAMAGED):
            version = parse_json(text, Facts, MAX_VALUES).get("format", 0)
        if version != FORMAT:
            raise AtlasError(
                f"file {path} has format {version}",
                why=f"this version of atlasc reads format {FORMAT} of a program's file",
                remedy="compile the model with this version of atlasc, or use the version that "
                "compiled it",
            )
        with explained(damaged, remedy=_DAMAGED):
            facts = parse_json(text, ProgramFacts, MAX_VALUES)
        if file.metadata.get(PROGRAM) != identity:
            raise AtlasError(f"file {path} is of another program", remedy=_DAMAGED)
        arrays = {name: file.array(name) for name in file.entries}
        try:
            with explained("its text cannot be read"):
                return cls.of(facts, arrays)
        except AtlasError as error:
            why = ": ".join(filter(None, (error.what, error.why)))
            raise AtlasError(damaged, where=error.where, why=why, remedy=_DAMAGED) from None

    @classmethod
    def of(cls, facts: ProgramFacts, arrays: Mapping[str, np.ndarray]) -> StoredProgram:
        """The program of a JSON text and the arrays that belong to it; raises as :meth:`read`."""
        if missing := [name for name in RECORD if name not in arrays]:
            raise AtlasError(f"it has no array {missing[0]!r}")
        interface = _interface(facts, arrays)
        recorded = Recorded(arrays, _shape(facts.parameters))
        calls = tuple(
            Call(name=one.op, **{name: getattr(one, name) for name in _SHARED})
            for one in facts.calls
        )
        names = [op.attributes["name"] for op in interface.outputs]
        rows = zip(names, facts.outputs, strict=True)
        outputs = {name: one.value for name, one in rows if one.value is not None}
        found = cls(interface, calls, outputs, bool(facts.measured), recorded, arrays)
        found._check()
        return found

    def _check(self) -> None:
        """Refuse calls and outputs of something that is not there."""
        known, count, publics = self.recorded.names, len(self.interface.inputs), self._publics()
        given = {*self.arrays, *publics}
        names = [op.attributes["name"] for op in self.interface.inputs] + publics
        if len(set(names)) < len(names):
            raise AtlasError("two inputs have the same name")
        outputs = [op.attributes["name"] for op in self.interface.outputs]
        if len(set(outputs)) < len(outputs):
            raise AtlasError("two outputs have the same name")
        if len(self.outputs) < len(outputs):
            raise AtlasError("an output has no value")
        if both := self.arrays.keys() & publics:
            raise AtlasError(f"{min(both)!r} is an array and a public input")
        for number, call in enumerate(self.calls):
            faults = [f"the function {call.function!r}"] if call.function not in known else []
            faults += [f"the array {name!r}" for name in call.arrays if name not in given]
            faults += [f"the value {at}" for at in call.operands if at >= count + number]
            if faults:
                raise AtlasError(f"call {number} is of {faults[0]}, which is not there")
        for name, at in self.outputs.items():
            if at >= count + len(self.calls):
                raise AtlasError(f"the output {name!r} is of the value {at}, which is not there")

    def _publics(self) -> list[str]:
        found = (op for op in self.interface.ops if op.name == "ckks.public_input")
        return [op.attributes["name"] for op in found]

    def play(
        self,
        engine: Engine[Ct],
        encrypted: Mapping[str, list[Ct]],
        public: Mapping[str, np.ndarray],
        before: Callable[[Call], None] | None = None,
    ) -> dict[str, list[Ct]]:
        """Execute the calls on an engine, and free each value after its last use.

        Args:
            engine: its shape is that of the program's parameters.
            encrypted: input name -> ciphertexts, state included.
            public: name of a public input -> array.
            before: called before each call (progress, timing).

        Returns:
            Output name -> ciphertexts.

        Raises:
            AtlasError: an input is missing; the engine refused a call, which the error names.
        """
        names = [op.attributes["name"] for op in self.interface.inputs]
        for name in [*names, *self._publics()]:
            if name not in encrypted and name not in public:
                raise AtlasError(f"input {name!r} is missing")
        last = {at: number for number, call in enumerate(self.calls) for at in call.operands}
        kept = set(self.outputs.values())
        values: dict[int, list[Ct]] = dict(enumerate(encrypted[name] for name in names))
        for number, call in enumerate(self.calls):
            if before is not None:
                before(call)
            given = [public[n] if n in public else self.arrays[n] for n in call.arrays]
            operands = [values[at] for at in call.operands]
            # On sim an input outside the ranges overflows; decryption then reports it.
            quiet = np.errstate(over="ignore", invalid="ignore")
            with quiet, blaming(f"{call.name} %{number}", call.location):
                made = engine.play_recorded(self.recorded, call.function, operands, given)
            values[len(names) + number] = made
            for at in call.operands:
                if last[at] == number and at not in kept:
                    values.pop(at, None)
        return {name: values[at] for name, at in self.outputs.items()}


def _interface(facts: ProgramFacts, arrays: Mapping[str, np.ndarray]) -> Module:
    """The module of the inputs and outputs."""
    attributes = dict(facts.attributes) | key_attributes(facts.keys)
    module = Module(facts.model, "ckks", attributes=attributes)

    def read(row: Facts) -> dict[str, Any]:
        found = {name: _attribute(value) for name, value in row.items()}
        for symbol in symbols_in(found):
            if symbol.name not in arrays:
                raise AtlasError(f"the array {symbol.name!r} is not there")
            module.symbols[symbol.name] = arrays[symbol.name]
        return found

    for row in facts.inputs:
        module.add("ckks.input", [], read(row))
    for row in facts.publics:
        module.add("ckks.public_input", [], read(row))
    for one in facts.outputs:
        module.add(
            "ckks.output", [module.add("ckks.result", [], read(one.result))], read(one.output)
        )
    return module


def stored_attribute(value: Any) -> JsonValue:
    """An attribute of an op in JSON."""
    match value:
        case Symbol():
            return {"symbol": value.name}
        case Layout():
            return {"layout": str(value)}
        case list():
            return [stored_attribute(one) for one in value]
    return value  # a number, a text or a truth value


def _attribute(value: JsonValue) -> Any:
    match value:
        case {"symbol": str(name), **others} if not others:
            return Symbol(name)
        case {"layout": str(text), **others} if not others:
            return Layout.parse(text)
        case dict():
            raise AtlasError("an attribute of an input or output is none")
        case list():
            return [_attribute(one) for one in value]
    return value


def key_attributes(keys: KeyFacts) -> dict[str, Any]:
    """The attributes that :func:`atlasc.program.key_plan.key_plan` reads."""
    return KeyPlan(
        dict(keys.rotations), keys.relinearization_level, keys.conjugation_level
    ).attributes()


def _shape(parameters: Facts) -> EngineParameters:
    """Shape of the engines that play a program."""
    numbers = {name: parameters.get(name) for name in EngineParameters._fields}
    known = {name: value for name, value in numbers.items() if isinstance(value, int)}
    if not {"slots", "max_level"} <= known.keys():
        raise AtlasError("its parameters lack slots or levels")
    return EngineParameters(**known)


def _opened(path: Path) -> TensorFile:
    """The open file, refused in the words of libatlasc where safetensors cannot read it."""
    try:
        return TensorFile(path)
    except AtlasError as error:
        if error.__cause__ is None:  # it is not there, or not a plain file
            raise
        raise AtlasError(
            f"file {path} is damaged",
            why="it is no safetensors file, or it is truncated",
            remedy=error.remedy,
        ) from None
