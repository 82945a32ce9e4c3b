"""What client and server agree on, as initialisers of the runtime's ``Interface``."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Any

import numpy as np

from atlasc.emit import text
from atlasc.emit.blocks import OUTSIDE, PREPARING
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Site
from atlasc.ir.text.printer import print_module
from atlasc.ir.types import CiphertextType
from atlasc.passes.execution.rotation_plan import PLAN_ATTRIBUTES, RotationPlan
from atlasc.passes.lowering.rotation_keys import MEMORY, key_plan
from atlasc.targets.parameters import ParameterSet

TYPES = {np.dtype(np.float32): "F32", np.dtype(np.float64): "F64", np.dtype(np.int64): "I64"}
"""Types of arrays that the runtime reads, as safetensors names them."""
MAP_INDENT = 16
"""Columns before the map of an output, in the template."""


def identity_of(program: Module) -> str:
    """SHA-256 of the program's text and of its arrays, whatever its plan of rotations: keys of
    another plan are refused by what they lack.
    """
    planned = (*PLAN_ATTRIBUTES, MEMORY)
    facts = {name: fact for name, fact in program.attributes.items() if name not in planned}
    state = hashlib.sha256(print_module(replace(program, attributes=facts)).encode())
    for name, array in sorted(program.arrays_used().items()):
        state.update(f"{name} {array.dtype} {array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def interface_text(program: Module, parameters: ParameterSet) -> dict[str, Any]:
    """The facts of a lowered program: initialisers, see ``interface.hpp`` of the runtime.

    ``moduli`` and ``bootstrap_keys`` are empty where the parameters have none.

    Raises:
        AtlasError: its rotations were not planned; an input or output has no name that files can
            have, or that of another one.
    """
    plan = RotationPlan.of(program)
    if plan is None:
        raise AtlasError(
            f"the rotations of @{program.name} are not planned",
            remedy="run the pass rotation-keys on it, or compile the model",
        )
    _check_names(program)
    keys = key_plan(program)
    levels = [keys.relinearization_level, keys.conjugation_level]
    refreshed = parameters.bootstrap_level
    facts = [
        text.integer(parameters.slots),
        text.integer(parameters.max_level),
        "std::nullopt" if refreshed is None else text.integer(refreshed),
        text.integer(parameters.bootstrap_batch),
    ]
    moduli, bootstrap_keys = dict[str, str](), list[str]()
    if parameters.in_runtime:
        facts.append("moduli()")
        moduli = _moduli(parameters)
        if parameters.bootstrap:
            bootstrap_keys = [text.integers(pair) for pair in parameters.shared_rotations.items()]
            own = parameters.bootstrap_key_levels
            levels = [max(-1 if a is None else a, b) for a, b in zip(levels, own, strict=True)]
    return {
        "model": text.string(program.name),
        "identity": text.string(identity_of(program)),
        "parameters": "{" + ", ".join(facts) + "}",
        "moduli": moduli,
        "bootstrap_keys": bootstrap_keys,
        "rotations": [text.integers(pair) for pair in sorted(plan.keys.items())],
        "bootstrap": text.integers(sorted(plan.bootstrap)),
        "composed": [
            f"{{{text.integer(amount)}, {text.integers(parts)}}}"
            for amount, parts in sorted(plan.composed.items())
        ],
        "levels": ", ".join(text.integer(-1 if level is None else level) for level in levels),
        "inputs": [_input(op) for op in program.inputs],
        "publics": [_public(op) for op in program.ops if op.name == "ckks.public_input"],
        "outputs": [_output(op, program) for op in program.outputs],
        "weights": [array_text(name, array) for name, array in stored_arrays(program).items()],
        "ops": sum(op.name not in OUTSIDE for op in program.ops),
    }


def _check_names(program: Module) -> None:
    """Names become those of arrays in messages, beside ``NAME/NUMBER`` for a ciphertext."""
    public = [op for op in program.ops if op.name == "ckks.public_input"]
    for ops in ([*program.inputs, *public], program.outputs):
        names = [op.attributes["name"] for op in ops]
        for name in names:
            if not re.fullmatch(r"[A-Za-z0-9_.-]{1,200}", name) or names.count(name) > 1:
                raise AtlasError(
                    f"an input or output cannot be called {name!r}",
                    why="letters, digits and ._- are possible, and no name may occur twice",
                    remedy="rename it in the model",
                )


def _moduli(parameters: ParameterSet) -> dict[str, str]:
    return {
        "primes": text.lines(map(text.integer, parameters.prime_bits), 8),
        "special": text.integers(parameters.special_bits),
        "scale": text.integer(parameters.scale_bits),
        "bootstrap": text.string(str(parameters.bootstrap or "")),
    }


def _input(op: Op) -> list[str]:
    get = op.attributes.get
    return [
        text.string(op.attributes["name"]),
        text.integers(op.attributes["shape"]),
        _layout(op.value.type),
        _level(op, op.attributes["name"], op.value.type),
        text.number(get("factor", 1.0)),
        "true" if get("centred", False) else "false",
        _magnitude(op),
    ]


def _magnitude(op: Op) -> str:
    """The greatest magnitude of slots in the calibration, where it was measured."""
    while op.name in PREPARING and "magnitude" not in op.attributes:
        op = op.operands[0].op
    magnitude = op.attributes.get("magnitude")
    return "std::nullopt" if magnitude is None else text.number(magnitude)


def _level(op: Op, name: str, kind: Any) -> str:
    level = kind.level if isinstance(kind, CiphertextType) else None
    if level is None:
        raise AtlasError(f"the level of {name!r} is not known", where=op.location)
    return text.integer(level)


def _public(op: Op) -> str:
    name, shape = text.string(op.attributes["name"]), text.integers(op.attributes["shape"])
    return f"{{{name}, {shape}}}"


def _output(op: Op, program: Module) -> list[str]:
    site, shape = op.site(program.symbols), op.attributes["shape"]
    maps = [_map(site, name, default, shape) for name, default in (("factor", 1.0), ("shift", 0.0))]
    result = op.operands[0]
    return [
        text.string(op.attributes["name"]),
        text.integers(shape),
        _layout(result.type),
        *maps,
        _level(op, op.attributes["name"], result.type),
        _magnitude(result.op),
    ]


def _map(site: Site, name: str, default: float, shape: list[int]) -> str:
    """Numbers that repeat over the elements of an output: one, or one for each of the last axes."""
    if name not in site.attributes:
        return text.numbers([default])
    values = site.constant(name)
    while values.ndim and values.shape[0] == 1:
        values = values[0]
    if values.shape != tuple(shape[len(shape) - values.ndim :]):
        values = np.broadcast_to(values, shape[1:])
    return text.numbers(values, MAP_INDENT)


def _layout(kind: Any) -> str:
    return f"Layout({text.string(str(kind.layout))})"


# --- the server's arrays


def stored_arrays(program: Module) -> dict[str, np.ndarray]:
    """The arrays of a program by name, in one of ``TYPES``.

    Raises:
        AtlasError: a name has characters that no file may have.
    """
    arrays = {}
    for name, array in sorted(program.arrays_used().items()):
        if not name.isprintable():
            raise AtlasError(f"an array cannot be called {name!r}")
        kept = None if array.dtype in TYPES else np.float64
        arrays[name] = np.ascontiguousarray(array, kept).reshape(np.shape(array))
    return arrays


def array_text(name: str, array: np.ndarray) -> str:
    """An initialiser of the runtime's ``Array``: name, type, shape, SHA-256."""
    facts = [text.string(name), text.string(TYPES[array.dtype]), text.integers(array.shape)]
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    indent = " " * 12
    return f"{indent}{{{', '.join(facts)},\n{indent} {text.string(digest)}}}"
