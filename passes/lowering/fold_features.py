"""``fold-features``: folds scales, constants and centring along the features into linear layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from atlasc.ir.arrays.lazy import as_dtype, elementwise, is_uniform
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class FoldFeatures(Pass):
    """Fold maps along the features into neighbouring linear layers.

    * γ and β of a norm go into every linear layer that reads it. Another reader (the residual of a
      post-norm block) keeps them as a plaintext product beside the deeper branch.
    * If γ and β remain before an output, the client applies them after decryption.
    * The factors of a norm of single heads go into the tables of a rotary embedding that reads it.
    * A constant after a linear layer goes into its bias, a factor for each feature into its rows.
    * ``center`` (x − mean) moves up through additions into the linear layers before it; the client
      centres an input that is read in no other way.
    """

    name = "fold-features"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        for rewrite in (_raise_centers, _centre_inputs, _into_producers, _into_consumers):
            module = without_dead_ops(rewrite(module, report))
        return module


def _array(module: Module, op: Op, name: str) -> np.ndarray:
    return op.site(module.symbols).stored(name)


def _bias(module: Module, op: Op) -> np.ndarray | None:
    return _array(module, op, "bias") if "bias" in op.attributes else None


def _linear(
    rewriter: Rewriter, op: Op, x: Value, weight: np.ndarray, bias: np.ndarray | None
) -> Value:
    """A linear layer that replaces an old one, with a folded weight and bias. The weight keeps its
    precision: in a wide model, doubles would be most of the memory.
    """
    name = op.attributes["weight"].name
    base = name.removesuffix(".folded")
    weight = as_dtype(weight, rewriter.module.symbols[name].dtype)
    attributes = {"weight": rewriter.module.constant(f"{base}.folded", weight)}
    if bias is not None:
        name = op.attributes["bias"].name if "bias" in op.attributes else f"{base}.bias"
        name = name.removesuffix(".folded") + ".folded"
        attributes["bias"] = rewriter.module.constant(name, bias)
    return rewriter.add(op, "poly.linear", [x], attributes)


def _raise_centers(module: Module, report: Report) -> Module:
    """Move ``center`` towards the inputs until it meets linear layers; leave it where it cannot
    move. A value with several centred readers is centred once.
    """
    rewriter, done = Rewriter(module), dict[Value, Value]()

    def centred(center: Op, x: Value) -> Value:
        if x not in done:
            done[x] = centre(center, x)
        return done[x]

    def centre(center: Op, x: Value) -> Value:
        producer, new = x.op, rewriter.values[x]
        if producer.name == "poly.center":
            return new
        if producer.name == "poly.linear":
            weight, bias = _array(module, producer, "weight"), _bias(module, producer)
            bias = None if bias is None else bias - bias.mean()
            mean = weight[0] if is_uniform(weight) else weight.mean(axis=0)
            operand = rewriter.values[producer.operands[0]]
            weight = elementwise(np.subtract, weight, mean)
            return _linear(rewriter, producer, operand, weight, bias)
        if producer.name == "poly.add":
            addends = [centred(center, operand) for operand in producer.operands]
            return rewriter.add(producer, "poly.add", addends, {})
        symbol = producer.attributes.get("value")
        if producer.name == "poly.add_constant" and isinstance(symbol, Symbol):
            value = _array(module, producer, "value")
            if value.ndim and value.shape[-1] == x.tensor.shape[-1]:
                inner = centred(center, producer.operands[0])
                value = value - value.mean(axis=-1, keepdims=True)
                attributes = {"value": rewriter.module.constant(symbol.name, value)}
                return rewriter.add(producer, "poly.add_constant", [inner], attributes)
        report.say(f"center at {center.location} stays behind {producer.name}")
        return rewriter.add(center, "poly.center", [new], {})

    for op in module.ops:
        if op.name == "poly.center":
            rewriter.values[op.value] = centred(op, op.operands[0])
        else:
            rewriter.copy(op)
    return rewriter.module


def _centre_inputs(module: Module, report: Report) -> Module:
    """Let the client centre an input that is only read centred."""
    rewriter, users = Rewriter(module), module.users()
    for op in module.ops:
        readers = users.get(op.value, []) if op.result is not None else []
        if op.name == "poly.input" and readers and all(r.name == "poly.center" for r in readers):
            centred = rewriter.copy(op, [], {**op.attributes, "centred": True})
            rewriter.values |= {reader.value: centred for reader in readers}
        elif op.result is None or op.result not in rewriter.values:
            rewriter.copy(op)
    return rewriter.module


def _into_producers(module: Module, report: Report) -> Module:
    """Fold factors and constants into the linear layer before them if nothing else reads it."""
    rewriter, users = Rewriter(module), module.users()
    for op in module.ops:
        name = {"poly.add_constant": "value", "poly.scale": "factor"}.get(op.name, "")
        if isinstance(op.attributes.get(name), Symbol) and len(users[op.operands[0]]) == 1:
            linear, value = rewriter.values[op.operands[0]].op, _array(module, op, name)
            if linear.name == "poly.linear":
                weight, bias = (
                    _array(rewriter.module, linear, "weight"),
                    _bias(rewriter.module, linear),
                )
                # One number for each output feature, the same for all tokens.
                if value.ndim > 0 and value.size == value.shape[-1] == weight.shape[0]:
                    value = value.ravel()
                    if name == "factor":
                        weight = elementwise(np.multiply, weight, value[:, None])
                        bias = None if bias is None else bias * value
                    else:
                        bias = value if bias is None else bias + value
                    x = linear.operands[0]
                    rewriter.values[op.value] = _linear(rewriter, linear, x, weight, bias)
                    continue
        rewriter.copy(op)
    return rewriter.module


class _Pending(NamedTuple):
    """x · scale + shift along the features, not yet applied."""

    x: Value
    scale: np.ndarray
    shift: np.ndarray


def _into_consumers(module: Module, report: Report) -> Module:
    """Fold factors and constants into the linear layers and outputs that read them."""
    rewriter, pending = Rewriter(module), dict[Value, _Pending]()
    for op in module.ops:
        before = pending.get(op.operands[0]) if op.operands else None
        if op.name == "poly.linear" and before is not None:
            weight, bias = _array(module, op, "weight"), _bias(module, op)
            shift = np.broadcast_to(before.shift, weight.shape[1])
            if shift.any():
                bias = weight @ shift + (0.0 if bias is None else bias)
            weight = elementwise(np.multiply, weight, before.scale)
            rewriter.values[op.value] = _linear(rewriter, op, before.x, weight, bias)
        elif op.name == "poly.rotary" and before is not None and not before.shift.any():
            rewriter.values[op.value] = _rotated(rewriter, op, before)
        elif op.name == "poly.output" and before is not None:
            _leave_to_client(op, before, rewriter)
        else:
            rewriter.copy(op)  # unused if all readers are linear
            extended = _extended(rewriter, op, before)
            if extended is not None:
                pending[op.value] = extended
    return rewriter.module


def _extended(rewriter: Rewriter, op: Op, before: _Pending | None) -> _Pending | None:
    """The map along features that the readers of this op's result may absorb."""
    if before is not None and _keeps_features(op):
        moved = rewriter.add(op, op.name, [before.x], op.attributes)
        return _Pending(moved, before.scale, before.shift)
    if op.name in ("poly.select", "poly.mean") and before is not None:
        if op.attributes["axis"] == len(op.operands[0].tensor.shape) - 1:
            return None
        operands = [before.x, *rewriter.operands(op)[1:]]
        moved = rewriter.add(op, op.name, operands, op.attributes)
        return _Pending(moved, before.scale, before.shift * op.attributes.get("factor", 1.0))
    if op.name not in ("poly.scale", "poly.add_constant"):
        return None
    value = _array(rewriter.source, op, "factor" if op.name == "poly.scale" else "value")
    if value.size > 1 and value.size != value.shape[-1]:
        return None  # differs by token, so no map along the features
    value = value.reshape(-1)
    x, scale, shift = before or _Pending(rewriter.values[op.operands[0]], np.ones(1), np.zeros(1))
    if op.name == "poly.add_constant":
        return _Pending(x, scale, shift + value)
    return _Pending(x, *(elementwise(np.multiply, part, value) for part in (scale, shift)))


