"""The C++ text of a program: one function for each Transformer block, in order of execution."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from atlasc.emit import text
from atlasc.ir.module import Module, Op, Value
from atlasc.program.function import Function
from atlasc.program.kinds import OUTSIDE

PREPARING = ("ckks.drop", "ckks.bootstrap")
"""Ops that only prepare a value for its user."""
_TAKEN = {
    "execute",
    "text",
    "Context",
    "Ciphertexts",
    "Values",
    "context",
    "inputs",
    "results",
}
_VARIABLE = re.compile(r"v(\d+|_\w*)")
"""Names that the generated code declares or calls."""


class Block(NamedTuple):
    """Ops that become one function.

    Attributes:
        name: name of the function, made from the path of the model's module.
        place: that path, or words if the ops have no common module.
        ops: the ops in order.
        inputs: earlier values that the ops use.
        outputs: values that later ops use.
    """

    name: str
    place: str
    ops: list[Op]
    inputs: list[Value]
    outputs: list[Value]


def blocks_of(module: Module) -> list[Block]:
    """The blocks of a ckks module: the ops before the layers, each layer, and the ops after
    them.
    """
    ops = [op for op in module.ops if op.name not in OUTSIDE]
    parts: dict[int, list[Op]] = {}
    for op, layer in zip(ops, _layers(module, ops), strict=True):
        parts.setdefault(layer, []).append(op)
    users, taken = module.users(), set[str]()
    blocks = []
    for layer, part in parts.items():
        place = _place(part, layer)
        name = text.identifier(place)
        while name in taken or name in _TAKEN or _VARIABLE.fullmatch(name):
            name = f"{name}_{len(taken)}"
        taken.add(name)
        inside = set(part)
        used = [v for op in part for v in op.operands if v.op.name != "ckks.public_input"]
        inputs = dict.fromkeys(value for value in used if value.op not in inside)
        outputs = [op.value for op in part if any(user not in inside for user in users[op.value])]
        blocks.append(Block(name, place, part, list(inputs), outputs))
    return blocks


def _layers(module: Module, ops: Sequence[Op]) -> list[int]:
    """The layer of each op, −1 before the first layer. The numbers never decrease."""
    users = module.users()
    layers: dict[Op, int | None] = {}
    for op in reversed(ops):
        following = users[op.value] if op.name in PREPARING else []
        layers[op] = layers.get(following[0], op.layer) if following else op.layer
    found = [-1 if (layer := layers[op]) is None else layer for op in ops]
    last = max((at for at, layer in enumerate(found) if layer >= 0), default=len(found))
    found[last + 1 :] = [max(found, default=0) + 1] * len(found[last + 1 :])
    return list(accumulate(found, max))


def _place(ops: Sequence[Op], layer: int) -> str:
    """The module of some ops: that of their layer, or the common beginning of their paths."""
    for op in ops:
        if op.layer == layer and op.block is not None and op.name not in PREPARING:
            return op.block
    paths = [op.location.split(".") for op in ops if op.location and op.name not in PREPARING]
    common = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    found = ".".join(names[0] for names in common)
    return found or ("the first modules" if layer < 0 else "the last modules")


def program_text(module: Module, functions: Mapping[Op, Function]) -> dict[str, Any]:
    """The variables of the template: of each block its place and the head and lines of its
    function; the calls of the functions; and the module.
    """
    blocks = blocks_of(module)
    return {
        "functions": [(b.place, _head(b), list(_body(b, functions))) for b in blocks],
        "module": module,
        "calls": list(_calls(module, blocks)),
    }


def _head(block: Block) -> str:
    count = len(block.outputs)
    result = "Ciphertexts" if count == 1 else f"std::tuple<{', '.join(['Ciphertexts'] * count)}>"
    parameters = ["Context& context", *(f"Ciphertexts {text.variable(v)}" for v in block.inputs)]
    return text.call(f"{result} {block.name}", parameters, ") {", 0)


def _body(block: Block, functions: Mapping[Op, Function]) -> Iterator[str]:
    place, last_use = "", {value: op for op in block.ops for value in op.operands}
    for op in block.ops:
        if op.location not in ("", place) and op.name not in PREPARING:
            place = op.location
            yield f"    context.at({text.string(place)});"
        last = {v for v in op.operands if last_use[v] is op and v not in block.outputs}
        yield _statement(op, functions[op], last)
    names = [text.variable(value) for value in block.outputs]
    if len(names) == 1:
        yield f"    return {names[0]};"
    else:
        yield f"    return {{{', '.join(f'std::move({name})' for name in names)}}};"


def _statement(op: Op, function: Function, last: set[Value]) -> str:
    """An op as a declaration of its result; ``last``: operands that no later op uses."""
    arrays = [text.string(name) for name in function.arrays(op)]
    encrypted = [value for value in op.operands if value.encrypted]
    pieces = [text.string(function.name), *(text.braced(arrays) if arrays else ["{}"])]
    head = f"Ciphertexts {text.variable(op.value)} = context.call"
    return text.call(head, [*pieces, *_operands(encrypted, last)])


def _operands(values: Sequence[Value], last: set[Value]) -> list[str]:
    """Arguments for values; the last use of a value moves it, which frees its ciphertexts."""
    names = [text.variable(value) for value in values]
    return [
        f"std::move({name})" if value in last and names.count(name) == 1 else name
        for name, value in zip(names, values, strict=True)
    ]


def _calls(module: Module, blocks: Sequence[Block]) -> Iterator[str]:
    returned = [op.operands[0] for op in module.outputs]
    last_use = {value: block for block in blocks for value in block.inputs}
    for block in blocks:
        last = {v for v in block.inputs if last_use[v] is block and v not in returned}
        names = [text.variable(value) for value in block.outputs]
        head = f"Ciphertexts {names[0]}" if len(names) == 1 else f"auto [{', '.join(names)}]"
        yield text.call(f"{head} = {block.name}", ["context", *_operands(block.inputs, last)])
