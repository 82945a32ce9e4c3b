"""Packed values of one token: how its neighbours are brought to hold copies of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import REPLICATED, UNUSED, Layout
from atlasc.ir.module import Op, Value
from atlasc.passes.execution.kernels.context import layout_of
from atlasc.passes.execution.kernels.linear import choose_plan
from atlasc.passes.framework.pass_base import observed
from atlasc.passes.framework.rewriting import Rewriter


def is_alone(value: Value) -> bool:
    """Whether other tokens hold anything beside the one of a value."""
    return layout_of(value).fields[-1].axis == UNUSED


class OneRow:
    """Rebuilds values in the layout `one_row`.

    A polynomial needs that, because it explodes where a slot leaves its range; so does an operand
    beside another value in that layout. The slots of the other tokens must be zero before the
    copies are made. A linear transform writes these zeros at no cost; selecting a token costs one
    plaintext product. So the ops since then are emitted once more, and ops without readers are
    dropped at the end.
    """

    def __init__(self, rewriter: Rewriter) -> None:
        self.rewriter = rewriter
        self._known: dict[Value, Value] = {}

    def __call__(self, value: Value) -> Value:
        """The value in one row; one that is in all tokens, or in one row, as it is."""
        if not is_alone(value):
            return value
        if value not in self._known:
            self._known[value] = self._rebuilt(value)
        return self._known[value]

    def _rebuilt(self, value: Value) -> Value:
        op, layout = value.op, layout_of(value).one_row
        if op.name == "ckks.linear_transform":
            return self._copied(op, self._again(op, op.operands, first_row=True), layout)
        if not is_alone(op.operands[0]):  # a token of all, or a sum over all
            mask = {"value": 1.0, "first_row": True, **observed(op)}
            return self._copied(op, self.rewriter.add(op, "ckks.mul_plain", [value], mask), layout)
        operands = [self(operand) for operand in op.operands]
        moved = {"layout": str(layout)} if "layout" in op.attributes else {}
        return self._again(op, operands, **moved)

    def query(self, value: Value, keys: Layout, flags: dict[str, Any], where: str) -> Value:
        """A query beside keys: its heads where theirs are, in the slots of all tokens.

        Args:
            value: from a linear layer.
            keys: layout of the keys.
            flags: of the linear layer.
            where: place of the product, for messages.

        Raises:
            AtlasError: it comes from no linear layer.
        """
        op, layout = value.op, keys.without(("t",), REPLICATED)
        if op.name == "ckks.add_plain":
            inner = self.query(op.operands[0], keys, flags, where)
            return self._again(op, [inner], **flags)
        if op.name != "ckks.linear_transform":
            raise AtlasError(
                "the query of one token must come from a linear layer",
                where=where,
                why=f"it comes from {op.name}",
            )
        if is_alone(op.operands[0]):
            row = self._again(op, op.operands, first_row=True, **flags)
            return self._copied(op, row, layout)
        outputs, inputs = self.rewriter.module.symbols[op.attributes["weight"].name].shape
        plan = choose_plan(layout_of(op.operands[0]), layout, inputs, outputs)._asdict()
        return self._again(op, op.operands, layout=str(layout), **plan, **flags)

    def _copied(self, op: Op, row: Value, layout: Layout) -> Value:
        attributes = {"layout": str(layout), **observed(op)}
        return self.rewriter.add(op, "ckks.replicate", [row], attributes)

    def _again(self, op: Op, operands: Sequence[Value], **changed: Any) -> Value:
        """The same packed op on other operands, with some attributes changed."""
        return self.rewriter.add(op, op.name, list(operands), {**op.attributes, **changed})
