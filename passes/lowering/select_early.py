"""``select-early``: if later ops read only one token of a value, computes only that token."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from atlasc.ir.facts import MAGNITUDES, NOISE_GAINS, OBSERVED
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.framework.pass_base import (
    Cost,
    Goal,
    Pass,
    Report,
)
from atlasc.passes.lowering.token_rows import (
    CONSTANTS,
    MASKS,
    Axes,
    axes_of,
    kind_of,
    row_shape,
)


@dataclass(frozen=True)
class SelectEarly(Pass):
    """Move the selection of a token up through the ops that work on each token alone.

    In attention only the query is selected; keys and values keep all tokens. For a classifier that
    reads the first token, little of the last block then remains to compute. If all tokens of a
    value are read somewhere, as for the input of that block, the value is computed as before and
    the token is selected from it. The outputs stay the same. A magnitude, the greatest of all
    tokens, stays an upper bound. So does a noise gain, because the outputs depend on no other
    tokens of these values.
    """

    name = "select-early"
    takes = "poly"
    keeps = (MAGNITUDES, NOISE_GAINS)
    when = "cheaper"

    def applies(self, module: Module, goal: Goal | None) -> bool:
        """Whether the module selects a token."""
        return any(op.name == "poly.select" for op in module.ops)

    def pays(self, cost: Cost, without: Callable[[], Cost], goal: Goal | None) -> bool:
        """Whether the program costs no more: in bootstraps, or in seconds."""
        return cost <= without()

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        early = _Early(module)
        result = without_dead_ops(early.run())
        report.say(f"{early.moved} ops are computed for one token")
        return result


class TokenRow(NamedTuple):
    """One index along an axis: a token, or a query among scores."""

    axis: int
    number: int


class _Early:
    """Rewrites a module; `moved` counts the ops that are computed for one token.

    A row of a tensor with three axes has lost its axis, as after poly.select; in heads the axis
    stays with extent 1. Of each value some rows are needed, or None: all of it.
    """

    def __init__(self, module: Module) -> None:
        self.rewriter, self.moved = Rewriter(module), 0
        self.wanted: defaultdict[Value | None, set[TokenRow | None]] = defaultdict(set)
        self.rows: dict[tuple[Value, TokenRow], Value] = {}

    def run(self) -> Module:
        for op in reversed(self.rewriter.source.ops):
            self._demand(op)
        for op in self.rewriter.source.ops:
            rows = self._rows_of(op)
            if self._is_whole(op):
                row = _selected(op)
                if row is None:
                    self.rewriter.copy(op)
                else:
                    self.rewriter.values[op.value] = self.rows[op.operands[0], row]
            for row in sorted(rows):
                self.rows[op.value, row] = self._row(op, row)
        return self.rewriter.module

    def _rows_of(self, op: Op) -> set[TokenRow]:
        return {row for row in self.wanted[op.result] if row is not None}

    def _is_whole(self, op: Op) -> bool:
        """Whether all of an op's result is computed."""
        return op.result is None or None in self.wanted[op.result] or not self._rows_of(op)

    def _demand(self, op: Op) -> None:
        """Note what an op reads of its operands: everything, or one row for each of its own
        rows.
        """
        for row in self._rows_of(op):
            axes = self._axes(op, row)
            if axes is None:
                self.wanted[op.value].add(None)
                continue
            for operand, axis in zip(op.operands, axes, strict=True):
                self.wanted[operand].add(None if axis is None else TokenRow(axis, row.number))
        if self._is_whole(op):
            for operand in op.operands:
                self.wanted[operand].add(_selected(op))

    def _axes(self, op: Op, row: TokenRow) -> Axes:
        """Axes of the operands' rows; None if a row must be selected from the whole result."""
        if None in self.wanted[op.result] and len(op.value.tensor.shape) == 3:
            return None
        return axes_of(op, row.axis)

    def _row(self, op: Op, row: TokenRow) -> Value:
        """The row of an op's result in the new module."""
        axes, add = self._axes(op, row), self.rewriter.module.add
        shape = list(row_shape(op.value.tensor.shape, row.axis))
        if axes is None:
            whole = self.rewriter.values[op.value]
            seen = {name: value for name, value in op.attributes.items() if name in OBSERVED}
            attributes = {"axis": row.axis, "index": row.number, **seen}
            one = add("poly.select", [whole], attributes, op.location)
            if len(shape) == 2:
                return one
            return add("poly.reshape", [one], {"shape": shape, **seen}, op.location)
        self.moved += 1
        operands = [
            self.rewriter.values[operand]
            if axis is None
            else self.rows[operand, TokenRow(axis, row.number)]
            for operand, axis in zip(op.operands, axes, strict=True)
        ]
        attributes = dict(op.attributes)
        if op.name == "poly.reshape":
            attributes["shape"] = shape
        elif kind_of(op) in MASKS:
            attributes.setdefault("query", row.number)
        for name in op.chosen(*CONSTANTS.get(kind_of(op), ())):
            attributes[name] = self._constant(op, attributes[name], row)
        return add(op.name, operands, attributes, op.location)

    def _constant(self, op: Op, value: Any, row: TokenRow) -> Any:
        """The part of a constant, which broadcasts to the result, for one row."""
        if not isinstance(value, Symbol):
            return value
        array, rank = self.rewriter.source.symbols[value.name], len(op.value.tensor.shape)
        axis = row.axis - (rank - array.ndim)  # axis of the constant
        if axis < 0:
            return value
        one = array if array.shape[axis] == 1 else array.take([row.number], axis)
        one = one.squeeze(axis) if rank == 3 else one
        return self.rewriter.module.constant(f"{value.name}.row", one)


def _selected(op: Op) -> TokenRow | None:
    """The row that an op selects from a tensor [batch, tokens, features] of several tokens."""
    if op.name == "poly.select" and op.attributes["axis"] == 1:
        shape = op.operands[0].tensor.shape
        if len(shape) == 3 and shape[1] > 1:
            return TokenRow(1, op.attributes["index"])
    return None
