"""The text of a program: one function for each Transformer block, in the order of execution."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from atlasc.emit import text
from atlasc.ir.module import Module, Op, Value
from atlasc.program.function import Function

OUTSIDE = ("ckks.input", "ckks.public_input", "ckks.output")
"""Ops at the border of a program, which are in no block."""
PREPARING = ("ckks.drop", "ckks.bootstrap")
"""Ops that bring a value to where its user wants it."""
_TAKEN = {
    "execute",
    "interface",
    "Context",
    "Ciphertexts",
    "Values",
    "context",
    "inputs",
    "results",
}
_VARIABLE = re.compile(r"v(\d+|_\w*)")
"""Names of the generated code and of what it calls."""


class Block(NamedTuple):
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
    ops: list[Op]
    inputs: list[Value]
    outputs: list[Value]


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
    """The layer that each op is put into, −1 before the first one. It never decreases."""
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
    """The module that ops come from: that of their layer, or what their paths have in common."""
    for op in ops:
        if op.layer == layer and op.block is not None and op.name not in PREPARING:
            return op.block
    paths = [op.location.split(".") for op in ops if op.location and op.name not in PREPARING]
    common = takewhile(lambda names: len(set(names)) == 1, zip(*paths, strict=False))
    found = ".".join(names[0] for names in common)
    return found or ("the first modules" if layer < 0 else "the last modules")


def program_text(module: Module, functions: Mapping[Op, Function]) -> dict[str, Any]:
    """What the template of the program shows: of each block its place, the head of its function and
    the lines of it; the calls of these; and the module.
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
    """The op as a declaration of its result; ``last``: operands that nothing uses after it."""
    arrays = [text.string(name) for name in function.arrays(op)]
    encrypted = [value for value in op.operands if value.encrypted]
    pieces = [text.string(function.name), *(text.braced("", arrays) if arrays else ["{}"])]
    head = f"Ciphertexts {text.variable(op.value)} = context.call"
    return text.call(head, [*pieces, *_operands(encrypted, last)])


def _operands(values: Sequence[Value], last: set[Value]) -> list[str]:
    """Arguments for values; a last use moves, which frees the ciphertexts with the op."""
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
