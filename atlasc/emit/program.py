"""The text of a program's functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from atlasc.emit import text
from atlasc.emit.blocks import PREPARING, Block, blocks_of
from atlasc.emit.calls import Layouts, operands, statement
from atlasc.ir.module import Module, Op, Value


@dataclass(frozen=True)
class Function:
    """One block as text.

    Attributes:
        place: what it computes.
        signature: result type, name and parameters.
        lines: its body.
    """

    place: str
    signature: str
    lines: tuple[str, ...]


def program_text(module: Module) -> dict[str, Any]:
    """What the template of the program shows: layouts as (name, text form), a function for each
    block, and the steps that call them.

    Raises:
        AtlasError: an op or an attribute that the runtime does not have.
    """
    layouts, blocks = Layouts(module), blocks_of(module)
    named = tuple((name, text.string(layout)) for layout, name in layouts.names.items())
    functions = tuple(_function(block, layouts) for block in blocks)
    return {"layouts": named, "functions": functions, "steps": list(_steps(module, blocks))}


def _function(block: Block, layouts: Layouts) -> Function:
    parameters = ["Context& context", *(f"Packed {text.variable(v)}" for v in block.inputs)]
    signature = text.call(f"{_result_type(block)} {block.name}", parameters, ") {", 0)
    lines, place = [], ""
    kept = set(block.outputs)
    last_use = _last_uses(block.ops)
    for op in block.ops:
        if op.location not in ("", place) and op.name not in PREPARING:
            place = op.location
            lines.append(f"    context.at({text.string(place)});")
        last = {v for v in op.operands if last_use[v] is op and v not in kept}
        lines.append(statement(op, layouts, last))
    names = [text.variable(value) for value in block.outputs]
    if len(names) == 1:
        lines.append(f"    return {names[0]};")
    else:
        lines.append(f"    return {{{', '.join(f'std::move({name})' for name in names)}}};")
    return Function(text.comment(block.place), signature, tuple(lines))


def _result_type(block: Block) -> str:
    count = len(block.outputs)
    return "Packed" if count == 1 else f"std::tuple<{', '.join(['Packed'] * count)}>"


def _last_uses(ops: Iterable[Op]) -> dict[Value, Op]:
    return {value: op for op in ops for value in op.operands}


def _steps(module: Module, blocks: Sequence[Block]) -> Iterable[str]:
    for op in module.inputs:
        name = text.string(op.attributes["name"])
        yield f"    Packed {text.variable(op.value)} = std::move(inputs.at({name}));"
    returned = [op.operands[0] for op in module.outputs]
    last_use = {value: block for block in blocks for value in block.inputs}
    for block in blocks:
        last = {v for v in block.inputs if last_use[v] is block and v not in returned}
        names = [text.variable(value) for value in block.outputs]
        head = f"Packed {names[0]}" if len(names) == 1 else f"auto [{', '.join(names)}]"
        arguments = ["context", *operands(block.inputs, last)]
        yield text.call(f"{head} = {block.name}", arguments)
    yield "    Values results;"
    for op in module.outputs:
        name, value = text.string(op.attributes["name"]), text.variable(op.operands[0])
        yield f"    results.emplace({name}, {value});"
    yield "    return results;"
