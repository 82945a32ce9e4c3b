"""Rules: one for each aten op that has a meaning on private data.

A rule is called with the importer, whose ``node`` is the current one, and with all arguments of the
aten op in the order of its schema, defaults included. It emits nn ops and returns the resulting
value. A rule raises ``Refusal`` for arguments that it cannot handle; the importer reports all
refusals together. Groups of ops that form one nn op, and activations, are in ``patterns``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, is_node, place, shape
from atlasc.passes.frontend.importer import Importer, Refusal
from atlasc.passes.frontend.rules.convolutions import CLIENT_RULES
from atlasc.passes.frontend.rules.cuts import CUT_RULES, as_wide, reshaped
from atlasc.passes.frontend.rules.elementwise import ELEMENT_RULES
from atlasc.passes.frontend.rules.masks import SOFTMAX_ELSEWHERE, emit_softmax, zeros_in_padding
from atlasc.passes.frontend.rules.queries import query_of
from atlasc.passes.frontend.rules.scores import add_array, emit_positions

Rule = Callable[..., Value]


def _linear(importer: Importer, x: Node, weight: Node, bias: Node | None) -> Value:
    matrix = importer.symbol(weight)
    return importer.add("nn.linear", x, weight=matrix, bias=importer.symbol(bias))


def _addmm(
    importer: Importer, bias: Node, x: Node, weight: Node, beta: float = 1, alpha: float = 1
) -> Value:
    if importer.kinds[weight] != "constant" or importer.kinds[bias] != "constant":
        raise Refusal("only a constant matrix and a constant bias are supported")
    matrix, offset = importer.array(weight).T, importer.array(bias)
    if (beta, alpha) != (1, 1):
        matrix, offset = matrix * np.float32(alpha), offset * np.float32(beta)
    symbol = importer.constant(importer.name_of(weight), matrix)
    bias_symbol = importer.constant(importer.name_of(bias), offset)
    return importer.add("nn.linear", x, weight=symbol, bias=bias_symbol)


def _matmul(importer: Importer, a: Node, b: Node) -> Value:
    """Product of two private tensors, or a linear layer if the second is a constant matrix."""
    if importer.kinds[a] == "constant":
        raise Refusal("a constant on the left is only supported as one query of attention")
    if importer.kinds[b] == "data":
        return importer.add("nn.matmul", a, b, transpose_b=False)
    matrix = importer.array(b)
    while matrix.ndim > 2 and (matrix == matrix[:1]).all():
        matrix = matrix[0]
    if matrix.ndim > 2:
        raise Refusal("only a single constant matrix is supported, not a batch of matrices")
    symbol = importer.constant(importer.name_of(b), np.atleast_2d(matrix.T))
    return reshaped(importer, importer.add("nn.linear", a, weight=symbol))


def _add(importer: Importer, a: Any, b: Any, alpha: float = 1, sign: int = 1) -> Value:
    """Sum with a private tensor, a constant tensor or a number."""
    alpha = sign * float(alpha)
    if not is_node(a):
        other = b if alpha == 1 else importer.add("nn.scale", b, factor=alpha)
        return importer.add("nn.add_constant", other, value=float(a))
    if not is_node(b):
        return importer.add("nn.add_constant", a, value=alpha * float(b))
    kinds = importer.kinds[a], importer.kinds[b]
    if alpha == 1 and kinds in (("data", "mask"), ("mask", "data")):
        scores, mask = (a, b) if kinds[1] == "mask" else (b, a)
        if (found := emit_positions(importer, scores, mask)) is not None:
            return found
    _refuse_mask(importer, a, b)
    if importer.kinds[b] == "constant" and importer.kinds[a] != "constant":
        array = importer.array(b)
        value = as_wide(importer, a)
        return add_array(importer, value, b, array if alpha == 1 else alpha * array)
    if importer.kinds[a] == "constant":
        value = as_wide(importer, b)
        other = value if alpha == 1 else importer.add("nn.scale", value, factor=alpha)
        return add_array(importer, other, a, importer.array(a))
    one, two = as_wide(importer, a, b), as_wide(importer, b, a)
    return importer.add(
        "nn.add", one, two if alpha == 1 else importer.add("nn.scale", two, factor=alpha)
    )


def _subtract_from(importer: Importer, a: Any, b: Any, alpha: float = 1) -> Value:
    """b − alpha · a"""
    return _add(importer, b, a, alpha, sign=-1)


def _multiply(importer: Importer, a: Any, b: Any) -> Value:
    """Product with a private tensor, a constant tensor or a number."""
    if not is_node(a):
        a, b = b, a
    if not is_node(b):
        return importer.add("nn.scale", a, factor=float(b))
    if (found := zeros_in_padding(importer, a, b)) is not None:
        return found
    _refuse_mask(importer, a, b)
    for constant, x in ((a, b), (b, a)):
        if importer.kinds[constant] == "constant":
            return _scale(importer, x, constant, importer.array(constant))
    return importer.add("nn.mul", as_wide(importer, a, b), as_wide(importer, b, a))


def _divide(importer: Importer, a: Any, b: Any) -> Value:
    if not is_node(a):
        raise Refusal("division by a private value is not a polynomial")
    if not is_node(b):
        return importer.add("nn.scale", a, factor=1.0 / float(b))
    if importer.kinds[b] != "constant" or importer.kinds[a] != "data":
        _refuse_mask(importer, a, b)
        raise Refusal("division by a private value is not a polynomial")
    with np.errstate(divide="ignore"):
        return _scale(importer, a, b, 1.0 / importer.array(b))


def _refuse_mask(importer: Importer, *operands: Node) -> None:
    if "mask" in (importer.kinds[operand] for operand in operands):
        raise Refusal(
            "an attention mask is only supported just before a softmax, and in the mean of the "
            "tokens that the mask keeps: (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)"
        )


def _scale(importer: Importer, x: Node, constant: Node, array: np.ndarray) -> Value:
    factor = float(array.item()) if array.size == 1 else importer.reduced(constant, array)
    return importer.add("nn.scale", as_wide(importer, x), factor=factor)


def _power(importer: Importer, x: Node, exponent: float = 2) -> Value:
    """x², x³, ... as products."""
    if exponent not in (1, 2, 3, 4):
        raise Refusal(f"the exponent {exponent} is not one of 1, 2, 3, 4")
    result = importer.value(x)
    for _ in range(int(exponent) - 1):
        result = importer.add("nn.mul", result, x)
    return result


def _softmax(importer: Importer, *operands: Any) -> Value:
    """Refused: attention and the end of a model are patterns."""
    raise Refusal(SOFTMAX_ELSEWHERE)


def _embedding(importer: Importer, table: Node, ids: Node, *options: Any) -> Value:
    counted = importer.positions.get(ids)
    if counted is None:
        return importer.add("nn.embedding", ids, table=importer.symbol(table))
    first = counted.padding + counted.offset + 1
    if shape(ids)[1] > (most := shape(table)[0] - first):
        raise AtlasError(
            f"sequence length {shape(ids)[1]} is more than the model has positions for",
            where=place(importer.node),
            why=f"the model counts the positions of tokens from {first}, and has "
            f"{shape(table)[0]} positions",
            remedy=f"use --sequence-length {most} or less",
        )
    rows = importer.constant(importer.name_of(table), importer.array(table)[counted.offset :])
    return importer.add("nn.embedding", ids, table=rows)


def _layer_norm(
    importer: Importer,
    x: Node,
    extents: Sequence[int],
    weight: Node | None,
    bias: Node | None,
    epsilon: float,
    *options: Any,
) -> Value:
    if list(extents) != [shape(x)[-1]]:
        raise Refusal("a layer norm over more than the last axis is not supported")
    gamma = importer.vector(weight, "ones", extents[0])
    beta = importer.vector(bias, "zeros", extents[0])
    return importer.add("nn.layer_norm", x, gamma=gamma, beta=beta, epsilon=float(epsilon))


def _rms_norm(
    importer: Importer, x: Node, extents: Sequence[int], weight: Node | None, epsilon: float | None
) -> Value:
    """torch.nn.RMSNorm over the last axis."""
    if list(extents) != [shape(x)[-1]]:
        raise Refusal("an RMS norm over more than the last axis is not supported")
    if epsilon is None:  # torch then uses the machine epsilon of the operand's type
        epsilon = float(np.finfo(np.float32).eps)
    gamma = importer.vector(weight, "ones", extents[0])
    return importer.add("nn.rms_norm", x, gamma=gamma, epsilon=float(epsilon))


def _attention(
    importer: Importer,
    query: Node,
    key: Node,
    value: Node,
    mask: Node | None,
    dropout: float,
    causal: bool,
    factor: float | None,
    *options: Any,
) -> Value:
    """Scaled dot-product attention, as products, a scale and a softmax."""
    if float(dropout) != 0.0:
        raise Refusal("attention with dropout: call model.eval() before exporting")
    factor = 1.0 / math.sqrt(shape(query)[-1]) if factor is None else float(factor)
    q, k, v = query_of(importer, query), importer.value(key), importer.value(value)
    axis = len(shape(key)) - 3
    repeats = shape(query)[-3] // shape(key)[-3]
    if repeats > 1:
        k = importer.add("nn.repeat", k, axis=axis, repeats=repeats)
        v = importer.add("nn.repeat", v, axis=axis, repeats=repeats)
    scores = importer.add("nn.matmul", q, k, transpose_b=True)
    scores = importer.add("nn.scale", scores, factor=factor)
    weights = emit_softmax(importer, scores, mask, causal=bool(causal))
    return importer.add("nn.matmul", weights, v, transpose_b=False)


def _masked_fill(importer: Importer, x: Node, mask: Node, value: Any) -> Value:
    """Write a number where a constant mask is true."""
    if importer.kinds[mask] != "constant" or (
        is_node(value) and importer.kinds[value] != "constant"
    ):
        _refuse_mask(importer, mask)
        raise Refusal("the replaced elements must not depend on an input")
    number = importer.array(value) if is_node(value) else float(value)
    dropped = importer.array(mask).astype(np.float32)
    kept = importer.add("nn.scale", x, factor=importer.reduced(mask, 1 - dropped))
    return importer.add("nn.add_constant", kept, value=importer.reduced(mask, dropped * number))


def _mean(
    importer: Importer,
    x: Node,
    axes: Sequence[int] | None = None,
    keep: bool = False,
    *options: Any,
    total: bool = False,
) -> Value:
    """Mean, or sum, along some axes; along all axes if none are given."""
    extents = shape(x)
    value, count = importer.value(x), 1
    for axis in sorted({axis % len(extents) for axis in axes or range(len(extents))}, reverse=True):
        value, count = importer.add("nn.mean", value, axis=axis), count * extents[axis]
    value = reshaped(importer, value) if keep else value
    return importer.add("nn.scale", value, factor=float(count)) if total else value


_OPS: dict[Rule, str] = {
    _linear: "linear.default",
    _addmm: "addmm.default",
    _matmul: "matmul.default mm.default bmm.default",
    _add: "add.Tensor",
    partial(_add, sign=-1): "sub.Tensor",
    _subtract_from: "rsub.Scalar rsub.Tensor",
    _multiply: "mul.Tensor mul.Scalar",
    _divide: "div.Tensor div.Scalar",
    lambda importer, x: _multiply(importer, x, -1.0): "neg.default",
    _power: "pow.Tensor_Scalar square.default",
    _softmax: "softmax.int _softmax.default log_softmax.int _log_softmax.default argmax.default",
    _embedding: "embedding.default",
    _layer_norm: "layer_norm.default",
    _rms_norm: "rms_norm.default",
    _attention: "scaled_dot_product_attention.default",
    _masked_fill: "masked_fill.Scalar masked_fill.Tensor",
    _mean: "mean.dim mean.default",
    partial(_mean, total=True): "sum.dim_IntList sum.default",
    **CUT_RULES,
    **ELEMENT_RULES,
    **CLIENT_RULES,
}
ATEN_RULES = {f"aten.{op}": rule for rule, ops in _OPS.items() for op in ops.split()}
"""Qualified name of an op, with its overload -> rule."""
