"""Rules for functions of single elements that an activation of the table gives, with other
arguments or beside linear terms: the family of relu, of elu and of softplus.

``clip(x)`` is x between 0 and 1; every function that is constant on both sides is one clip.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from atlasc.ir.module import Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.frontend.exported.graph import Node, is_node, shape
from atlasc.passes.frontend.importer import Importer, Refusal

JUMPS = "the function jumps, and a polynomial near a jump is wrong"
EXACT_FROM = 15.0
"""Argument from which softplus is its argument up to float32's roundings."""


def affine(
    importer: Importer,
    x: Node | Value,
    factor: float | Symbol = 1.0,
    shift: float | Symbol = 0.0,
) -> Value:
    """factor · x + shift, without ops that change nothing."""
    value = importer.value(x)
    if isinstance(factor, Symbol) or factor != 1:
        value = importer.add("nn.scale", value, factor=factor)
    if isinstance(shift, Symbol) or shift != 0:
        value = importer.add("nn.add_constant", value, value=shift)
    return value


def _sum(
    importer: Importer,
    x: Node | Value,
    factor: float | Symbol,
    y: Value,
    weight: float | Symbol,
) -> Value:
    """factor · x + weight · y; without a term whose factor is 0."""
    parts = [
        affine(importer, value, by)
        for value, by in ((x, factor), (y, weight))
        if isinstance(by, Symbol) or by != 0
    ]
    return parts[0] if len(parts) == 1 else importer.add("nn.add", *parts)


def _leaky(importer: Importer, x: Node, slope: float = 0.01) -> Value:
    slope = float(slope)
    return _sum(importer, x, slope, importer.add("nn.relu", x), 1 - slope)


def _rrelu(
    importer: Importer, x: Node, low: float, high: float, training: bool, *rest: Any
) -> Value:
    if training:
        raise Refusal("it draws random slopes: call model.eval() before exporting")
    return _leaky(importer, x, (float(low) + float(high)) / 2)


def _prelu(importer: Importer, x: Node, slopes: Node) -> Value:
    """One slope for all elements, or one for each index of axis 1."""
    if importer.kinds[slopes] != "constant":
        raise Refusal("its slopes must be constant")
    array = importer.array(slopes)
    if array.size == 1:
        return _leaky(importer, x, float(array.item()))
    column = array.reshape(-1, *[1] * (len(shape(x)) - 2))
    name = importer.name_of(slopes)
    slope, rest = (importer.constant(name, one) for one in (column, 1 - column))
    return _sum(importer, x, slope, importer.add("nn.relu", x), rest)


def clamp(importer: Importer, x: Node, low: Any = None, high: Any = None) -> Value:
    """The element between two numbers, or not below or above one; either may be a constant."""
    least, most = (_bound(importer, bound) for bound in (low, high))
    if isinstance(least, float) and isinstance(most, float):
        width = most - least
        if width <= 0:
            raise Refusal(f"it is {most} everywhere")
        clipped = importer.add("nn.clip", affine(importer, x, 1 / width, -least / width))
        return affine(importer, clipped, width, least)
    value = importer.value(x)
    if least is not None:
        value = _above(importer, value, least)
    return value if most is None else _below(importer, value, most)


def _bound(importer: Importer, bound: Any) -> float | np.ndarray | None:
    if bound is None:
        return None
    if not is_node(bound):
        return None if math.isinf(bound) else float(bound)
    if importer.kinds[bound] != "constant":
        raise Refusal("its bounds must be constant")
    array = importer.array(bound)
    return float(array.item()) if array.size == 1 else array


def _constant(importer: Importer, value: float | np.ndarray) -> float | Symbol:
    return value if isinstance(value, float) else importer.constant("bound", value)


def _above(importer: Importer, x: Value, low: float | np.ndarray) -> Value:
    """max(x, low) = low + relu(x − low)"""
    over = importer.add("nn.relu", affine(importer, x, 1.0, _constant(importer, -low)))
    return affine(importer, over, 1.0, _constant(importer, low))


def _below(importer: Importer, x: Value, high: float | np.ndarray) -> Value:
    """min(x, high) = high − relu(high − x)"""
    under = importer.add("nn.relu", affine(importer, x, -1.0, _constant(importer, high)))
    return affine(importer, under, -1.0, _constant(importer, high))


def _extreme(importer: Importer, a: Node, b: Node, sign: float) -> Value:
    """maximum (sign 1) or minimum (−1) of two tensors: b ± relu(±(a − b))."""
    if importer.kinds[a] != "data":
        a, b = b, a
    if importer.kinds[b] == "constant":
        bound = _bound(importer, b)
        assert bound is not None
        return (_above if sign > 0 else _below)(importer, importer.value(a), bound)
    apart = importer.add("nn.add", affine(importer, a, sign), affine(importer, b, -sign))
    return _sum(importer, b, 1.0, importer.add("nn.relu", apart), sign)


def _abs(importer: Importer, x: Node) -> Value:
    return _sum(importer, x, -1.0, importer.add("nn.relu", x), 2.0)


def _threshold(importer: Importer, x: Node, threshold: float, otherwise: float) -> Value:
    if float(threshold) != float(otherwise):
        raise Refusal(JUMPS)
    return _above(importer, importer.value(x), float(threshold))