def _keeps_features(op: Op) -> bool:
    """Whether an op only moves heads and tokens."""
    last = len(op.value.tensor.shape) - 1 if op.result is not None else 0
    moves = op.name == "poly.transpose" and op.attributes["permutation"][-1] == last
    return moves or (op.name == "poly.repeat" and op.attributes["axis"] < last)


def _rotated(rewriter: Rewriter, op: Op, before: _Pending) -> Value:
    """A rotary embedding of x · scale: each table has the factor of the feature that it meets."""
    cos, sin = _array(rewriter.source, op, "cos"), _array(rewriter.source, op, "sin")
    scale = np.broadcast_to(before.scale, cos.shape[-1:])
    other = np.roll(scale, len(scale) // 2)
    tables = {
        "cos": rewriter.module.constant("rotary.cos.folded", elementwise(np.multiply, cos, scale)),
        "sin": rewriter.module.constant("rotary.sin.folded", elementwise(np.multiply, sin, other)),
    }
    return rewriter.add(op, op.name, [before.x], {**op.attributes, **tables})


def _leave_to_client(op: Op, pending: _Pending, rewriter: Rewriter) -> None:
    """Let the client apply the map before an output: it would take a level on the server."""
    constant, name = rewriter.module.constant, f"output.{op.attributes['name']}"
    attributes = dict(op.attributes)
    if (pending.scale != 1.0).any():
        attributes["factor"] = constant(f"{name}.factor", pending.scale)
    if pending.shift.any():
        attributes["shift"] = constant(f"{name}.shift", pending.shift)
    rewriter.copy(op, [pending.x], attributes)
