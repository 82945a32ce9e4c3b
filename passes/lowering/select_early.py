"""``select-early``: where one token is read of a value, only that token of it is computed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.framework.pass_base import (
    MAGNITUDES,
    NOISE_GAINS,
    OBSERVED,
    Cost,
    Goal,
    Pass,
    Report,
)
from atlasc.passes.framework.rewriting import Rewriter, without_dead_ops


@dataclass(frozen=True)
class SelectEarly(Pass):
    """Move the selection of a token up through the ops that work on each token alone.

    In attention only the query is selected; keys and values keep all tokens. A classifier that
    reads the first token then leaves little of the last block to compute. Values of which all
    tokens are read somewhere, such as the input of that block, are computed as before and selected
    from. The outputs stay the same. A magnitude, the greatest of all tokens, stays a bound; so does
    a noise gain: the outputs depend on no other tokens of what is computed for one.
    """

    name = "select-early"
    takes = "poly"
    keeps = (MAGNITUDES, NOISE_GAINS)
    when = "cheaper"

    def applies(self, module: Module, goal: Goal | None) -> bool:
        """Whether the module selects anything."""
        return any(op.name == "poly.select" for op in module.ops)

    def pays(self, cost: Cost, without: Callable[[], Cost], goal: Goal | None) -> bool:
        """Where the program costs no more: as many bootstraps, or seconds, or less."""
        return cost <= without()

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        early = _Early(module)
        result = without_dead_ops(early.run())
        report.say(f"{early.moved} ops are computed for one token")
        return result


class _Row(NamedTuple):
    """One index along an axis: a token, or a query among scores."""

    axis: int
    number: int


class _Early:
    """Rewrites a module; `moved` counts the ops that are computed for one token.

    A row of a tensor of three axes has lost its axis, as poly.select has it; among heads the axis
    stays with extent 1.
    """

    def __init__(self, module: Module) -> None:
        self.rewriter, self.moved = Rewriter(module), 0
        self.whole: set[Value] = set()
        self.wanted: dict[Value, set[_Row]] = {}
        self.rows: dict[tuple[Value, _Row], Value] = {}

    def run(self) -> Module:
        ops = self.rewriter.source.ops
        for op in reversed(ops):
            self._demand(op)
        for op in ops:
            rows = self._rows_of(op)
            if op.result is None or op.result in self.whole or not rows:
                self._copy(op)
            for row in sorted(rows):
                self.rows[op.value, row] = self._row(op, row)
        return self.rewriter.module

    def _rows_of(self, op: Op) -> set[_Row]:
        return self.wanted.get(op.result, set()) if op.result is not None else set()

    def _demand(self, op: Op) -> None:
        """Note what an op reads of its operands: all, or a row for each of its own."""
        rows = self._rows_of(op)
        for row in rows:
            axes = self._axes(op, row)
            if axes is None:
                self.whole.add(op.value)
                continue
            for operand, axis in zip(op.operands, axes, strict=True):
                self._want(operand, None if axis is None else _Row(axis, row.number))
        if op.result is None or op.result in self.whole or not rows:
            for operand in op.operands:
                self._want(operand, _selected(op))

    def _want(self, value: Value, row: _Row | None) -> None:
        if row is None:
            self.whole.add(value)
        else:
            self.wanted.setdefault(value, set()).add(row)

    def _axes(self, op: Op, row: _Row) -> Axes:
        """Axes of the operands' rows; None where a row is to be selected from the whole result."""
        if op.result in self.whole and len(op.value.tensor.shape) == 3:
            return None
        return _axes(op, row.axis)

    def _copy(self, op: Op) -> None:
        row = _selected(op)
        if row is None:
            self.rewriter.copy(op)
        else:
            self.rewriter.values[op.value] = self.rows[op.operands[0], row]

    def _row(self, op: Op, row: _Row) -> Value:
        """The row of an op's result in the new module."""
        axes, add = self._axes(op, row), self.rewriter.module.add
        if axes is None:
            kept = {name: seen for name, seen in op.attributes.items() if name in OBSERVED}
            whole = self.rewriter.values[op.value]
            attributes = {"axis": row.axis, "index": row.number, **kept}
            one = add("poly.select", [whole], attributes, op.location)
            shape = list(_row_shape(op.value.tensor.shape, row.axis))
            if len(shape) == 2:
                return one
            return add("poly.reshape", [one], {"shape": shape, **kept}, op.location)
        self.moved += 1
        operands = [
            self.rewriter.values[operand]
            if axis is None
            else self.rows[operand, _Row(axis, row.number)]
            for operand, axis in zip(op.operands, axes, strict=True)
        ]
        return add(op.name, operands, self._attributes(op, row), op.location)

    def _attributes(self, op: Op, row: _Row) -> dict[str, Any]:
        """The attributes of an op for one row of its result."""
        attributes = dict(op.attributes)
        if op.name == "poly.reshape":
            attributes["shape"] = list(_row_shape(op.value.tensor.shape, row.axis))
        elif op.name in _MASKS:
            attributes.setdefault("query", row.number)
        for name in _CONSTANTS.get(op.name, ()):
            attributes[name] = self._constant(op, attributes[name], row)
        return attributes

    def _constant(self, op: Op, value: Any, row: _Row) -> Any:
        """A constant that broadcasts to the result, for one row."""
        if not isinstance(value, Symbol):
            return value
        array, rank = self.rewriter.source.symbols[value.name], len(op.value.tensor.shape)
        axis = row.axis - (rank - array.ndim)  # of the constant
        if axis < 0:
            return value
        one = array if array.shape[axis] == 1 else array.take([row.number], axis)
        one = one.squeeze(axis) if rank == 3 else one
        return self.rewriter.module.constant(f"{value.name}.row", one)


