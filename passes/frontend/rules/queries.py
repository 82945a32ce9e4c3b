"""A query that is a parameter of the model, as in a pooling by attention (SigLIP).

Attention is packed for queries that a linear layer makes. So a constant query becomes the bias of a
layer without weights.
"""

from __future__ import annotations

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, shape
from atlasc.passes.frontend.importer import Importer, Refusal


def query_of(importer: Importer, node: Node) -> Value:
    """The nn value of a query, [batch · heads, 1, width] or [batch, heads, 1, width] if constant.

    Raises Refusal for other constants, and for one that differs between the inputs of a batch.
    """
    if importer.kinds[node] != "constant":
        return importer.value(node)
    *_, tokens, width = extents = shape(node)
    inputs = next((op.value for op in importer.module.ops if op.name == "nn.encrypt"), None)
    if inputs is None or len(extents) not in (3, 4) or tokens != 1:
        raise Refusal("a constant on the left is only supported as one query of attention")
    rows = importer.array(node).reshape(importer.batch, -1)
    if (rows != rows[:1]).any():
        raise Refusal("a constant query must be the same for all inputs of a batch")
    token = importer.add("nn.select", inputs, axis=1, index=0)
    nothing = np.broadcast_to(np.float32(0), (rows.shape[1], token.tensor.shape[-1]))
    weight = importer.constant("nothing", nothing)
    bias = importer.constant(importer.name_of(node), rows[0])
    value = importer.add("nn.linear", token, weight=weight, bias=bias)
    split = [importer.batch, 1, rows.shape[1] // width, width]
    value = importer.add("nn.reshape", value, shape=split)
    value = importer.add("nn.transpose", value, permutation=[0, 2, 1, 3])
    return value if len(extents) == 4 else importer.add("nn.reshape", value, shape=list(extents))


def scores(importer: Importer, query: Node, keys: Node) -> Value:
    """query · keysᵀ"""
    return importer.add("nn.matmul", query_of(importer, query), keys, transpose_b=True)
