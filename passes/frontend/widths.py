"""Attention with heads of several widths, as of values and keys: zeros make them equal.

A packed program has heads of one width. Features of 0 change neither a product of queries and keys
nor what is read of a context.
"""

from __future__ import annotations

import numpy as np

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.ops.names import OpName
from atlasc.ir.rewriting import Rewriter, without_dead_ops

HEADS_FIRST = [0, 2, 1, 3]
ON_SCORES = ("nn.softmax", "nn.scale", "nn.add_constant", "nn.add_positions")


def with_equal_widths(module: Module) -> Module:
    """A module whose attention heads all have one width, that of the widest.

    The linear layers that place the features merge with those beside them (``canonicalise``).
    """
    found = {op: scores for op in module.ops if (scores := _scores(op)) is not None}
    operands = {
        value for op, scores in found.items() for value in (*scores.operands, op.operands[1])
    }
    widths = {value.tensor.shape[-1] for value in operands}
    if len(widths) < 2:
        return module
    rewriter, widest, products = Rewriter(module), max(widths), {*found.values()}
    for op in module.ops:
        given = rewriter.operands(op)
        if op in products:
            rewriter.copy(op, [_resized(rewriter, one, widest) for one in given])
        elif op in found:
            context = rewriter.copy(op, [given[0], _resized(rewriter, given[1], widest)])
            width = op.value.tensor.shape[-1]
            rewriter.values[op.value] = _resized(rewriter, context, width)
        else:
            rewriter.copy(op)
    return without_dead_ops(rewriter.module)


def _scores(op: Op) -> Op | None:
    """The product of queries and keys of which a product with values has the weights."""
    if op.name != "nn.matmul" or op.attributes["transpose_b"] or len(op.value.tensor.shape) != 4:
        return None
    above = op.operands[0].op
    if above.name != "nn.softmax":
        return None
    while above.name in ON_SCORES:
        above = above.operands[0].op
    product = above.name == "nn.matmul" and above.attributes["transpose_b"]
    return above if product and len(above.value.tensor.shape) == 4 else None


def _resized(rewriter: Rewriter, value: Value, width: int) -> Value:
    """Heads [batch, heads, tokens, width] with zeros behind their features, or without the last."""
    batch, heads, tokens, known = value.tensor.shape
    if known == width:
        return value
    module, location = rewriter.module, value.op.location

    def add(name: OpName, operand: Value, **attributes: list[int] | Symbol) -> Value:
        return module.add(name, [operand], attributes, location)

    one = np.eye(width, known, dtype=np.float32)
    placed = module.constant("features", np.kron(np.eye(heads, dtype=np.float32), one))
    value = add("nn.transpose", value, permutation=HEADS_FIRST)
    value = add("nn.reshape", value, shape=[batch, tokens, heads * known])
    value = add("nn.linear", value, weight=placed)
    value = add("nn.reshape", value, shape=[batch, tokens, heads, width])
    return add("nn.transpose", value, permutation=HEADS_FIRST)
