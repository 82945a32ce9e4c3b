"""What the rules of ``pack`` share: the module under construction, and its padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.types import CiphertextType
from atlasc.passes.framework.pass_base import Report
from atlasc.passes.framework.rewriting import Rewriter
from atlasc.passes.lowering.packing.forms import Form, Forms
from atlasc.passes.lowering.packing.geometry import Packing
from atlasc.passes.lowering.packing.one_row import OneRow, is_alone


class Packer:
    """Emits packed ops, and knows what their slots hold."""

    def __init__(self, module: Module, packing: Packing, forms: Forms, report: Report) -> None:
        self.packing, self.forms, self.report = packing, forms, report
        self.rewriter = Rewriter(module, "ckks")
        self.module = self.rewriter.module
        self.one_row = OneRow(self.rewriter)
        self._clean: dict[Value, bool] = {}

    def operand(self, op: Op, index: int = 0) -> Value:
        """Packed operand of a poly op."""
        value = self.rewriter.values.get(op.operands[index])
        if value is None or not isinstance(value.type, CiphertextType):
            producer = op.operands[index].op
            raise AtlasError(
                f"{op.name} reads {producer.name}, which has no packed form there",
                where=op.location,
            )
        return value

    def layout(self, op: Op, index: int = 0) -> Layout:
        """Layout of a packed operand."""
        type_ = self.operand(op, index).type
        assert isinstance(type_, CiphertextType)
        return type_.layout

    def spread(self, op: Op, value: float | Symbol) -> float | Symbol:
        """A constant for every feature of an op's operand, and 0 in the padding of the features.

        A polynomial is evaluated in every slot. Padding that stays at 0 lies in the middle of its
        range, whatever the range is, and adds nothing to a sum over the features.
        """
        layout, features = self.layout(op), op.operands[0].tensor.shape[-1]
        if is_alone(self.operand(op)):  # it may come to have places without a block
            layout = layout.one_row
        if self.forms[op.operands[0]] not in (Form.HIDDEN, Form.VECTOR) or full(layout, features):
            return value
        array = self.module.symbols[value.name] if isinstance(value, Symbol) else value
        array = np.atleast_1d(np.asarray(array))
        if array.shape[-1] > 1:
            return value  # it has features of its own
        places = layout.extent("g") * layout.extent("d")
        return self.module.constant("spread", np.where(np.arange(places) < features, array, 0.0))

    def define(self, value: Value, packed: Value) -> None:
        """Note the packed form of a poly value; one without padding of its features is clean."""
        self.rewriter.values[value] = packed
        if self.forms[value] in (Form.HIDDEN, Form.VECTOR):
            features = value.tensor.shape[-1]
            if full(packed.ciphertext.layout, features):
                self._clean[packed] = True

    def has_clean_padding(self, value: Value) -> bool:
        """Whether a value is 0 in the padding of its features."""
        if value not in self._clean:
            op = value.op
            operands = (self.has_clean_padding(operand) for operand in op.operands)
            match op.name:
                case "ckks.input" | "ckks.linear_transform":
                    clean = not op.attributes.get("copy_padding", False)
                case "ckks.ct_matmul_pv" | "ckks.row_context":
                    clean = True
                case "ckks.rotate_sum":
                    clean = False
                case "ckks.chebyshev":  # coefficients of features have none in the padding
                    coefficients = op.attributes["coefficients"]
                    clean = (
                        isinstance(coefficients, Symbol)
                        and self.module.symbols[coefficients.name].ndim > 1
                    )
                case "ckks.mul":
                    clean = any(operands)
                case "ckks.mul_plain":
                    constant = op.attributes["value"]
                    number = not isinstance(constant, Symbol)
                    shape = () if number else self.module.symbols[constant.name].shape
                    clean = shape[-1:] > (1,) or all(operands)
                case _:
                    clean = all(operands)
            self._clean[value] = clean
        return self._clean[value]

    def emit(self, op: Op, name: str, operands: list[Value], attributes: dict[str, Any]) -> Value:
        """Append a ckks op that comes from the same place as ``op``."""
        return self.rewriter.add(op, f"ckks.{name}", operands, attributes)


def full(layout: Layout, features: int) -> bool:
    """No slot of the feature fields is padding."""
    filled = layout.extent("d") * layout.extent("g") == features
    return filled and layout.padded(("d", "g")).extents == layout.extents
