"""A query that is a parameter of the model: a pooling by attention (SigLIP), or by a softmax over
the tokens.

Attention is packed for queries that a linear layer makes. So a constant query becomes the bias of a
layer without weights.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import RESHAPES, Node, is_node, packet, shape
from atlasc.passes.frontend.importer import Emit, Importer, Refusal
from atlasc.passes.frontend.rules.masks import drops_keys, emit_softmax


def query_of(importer: Importer, node: Node) -> Value:
    """The nn value of a query, [batch · heads, 1, width] or [batch, heads, 1, width] if constant.

    Raises Refusal for other constants, and for one that differs between the inputs of a batch.
    """
    if importer.kinds[node] != "constant":
        return importer.value(node)
    *_, tokens, _ = extents = shape(node)
    if len(extents) not in (3, 4) or tokens != 1:
        raise Refusal("a constant on the left is only supported as one query of attention")
    rows = importer.array(node).reshape(importer.batch, -1)
    if (rows != rows[:1]).any():
        raise Refusal("a constant query must be the same for all inputs of a batch")
    value = _constant_query(importer, importer.name_of(node), rows[0], extents[-1])
    return value if len(extents) == 4 else importer.add("nn.reshape", value, shape=list(extents))


def _constant_query(importer: Importer, name: str, row: np.ndarray, width: int) -> Value:
    """A query [batch, heads, 1, width] that is the same for all inputs."""
    inputs = next((op.value for op in importer.module.ops if op.name == "nn.encrypt"), None)
    if inputs is None:
        raise Refusal("a constant query needs an encrypted input")
    token = importer.add("nn.select", inputs, axis=1, index=0)
    nothing = np.broadcast_to(np.float32(0), (len(row), token.tensor.shape[-1]))
    weight = importer.constant("nothing", nothing)
    bias = importer.constant(name, row)
    value = importer.add("nn.linear", token, weight=weight, bias=bias)
    split = [importer.batch, 1, len(row) // width, width]
    value = importer.add("nn.reshape", value, shape=split)
    return importer.add("nn.transpose", value, permutation=[0, 2, 1, 3])


def scores(importer: Importer, query: Node, keys: Node) -> Value:
    """query · keysᵀ"""
    return importer.add("nn.matmul", query_of(importer, query), keys, transpose_b=True)


_MOVES = {"squeeze", "unsqueeze", "transpose", "mT", "permute", "expand", "flatten", *RESHAPES}


class _Weights(NamedTuple):
    """A softmax over tokens of a linear layer with one result.

    Attributes:
        keys, row: the operand of the layer, and its weight.
        mask, inverted: the mask of the scores, and whether it is True where it drops a token.
    """

    keys: Node
    row: Node
    mask: Node | None = None
    inverted: bool = False


def pooled_by_softmax(importer: Importer, node: Node) -> tuple[Emit, list[Node]] | None:
    """If a node is a sum of tokens weighted by a softmax over tokens, whose scores a linear layer
    with one result makes: the function that emits attention of a constant query, and [the operand
    of the layer, the tokens].
    """
    product: Any = node
    if packet(node) == "sum":
        product = node.args[0]
        if packet(product) != "mul" or list(node.args[1:2]) not in ([[1]], [[-2]]):
            return None
    elif packet(node) not in ("matmul", "bmm"):
        return None
    pairs = [product.args[:2], product.args[1::-1]][: 2 if product is not node else 1]
    for weights, tokens in pairs:
        private = is_node(weights) and is_node(tokens) and importer.kinds.get(tokens) == "data"
        if private and len(shape(tokens)) == 3:
            found = _softmax_of_tokens(importer, weights, shape(tokens)[:2])
            if found is not None:
                return partial(_emit_pooling, importer, found, tokens), [found.keys, tokens]
    return None


def _softmax_of_tokens(importer: Importer, node: Node, extents: tuple[int, ...]) -> _Weights | None:
    """What weights of tokens [batch, tokens] are made of."""
    node = _unmoved(node)
    if packet(node) not in ("softmax", "_softmax"):
        return None
    batch, count = extents
    axis = node.args[1] % len(shape(node))
    if shape(node)[0] != batch or shape(node)[axis] != count or math.prod(shape(node)[1:]) != count:
        return None
    found = _masked(importer, node.args[0])
    if found is None:
        return None
    scores, mask, inverted = found
    layer = _unmoved(scores)
    if packet(layer) != "linear" or shape(layer) != (batch, count, 1):
        return None
    keys, row = layer.args[:2]
    fits = importer.kinds.get(keys) == "data" and importer.kinds[row] == "constant"
    return _Weights(keys, row, mask, inverted) if fits else None


def _masked(importer: Importer, scores: Node) -> tuple[Node, Node | None, bool] | None:
    """Scores, the mask that is put into them, and whether it is inverted; None if it is no mask."""
    if packet(scores) not in ("masked_fill", "add", "where"):
        return scores, None, False
    parts = list(scores.args)
    kinds = [importer.kinds.get(one) if is_node(one) else "" for one in parts]
    match packet(scores):
        case "add" if "mask" in kinds[:2]:
            place = kinds.index("mask")
            return parts[1 - place], parts[place], False
        case "masked_fill" if kinds[1] == "mask" and drops_keys(importer, parts[1], parts[2]):
            return parts[0], parts[1], True
        case "where" if kinds[0] == "mask" and drops_keys(importer, parts[0], parts[2]):
            return parts[1], parts[0], False
    return None


def _unmoved(node: Node) -> Node:
    while is_node(node) and packet(node) in _MOVES:
        node = node.args[0]
    return node


def _emit_pooling(importer: Importer, found: _Weights, tokens: Node) -> Value:
    """Attention whose query is 1 and whose key is the score, in heads as wide as those of the
    model. The bias of the scores changes no weight.
    """
    batch, count, features = shape(tokens)
    width, add = _head_width(importer, features), importer.add
    heads = features // width
    query = np.tile(np.eye(1, width, dtype=np.float32)[0], heads)
    rows = np.zeros((features, shape(found.keys)[-1]), np.float32)
    rows[::width] = importer.array(found.row)
    scores = add("nn.linear", found.keys, weight=importer.constant("pooling.scores", rows))

    def split(value: Value) -> Value:
        apart = add("nn.reshape", value, shape=[batch, count, heads, width])
        return add("nn.transpose", apart, permutation=[0, 2, 1, 3])

    one = _constant_query(importer, "pooling.query", query, width)
    product = add("nn.matmul", one, split(scores), transpose_b=True)
    weights = emit_softmax(importer, product, found.mask, found.inverted)
    values = split(importer.on_server(importer.value(tokens)))
    pooled = add("nn.matmul", weights, values, transpose_b=False)
    pooled = add("nn.transpose", pooled, permutation=[0, 2, 1, 3])
    return add("nn.reshape", pooled, shape=list(shape(importer.node)))


def _head_width(importer: Importer, features: int) -> int:
    """The width of the heads of attention so far, if it divides the features; otherwise these."""
    for op in importer.module.ops:
        if op.name == "nn.matmul" and op.attributes["transpose_b"]:
            width = op.operands[1].tensor.shape[-1]
            return width if features % width == 0 else features
    return features