Axes = list[int | None] | None
"""For each operand the axis of the row that a row of the result needs, None for all of it; None
instead of the list where the op mixes tokens."""


def _alike(op: Op, axis: int) -> Axes:
    shape = op.value.tensor.shape[: axis + 1]
    same = all(operand.tensor.shape[: axis + 1] == shape for operand in op.operands)
    return [axis] * len(op.operands) if same else None


def _reshape(op: Op, axis: int) -> Axes:
    shape, source = op.value.tensor.shape, op.operands[0].tensor.shape
    ranks = {len(shape), len(source)}
    return [1] if axis == 1 and shape[:2] == source[:2] and ranks == {3, 4} else None


def _queries(op: Op, axis: int) -> Axes:
    """Of heads [batch, heads, tokens, ...]: all of the keys, the values and the masks."""
    others = [None] * (len(op.operands) - 1)
    return [axis, *others] if axis == 2 and len(op.value.tensor.shape) == 4 else None


_EACH = ("poly.linear", "poly.square", "poly.double", "poly.row_sum", "poly.center",
         "poly.chebyshev", "poly.add_constant", "poly.scale", "poly.affine")  # fmt: skip
_MASKS = ("poly.mask_fill", "poly.mask_zero")
RULES: dict[str, Callable[[Op, int], Axes]] = {
    **dict.fromkeys(_EACH, lambda op, axis: [axis]),
    **dict.fromkeys(("poly.add", "poly.sub", "poly.mul"), _alike),
    **dict.fromkeys(("poly.matmul", "poly.rotary", *_MASKS), _queries),
    "poly.reshape": _reshape,
    "poly.transpose": lambda op, axis: [op.attributes["permutation"][axis]],
}
"""From an op and the axis of a row of its result to what that needs of the operands."""
_CONSTANTS = {
    "poly.add_constant": ("value",),
    "poly.scale": ("factor",),
    "poly.affine": ("scale", "shift"),
    "poly.rotary": ("cos", "sin"),
}
"""Attributes that may differ from token to token."""


def _axes(op: Op, axis: int) -> Axes:
    """See ``RULES``; a row of the last axis holds no whole token."""
    rank = len(op.value.tensor.shape)
    mixed = rank != 4 if op.name == "poly.transpose" else axis == rank - 1
    return None if op.name not in RULES or mixed else RULES[op.name](op, axis)


def _selected(op: Op) -> _Row | None:
    """The row that an op selects from a tensor [batch, tokens, features] of several tokens."""
    if op.name == "poly.select" and op.attributes["axis"] == 1:
        shape = op.operands[0].tensor.shape
        if len(shape) == 3 and shape[1] > 1:
            return _Row(1, op.attributes["index"])
    return None


def _row_shape(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    kept = (1,) if len(shape) == 4 else ()
    return (*shape[:axis], *kept, *shape[axis + 1 :])
