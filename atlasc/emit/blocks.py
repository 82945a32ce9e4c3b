"""Splits a program into functions: one for each Transformer block, in the order of execution."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.emit.calls import FLAGS, KERNELS
from atlasc.emit.text import identifier
from atlasc.ir.module import Module, Op, Value

OUTSIDE = ("ckks.input", "ckks.public_input", "ckks.output")
"""Ops at the border of a program, which are in no block."""
PREPARING = ("ckks.drop", "ckks.bootstrap")
"""Ops that bring a value to where its user wants it."""
_NAMES = {name for name, _ in KERNELS.values()} | {*FLAGS, "plain", "execute", "interface"}
_TAKEN = _NAMES | {"Context", "Layout", "Packed", "Values", "context", "inputs", "results"}
_VARIABLE = re.compile(r"v(\d+|_\w*)|layout_\d+")
"""Names of the generated code and of what it calls."""


@dataclass(frozen=True)
class Block:
    """Ops that become one function.

    Attributes:
        name: of the function, made of the path of the model's module.
        place: that path, or words where the ops have no common module.
        ops: in order.
        inputs: values from before that the ops use.
        outputs: values that later ops use.
    """

    name: str
    place: str
    ops: tuple[Op, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def blocks_of(module: Module) -> list[Block]:
    """The blocks of a ckks module: what comes before the layers, the layers, and what follows."""
    ops = [op for op in module.ops if op.name not in OUTSIDE]
    parts: dict[int, list[Op]] = {}
    for op, layer in zip(ops, _layers(module, ops), strict=True):
        parts.setdefault(layer, []).append(op)
    users, taken = module.users(), set[str]()
    blocks = []
    for layer, part in parts.items():
        place = _place(part, layer)
        name = identifier(place)
        while name in taken or name in _TAKEN or _VARIABLE.fullmatch(name):
            name = f"{name}_{len(taken)}"
        taken.add(name)
        inside = set(part)
        inputs = dict.fromkeys(v for op in part for v in _ciphertexts(op) if v.op not in inside)
        outputs = [op.value for op in part if any(user not in inside for user in users[op.value])]
        blocks.append(Block(name, place, tuple(part), tuple(inputs), tuple(outputs)))
    return blocks


def _ciphertexts(op: Op) -> list[Value]:
    return [value for value in op.operands if value.op.name != "ckks.public_input"]


def _layers(module: Module, ops: Sequence[Op]) -> list[int]:
    """The layer that each op is put into, −1 before the first one. It never decreases."""
    users = module.users()
    layers: dict[Op, int | None] = {}
    for op in reversed(ops):
        following = users[op.value] if op.name in PREPARING else []
        layers[op] = layers.get(following[0], op.layer) if following else op.layer
    with_layer = [position for position, op in enumerate(ops) if layers[op] is not None]
    last = with_layer[-1] if with_layer else -1
    after = max((layer for layer in layers.values() if layer is not None), default=-1) + 1
    result, current = [], -1
    for position, op in enumerate(ops):
        layer = after if position > last >= 0 else layers[op]
        current = max(current, current if layer is None else layer)
        result.append(current)
    return result


def _place(ops: Sequence[Op], layer: int) -> str:
    """The module that ops come from: that of their layer, or what their paths have in common."""
    for op in ops:
        if op.layer == layer and op.name not in PREPARING:
            parts = op.location.split(".")
            number = next(at for at, part in enumerate(parts) if part.isdecimal())
            return ".".join(parts[: number + 1])
    paths = [op.location.split(".") for op in ops if op.location and op.name not in PREPARING]
    common = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        common.append(names[0])
    return ".".join(common) or ("the first modules" if layer < 0 else "the last modules")
