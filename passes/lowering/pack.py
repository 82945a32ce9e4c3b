"""``pack``: a poly module becomes macro ops on packed ciphertexts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import UNUSED, Layout
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.types import CiphertextType
from atlasc.passes.lowering.kernels.attention import score_layout
from atlasc.passes.lowering.kernels.linear import choose_baby_steps
from atlasc.passes.lowering.packing import Packing, choose_packing
from atlasc.passes.pass_base import Pass, Report
from atlasc.passes.rewriting import Rewriter, without_dead_ops


@dataclass(frozen=True)
class Pack(Pass):
    """Give every value a layout and every op its packed form.

    Run it after folding: a domain map, a scalar factor or a centring that is left becomes a plaintext
    product, which costs a level.

    Attributes:
        slots: slots of a ciphertext.
    """

    name: ClassVar[str] = "pack"
    slots: int = 32768

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to ckks module."""
        packing = choose_packing(module, self.slots)
        report.say(
            f"packing: {packing.width} features a block, slot bits d={packing.d} g={packing.g} "
            f"b={packing.b} t={packing.t}"
        )
        packer = _Packer(module, packing)
        packed = packer.run()
        packed.attributes["slots"] = self.slots
        packed.attributes["batch_capacity"] = 1 << packing.b
        return without_dead_ops(packed)


class _Packer:
    def __init__(self, module: Module, packing: Packing) -> None:
        self.packing = packing
        self.rewriter = Rewriter(module, "ckks")
        self.module = self.rewriter.module

    def run(self) -> Module:
        for op in self.rewriter.source.ops:
            rule = _RULES.get(op.name)
            if rule is None:
                raise AtlasError(
                    f"{op.name} has no packed form",
                    where=op.location,
                    remedy="run expand, normalise-affine and assign-scales before pack",
                )
            result = rule(self, op)
            if op.result is not None and result is not None:
                self.rewriter.values[op.result] = result
                if "magnitude" in op.attributes and isinstance(result.type, CiphertextType):
                    # Padding slots of scores hold the fill, whether or not a real key is masked.
                    fill = abs(op.attributes.get("fill", 0.0))
                    result.op.attributes["magnitude"] = max(op.attributes["magnitude"], fill)
        return self.module

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

    def emit(self, op: Op, name: str, operands: list[Value], attributes: dict[str, Any]) -> Value:
        return self.rewriter.add(op, f"ckks.{name}", operands, attributes)


def _input(packer: _Packer, op: Op) -> Value:
    shape, name = op.attributes["shape"], op.attributes["name"]
    if op.attributes["side"] == "public":
        attributes = {"name": name, "shape": shape}
        return packer.module.add("ckks.public_input", [], attributes, op.location, op.value.name)
    batch, features = shape[0], shape[-1]
    tokens = shape[1] if len(shape) == 3 else 1
    layout = packer.packing.hidden(batch, tokens, features)
    attributes = {"name": name, "layout": str(layout), "shape": shape}
    for name in ("factor", "centred"):
        if name in op.attributes:
            attributes[name] = op.attributes[name]
    return packer.module.add("ckks.input", [], attributes, op.location, op.value.name)


def _output(packer: _Packer, op: Op) -> None:
    shape = list(op.operands[0].type.shape)  # type: ignore[union-attr]
    packer.module.add(
        "ckks.output", [packer.operand(op)], {**op.attributes, "shape": shape}, op.location
    )


def _linear(packer: _Packer, op: Op) -> Value:
    source = packer.layout(op)
    outputs, inputs = packer.module.symbols[op.attributes["weight"].name].shape
    target = packer.packing.like(source, outputs)
    attributes = {
        **{name: op.attributes[name] for name in ("weight", "bias") if name in op.attributes},
        "baby_steps": choose_baby_steps(source, target, inputs, outputs),
        "layout": str(target),
    }
    return packer.emit(op, "linear_transform", [packer.operand(op)], attributes)