def _elu(
    importer: Importer, x: Node, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Value:
    """scale · (max(x, 0) + alpha · min(exp(input_scale · x) − 1, 0))"""
    alpha, scale, inner = float(alpha), float(scale), float(input_scale)
    curve = importer.add("nn.elu", affine(importer, x, inner))
    rest = scale * (1 - alpha * inner)
    if abs(rest) < 1e-12:
        return affine(importer, curve, scale * alpha)
    return _sum(importer, importer.add("nn.relu", x), rest, curve, scale * alpha)


def _celu(importer: Importer, x: Node, alpha: float = 1) -> Value:
    return _elu(importer, x, float(alpha), 1.0, 1 / float(alpha))


def _softplus(importer: Importer, x: Node, beta: float = 1, threshold: float = 20) -> Value:
    if float(threshold) < EXACT_FROM:
        raise Refusal(f"it becomes linear at {threshold}, with a jump; use {EXACT_FROM} or more")
    curve = importer.add("nn.softplus", affine(importer, x, float(beta)))
    return affine(importer, curve, 1 / float(beta))


def _log_sigmoid(importer: Importer, x: Node) -> Value:
    return affine(importer, importer.add("nn.softplus", affine(importer, x, -1.0)), -1.0)


def _hard_sigmoid(importer: Importer, x: Node) -> Value:
    return importer.add("nn.clip", affine(importer, x, 1 / 6, 0.5))


def _hard_swish(importer: Importer, x: Node) -> Value:
    return importer.add("nn.mul", x, _hard_sigmoid(importer, x))


def _soft_shrink(importer: Importer, x: Node, width: float = 0.5) -> Value:
    """x without its part between −width and width."""
    inside = importer.add("nn.clip", affine(importer, x, 0.5 / float(width), 0.5))
    return _sum(importer, x, 1.0, affine(importer, inside, 1.0, -0.5), -2 * float(width))


def _lerp(importer: Importer, start: Node, end: Node, weight: Any) -> Value:
    """(1 − weight) · start + weight · end, with a number or a constant as weight."""
    known = weight if is_node(weight) else None
    if known is not None and importer.kinds[known] != "constant":
        raise Refusal("its weight must be constant")
    if {importer.kinds[start], importer.kinds[end]} != {"data"}:
        raise Refusal("both of its ends must be private; write (1 - w) * a + w * b")
    if known is None or importer.array(known).size == 1:
        number = float(weight if known is None else importer.array(known).item())
        return _sum(importer, start, 1 - number, importer.value(end), number)
    array = importer.array(known)
    rest, part = (importer.reduced(known, one) for one in (1 - array, array))
    return _sum(importer, start, rest, importer.value(end), part)


def _where(importer: Importer, condition: Node, a: Any, b: Any) -> Value:
    """One of two cases for each element, by a constant: a · mask + b · (1 − mask)."""
    if importer.kinds[condition] != "constant":
        raise Refusal(
            "which case is taken depends on an input; it is compiled where both cases are "
            "multiples of the compared value, plus numbers, and meet"
        )
    kept = importer.array(condition).astype(np.float32)
    total: Value | None = None
    constant = np.zeros((), np.float32)
    for case, share in ((a, kept), (b, 1 - kept)):
        private = is_node(case) and importer.kinds[case] == "data"
        if private:
            part = importer.add("nn.scale", case, factor=importer.reduced(condition, share))
            total = part if total is None else importer.add("nn.add", total, part)
        elif is_node(case) and importer.kinds[case] != "constant":
            raise Refusal("its cases may not depend on a mask")
        else:
            known = importer.array(case) if is_node(case) else np.float32(case)
            constant = constant + np.where(share, known, 0).astype(np.float32)
    assert total is not None, "a constant is folded"
    if not constant.any():
        return total
    return importer.add("nn.add_constant", total, value=importer.reduced(condition, constant))


ELEMENT_RULES: dict[Callable[..., Value], str] = {
    _leaky: "leaky_relu.default",
    _rrelu: "rrelu.default",
    _prelu: "prelu.default",
    clamp: "clamp.default clamp.Tensor hardtanh.default",
    lambda importer, x, low: clamp(importer, x, low): "clamp_min.default clamp_min.Tensor",
    lambda importer, x, high: clamp(importer, x, None, high): "clamp_max.default clamp_max.Tensor",
    lambda importer, x: clamp(importer, x, 0.0, 6.0): "relu6.default",
    partial(_extreme, sign=1.0): "maximum.default max.other",
    partial(_extreme, sign=-1.0): "minimum.default min.other",
    _abs: "abs.default",
    _threshold: "threshold.default",
    _elu: "elu.default",
    _celu: "celu.default",
    _softplus: "softplus.default",
    _log_sigmoid: "log_sigmoid.default",
    _hard_sigmoid: "hardsigmoid.default",
    _hard_swish: "hardswish.default",
    _soft_shrink: "softshrink.default",
    _lerp: "lerp.Scalar lerp.Tensor",
    _where: "where.self where.ScalarOther where.ScalarSelf where.Scalar",
}
"""Rule -> ops, as in ``aten_rules``."""
