"""Merges linear layers that are added to each other or applied to each other into one layer."""

from __future__ import annotations

import numpy as np

from atlasc.ir.arrays.lazy import elementwise, is_uniform
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.framework.pass_base import Report


def merge_linear_layers(module: Module, report: Report) -> Module:
    """A module in which two kinds of linear layers are merged: two layers of one input whose
    results are added, and a layer that is applied to another. Scales by a number may lie between or
    beside.

    In this way low-rank adapters (LoRA: W·x + s·B·A·x), and features that are cut out of a wide
    layer, become plain layers. A layer of a sum of layers (features that were concatenated) becomes
    a sum of layers.
    """
    rewriter, users = Rewriter(module), module.users()

    def alone(value: Value) -> bool:
        """Whether a layer can count as part of its readers."""
        return all(op.name in ("nn.linear", "nn.add", "nn.scale") for op in users[value])

    for op in module.ops:
        merged = None
        if op.name == "nn.linear" and all(r.name == "nn.linear" for r in users[op.operands[0]]):
            alone_before = all(len(users[value]) == 1 for value in op.operands[0].op.operands)
            merged = _chained(rewriter, op)
            if merged is None and alone_before:
                merged = _distributed(rewriter, op)
        elif op.name == "nn.scale" and len(users[op.operands[0]]) == 1 and alone(op.value):
            merged = _scaled(rewriter, op)
        elif op.name == "nn.add" and all(len(users[value]) == 1 for value in op.operands):
            merged = _added(rewriter, op)
        if merged is None:
            rewriter.copy(op)
        else:
            report.say(f"{op.location}: merged with the linear layer of {merged.op.location}")
            rewriter.values[op.value] = merged
    return without_dead_ops(rewriter.module)


def _arrays(module: Module, op: Op) -> tuple[np.ndarray, np.ndarray | None]:
    """Weight and bias of a linear layer."""
    bias = op.attributes.get("bias")
    weight = module.symbols[op.attributes["weight"].name]
    return weight, None if bias is None else module.symbols[bias.name]


def _layer(
    rewriter: Rewriter, like: Op, x: Value, weight: np.ndarray, bias: np.ndarray | None
) -> Value:
    """A linear layer that replaces another one."""
    name = like.attributes["weight"].name.removesuffix(".merged")
    attributes = {"weight": rewriter.module.constant(f"{name}.merged", weight)}
    if bias is not None:
        attributes["bias"] = rewriter.module.constant(f"{name}.merged.bias", bias)
    return rewriter.module.add("nn.linear", [x], attributes, like.location)


def _chained(rewriter: Rewriter, op: Op) -> Value | None:
    (x,) = rewriter.operands(op)
    if x.op.name != "nn.linear":
        return None
    (outer, shift), (inner, offset) = _arrays(rewriter.source, op), _arrays(rewriter.module, x.op)
    weight = _product(outer, inner)
    bias = None if offset is None else _product(outer, offset)
    if shift is not None:
        bias = shift if bias is None else shift + bias
    main = op if outer.size >= inner.size else x.op
    return _layer(rewriter, main, x.op.operands[0], weight, bias)


def _distributed(rewriter: Rewriter, op: Op) -> Value | None:
    """W·(A·x + B·y) as (W·A)·x + (W·B)·y, which spends a level less."""
    (total,) = rewriter.operands(op)
    parts = [value.op for value in total.op.operands]
    if total.op.name != "nn.add" or {part.name for part in parts} != {"nn.linear"}:
        return None
    outer, shift = _arrays(rewriter.source, op)
    made = []
    for part in parts:
        inner, offset = _arrays(rewriter.module, part)
        bias = shift if offset is None else _product(outer, offset)
        if offset is not None and shift is not None:
            bias = shift + bias
        made.append(_layer(rewriter, op, part.operands[0], _product(outer, inner), bias))
        shift = None  # once
    return rewriter.module.add("nn.add", made, {}, op.location)


def _product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a · b in double precision, returned in their type; a product of repeated numbers is one,
    too.
    """
    kind = np.result_type(a.dtype, b.dtype)
    if b.ndim == 2 and is_uniform(b):
        rows = (a.sum(axis=1, dtype=np.float64) * b.reshape(-1)[0]).astype(kind)
        rows = rows[:1] if (rows == rows[:1]).all() else rows
        return np.broadcast_to(rows[:, None] if len(rows) > 1 else rows[0], (len(a), b.shape[1]))
    return (a.astype(np.float64) @ b).astype(kind)


def _scaled(rewriter: Rewriter, op: Op) -> Value | None:
    (x,), factor = rewriter.operands(op), op.attributes["factor"]
    if x.op.name != "nn.linear" or isinstance(factor, Symbol):
        return None
    weight, bias = _arrays(rewriter.module, x.op)

    def scaled(array: np.ndarray) -> np.ndarray:
        return elementwise(lambda y: (y * np.float64(factor)).astype(array.dtype), array)

    weight, bias = scaled(weight), None if bias is None else scaled(bias)
    return _layer(rewriter, x.op, x.op.operands[0], weight, bias)


def _added(rewriter: Rewriter, op: Op) -> Value | None:
    one, other = (value.op for value in rewriter.operands(op))
    if one is other or {one.name, other.name} != {"nn.linear"} or one.operands != other.operands:
        return None
    (weight, bias), (more, shift) = _arrays(rewriter.module, one), _arrays(rewriter.module, other)
    if weight.shape != more.shape:
        return None
    if bias is not None and shift is not None:
        bias = bias + shift
    total = elementwise(np.add, weight, more)
    return _layer(rewriter, one, one.operands[0], total, shift if bias is None else bias)
