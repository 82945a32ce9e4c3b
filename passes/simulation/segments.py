"""The server's part of an nn module, divided where settings may begin to differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.ir.module import Module, Op, Value


@dataclass(frozen=True)
class Segment:
    """Ops from a nonlinear one, or from the start of a block, to the next such place.

    Attributes:
        layer: index of the block; None for what comes before the first block.
        starts_block: whether it is the first of its block.
        ops: in order of execution; a nonlinear op comes first or not at all.
        live: values that segments before this one make and this or a later one needs.
    """

    layer: int | None
    starts_block: bool
    ops: tuple[Op, ...]
    live: frozenset[Value]

    @property
    def nonlinear(self) -> str | None:
        """Result name of its nonlinear op, if it has one."""
        return self.ops[0].value.name if self.ops[0].definition.nonlinear else None


def _is_server(op: Op) -> bool:
    """Whether the server computes the op on encrypted data."""
    if op.name in ("nn.encrypt", "nn.input"):
        return False
    value = op.result if op.result is not None else op.operands[0]
    return value.tensor.side == "server"


def client_part(module: Module) -> Module:
    """The ops on the client's side, the inputs and the encryptions, as a module without outputs."""
    ops = [op for op in module.ops if not _is_server(op)]
    return Module(module.name, "nn", ops, module.symbols)


def segments(module: Module) -> list[Segment]:
    """The server's ops, divided at the starts of blocks and before nonlinear ops."""
    groups: list[tuple[int | None, list[Op]]] = []
    for op in filter(_is_server, module.ops):
        layer = op.layer
        if not groups or (layer is not None and layer != groups[-1][0]):
            groups.append((layer, []))
        groups[-1][1].append(op)
    parts = [
        (layer, index == 0, part)
        for layer, ops in groups
        for index, part in enumerate(filter(None, _before_nonlinear(ops)))
    ]
    return list(_with_live_values(parts))


def _before_nonlinear(ops: list[Op]) -> Iterator[list[Op]]:
    """The ops of a block, divided before the nonlinear ones.

    What a nonlinear op does not need comes after it: if its result explodes, that is never computed
    (the values of an attention are not needed for its softmax).
    """
    makers = {op.result: op for op in ops if op.result is not None}
    done: set[Op] = set()
    part: list[Op] = []

    def emit(op: Op) -> None:
        if op not in done:
            for operand in op.operands:
                if operand in makers:
                    emit(makers[operand])
            done.add(op)
            part.append(op)

    for op in ops:
        if op.definition.nonlinear:
            for operand in op.operands:
                if operand in makers:
                    emit(makers[operand])
            yield part
            part = []
            emit(op)
    for op in ops:
        emit(op)
    yield part


def _with_live_values(
    parts: list[tuple[int | None, bool, list[Op]]],
) -> Iterator[Segment]:
    made: set[Value] = set()
    for index, (layer, starts_block, ops) in enumerate(parts):
        used = {v for *_, later in parts[index:] for op in later for v in op.operands}
        yield Segment(layer, starts_block, tuple(ops), frozenset(made & used))
        made |= {op.result for op in ops if op.result is not None}


def end_after(parts: Sequence[Segment], layers: int | None) -> int:
    """Index of the segment after that many blocks; None for all of them."""
    blocks = [i for i, part in enumerate(parts) if part.layer is not None and part.starts_block]
    return len(parts) if layers is None or layers >= len(blocks) else blocks[layers]


def last_uses(parts: Sequence[Segment]) -> dict[Value, Op]:
    """The op after which a value is not needed any more."""
    return {operand: op for part in parts for op in part.ops for operand in op.operands}


def largest_tensor(parts: Sequence[Segment]) -> int:
    """Elements of the largest result, for one input."""
    results = (op.result for part in parts for op in part.ops if op.result is not None)
    return max(int(np.prod(value.tensor.shape[1:])) for value in results)
