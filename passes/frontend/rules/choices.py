"""A choice between two functions by a bound: one sum of activations, if both meet there."""

from __future__ import annotations

import math
import operator
from functools import partial, reduce
from typing import Any, NamedTuple

from atlasc.ir.module import Value
from atlasc.passes.frontend.exported.graph import Node, is_node, packet
from atlasc.passes.frontend.importer import Emit, Importer, Refusal
from atlasc.passes.frontend.rules.elementwise import JUMPS, affine


class _Curve(NamedTuple):
    """square · x² + factor · x + shift + exponential · (exp(min(x, 0)) − 1)"""

    factor: float
    shift: float
    square: float = 0.0
    exponential: float = 0.0

    def times(self, number: float) -> _Curve:
        return _Curve(*(number * one for one in self))

    def plus(self, other: _Curve) -> _Curve:
        return _Curve(*map(operator.add, self, other))

    @property
    def number(self) -> float | None:
        """Its value, if it is the same for all x."""
        return None if self.factor or self.square or self.exponential else self.shift


_SIGNS = {"gt": 1, "ge": 1, "lt": -1, "le": -1}
_EDGE = 1e-5
"""How far from 0 a bound may be by which a model keeps exp from large arguments."""


def choice_by_sign(importer: Importer, node: Node) -> tuple[Emit, list[Node]] | None:
    """where(x > c, a, b), whose cases meet at c. Both are multiples of x, plus numbers: one relu.
    With c = 0 the case above may have a multiple of x² too, and the one below of exp(x) − 1.

    The function that emits it, and [x]; None for other nodes. Raises Refusal later if the cases do
    not meet.
    """
    if packet(node) != "where" or len(node.args) < 3:
        return None
    condition, *cases = node.args
    sign = _SIGNS.get(packet(condition))
    if sign is None or importer.kinds.get(condition) != "data":
        return None
    x, at = condition.args[:2]
    if not is_node(x) or importer.kinds.get(x) != "data":
        return None
    edge = _number(importer, at)
    curves = [_curve(importer, one, x) for one in cases]
    if edge is None or None in curves:
        return None
    above, below = curves if sign > 0 else curves[::-1]
    assert above is not None and below is not None
    if above.exponential or below.square or (edge and (above.square or below.exponential)):
        return None

    def emit() -> Value:
        step = above.factor * edge + above.shift - below.factor * edge - below.shift
        if not math.isclose(step, 0, abs_tol=1e-6 * (1 + abs(above.shift) + abs(below.shift))):
            raise Refusal(JUMPS)
        # elu(x) is x above 0.
        bend = above.factor - below.factor - below.exponential
        relu = ("nn.relu", affine(importer, x, 1.0, -edge)) if edge else ("nn.relu", x)
        terms = {("nn.relu_squared", x): above.square, ("nn.elu", x): below.exponential, relu: bend}
        parts = [
            affine(importer, importer.add(*curve), factor)
            for curve, factor in terms.items()
            if abs(factor) > 1e-6 * abs(below.exponential)
        ]
        if below.factor or not parts:
            parts.append(affine(importer, x, below.factor))
        total = reduce(partial(importer.add, "nn.add"), parts)
        return affine(importer, total, 1.0, below.shift)

    return emit, [x]


def _number(importer: Importer, one: Any) -> float | None:
    if not is_node(one):
        return float(one)
    if importer.kinds.get(one) != "constant" or importer.is_absent(one):
        return None
    array = importer.array(one)
    return float(array.flat[0]) if array.size and (array == array.flat[0]).all() else None


def _curve(importer: Importer, node: Any, x: Node) -> _Curve | None:
    """A node as a function of x."""
    if node is x:
        return _Curve(1.0, 0.0)
    if (number := _number(importer, node)) is not None:
        return _Curve(0.0, number)
    name = packet(node)
    if name == "expm1":
        return _Curve(0.0, 0.0, exponential=1.0) if _below_zero(importer, node.args[0], x) else None
    if name == "neg":
        inner = _curve(importer, node.args[0], x)
        return inner and inner.times(-1.0)
    if name not in ("mul", "add", "sub", "rsub", "div") or len(node.args) < 2 or node.kwargs:
        return None
    one, other = (_curve(importer, part, x) for part in node.args[:2])
    if one is None or other is None:
        return None
    match name:
        case "add":
            return one.plus(other)
        case "sub":
            return one.plus(other.times(-1.0))
        case "rsub":
            return other.plus(one.times(-1.0))
        case "div":
            return one.times(1 / other.number) if other.number else None
    for curve, number in ((one, other.number), (other, one.number)):
        if number is not None:
            return curve.times(number)
    if one.square or other.square or one.exponential or other.exponential:
        return None
    factor = one.factor * other.shift + other.factor * one.shift
    return _Curve(factor, one.shift * other.shift, one.factor * other.factor)


def _below_zero(importer: Importer, node: Any, x: Node) -> bool:
    """Whether a node is x, or x bounded by about 0 from above."""
    if node is x:
        return True
    if packet(node) not in ("min", "minimum") or len(node.args) != 2 or node.args[0] is not x:
        return False
    bound = _number(importer, node.args[1])
    return bound is not None and abs(bound) <= _EDGE
