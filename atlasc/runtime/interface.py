"""What client and server of a program agree on, as the runtime library knows it
(``atlasc/interface.hpp``). The library reads it from files and checks it; here it is made from a
program's module.
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.final_functions import FINAL_FUNCTIONS
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.types import CiphertextType
from atlasc.program.key_plan import Derivation, KeyPlan, key_plan
from atlasc.runtime.native import load_library, translated


class PublicInput(Protocol):
    """An input that the server sees.

    Attributes:
        name: of the input.
        shape: of the numbers.
    """

    name: str
    shape: list[int]


class Packed(PublicInput, Protocol):
    """A tensor in ciphertexts.

    Attributes:
        layout: places of the elements, in the text form of :class:`atlasc.ir.layout.Layout`.
        ciphertexts: their number.
        level: of the ciphertexts.
        magnitude: greatest magnitude of the encrypted values, or of the answer, in the calibration;
            None if it was not measured.
        state: whether the server keeps it from run to run, so that no message has it.
    """

    layout: str
    ciphertexts: int
    level: int
    magnitude: float | None
    state: bool


class EncryptedInput(Packed, Protocol):
    """An input that a client encrypts.

    Attributes:
        factor: the client multiplies by it.
        centred: whether the client subtracts the mean of the last axis first.
        prefix: array of the program with the state before the first run; empty if there is none.
    """

    factor: float
    centred: bool
    prefix: str


class Output(Packed, Protocol):
    """An output that a client decrypts.

    Attributes:
        factor, shift: the client multiplies by one and adds the other: one number, or one for each
            element of the last axes.
        noise: bound on the root mean square of the error that encryption adds; None if not known.
        function: that ends the model's output (:mod:`atlasc.ir.final_functions`); or empty.
    """

    factor: list[float]
    shift: list[float]
    noise: float | None
    function: str


class Interface(Protocol):
    """The interface of a program.

    Attributes:
        model: name of the program.
        identity: digest of the program and its weights; empty if no message is read or written.
        inputs, publics, outputs: of the program.
        rotations, relinearization_level, conjugation_level, derivation: see :func:`keys_of`.
        batch: number of inputs that one run answers.
        keeps_state: whether a server keeps ciphertexts from run to run.
    """

    model: str
    identity: str
    inputs: list[EncryptedInput]
    publics: list[PublicInput]
    outputs: list[Output]
    rotations: dict[int, int]
    relinearization_level: int | None
    conjugation_level: int | None
    derivation: tuple[int, int, dict[int, int]]
    batch: int
    keeps_state: bool

    def of_messages(self) -> Interface:
        """The same without the state that a server keeps."""


def keys_of(interface: Interface) -> KeyPlan:
    """The keys of a program."""
    levels = interface.relinearization_level, interface.conjugation_level
    derivation = Derivation(*interface.derivation)
    return KeyPlan(dict(interface.rotations), *levels, derivation=derivation)


def read_interface(path: Path, identity: str) -> Interface:
    """The interface in a client's file.

    Args:
        path: the file.
        identity: of the program, as the manifest says it.

    Raises:
        AtlasError: the file is damaged, has another format, or is of another program.
    """
    with translated():
        found: Interface = load_library().read_interface(str(path))
    return of_program(found, path, identity)


def of_program(interface: Interface, path: Path, identity: str) -> Interface:
    """The interface, if it is of the program that is wanted and ends in functions that clients
    know; raises as :func:`read_interface`.
    """
    damaged, remedy = f"file {path} is damaged", "compile the model again, or restore the file"
    if interface.identity != identity:
        raise AtlasError(f"file {path} is of another program", remedy=remedy)
    with explained(damaged, remedy=remedy):
        functions = {one.function for one in interface.outputs if one.function}
    if unknown := functions - FINAL_FUNCTIONS.keys():
        why = f"an output ends in {min(unknown)!r}, which is no function of a client"
        raise AtlasError(damaged, why=why, remedy=remedy)
    return interface


def interface_of(program: Module, keys: KeyPlan | None = None, identity: str = "") -> Interface:
    """The interface of a lowered program.

    Args:
        program: its module.
        keys: those that a client makes; by default those of the program, if they are planned.
        identity: of the program; empty if no message is read or written.

    Raises:
        AtlasError: the level of an input or output is not known.
    """
    library = load_library()
    if keys is None:
        keys = key_plan(program) if "rotations" in program.attributes else KeyPlan({})
    public = (op.attributes for op in program.ops if op.name == "ckks.public_input")
    relinearization, conjugation = keys.other_levels
    with translated():
        found: Interface = library.Interface(
            model=program.name,
            identity=identity,
            inputs=[library.EncryptedInput(**input_facts(op)) for op in program.inputs],
            publics=[library.PublicInput(name=of["name"], shape=of["shape"]) for of in public],
            outputs=[
                library.Output(**facts | maps_of(op, program))
                for op, facts in zip(program.outputs, output_facts(program), strict=True)
            ],
            rotations=keys.rotations,
            relinearization_level=relinearization,
            conjugation_level=conjugation,
            derivation=astuple(keys.derivation),
        )
    return found


def input_facts(op: Op) -> dict[str, Any]:
    """The attributes of :class:`EncryptedInput` by name."""
    known = op.attributes
    return _packed(op, op.value) | {
        "factor": known.get("factor", 1.0),
        "centred": known.get("centred", False),
        "state": known.get("state", False),
        "prefix": known["prefix"].name if "prefix" in known else "",
    }


def states_of(program: Module) -> set[str]:
    """Names of the ciphertexts that the server keeps from run to run: the step of a decoder reads
    and writes them, the prefill before it writes them for the step.
    """
    read = {op.attributes["name"] for op in program.inputs if op.attributes.get("state")}
    return read | {op.attributes["name"] for op in program.outputs if "level" in op.attributes}


def output_facts(program: Module) -> list[dict[str, Any]]:
    """The attributes of each :class:`Output` by name, without factor and shift."""
    states = states_of(program)
    return [
        _packed(op, op.operands[0])
        | {
            "noise": op.attributes.get("noise"),
            "state": op.attributes["name"] in states,
            "function": op.attributes.get("function", ""),
        }
        for op in program.outputs
    ]


def maps_of(op: Op, program: Module) -> dict[str, np.ndarray]:
    """Factors and shifts of an output: one number each, or one for each of the last axes."""
    site, shape = op.site(program.symbols), op.attributes["shape"]
    found = {"factor": np.ones(1), "shift": np.zeros(1)}
    for name in found.keys() & op.attributes.keys():
        values = site.constant(name)
        while values.ndim and values.shape[0] == 1:
            values = values[0]
        if values.shape != tuple(shape[len(shape) - values.ndim :]):
            values = np.broadcast_to(values, shape[1:])
        found[name] = np.ravel(values)
    return found


def _packed(op: Op, value: Value) -> dict[str, Any]:
    """The attributes of :class:`Packed` by name."""
    kind = value.type
    if not isinstance(kind, CiphertextType) or kind.level is None:
        raise AtlasError(f"the level of {op.attributes['name']!r} is not known", where=op.location)
    return {
        "name": op.attributes["name"],
        "shape": op.attributes["shape"],
        "layout": str(kind.layout),
        "level": kind.level,
        "magnitude": op.attributes.get("magnitude"),
    }
