"""Builds a module from another one, op by op, with its arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from atlasc.ir.module import IRLevel, Module, Op, Value
from atlasc.ir.ops.names import OpName


class Rewriter:
    """Copies a module while a pass replaces, drops or adds ops.

    ``module`` is the module under construction. ``values`` maps each old value that was handled to
    its new value.
    """

    def __init__(self, source: Module, level: IRLevel | None = None) -> None:
        self.source = source
        self.module = Module(
            source.name,
            level or source.level,
            symbols=dict(source.symbols),
            attributes=dict(source.attributes),
        )
        self.values: dict[Value, Value] = {}

    def operands(self, op: Op) -> list[Value]:
        """New operands of an old op."""
        return [self.values[operand] for operand in op.operands]

    def copy(
        self,
        op: Op,
        operands: list[Value] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Value:
        """The same op in the new module, with other operands or attributes if given."""
        operands = self.operands(op) if operands is None else operands
        same = attributes is None and self.module.level == op.definition.level
        if same and [one.type for one in operands] == [one.type for one in op.operands]:
            new = self.module.add_again(op, operands)
        else:
            new = self.module.add(
                op.name,
                operands,
                op.attributes if attributes is None else attributes,
                op.location,
                op.result.name if op.result is not None else None,
            )
        if op.result is not None:
            self.values[op.result] = new
        return new

    def add(
        self, like: Op, op_name: OpName, operands: list[Value], attributes: Mapping[str, Any]
    ) -> Value:
        """A new op with the location and part of an old one."""
        inherited = {"part": like.attributes["part"]} if "part" in like.attributes else {}
        return self.module.add(op_name, operands, {**attributes, **inherited}, like.location)


def with_attributes(module: Module, of: Callable[[Op], Mapping[str, Any]]) -> Module:
    """A copy whose ops have the attributes that the function ``of`` returns."""
    rewriter = Rewriter(module)
    for op in module.ops:
        rewriter.copy(op, None, of(op))
    return rewriter.module


def without_dead_ops(module: Module) -> Module:
    """A module with all inputs, the ops that an output needs, and the symbols that these use. The
    ops are those of the given module.
    """
    needed: set[Op] = set()
    pending = [op for op in module.ops if op.result is None]
    while pending:
        op = pending.pop()
        if op not in needed:
            needed.add(op)
            pending += [operand.op for operand in op.operands]
    ops = [op for op in module.ops if op in needed or op.name.endswith("input")]
    names = {op.result.name for op in ops if op.result is not None}
    attributes = dict(module.attributes)
    found = Module(module.name, module.level, ops, module.symbols, attributes, names)
    found.symbols = found.arrays_used()
    return found
