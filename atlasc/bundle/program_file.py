"""``server/program.safetensors``: a compiled program as every server reads it.

The compiler writes it once (:mod:`atlasc.bundle.program_writer`). It has the functions of the
program in primitives (``record/...``), the arrays of the program and, under ``program``, a JSON
text: the interface, the keys that are needed, and the calls, each of one function. A server plays
the calls and parses no IR. IR lies beside the file for people and passes, and names arrays of it.

The runtime library reads the text and checks it (``program_file.cpp``), for these roles as for
servers and clients in C++.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from atlasc.ir.arrays.tensor_files import TensorFile
from atlasc.ir.errors import AtlasError, blaming, explained
from atlasc.program.engine import Engine
from atlasc.program.function import EngineParameters
from atlasc.program.record_arrays import Recorded
from atlasc.runtime.interface import Interface, of_program
from atlasc.runtime.native import load_library, translated

PROGRAM = "program"
"""Name of the array with the JSON text, and of the fact with the identity of the program."""
INTERFACE = "interface"
"""Name of the array with the JSON text of a client's file."""
FORMAT = 2
"""Of the text; the library reads this one alone."""

Ct = TypeVar("Ct")


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
        operands: numbers of values. The inputs are the first ones; each call makes the next.
    """

    name: str
    kind: str
    location: str
    layer: int | None
    seconds: float
    function: str = ""
    arrays: tuple[str, ...] = ()
    operands: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class StoredProgram:
    """A compiled program as its server plays it.

    Attributes:
        interface: of the program, state included.
        calls: the calls in their order.
        outputs: output name -> number of its value.
        measured: whether seconds of calls are those of a cost table.
        recorded: the functions.
        arrays: the program's arrays by name.
    """

    interface: Interface
    calls: tuple[Call, ...]
    outputs: Mapping[str, int]
    measured: bool
    recorded: Recorded
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def read(cls, path: Path, identity: str, shape: EngineParameters) -> StoredProgram:
        """The program in a file.

        Args:
            path: the file.
            identity: identity of the program, as the manifest says it.
            shape: of the engines that play it.

        Raises:
            AtlasError: the file is damaged, of another format, or of another program; or a call
                names a function, an array or a value that is not there.
        """
        remedy = "compile the model again, or restore the file"
        with explained(f"file {path} is damaged", remedy=remedy), translated():
            stored = load_library().StoredProgram(str(path))
            interface = of_program(stored.interface, path, identity)
            calls = tuple(
                Call(**{name: getattr(one, name) for name in Call.__dataclass_fields__})
                for one in stored.calls
            )
            names = [output.name for output in interface.outputs]
        file = TensorFile(path)
        arrays = {name: file.array(name) for name in file.entries}
        outputs = dict(zip(names, stored.outputs, strict=True))
        return cls(interface, calls, outputs, stored.measured, Recorded(arrays, shape), arrays)

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
        names = [one.name for one in self.interface.inputs]
        for name in [*names, *(one.name for one in self.interface.publics)]:
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
