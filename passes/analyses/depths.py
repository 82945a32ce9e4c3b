"""Levels that a module consumes, op by op and along its deepest paths."""

from __future__ import annotations

from atlasc.ir.module import Module, Op, Value


def levels_of(op: Op, module: Module) -> int:
    """Levels that one op of a module consumes."""
    return op.definition.levels(op.site(module.symbols))


def depths(module: Module) -> dict[Value, int]:
    """Levels consumed on the longest path to every value."""
    depth: dict[Value, int] = {}
    for op in module.ops:
        if op.result is not None:
            before = max((depth[operand] for operand in op.operands), default=0)
            depth[op.result] = before + levels_of(op, module)
    return depth
