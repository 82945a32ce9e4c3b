"""The common state of the rules of ``pack``: the new module, and the content of its slots."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.polynomial.chebyshev import chebval

from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import observed
from atlasc.ir.layout import REPLICATED, UNUSED, Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.ops.names import OpName
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.framework.pass_base import Report
from atlasc.passes.lowering.packing.forms import FEATURES, forms_of
from atlasc.passes.lowering.packing.geometry import RowPacking, choose_packing
from atlasc.program.kernels.context import has_mask, layout_of
from atlasc.program.kernels.linear import choose_plan

_CONSTANTS = {
    "ckks.add_plain": "value",
    "ckks.mul_plain": "value",
    "ckks.chebyshev": "coefficients",
}
_ON_NUMBERS: dict[str, Callable[..., float]] = {
    "ckks.add": operator.add,
    "ckks.sub": operator.sub,
    "ckks.mul": operator.mul,
    "ckks.square": lambda x: x * x,
}
"""Attributes about the content of padding; other ops leave the padding as it is."""


_EACH_HEAD = ("ckks.add", "ckks.sub", "ckks.mul", "ckks.square", "ckks.double", "ckks.chebyshev",
              "ckks.rotary", "ckks.add_plain", "ckks.mul_plain", "ckks.rotate_sum",
              "ckks.replicate", "ckks.at_tokens")  # fmt: skip
"""Ops that do the same to each head."""


FROM_LINEAR = (
    "let a linear layer, or a sum of linear layers of one input, make the queries and keys "
    "directly, before the heads are split; it may be the identity, F.linear(q, torch.eye(features))"
)
"""Remedy if the operand of attention comes from elsewhere."""


class Packer:
    """Emits packed ops, and knows what their slots hold.

    With features in the low bits a value whose index 0 alone is right (one token, or a sum over the
    features) is copied to the unused slots at once (`copied`).

    With features in the top bits, values of one token leave the slots of the other tokens unused. A
    polynomial would explode in
    slots with unknown content, so such a value is first brought into one row (`Layout.one_row`). So
    is an operand beside another value in that layout. The slots of the other tokens must be zero
    before the copies are made. A linear transform writes these zeros at no cost; selecting a token
    costs one plaintext product. So the ops since then are emitted once more, and ops without
    readers are dropped at the end.
    """

    def __init__(
        self, module: Module, slots: int, report: Report, features_low: bool = False
    ) -> None:
        self.forms, self.report, self._users = forms_of(module), report, module.users()
        self.packing = choose_packing(module, slots, features_low)
        self.rewriter = Rewriter(module, "ckks")
        self.module = self.rewriter.module
        self._padding: dict[Value, float | None] = {}
        self._in_one_row: dict[Value, Value] = {}
        self._with_copies: dict[Value, Value] = {}

    def emit(self, op: Op, name: OpName, *operands: Value, **attributes: Any) -> Value:
        """Append a ckks op that comes from the same place as ``op``."""
        return self.rewriter.add(op, name, list(operands), attributes)

    def again(self, op: Op, *operands: Value, **changed: Any) -> Value:
        """The same packed op on other operands, with some attributes changed."""
        return self.rewriter.add(op, op.name, list(operands), {**op.attributes, **changed})

    def operand(self, op: Op, index: int = 0) -> Value:
        """Packed operand of a poly op."""
        value = self.rewriter.values.get(op.operands[index])
        if value is None or not value.encrypted:
            producer = op.operands[index].op
            raise AtlasError(
                "a matrix product outside of attention cannot be compiled yet",
                where=op.location or producer.location,
                why=f"{op.name} reads {producer.name}, which has no packed form there: the product "
                "of queries and keys is read by a softmax alone",
                remedy="put a softmax over the keys between the two products: "
                "(q @ k.mT).softmax(-1) @ v; no other form has the same values",
            )
        return value

    def layout(self, op: Op, index: int = 0) -> Layout:
        """Layout of a packed operand."""
        return layout_of(self.operand(op, index))

    def cache(self, value: Value) -> Layout:
        """Layout of a part of the keys or values that a program of one token keeps, or that one of
        a window makes for it.

        Raises:
            AtlasError: attention does not read it, or as keys and as values.
        """
        kinds, read, packing = set(), [value], self.packing
        if not isinstance(packing, RowPacking):
            read += value.op.operands[:1]  # the keys or values of all tokens
            packing = packing.rows(value.tensor.shape[0])
        for one in read:
            for user in self._users[one]:
                if user.name == "poly.matmul":
                    kinds.add(user.attributes["transpose_b"])
                elif user.name == "poly.add":
                    read.append(user.value)
        if len(kinds) != 1:
            raise AtlasError(
                f"{value.name} is not packed",
                where=value.op.location,
                why="the state of a step is keys or values of attention, and not both",
            )
        return packing.cache(kinds.pop(), value)

    def spread(self, op: Op, value: float | Symbol) -> float | Symbol:
        """A constant for every feature of an op's operand, with 0 in the padding of the features.

        A polynomial is evaluated in every slot. Padding at 0 lies in the middle of its range,
        whatever the range is, and adds nothing to a sum over the features.
        """
        layout, features = self.layout(op), op.operands[0].tensor.shape[-1]
        if is_alone(self.operand(op)):  # it may later get places without a block
            layout = layout.one_row
        if self.forms[op.operands[0]] not in FEATURES or full(layout, features):
            return value
        array = self.module.symbols[value.name] if isinstance(value, Symbol) else value
        array = np.atleast_1d(np.asarray(array))
        if array.shape[-1] > 1:
            return value  # it has features of its own
        places = layout.extent("g") * layout.extent("d")
        return self.module.constant("spread", np.where(np.arange(places) < features, array, 0.0))

    def define(self, value: Value, packed: Value) -> None:
        """Note the packed form of a poly value; a form without padding of its features is clean."""
        self.rewriter.values[value] = packed
        if self.forms[value] in FEATURES and full(layout_of(packed), value.tensor.shape[-1]):
            self._padding[packed] = 0.0

    def padding(self, value: Value) -> float | None:
        """The number in the slots of padding features, or of padding keys in scores.

        None if the padding holds copies of real values, or an unknown or varying number.
        """
        if value not in self._padding:
            self._padding[value] = self._padded(value.op)
        return self._padding[value]

    def _padded(self, op: Op) -> float | None:
        match op.name:
            case "ckks.input" | "ckks.linear_transform":
                return None if op.attributes.get("copy_padding", False) else 0.0
            case "ckks.ct_matmul_qk" | "ckks.row_scores":
                return float(op.attributes["fill"])
            case "ckks.ct_matmul_pv" | "ckks.row_context" | "ckks.mask_zero":
                return 0.0
            case "ckks.rotate_sum":
                return None
        held = [self.padding(operand) for operand in op.operands if operand.encrypted]
        known = [number for number in held if number is not None]
        constant = np.zeros(())  # a constant along features is 0 in their padding
        if op.name in _CONSTANTS:
            constant = op.site(self.module.symbols).constant(_CONSTANTS[op.name])
        match op.name:
            case "ckks.mul" if 0.0 in known:
                return 0.0
            case "ckks.chebyshev" if constant.ndim > 1:
                return 0.0
            case "ckks.mul_plain" if constant.shape[-1:] > (1,):
                return None if op.attributes.get("copy_padding", False) else 0.0
            case "ckks.mul_plain" | "ckks.at_tokens" if has_mask(op):  # the weight differs by token
                return 0.0 if 0.0 in known else None
        if len(known) < len(held):
            return None
        match op.name:
            case "ckks.add_plain":
                return known[0] + (0.0 if constant.shape[-1:] > (1,) else float(constant.flat[0]))
            case "ckks.mul_plain":
                return known[0] * float(constant.flat[0])
            case "ckks.mask_fill":
                return known[0] + float(op.attributes["fill"])
            case "ckks.chebyshev":
                return float(chebval(known[0], constant))
            case "ckks.double":
                return known[0] * 2.0 ** op.attributes["times"]
        return _ON_NUMBERS.get(op.name, lambda x, *_: x)(*known)

    def copied(self, op: Op, value: Value) -> Value:
        """The value in all unused slots, which takes one plaintext product; with features in the
        top bits, or without unused slots, the value itself.
        """
        layout = layout_of(value)
        if not self.packing.features_low or layout.field(UNUSED) is None:
            return value
        alone = self.emit(op, "ckks.mul_plain", value, value=1.0, only_first=True)
        layout = layout.without((UNUSED,), REPLICATED)
        return self.emit(op, "ckks.replicate", alone, layout=layout)

    def with_copied_heads(self, op: Op, value: Value) -> Value:
        """The same value from a linear transform that copies a real head to the padding.

        A polynomial is evaluated in every slot, and explodes if a slot leaves its range. So norms
        and scores of padding heads must be those of a real head.

        Args:
            op: the op that reads the value.
            value: heads, or sums of each head.

        Raises:
            AtlasError: the value does not come from a linear layer.
        """
        if value not in self._with_copies:
            made = self._made_with_copies(op, value)
            self._with_copies |= {value: made, made: made}
        return self._with_copies[value]

    def _made_with_copies(self, op: Op, value: Value) -> Value:
        producer = value.op
        if "g" not in dict(layout_of(value).extents):  # a sum of all heads is in the padding too
            return value
        if producer.name == "ckks.linear_transform":
            return self.again(producer, *producer.operands, copy_padding=True)
        if producer.attributes.get("state"):  # the rows that were added to it are copied there
            return value
        weighted = producer.name == "ckks.mul_plain" and has_mask(producer)
        if producer.name not in _EACH_HEAD or weighted:
            raise AtlasError(
                "queries and keys of attention must come from a linear layer",
                where=op.location,
                why=f"an operand of {op.name} comes from {producer.name}; in the padding of the "
                "heads a polynomial would leave its range",
                remedy=FROM_LINEAR,
            )
        operands = [
            self.with_copied_heads(op, operand) if operand.encrypted else operand
            for operand in producer.operands
        ]
        constant = producer.name in ("ckks.add_plain", "ckks.mul_plain")
        if constant and isinstance(producer.attributes["value"], Symbol):
            return self.again(producer, *operands, copy_padding=True)
        same = operands == list(producer.operands)
        return value if same else self.again(producer, *operands)

    def as_read(self, value: Value) -> Value:
        """The value with copied heads, if some op reads it with these."""
        return self._with_copies.get(value, value)

    def masked_later(self, op: Op) -> tuple[Op, float] | None:
        """The mask of attention scores behind a function of them, as a cap, and a score at which
        the function is valid; None if something else reads the scores.
        """
        value, middle, inside = op.value, 0.0, False
        while len(self._users[value]) == 1:
            (user,) = self._users[value]
            if user.name == "poly.mask_fill":
                return (user, middle) if inside else None
            constant = user.attributes.get("value")
            if user.name == "poly.add_constant" and isinstance(constant, float):
                middle -= 0.0 if inside else constant
            elif user.name != "poly.chebyshev":
                return None
            inside |= user.name == "poly.chebyshev"
            value = user.value
        return None

    def one_row(self, value: Value) -> Value:
        """The value in one row; a value in all tokens or in one row already is returned as it
        is.
        """
        if not is_alone(value):
            return value
        if value not in self._in_one_row:
            self._in_one_row[value] = self._rebuilt(value)
        return self._in_one_row[value]

    def _rebuilt(self, value: Value) -> Value:
        op, layout = value.op, layout_of(value).one_row
        if op.name == "ckks.linear_transform":
            return self._copied(op, self.again(op, *op.operands, only_first=True), layout)
        if not is_alone(op.operands[0]):  # a selected token, or a sum over all tokens
            alone = self.emit(
                op, "ckks.mul_plain", value, value=1.0, only_first=True, **observed(op)
            )
            return self._copied(op, alone, layout)
        moved = {"layout": layout} if "layout" in op.attributes else {}
        return self.again(op, *map(self.one_row, op.operands), **moved)

    def _copied(self, op: Op, row: Value, layout: Layout) -> Value:
        return self.emit(op, "ckks.replicate", row, layout=layout, **observed(op))

    def query(self, value: Value, keys: Layout, flags: dict[str, Any], where: str) -> Value:
        """A query beside keys: its heads at the place of theirs, in the slots of all tokens.

        Args:
            value: the query, made by a linear layer, or by a norm of its result.
            keys: layout of the keys.
            flags: attributes of the linear layer.
            where: place of the product, for messages.

        Raises:
            AtlasError: the query does not come from a linear layer.
        """
        if keys.one_token:
            return self.with_copied_heads(value.op, value) if flags else value
        op, layout = value.op, keys.without(("t",), REPLICATED)
        if op.name == "ckks.rotary":
            query = self.query(op.operands[0], keys, flags, where)
            return self.again(op, query, *op.operands[1:])
        if op.name == "ckks.add_plain":
            return self.again(op, self.query(op.operands[0], keys, flags, where), **flags)
        if op.name in _EACH_HEAD and layout_of(value) == layout:  # behind a norm
            return self.with_copied_heads(op, value) if flags else value
        if op.name != "ckks.linear_transform":
            raise AtlasError(
                "the query of one token must come from a linear layer",
                where=where,
                why=f"it comes from {op.name}",
                remedy=FROM_LINEAR,
            )
        if self.packing.features_low:
            return self.again(op, *op.operands, **flags)
        if is_alone(op.operands[0]):
            return self._copied(op, self.again(op, *op.operands, only_first=True, **flags), layout)
        outputs, inputs = self.module.symbols[op.attributes["weight"].name].shape
        plan = choose_plan(layout_of(op.operands[0]), layout, inputs, outputs)._asdict()
        return self.again(op, *op.operands, layout=layout, **plan, **flags)


def is_alone(value: Value) -> bool:
    """Whether only the slots of the value's own token matter; other tokens' may hold anything."""
    return layout_of(value).field(UNUSED) is not None


def copies_of(value: Value) -> int:
    """Number of copies of a value in the slots of a ciphertext that may share its evaluation."""
    return 1 if is_alone(value) else layout_of(value).copies


def full(layout: Layout, features: int) -> bool:
    """Whether no slot of the feature fields is padding."""
    filled = layout.extent("d") * layout.extent("g") == features
    return filled and layout.padded(("d", "g")).extents == layout.extents
