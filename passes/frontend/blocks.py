"""Models without weights: three of many equal blocks are traced, the rest is repeated in the IR.

torch.export takes about 0.2 s a block, so a bare 32-block configuration would take longer to trace
than to plan. The shortcut is taken only where it provably gives the same module: all blocks have
the same structure, and the traced second and third block are the same ops on the same operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol

if TYPE_CHECKING:
    import torch

TRACED = 3
Scalar = (bool, int, float, str, type(None))


@dataclass(frozen=True)
class Blocks:
    """A list of equal blocks: its path in the model, and their number."""

    path: str
    count: int


def repeated_blocks(module: torch.nn.Module) -> Blocks | None:
    """The longest list of equal blocks of a model whose parameters are all on the meta device."""
    import torch

    if not all(parameter.is_meta for parameter in module.parameters()):
        return None
    found = [
        Blocks(path, len(child))
        for path, child in module.named_modules()
        if isinstance(child, torch.nn.ModuleList) and len(child) > TRACED and _equal(list(child))
    ]
    return max(found, key=lambda blocks: blocks.count, default=None)


def _equal(blocks: Sequence[torch.nn.Module]) -> bool:
    """True if the blocks have the same classes, parameter shapes and settings."""
    return len({_signature(block, index) for index, block in enumerate(blocks)}) == 1


def _signature(block: torch.nn.Module, index: int) -> tuple:
    settings = [
        (path, key, None if value == index and ("idx" in key or "index" in key) else value)
        for path, part in block.named_modules()
        for key, value in sorted(vars(part).items())
        if isinstance(value, Scalar)
    ]
    tensors = [(name, tuple(tensor.shape)) for name, tensor in block.state_dict().items()]
    return repr(block), tuple(tensors), repr(settings)


@contextmanager
def shortened(module: torch.nn.Module, blocks: Blocks) -> Iterator[None]:
    """The model with only the first three of its blocks."""
    import torch

    path, _, name = blocks.path.rpartition(".")
    parent = module.get_submodule(path)
    every = getattr(parent, name)
    setattr(parent, name, torch.nn.ModuleList(list(every)[:TRACED]))
    try:
        yield
    finally:
        setattr(parent, name, every)


def extend(module: Module, blocks: Blocks) -> Module | None:
    """The nn module with all its blocks, from one with three; None where they are not equal."""
    spans = [_span(module, f"{blocks.path}.{index}") for index in range(TRACED)]
    if any(span is None for span in spans):
        return None
    first, second, third = (span for span in spans if span is not None)
    pattern = _pattern(module, first, second, f"{blocks.path}.1")
    if pattern is None or pattern != _pattern(module, second, third, f"{blocks.path}.2"):
        return None
    result = Module(module.name, "nn", symbols={}, attributes=dict(module.attributes))
    builder = _Builder(module, result, blocks, {})
    for op in module.ops[: second.start]:
        builder.copy(op)
    previous = [builder.values[op.value] for op in module.ops[first.start : first.stop]]
    for index in range(1, blocks.count):
        previous = builder.block(module.ops[second.start : second.stop], pattern, previous, index)
    last = module.ops[third.start : third.stop]
    builder.values.update({op.value: value for op, value in zip(last, previous, strict=True)})
    for op in module.ops[third.stop :]:
        builder.copy(op)
    return result


def _span(module: Module, path: str) -> range | None:
    """Positions of the ops of a block, if they are neighbours."""
    inside = [i for i, op in enumerate(module.ops) if f"{op.location}.".startswith(f"{path}.")]
    if not inside or inside[-1] - inside[0] + 1 != len(inside):
        return None
    return range(inside[0], inside[-1] + 1)


Reference = tuple[str, int] | Value
Line = tuple[str, tuple[Reference, ...], str, str]


def _pattern(module: Module, before: range, span: range, block: str) -> list[Line] | None:
    """The ops of a block in terms of the block before it and of values outside of all blocks."""
    own = {module.ops[i].result: i - span.start for i in span}
    previous = {module.ops[i].result: i - before.start for i in before}
    if before.stop != span.start:
        return None
    lines: list[Line] = []
    for op in module.ops[span.start : span.stop]:
        references: list[Reference] = []
        for operand in op.operands:
            if operand in own:
                references.append(("own", own[operand]))
            elif operand in previous:
                references.append(("previous", previous[operand]))
            else:
                references.append(operand)
        attributes = {key: _renamed(value, block, "") for key, value in op.attributes.items()}
        where = _rebased(op.location, block, "")
        lines.append((op.name, tuple(references), repr(attributes), where))
    return lines


def _rebased(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if old and f"{path}.".startswith(f"{old}.") else path


def _renamed(value: Any, old: str, new: str) -> Any:
    return Symbol(_rebased(value.name, old, new)) if isinstance(value, Symbol) else value


@dataclass
class _Builder:
    """Adds ops of the source to the result."""

    source: Module
    result: Module
    blocks: Blocks
    values: dict[Value, Value]

    def copy(self, op: Op) -> None:
        """An op outside the repeated blocks; its name says nothing, unless it is an input's."""
        name = op.result.name if op.name == "nn.input" and op.result is not None else None
        operands = [self.values[operand] for operand in op.operands]
        attributes = {k: self._symbol(v, "", "") for k, v in op.attributes.items()}
        new = self.result.append(op.name, operands, attributes, op.location, name)
        if op.result is not None:
            self.values[op.result] = new.value

    def block(
        self, ops: Sequence[Op], pattern: Sequence[Line], previous: Sequence[Value], index: int
    ) -> list[Value]:
        """One more block on top of the previous one; returns the results of its ops."""
        old, new = f"{self.blocks.path}.1", f"{self.blocks.path}.{index}"
        own: list[Value] = []
        tables = {"own": own, "previous": previous}
        for op, (_, references, _, _) in zip(ops, pattern, strict=True):
            operands = [
                self.values[item] if isinstance(item, Value) else tables[item[0]][item[1]]
                for item in references
            ]
            attributes = {k: self._symbol(v, old, new) for k, v in op.attributes.items()}
            location = _rebased(op.location, old, new)
            own.append(self.result.add(op.name, operands, attributes, location))
        return own

    def _symbol(self, value: Any, old: str, new: str) -> Any:
        renamed = _renamed(value, old, new)
        if isinstance(value, Symbol):
            self.result.symbols[renamed.name] = self.source.symbols[value.name]
        return renamed