def _rotary(packer: _Packer, op: Op) -> Value:
    """A rotary embedding goes into the linear layer that makes its operand."""
    producer = packer.operand(op).op
    if producer.name != "ckks.linear_transform" or "cos" in producer.attributes:
        raise AtlasError(
            "a rotary embedding must follow a linear layer directly",
            where=op.location,
            why=f"its operand comes from {producer.name}",
        )
    tables = {name: op.attributes[name] for name in ("cos", "sin")}
    attributes = {**producer.attributes, **tables}
    return packer.emit(producer, "linear_transform", [producer.operands[0]], attributes)


def _binary(packer: _Packer, op: Op) -> Value:
    name = op.name.removeprefix("poly.")
    return packer.emit(op, name, [packer.operand(op, 0), packer.operand(op, 1)], {})


def _square(packer: _Packer, op: Op) -> Value:
    return packer.emit(op, "square", [packer.operand(op)], {})


def _double(packer: _Packer, op: Op) -> Value:
    return packer.emit(op, "double", [packer.operand(op)], {"times": op.attributes["times"]})


def _add_constant(packer: _Packer, op: Op) -> Value:
    return packer.emit(op, "add_plain", [packer.operand(op)], {"value": op.attributes["value"]})


def _scale(packer: _Packer, op: Op) -> Value:
    return packer.emit(op, "mul_plain", [packer.operand(op)], {"value": op.attributes["factor"]})


def _chebyshev(packer: _Packer, op: Op) -> Value:
    if op.attributes["domain"] != [-1.0, 1.0]:
        raise AtlasError(
            f"a Chebyshev sum on {op.attributes['domain']} cannot be packed",
            where=op.location,
            remedy="run normalise-affine first",
        )
    if packer.layout(op).field(UNUSED):
        _mark_linear(packer, op, "first_row")
    attributes = {"coefficients": op.attributes["coefficients"]}
    return packer.emit(op, "chebyshev", [packer.operand(op)], attributes)


def _mark_linear(packer: _Packer, op: Op, flag: str) -> None:
    """Ask the linear transforms before an op to leave harmless values in the padding.

    A polynomial is evaluated in every slot, and explodes where a slot leaves its range: scores of
    padding heads must be those of a real head, and unread tokens must be zero.
    """
    for index in range(len(op.operands)):
        producer = packer.operand(op, index).op
        while producer.name == "ckks.add_plain":
            producer = producer.operands[0].op
        if producer.name != "ckks.linear_transform":
            raise AtlasError(
                f"{op.name} has padding that would leave the range of its polynomial",
                where=op.location,
                why=f"its operand comes from {producer.name}, not from a linear layer",
            )
        producer.attributes[flag] = True


def _row_sum(packer: _Packer, op: Op) -> Value:
    axes = ["s"] if packer.layout(op).field("s") else ["d", "g"]
    return packer.emit(op, "rotate_sum", [packer.operand(op)], {"axes": axes})


def _center(packer: _Packer, op: Op) -> Value:
    """x − Σx/n; the mean is spread over the features only, so that their padding stays zero."""
    x, layout = packer.operand(op), packer.layout(op)
    features = op.operands[0].type.shape[-1]  # type: ignore[union-attr]
    total = packer.emit(op, "rotate_sum", [x], {"axes": ["d", "g"]})
    share: float | Symbol = 1.0 / features
    if features != layout.extent("g") * layout.extent("d") or not _full(layout):
        share = packer.module.constant("mean", np.full(features, 1.0 / features))
    attributes = {"value": share, "layout": str(layout)}
    mean = packer.emit(op, "mul_plain", [total], attributes)
    return packer.emit(op, "sub", [x, mean], {})


def _full(layout: Layout) -> bool:
    """No slot of the feature fields is padding."""
    extents = layout.padded(("d", "g")).extents
    return extents == layout.extents


def _mean(packer: _Packer, op: Op) -> Value:
    if op.attributes["axis"] != 1:
        raise AtlasError("a mean is only packed over the tokens (axis 1)", where=op.location)
    tokens = packer.layout(op).extent("t")
    factor = op.attributes.get("factor", 1.0) / tokens
    masked = packer.emit(
        op, "mul_plain", [packer.operand(op)], {"value": factor, "zero_padding": True}
    )
    return packer.emit(op, "rotate_sum", [masked], {"axes": ["t"]})


