"""One rule for each aten op that has a meaning on private data.

A rule is called with the importer, whose ``node`` is the one in question, and all arguments of the
aten op in the order of its schema, defaults included. It emits nn ops and returns the resulting
value. A rule that cannot take the arguments it sees raises ``Refusal``; the importer reports all
refusals together. Groups of ops that are one nn op, and activations, are in ``patterns``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Value
from atlasc.passes.frontend.graph import Node, is_node, place, shape
from atlasc.passes.frontend.importer import Importer, Refusal
from atlasc.passes.frontend.masks import emit_softmax

Rule = Callable[..., Value]


def _linear(importer: Importer, x: Node, weight: Node, bias: Node | None) -> Value:
    matrix = importer.symbol(weight)
    return importer.add("nn.linear", x, weight=matrix, bias=importer.symbol(bias))


def _addmm(
    importer: Importer, bias: Node, x: Node, weight: Node, beta: float, alpha: float
) -> Value:
    if (beta, alpha) != (1, 1):
        raise Refusal("addmm with beta or alpha has no op")
    if importer.kinds[weight] != "constant" or importer.kinds[bias] != "constant":
        raise Refusal("only a constant matrix and a constant bias are taken")
    symbol = importer.constant(importer.name_of(weight), importer.array(weight).T)
    return importer.add("nn.linear", x, weight=symbol, bias=importer.symbol(bias))


def _matmul(importer: Importer, a: Node, b: Node) -> Value:
    """Product of two private tensors, or a linear layer when the second is a constant matrix."""
    if importer.kinds[a] == "constant":
        raise Refusal("a constant matrix on the left has no op")
    if importer.kinds[b] == "data":
        return importer.add("nn.matmul", a, b, transpose_b=False)
    if len(shape(b)) != 2:
        raise Refusal("only a constant matrix is taken, not a batch of matrices")
    symbol = importer.constant(importer.name_of(b), importer.array(b).T)
    return importer.add("nn.linear", a, weight=symbol)


def _add(importer: Importer, a: Node, b: Any, alpha: float, sign: int = 1) -> Value:
    """Sum with a private tensor, a constant tensor or a number."""
    alpha = sign * float(alpha)
    if not is_node(b):
        return importer.add("nn.add_constant", a, value=alpha * float(b))
    _refuse_mask(importer, a, b)
    if importer.kinds[b] == "constant" and importer.kinds[a] != "constant":
        array = importer.array(b)
        value = importer.reduced(b, array if alpha == 1 else alpha * array)
        return importer.add("nn.add_constant", a, value=value)
    other = b if alpha == 1 else importer.add("nn.scale", b, factor=alpha)
    if importer.kinds[a] == "constant":
        value = importer.reduced(a, importer.array(a))
        return importer.add("nn.add_constant", other, value=value)
    return importer.add("nn.add", a, other)


def _multiply(importer: Importer, a: Node, b: Any) -> Value:
    """Product with a private tensor, a constant tensor or a number."""
    if not is_node(b):
        return importer.add("nn.scale", a, factor=float(b))
    _refuse_mask(importer, a, b)
    for constant, x in ((a, b), (b, a)):
        if importer.kinds[constant] == "constant":
            return _scale(importer, x, constant, importer.array(constant))
    return importer.add("nn.mul", a, b)


def _divide(importer: Importer, a: Node, b: Any) -> Value:
    if not is_node(b):
        return importer.add("nn.scale", a, factor=1.0 / float(b))
    if importer.kinds[b] != "constant" or importer.kinds[a] != "data":
        raise Refusal("division by a private value is not a polynomial")
    with np.errstate(divide="ignore"):
        return _scale(importer, a, b, 1.0 / importer.array(b))


def _refuse_mask(importer: Importer, *operands: Node) -> None:
    if "mask" in (importer.kinds[operand] for operand in operands):
        raise Refusal("an attention mask is only understood just before a softmax")


def _scale(importer: Importer, x: Node, constant: Node, array: np.ndarray) -> Value:
    factor = float(array.item()) if array.size == 1 else importer.reduced(constant, array)
    return importer.add("nn.scale", x, factor=factor)


def _power(importer: Importer, x: Node, exponent: float = 2) -> Value:
    """x², x³, ... as products."""
    if exponent not in (1, 2, 3, 4):
        raise Refusal(f"the exponent {exponent} is not one of 1, 2, 3, 4")
    result = importer.value(x)
    for _ in range(int(exponent) - 1):
        result = importer.add("nn.mul", result, x)
    return result


def _embedding(importer: Importer, table: Node, ids: Node, *options: Any) -> Value:
    counted = importer.positions.get(ids)
    if counted is not None and shape(ids)[1] > (most := shape(table)[0] - counted.padding - 1):
        raise AtlasError(
            f"sequence length {shape(ids)[1]} is more than the model has positions for",
            where=place(importer.node),
            why=f"it counts the positions of tokens from {counted.padding + 1}, and has "
            f"{shape(table)[0]}",
            remedy=f"use --sequence-length {most} or less",
        )
    return importer.add("nn.embedding", ids, table=importer.symbol(table))


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
        raise Refusal("a layer norm over more than the last axis has no op")
    gamma = importer.vector(weight, "ones", extents[0])
    beta = importer.vector(bias, "zeros", extents[0])
    return importer.add("nn.layer_norm", x, gamma=gamma, beta=beta, epsilon=float(epsilon))


def rms_norm(
    importer: Importer, x: Node, extents: Sequence[int], weight: Node | None, epsilon: float | None
) -> Value:
    """torch.nn.RMSNorm over the last axis."""
    if list(extents) != [shape(x)[-1]]:
        raise Refusal("an RMS norm over more than the last axis has no op")
    if epsilon is None:  # torch: the machine epsilon of the operand's type
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
    q, k, v = (importer.value(operand) for operand in (query, key, value))
    axis = len(shape(key)) - 3
    repeats = shape(query)[-3] // shape(key)[-3]
    if repeats > 1:
        k = importer.add("nn.repeat", k, axis=axis, repeats=repeats)
        v = importer.add("nn.repeat", v, axis=axis, repeats=repeats)
    scores = importer.add("nn.matmul", q, k, transpose_b=True)
    scores = importer.add("nn.scale", scores, factor=factor)
    weights = emit_softmax(importer, scores, mask, causal=bool(causal))
    return importer.add("nn.matmul", weights, v, transpose_b=False)


# Rules that move or pick elements along axes


def _reshape(importer: Importer, x: Node | Value, *options: Any) -> Value:
    return importer.add("nn.reshape", x, shape=list(shape(importer.node)))


def _transpose(importer: Importer, x: Node, first: int = 0, second: int = 1) -> Value:
    order = list(range(len(shape(importer.node))))
    order[first], order[second] = order[second], order[first]
    return importer.add("nn.transpose", x, permutation=order)


def _permute(importer: Importer, x: Node, axes: Sequence[int]) -> Value:
    return importer.add("nn.transpose", x, permutation=[axis % len(axes) for axis in axes])


def _select(importer: Importer, x: Node, axis: int, index: int) -> Value:
    axis %= len(shape(x))
    return importer.add("nn.select", x, axis=axis, index=index % shape(x)[axis])


def _slice_one(importer: Importer, x: Node, axis: int, start: int | None, *options: Any) -> Value:
    if (count := shape(importer.node)[axis]) != 1:
        raise Refusal(f"a slice of {count} of {shape(x)[axis]} elements has no op")
    return _reshape(importer, _select(importer, x, axis, start or 0))


def _index_row(importer: Importer, x: Node, indices: Sequence[Node | None]) -> Value:
    """x[arange(batch), i] with one constant i: the same row of every sentence."""
    constant = [i for i in indices if i is not None and importer.kinds[i] == "constant"]
    if not len(constant) == len(indices) == 2:
        raise Refusal("which element is read may not depend on an input")
    batch, row = (importer.array(index).reshape(-1) for index in constant)
    if not np.array_equal(batch, np.arange(shape(x)[0])) or len(set(row.tolist())) != 1:
        raise Refusal("only one row, the same for every sentence, is taken")
    return _select(importer, x, 1, int(row[0]))


def _concatenate(importer: Importer, *operands: Any) -> Value:
    """No op: a class token before patches and rotated halves are patterns."""
    raise Refusal("only one class token before the patches, or a rotary embedding, is understood")


def _mean(
    importer: Importer, x: Node, axes: Sequence[int] | None, keep: bool, *options: Any
) -> Value:
    if axes is None or len(axes) != 1:
        raise Refusal("a mean is taken along one axis")
    result = importer.add("nn.mean", x, axis=axes[0] % len(shape(x)))
    return _reshape(importer, result) if keep else result


_OPS: dict[Rule, str] = {
    _linear: "linear.default",
    _addmm: "addmm.default",
    _matmul: "matmul.default mm.default bmm.default",
    _add: "add.Tensor add_.Tensor",
    partial(_add, sign=-1): "sub.Tensor",
    _multiply: "mul.Tensor mul.Scalar",
    _divide: "div.Tensor div.Scalar",
    lambda importer, x: _multiply(importer, x, -1.0): "neg.default",
    _power: "pow.Tensor_Scalar square.default",
    _embedding: "embedding.default",
    _layer_norm: "layer_norm.default",
    rms_norm: "rms_norm.default",
    _attention: "scaled_dot_product_attention.default",
    _reshape: "view.default reshape.default _unsafe_view.default flatten.using_ints unflatten.int "
    "unsqueeze.default squeeze.dim squeeze.default",
    _transpose: "transpose.int t.default",
    _permute: "permute.default",
    _select: "select.int",
    _slice_one: "slice.Tensor",
    _index_row: "index.Tensor",
    _concatenate: "cat.default",
    _mean: "mean.dim",
}
ATEN_RULES = {f"aten.{op}": rule for rule, ops in _OPS.items() for op in ops.split()}
"""By the qualified name of the op, with its overload."""
