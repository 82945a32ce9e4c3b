"""Fast tracing of models without weights: three of many equal blocks are traced, others copied.

torch.export takes about 0.2 s per block, so tracing a bare config with 32 blocks would take longer
than planning it. The shortcut is used only if it provably gives the same module: all blocks have
the same structure, and the traced second and third block are the same ops on the same operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

from atlasc.ir.bounds import Location, line_of
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.frontend.exported.graph import holding

if TYPE_CHECKING:
    import torch

TRACED = 3


class Blocks(NamedTuple):
    """A list of equal blocks: its path in the model, and their number."""

    path: str
    number: int

    def shortened(self, module: torch.nn.Module) -> AbstractContextManager[None]:
        """The model with only the first three of its blocks."""
        path, _, name = self.path.rpartition(".")
        parent = module.get_submodule(path)
        return holding(parent, **{name: getattr(parent, name)[:TRACED]})


def repeated_blocks(module: torch.nn.Module) -> Blocks | None:
    """The longest list of equal blocks of a model whose parameters are all on the meta device."""
    import torch

    if not all(parameter.is_meta for parameter in module.parameters()):
        return None
    found = [
        Blocks(path, len(child))
        for path, child in module.named_modules()
        if isinstance(child, torch.nn.ModuleList) and len(child) > TRACED
        if len({_signature(block, index) for index, block in enumerate(child)}) == 1
    ]
    return max(found, key=lambda blocks: blocks.number, default=None)


def _signature(block: torch.nn.Module, index: int) -> tuple:
    """Classes, parameter shapes and settings of a block, without its own index."""
    settings = [
        (path, key, None if value == index and ("idx" in key or "index" in key) else value)
        for path, part in block.named_modules()
        for key, value in sorted(vars(part).items())
        if isinstance(value, bool | int | float | str | None)
    ]
    tensors = [(name, tuple(tensor.shape)) for name, tensor in block.state_dict().items()]
    return repr(block), tuple(tensors), repr(settings)


def extend(module: Module, blocks: Blocks) -> Module | None:
    """The nn module with all its blocks, from one with three; None if the blocks are not equal."""
    paths = [f"{blocks.path}.{index}" for index in range(TRACED)]
    first, second, third = (
        [op for op in module.ops if f"{op.location}.".startswith(f"{path}.")] for path in paths
    )
    if not (first and second and third):
        return None
    start, stop = module.ops.index(second[0]), module.ops.index(third[-1]) + 1
    adjacent = module.ops[start - len(first) : stop] == [*first, *second, *third]
    pattern = _pattern(first, second, paths[1])
    if not adjacent or pattern != _pattern(second, third, paths[2]):
        return None
    inner = {op.value for op in (*first, *second)}
    if any(operand in inner for op in module.ops[stop:] for operand in op.operands):
        return None  # only the last block may be read from outside
    result = Module(module.name, "nn", attributes=dict(module.attributes))
    values: dict[Value, Value] = {}

    def copy(op: Op, old: str = "", new: str = "") -> Value:
        """Add an op, with its location and symbols moved from one path to another."""
        attributes, location = _moved(op, old, new)
        for key, value in op.attributes.items():
            if isinstance(value, Symbol):
                result.symbols[attributes[key].name] = module.symbols[value.name]
        operands = [values[operand] for operand in op.operands]
        name = op.value.name if op.name == "nn.input" else None
        added = result.add(op.name, operands, attributes, location, name)
        if op.result is not None:
            values[op.result] = added
        return added

    for op in module.ops[:start]:
        copy(op)
    previous = [values[op.value] for op in first]
    for index in range(1, blocks.number):
        # The previous block takes the place of the first one, so that its results are read.
        values.update({op.value: value for op, value in zip(first, previous, strict=True)})
        previous = [copy(op, paths[1], f"{blocks.path}.{index}") for op in second]
    values.update({op.value: value for op, value in zip(third, previous, strict=True)})
    for op in module.ops[stop:]:
        copy(op)
    return result


def _pattern(before: Sequence[Op], block: Sequence[Op], path: str) -> list[tuple]:
    """The ops of a block in terms of the block before it and of values outside of all blocks."""
    names: dict[Value, Any] = {op.value: ("previous", i) for i, op in enumerate(before)}
    names |= {op.value: ("own", i) for i, op in enumerate(block)}
    sources = [[names.get(operand, operand) for operand in op.operands] for op in block]
    return [(op.name, source, repr(_moved(op, path, ""))) for op, source in zip(block, sources)]


def _moved(op: Op, old: str, new: str) -> tuple[dict[str, Any], str]:
    """Attributes and location of an op, with the symbols in them moved from one path to another."""
    attributes = {
        key: Symbol(_rebased(value.name, old, new)) if isinstance(value, Symbol) else value
        for key, value in op.attributes.items()
    }
    return attributes, _rebased(op.location, old, new)


def _rebased(path: str, old: str, new: str) -> str:
    if not old or not f"{path}.".startswith(f"{old}."):
        return path
    return Location(new + path[len(old) :], line_of(path))
