"""One rule for each aten op that has a meaning on private data.

A rule emits nn ops for one node and returns the resulting value. A rule that cannot take the
arguments it sees raises ``Refusal``; the importer reports all refusals together. Groups of ops that
are one nn op are in ``patterns``; rules that only move elements are in ``shape_rules``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.module import Value
from atlasc.passes.frontend.graph import Node, argument, is_node, shape, target
from atlasc.passes.frontend.report import Refusal
from atlasc.passes.frontend.shape_rules import SHAPE_RULES, Rule
from atlasc.passes.frontend.softmax import MaskExpression, emit_softmax

if TYPE_CHECKING:
    from atlasc.passes.frontend.import_export import Importer


def linear(importer: Importer, node: Node) -> Value:
    """x · weightᵀ + bias with a constant weight."""
    x, weight, bias = node.args[0], node.args[1], argument(node, 2, "bias")
    attributes = {"weight": importer.symbol(weight)}
    if bias is not None:
        attributes["bias"] = importer.symbol(bias)
    return importer.add(node, "nn.linear", [x], attributes)


def addmm(importer: Importer, node: Node) -> Value:
    """bias + x · weight."""
    bias, x, weight = node.args
    if node.kwargs:
        raise Refusal("addmm with beta or alpha has no op")
    if importer.kinds[weight] != "constant" or importer.kinds[bias] != "constant":
        raise Refusal("only a constant matrix and a constant bias are taken")
    symbol = importer.constant(importer.name_of(weight), importer.array(weight).T)
    attributes = {"weight": symbol, "bias": importer.symbol(bias)}
    return importer.add(node, "nn.linear", [x], attributes)


def matmul(importer: Importer, node: Node) -> Value:
    """Product of two private tensors, or a linear layer when the second is a constant matrix."""
    a, b = node.args[0], node.args[1]
    if importer.kinds[a] == "constant":
        raise Refusal("a constant matrix on the left has no op")
    if importer.kinds[b] == "data":
        return importer.add(node, "nn.matmul", [a, b], {"transpose_b": False})
    if len(shape(b)) != 2:
        raise Refusal("only a constant matrix is taken, not a batch of matrices")
    symbol = importer.constant(importer.name_of(b), importer.array(b).T)
    return importer.add(node, "nn.linear", [a], {"weight": symbol})


def add(importer: Importer, node: Node, sign: float = 1.0) -> Value:
    """Sum with a private tensor, a constant tensor or a number."""
    a, b = node.args[0], node.args[1]
    alpha = sign * float(argument(node, 2, "alpha", 1))
    if not is_node(b):
        return importer.add(node, "nn.add_constant", [a], {"value": alpha * float(b)})
    if "mask" in (importer.kinds[a], importer.kinds[b]):
        raise Refusal("an attention mask is only understood just before a softmax")
    if importer.kinds[a] == "constant":
        operand = b if alpha == 1 else importer.add(node, "nn.scale", [b], {"factor": alpha})
        return _add_constant(importer, node, operand, importer.array(a), importer.name_of(a))
    if importer.kinds[b] == "constant":
        array = importer.array(b)
        value = array if alpha == 1 else alpha * array
        return _add_constant(importer, node, a, value, importer.name_of(b))
    other = b if alpha == 1 else importer.add(node, "nn.scale", [b], {"factor": alpha})
    return importer.add(node, "nn.add", [a, other])


def subtract(importer: Importer, node: Node) -> Value:
    """Difference, as a sum with the negative."""
    return add(importer, node, -1.0)


def _add_constant(
    importer: Importer, node: Node, operand: Any, array: np.ndarray, name: str
) -> Value:
    value = importer.constant(name, importer.reduce(array))
    return importer.add(node, "nn.add_constant", [operand], {"value": value})


def multiply(importer: Importer, node: Node) -> Value:
    """Product with a private tensor, a constant tensor or a number."""
    a, b = node.args[0], node.args[1]
    if not is_node(b):
        return importer.add(node, "nn.scale", [a], {"factor": float(b)})
    if "mask" in (importer.kinds[a], importer.kinds[b]):
        raise Refusal("an attention mask is only understood just before a softmax")
    for constant, x in ((a, b), (b, a)):
        if importer.kinds[constant] == "constant":
            return _scale(importer, node, x, importer.array(constant), importer.name_of(constant))
    return importer.add(node, "nn.mul", [a, b])


def divide(importer: Importer, node: Node) -> Value:
    """Quotient by a number or a constant tensor."""
    a, b = node.args[0], node.args[1]
    if not is_node(b):
        return importer.add(node, "nn.scale", [a], {"factor": 1.0 / float(b)})
    if importer.kinds[b] != "constant" or importer.kinds[a] != "data":
        raise Refusal("division by a private value is not a polynomial")
    with np.errstate(divide="ignore"):
        return _scale(importer, node, a, 1.0 / importer.array(b), importer.name_of(b))


def _scale(importer: Importer, node: Node, x: Node, array: np.ndarray, name: str) -> Value:
    if array.size == 1:
        return importer.add(node, "nn.scale", [x], {"factor": float(array.reshape(-1)[0])})
    factor = importer.constant(name, importer.reduce(array))
    return importer.add(node, "nn.scale", [x], {"factor": factor})


def negate(importer: Importer, node: Node) -> Value:
    """−x."""
    return importer.add(node, "nn.scale", [node.args[0]], {"factor": -1.0})


def power(importer: Importer, node: Node) -> Value:
    """x², x³, ... as products."""
    x, exponent = node.args[0], node.args[1]
    if exponent not in (1, 2, 3, 4):
        raise Refusal(f"the exponent {exponent} is not one of 1, 2, 3, 4")
    result = importer.value(x)
    for _ in range(int(exponent) - 1):
        result = importer.add(node, "nn.mul", [result, x])
    return result


def embedding(importer: Importer, node: Node) -> Value:
    """Rows of a table by the ids of an input."""
    attributes = {"table": importer.symbol(node.args[0])}
    return importer.add(node, "nn.embedding", [node.args[1]], attributes)


def layer_norm(importer: Importer, node: Node) -> Value:
    """Normalisation over the last axis."""
    x, extents = node.args[0], node.args[1]
    if list(extents) != [shape(x)[-1]]:
        raise Refusal("a layer norm over more than the last axis has no op")
    weight, bias = argument(node, 2, "weight"), argument(node, 3, "bias")
    size = extents[0]
    ones, zeros = np.ones(size, dtype=np.float32), np.zeros(size, dtype=np.float32)
    attributes = {
        "gamma": importer.constant("ones", ones) if weight is None else importer.symbol(weight),
        "beta": importer.constant("zeros", zeros) if bias is None else importer.symbol(bias),
        "epsilon": float(argument(node, 4, "eps", 1e-5)),
    }
    return importer.add(node, "nn.layer_norm", [x], attributes)


def rms_norm(importer: Importer, node: Node) -> Value:
    """torch.nn.RMSNorm over the last axis."""
    x, extents, weight = node.args[0], node.args[1], argument(node, 2, "weight")
    epsilon = argument(node, 3, "eps")
    if list(extents) != [shape(x)[-1]]:
        raise Refusal("an RMS norm over more than the last axis has no op")
    if weight is None:
        gamma = importer.constant("ones", np.ones(extents[0], dtype=np.float32))
    else:
        gamma = importer.symbol(weight)
    default = float(np.finfo(np.float32).eps)  # torch: the machine epsilon of the operand's type
    attributes = {"gamma": gamma, "epsilon": default if epsilon is None else float(epsilon)}
    return importer.add(node, "nn.rms_norm", [x], attributes)


def attention(importer: Importer, node: Node) -> Value:
    """Scaled dot-product attention, as products, a scale and a softmax."""
    query, key, value = node.args[:3]
    mask = argument(node, 3, "attn_mask")
    if float(argument(node, 4, "dropout_p", 0.0)) != 0.0:
        raise Refusal("attention with dropout: call model.eval() before exporting")
    causal = bool(argument(node, 5, "is_causal", False))
    factor = node.kwargs.get("scale")
    factor = 1.0 / math.sqrt(shape(query)[-1]) if factor is None else float(factor)
    heads = [importer.value(query), importer.value(key), importer.value(value)]
    repeats = shape(query)[-3] // shape(key)[-3]
    if repeats > 1:
        attributes = {"axis": len(shape(key)) - 3, "repeats": repeats}
        heads[1:] = [importer.add(node, "nn.repeat", [x], attributes) for x in heads[1:]]
    scores = importer.add(node, "nn.matmul", heads[:2], {"transpose_b": True})
    scores = importer.add(node, "nn.scale", [scores], {"factor": factor})
    expression = None if mask is None else MaskExpression(mask)
    weights = emit_softmax(importer, node, scores, expression, causal)
    return importer.add(node, "nn.matmul", [weights, heads[2]], {"transpose_b": False})


ATEN_RULES: dict[str, Rule] = {
    **SHAPE_RULES,
    "aten.linear.default": linear,
    "aten.addmm.default": addmm,
    "aten.matmul.default": matmul,
    "aten.mm.default": matmul,
    "aten.bmm.default": matmul,
    "aten.add.Tensor": add,
    "aten.add_.Tensor": add,
    "aten.sub.Tensor": subtract,
    "aten.mul.Tensor": multiply,
    "aten.mul.Scalar": multiply,
    "aten.div.Tensor": divide,
    "aten.div.Scalar": divide,
    "aten.neg.default": negate,
    "aten.pow.Tensor_Scalar": power,
    "aten.square.default": lambda importer, node: importer.add(
        node, "nn.mul", [node.args[0], node.args[0]]
    ),
    "aten.embedding.default": embedding,
    "aten.layer_norm.default": layer_norm,
    "aten.rms_norm.default": rms_norm,
    "aten.scaled_dot_product_attention.default": attention,
}


def rule_of(node: Node) -> Rule | None:
    """The rule of the op that a node calls."""
    return ATEN_RULES.get(target(node))
