"""The interface between client and server, in the library's form (``interface.hpp``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.types import CiphertextType
from atlasc.runtime.native import load_library, translated


def input_facts(module: Module) -> list[dict[str, Any]]:
    """The inputs that a client encrypts, of a lowered program or its client's part.

    See ``EncryptedInput`` in ``atlasc/interface.hpp``.
    """
    defaults = {"factor": 1.0, "centred": False}
    return [defaults | _carried(op, op.value) for op in module.inputs]


def public_facts(module: Module) -> list[dict[str, Any]]:
    """The inputs that the server sees in the clear; see ``PublicInput``."""
    public = (op for op in module.ops if op.name == "ckks.public_input")
    return [{name: op.attributes[name] for name in ("name", "shape")} for op in public]


def output_facts(module: Module) -> list[dict[str, Any]]:
    """The outputs that a client decrypts; see ``Output``."""
    return [
        {"noise": None} | _carried(op, op.operands[0]) | _maps(op, module) for op in module.outputs
    ]


def message_interface(module: Module, identity: str = "") -> Any:
    """``Interface`` of a program's inputs and outputs, by which messages are read and written.

    Args:
        module: the program, or its client's part.
        identity: identity of the program; empty if no message is read or written.
    """
    library = load_library()
    inputs = ("name", "shape", "layout", "level", "factor", "centred", "magnitude")
    outputs = ("name", "shape", "layout", "level", "factor", "shift", "magnitude", "noise")
    with translated():
        return library.Interface(
            identity=identity,
            inputs=[
                library.EncryptedInput(**{name: facts[name] for name in inputs})
                for facts in input_facts(module)
            ],
            publics=[library.PublicInput(**facts) for facts in public_facts(module)],
            outputs=[
                library.Output(
                    **{name: facts[name] for name in outputs}
                    | {name: np.ravel(facts[name]) for name in ("factor", "shift")}
                )
                for facts in output_facts(module)
            ],
        )


def _carried(op: Op, value: Value) -> dict[str, Any]:
    """An input or output with its ciphertexts, and with its greatest magnitude in the calibration
    (of the encrypted values, or of the answer) if that was measured.
    """
    kind = value.type
    if not isinstance(kind, CiphertextType) or kind.level is None:
        raise AtlasError(f"the level of {op.attributes['name']!r} is not known", where=op.location)
    packed = {"layout": str(kind.layout), "level": kind.level}
    return {"magnitude": None} | op.attributes | packed


def _maps(op: Op, program: Module) -> dict[str, Any]:
    """Factors and shifts of an output's elements: one number, or one for each of the last axes."""
    site, shape = op.site(program.symbols), op.attributes["shape"]
    found: dict[str, Any] = {"factor": [1.0], "shift": [0.0]}
    for name in found.keys() & op.attributes.keys():
        values = site.constant(name)
        while values.ndim and values.shape[0] == 1:
            values = values[0]
        if values.shape != tuple(shape[len(shape) - values.ndim :]):
            values = np.broadcast_to(values, shape[1:])
        found[name] = values
    return found
