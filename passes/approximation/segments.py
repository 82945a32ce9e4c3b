"""The server's part of an nn module, divided at the starts of its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from atlasc.ir.module import Module, Op, Value


@dataclass(frozen=True)
class Segment:
    """Ops from the start of one block to the start of the next.

    Attributes:
        layer: index of the block; None for what comes before the first block.
        ops: in order of execution.
        live: values that segments before this one make and this or a later one needs.
        nonlinear: result names of its nonlinear ops.
    """

    layer: int | None
    ops: tuple[Op, ...]
    live: frozenset[Value]
    nonlinear: tuple[str, ...]


def _is_server(op: Op) -> bool:
    """Whether the server computes the op on encrypted data."""
    if op.name in ("nn.encrypt", "nn.input"):
        return False
    value = op.result if op.result is not None else op.operands[0]
    return getattr(value.type, "side", "") == "server"


def client_part(module: Module) -> Module:
    """The ops on the client's side, the inputs and the encryptions, as a module without outputs."""
    ops = [op for op in module.ops if not _is_server(op)]
    return Module(module.name, "nn", ops, module.symbols)


def segments(module: Module) -> list[Segment]:
    """The server's ops, divided at the starts of blocks."""
    groups: list[tuple[int | None, list[Op]]] = []
    for op in filter(_is_server, module.ops):
        layer = op.layer
        if not groups or (layer is not None and layer != groups[-1][0]):
            groups.append((layer, []))
        groups[-1][1].append(op)
    return list(_with_live_values(groups))


def _with_live_values(groups: list[tuple[int | None, list[Op]]]) -> Iterator[Segment]:
    made: set[Value] = set()
    for index, (layer, ops) in enumerate(groups):
        used = {v for _, later in groups[index:] for op in later for v in op.operands}
        names = tuple(op.value.name for op in ops if op.definition.nonlinear)
        yield Segment(layer, tuple(ops), frozenset(made & used), names)
        made |= {op.result for op in ops if op.result is not None}
