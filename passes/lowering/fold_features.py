"""``fold-features``: scales, constants and centring along the features go into linear layers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter, elementwise, is_uniform, without_dead_ops


@dataclass(frozen=True)
class FoldFeatures(Pass):
    """Fold maps along the features into neighbouring linear layers.

    * γ and β of a norm go into every linear layer that reads it; another reader (the residual of a
      post-norm block) keeps them as a plaintext product beside the deeper branch.
    * What an output still lacks of them, the client does after it has decrypted.
    * A constant behind a linear layer goes into its bias, a factor of each feature into its rows.
    * ``center`` (x − mean) moves up through additions into the linear layers before it, and to the
      client where an input is read in no other way.
    """

    name = "fold-features"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        for rewrite in (_raise_centers, _features_into_producers, _features_into_consumers):
            module = without_dead_ops(rewrite(module, report))
        return module


def _array(module: Module, op: Op, name: str) -> np.ndarray:
    return op.site(module.symbols).constant(name)


def _linear(
    rewriter: Rewriter, op: Op, x: Value, weight: np.ndarray, bias: np.ndarray | None
) -> Value:
    base = op.attributes["weight"].name.removesuffix(".folded")
    attributes = {"weight": rewriter.module.constant(f"{base}.folded", weight)}
    if bias is not None:
        name = op.attributes["bias"].name if "bias" in op.attributes else f"{base}.bias"
        attributes["bias"] = rewriter.module.constant(
            name.removesuffix(".folded") + ".folded", bias
        )
    return rewriter.add(op, "poly.linear", [x], attributes)


def _raise_centers(module: Module, report: Report) -> Module:
    """Move ``center`` towards the inputs until it meets linear layers; leave it where it cannot."""
    done: dict[Value, Value] = {}
    rewriter = Rewriter(module)
    for op in module.ops:
        if op.name != "poly.center":
            rewriter.copy(op)
        else:
            rewriter.values[op.value] = _centred(rewriter, op, op.operands[0], done, report)
    return _centre_inputs(without_dead_ops(rewriter.module))


def _centre_inputs(module: Module) -> Module:
    """An input that is only ever read centred is centred by the client."""
    users = module.users()
    rewriter = Rewriter(module)
    for op in module.ops:
        readers = users.get(op.value, []) if op.result is not None else []
        if op.name == "poly.input" and readers and all(r.name == "poly.center" for r in readers):
            centred = rewriter.copy(op, [], {**op.attributes, "centred": True})
            rewriter.values |= {reader.value: centred for reader in readers}
        elif op.result is None or op.result not in rewriter.values:
            rewriter.copy(op)
    return rewriter.module


def _centred(
    rewriter: Rewriter, center: Op, x: Value, done: dict[Value, Value], report: Report
) -> Value:
    """x − mean in the new module; a value that is centred for several readers is so once."""
    if x not in done:
        done[x] = _centre(rewriter, center, x, done, report)
    return done[x]


def _centre(
    rewriter: Rewriter, center: Op, x: Value, done: dict[Value, Value], report: Report
) -> Value:
    producer, new = x.op, rewriter.values[x]
    if producer.name == "poly.center":
        return new
    if producer.name == "poly.linear":
        weight = _array(rewriter.source, producer, "weight")
        bias = None
        if "bias" in producer.attributes:
            bias = _array(rewriter.source, producer, "bias")
            bias = bias - bias.mean()
        operand = rewriter.values[producer.operands[0]]
        mean = weight[0] if is_uniform(weight) else weight.mean(axis=0)
        return _linear(rewriter, producer, operand, elementwise(np.subtract, weight, mean), bias)
    if producer.name == "poly.add":
        a, b = (_centred(rewriter, center, v, done, report) for v in producer.operands)
        return rewriter.add(producer, "poly.add", [a, b], {})
    if producer.name == "poly.add_constant" and isinstance(producer.attributes["value"], Symbol):
        value = _array(rewriter.source, producer, "value")
        if value.ndim and value.shape[-1] == x.tensor.shape[-1]:
            inner = _centred(rewriter, center, producer.operands[0], done, report)
            name = producer.attributes["value"].name
            centred = rewriter.module.constant(name, value - value.mean(axis=-1, keepdims=True))
            return rewriter.add(producer, "poly.add_constant", [inner], {"value": centred})
    report.say(f"center at {center.location} stays behind {producer.name}")
    return rewriter.add(center, "poly.center", [new], {})


def _features_into_producers(module: Module, report: Report) -> Module:
    """Factors and constants behind a linear layer that nothing else reads."""
    users = module.users()
    rewriter = Rewriter(module)
    for op in module.ops:
        name = {"poly.add_constant": "value", "poly.scale": "factor"}.get(op.name)
        linear = rewriter.values[op.operands[0]].op if op.operands else None
        if (
            name is None
            or linear is None
            or linear.name != "poly.linear"
            or len(users[op.operands[0]]) > 1
            or not isinstance(op.attributes[name], Symbol)
            or not _is_bias(_array(module, op, name), _array(rewriter.module, linear, "weight"))
        ):
            rewriter.copy(op)
            continue
        value = _array(module, op, name).ravel()
        weight = _array(rewriter.module, linear, "weight")
        bias = None
        if "bias" in linear.attributes:
            bias = _array(rewriter.module, linear, "bias")
        if name == "factor":
            weight = elementwise(np.multiply, weight, value[:, None])
            bias = None if bias is None else bias * value
        else:
            bias = value if bias is None else bias + value
        rewriter.values[op.value] = _linear(rewriter, linear, linear.operands[0], weight, bias)
    return rewriter.module


def _is_bias(value: np.ndarray, weight: np.ndarray) -> bool:
    """One number for every output feature, the same for all tokens."""
    return value.ndim > 0 and value.size == value.shape[-1] == weight.shape[0]


@dataclass
class _Pending:
    """x · scale + shift along the features, not yet applied."""

    x: Value
    scale: np.ndarray
    shift: np.ndarray


def _features_into_consumers(module: Module, report: Report) -> Module:
    rewriter = Rewriter(module)
    pending: dict[Value, _Pending] = {}
    for op in module.ops:
        if op.name == "poly.linear" and op.operands[0] in pending:
            _absorb(module, op, pending[op.operands[0]], rewriter)
            continue
        if op.name == "poly.output" and op.operands[0] in pending:
            _leave_to_client(op, pending[op.operands[0]], rewriter)
            continue
        rewriter.copy(op)  # dead code unless a reader is not linear
        extended = _extend(module, op, pending, rewriter)
        if extended is not None:
            pending[op.value] = extended
    return rewriter.module


def _extend(
    module: Module, op: Op, pending: dict[Value, _Pending], rewriter: Rewriter
) -> _Pending | None:
    """What a reader of this op's result may absorb."""
    if not op.operands:
        return None
    source = op.operands[0]
    before = pending.get(source)
    if op.name in ("poly.select", "poly.mean") and before is not None:
        if op.attributes["axis"] == len(source.tensor.shape) - 1:
            return None
        moved = rewriter.add(op, op.name, [before.x], op.attributes)
        return _Pending(moved, before.scale, before.shift * op.attributes.get("factor", 1.0))
    if op.name not in ("poly.scale", "poly.add_constant"):
        return None
    value = _array(module, op, "factor" if op.name == "poly.scale" else "value")
    if value.size > 1 and value.size != value.shape[-1]:
        return None  # another value for every token: not a map along the features
    value = value.reshape(-1)
    if before is None:
        before = _Pending(rewriter.values[source], np.ones(1), np.zeros(1))
    if op.name == "poly.scale":
        return _Pending(before.x, *_products(before, value))
    return _Pending(before.x, before.scale, before.shift + value)


def _products(before: _Pending, value: np.ndarray) -> list[np.ndarray]:
    return [elementwise(np.multiply, part, value) for part in (before.scale, before.shift)]


def _absorb(module: Module, op: Op, pending: _Pending, rewriter: Rewriter) -> None:
    weight = _array(module, op, "weight")
    shift = np.broadcast_to(pending.shift, weight.shape[1])
    bias = _array(module, op, "bias") if "bias" in op.attributes else None
    if shift.any():
        bias = weight @ shift + (0.0 if bias is None else bias)
    folded = elementwise(np.multiply, weight, pending.scale)
    rewriter.values[op.value] = _linear(rewriter, op, pending.x, folded, bias)


def _leave_to_client(op: Op, pending: _Pending, rewriter: Rewriter) -> None:
    """The map behind an output costs a level on the server and nothing on the client."""
    constant, name = rewriter.module.constant, f"output.{op.attributes['name']}"
    attributes = dict(op.attributes)
    if (pending.scale != 1.0).any():
        attributes["factor"] = constant(f"{name}.factor", pending.scale)
    if pending.shift.any():
        attributes["shift"] = constant(f"{name}.shift", pending.shift)
    rewriter.copy(op, [pending.x], attributes)
