"""Features of queries and keys in another order: the order cancels in their product.

For an orthogonal matrix A is (q·Aᵀ)·(k·Aᵀ)ᵀ = q·kᵀ. A rotary embedding of some features puts the
features of a head in another order and back; here the way back disappears, and the way there
becomes an order of rows of the weights (``movement``).
"""

from __future__ import annotations

import numpy as np

from atlasc.ir.arrays.lazy import is_uniform
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops


def without_common_maps(module: Module) -> Module:
    """A module in which no product of queries and keys has two operands that an equal orthogonal
    map of the features made.
    """
    rewriter = Rewriter(module)
    for op in module.ops:
        if op.name == "nn.matmul" and op.attributes["transpose_b"]:
            maps = [_map_above(value) for value in op.operands]
            if all(maps) and _cancel(module, maps[0], maps[1]):
                operands = [_before(rewriter, *one) for one in zip(op.operands, maps, strict=True)]
                rewriter.copy(op, operands)
                continue
        rewriter.copy(op)
    return without_dead_ops(rewriter.module)


def _map_above(value: Value) -> Op | None:
    """The map of features that a value is made by, through ops that work on each feature alike."""
    op = value.op
    while _on_each_feature(op):
        op = op.operands[0].op
    heads = op.name == "nn.linear" and len(op.value.tensor.shape) > 3
    return op if heads and "bias" not in op.attributes else None


def _on_each_feature(op: Op) -> bool:
    """Whether an op leaves the last axis as it is, up to a number."""
    last = len(op.value.tensor.shape) - 1 if op.result is not None else -1
    match op.name:
        case "nn.scale":
            return not isinstance(op.attributes["factor"], Symbol)
        case "nn.repeat":
            return bool(op.attributes["axis"] < last)
        case "nn.transpose":
            return bool(op.attributes["permutation"][-1] == last)
    return False


def _cancel(module: Module, one: Op | None, other: Op | None) -> bool:
    if one is None or other is None:
        return False
    a, b = (module.symbols[op.attributes["weight"].name] for op in (one, other))
    if a.shape != b.shape or a.shape[0] != a.shape[1] or is_uniform(a):
        return False
    return bool(np.array_equal(a.T @ b, np.eye(len(a))))


def _before(rewriter: Rewriter, value: Value, found: Op | None) -> Value:
    """A value without the map above it."""
    if value.op is found:
        return rewriter.operands(value.op)[0]
    below = _before(rewriter, value.op.operands[0], found)
    return rewriter.module.add(value.op.name, [below], value.op.attributes, value.op.location)