def _select(packer: _Packer, op: Op) -> Value:
    if op.attributes["axis"] != 1:
        raise AtlasError("only a token (axis 1) can be selected", where=op.location)
    attributes = {"axis": "t", "index": op.attributes["index"]}
    return packer.emit(op, "select", [packer.operand(op)], attributes)


def _same_slots(packer: _Packer, op: Op) -> Value:
    """Splitting features into heads and merging them moves nothing in this packing."""
    shape = op.value.type.shape  # type: ignore[union-attr]
    source = op.operands[0].type.shape  # type: ignore[union-attr]
    layout = packer.layout(op)
    width = packer.packing.width
    heads = {
        "poly.reshape": (
            (len(shape) == 4 and shape[-1] == width and shape[:2] == source[:2])
            or (len(source) == 4 and source[-1] == width and shape[:2] == source[:2])
        ),
        "poly.transpose": op.attributes.get("permutation") == [0, 2, 1, 3],
    }
    if not heads[op.name] or "d" not in dict(layout.extents):
        raise AtlasError(
            f"{op.name} from {source} to {shape} would move data between slots",
            where=op.location,
            why="only the splitting and merging of attention heads is free",
            remedy="run canonicalise on the nn module, or rewrite the model",
        )
    return packer.operand(op)


def _matmul(packer: _Packer, op: Op) -> Value | None:
    if op.attributes["transpose_b"]:
        return None  # becomes one op with the mask that follows
    hidden = packer.layout(op, 1)
    operands = [packer.operand(op, 0), packer.operand(op, 1)]
    return packer.emit(op, "ct_matmul_pv", operands, {"layout": str(hidden)})


def _mask_fill(packer: _Packer, op: Op) -> Value:
    matmul = op.operands[0].op
    if matmul.name != "poly.matmul" or not matmul.attributes["transpose_b"]:
        raise AtlasError(
            "a masked softmax must follow the product of queries and keys",
            where=op.location,
            why=f"it follows {matmul.name}",
            remedy="run assign-scales, which removes scalar factors in between",
        )
    hidden = packer.layout(matmul, 0)
    heads = op.value.type.shape[1]  # type: ignore[union-attr]
    attributes = {
        "causal": op.attributes.get("causal", False),
        "fill": op.attributes["fill"],
        "layout": str(score_layout(hidden, heads)),
    }
    if heads % (1 << packer.packing.g):
        _mark_linear(packer, matmul, "copy_padding")
    operands = [packer.operand(matmul, 0), packer.operand(matmul, 1)]
    operands += [packer.rewriter.values[mask] for mask in op.operands[1:]]
    return packer.emit(matmul, "ct_matmul_qk", operands, attributes)


def _mask_zero(packer: _Packer, op: Op) -> Value:
    operands = [packer.operand(op), *(packer.rewriter.values[mask] for mask in op.operands[1:])]
    attributes = {name: op.attributes[name] for name in ("causal", "value")}
    return packer.emit(op, "mask_zero", operands, attributes)


_RULES: dict[str, Callable[[_Packer, Op], Value | None]] = {
    "poly.input": _input,
    "poly.output": _output,
    "poly.linear": _linear,
    "poly.rotary": _rotary,
    "poly.add": _binary,
    "poly.sub": _binary,
    "poly.mul": _binary,
    "poly.square": _square,
    "poly.double": _double,
    "poly.add_constant": _add_constant,
    "poly.scale": _scale,
    "poly.chebyshev": _chebyshev,
    "poly.row_sum": _row_sum,
    "poly.center": _center,
    "poly.mean": _mean,
    "poly.select": _select,
    "poly.reshape": _same_slots,
    "poly.transpose": _same_slots,
    "poly.matmul": _matmul,
    "poly.mask_fill": _mask_fill,
    "poly.mask_zero": _mask_zero,
}
