"""``assign-scales``: moves scalar factors into weights and coefficients.

A ciphertext may hold f·v instead of v for any f > 0, as long as all ops agree. With L = log f every
op gives a linear equation: a product adds the L of its operands; a sum needs equal L; the argument
of a Chebyshev sum needs the factor of its domain map. Linear layers, Chebyshev sums and plaintext
products may have any factor on their result, because their constants absorb it; so may inputs and
outputs, for which the client absorbs it. The equations are solved exactly. Remaining freedom is
used to bring values as close to 1 in magnitude as possible, which bootstraps and noise favour.

The domain map, 1/2ᵏ, 1/√d, 1/n and the factors between softmax iterations then take no level
(Orion, ASPLOS 2025, fuses the range map in the same spirit, for one op at a time). If equations
contradict each other, as on a pre-norm residual stream that feeds norms of different ranges, one
operand of an addition gets a plaintext product: the shallower one, which has levels to spare.

If an exact solution leaves a value above ``LIMIT``, which a bootstrap could not refresh, the value
is stored smaller and a later one is doubled, by additions, which take no level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from atlasc.analyses.bounds import RANGE, SEEN
from atlasc.ir.arrays.lazy import elementwise
from atlasc.ir.errors import AtlasError
from atlasc.ir.facts import MAGNITUDES
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.polynomials.linear_system import LinearSystem

Row = dict[Value, float]
Equation = tuple[Row, float]
"""Σ coefficient·L(value) = constant."""

WISHED, LIMIT = 0.7, SEEN * RANGE
"""Magnitude that the solution aims at, and magnitude from which a value is stored at half size."""


@dataclass(frozen=True)
class AssignScales(Pass):
    """Solve for a factor of every value and rewrite all constants; no scalar ``scale`` remains.

    The ``magnitude`` attributes of the ops, if calibration set them, guide the remaining freedom.
    """

    name = "assign-scales"
    takes = "poly"
    needs = (MAGNITUDES,)
    keeps = (MAGNITUDES,)

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        assignment = _Assignment(module, {})
        while crowded := {
            op: times
            for op, times in assignment.crowded().items()
            if op not in assignment.doublings
        }:
            try:
                assignment = _Assignment(module, {**crowded, **assignment.doublings})
            except AtlasError:  # another op fixes the operand too, so its magnitude stays
                break
        for line in assignment.remarks:
            report.say(line)
        return assignment.rewritten()


def _same(op: Op, doublings: int) -> Equation | None:
    return {op.value: 1.0, op.operands[0]: -1.0}, 0.0


def _input(op: Op, doublings: int) -> Equation | None:
    """The equation of an input; the server takes a public input as it is."""
    return ({op.value: 1.0}, 0.0) if op.attributes["side"] == "public" else None


def _product(op: Op, doublings: int) -> Equation | None:
    row: Row = {op.value: 1.0}
    for operand in op.operands if len(op.operands) > 1 else op.operands * 2:
        row[operand] = row.get(operand, 0.0) - 1.0
    return row, doublings * math.log(2.0)


def _scale(op: Op, doublings: int) -> Equation | None:
    """The equation of a scale, which disappears: the stored f(x)·x is the stored f(y)·factor·x."""
    factor = op.attributes["factor"]
    if isinstance(factor, Symbol) or factor <= 0:
        return None
    return {op.operands[0]: 1.0, op.value: -1.0}, math.log(factor)


def _chebyshev(op: Op, doublings: int) -> Equation | None:
    return {op.operands[0]: 1.0}, -doublings * math.log(2.0)


def _is_positive(factor: Any) -> bool:
    return not isinstance(factor, Symbol) and bool(factor > 0)


@dataclass(frozen=True)
class ScaleRule:
    """The effect of factors on an op.

    Attributes:
        equation: Σ coefficient·L(value) = constant, from the op and the doublings of its result
            (for a Chebyshev sum: of its argument).
        by_result: attributes that are multiplied by the factor of the result.
        by_ratio: attributes that are multiplied by the result's factor over the operand's.
        default: value of such an attribute if the op lacks it.
    """

    equation: Callable[[Op, int], Equation | None] | None = _same
    by_result: tuple[str, ...] = ()
    by_ratio: tuple[str, ...] = ()
    default: float | None = None


_UNSCALED = ("poly.double", "poly.row_sum", "poly.center", "poly.transpose", "poly.reshape",
             "poly.select", "poly.repeat", "poly.rotary", "poly.at_tokens")  # fmt: skip
RULES: dict[str, ScaleRule] = {
    "poly.input": ScaleRule(_input, ("factor",), default=1.0),
    "poly.output": ScaleRule(None, by_ratio=("factor",), default=1.0),
    "poly.linear": ScaleRule(None, ("bias",), ("weight",)),
    "poly.mean": ScaleRule(None, by_ratio=("factor",), default=1.0),
    "poly.chebyshev": ScaleRule(_chebyshev, ("coefficients", "gain")),
    "poly.scale": ScaleRule(_scale, by_ratio=("factor",)),
    **dict.fromkeys(("poly.add", "poly.sub"), ScaleRule(None)),  # their equations come last
    **dict.fromkeys(("poly.mul", "poly.matmul", "poly.square"), ScaleRule(_product)),
    **dict.fromkeys(("poly.add_constant", "poly.mask_zero"), ScaleRule(by_result=("value",))),
    "poly.add_positions": ScaleRule(by_result=("slopes",)),
    "poly.mask_fill": ScaleRule(by_result=("fill", "log_keys", "bias", "slopes")),
    **dict.fromkeys(_UNSCALED, ScaleRule()),
}


class _Assignment:
    """The solution of all equations, and the module with the factors in its constants.

    Attributes:
        doublings: number of doublings at ops around values that were stored above the limit.
        factors: factor of every value.
        products: operands (op, index) that need their own product.
        remarks: why they need it.

    Raises:
        AtlasError: the equation of an op contradicts earlier ones.
    """

    def __init__(self, module: Module, doublings: Mapping[Op, int]) -> None:
        self.module, self.doublings = module, doublings
        self.products: set[tuple[Op, int]] = set()
        self.remarks: list[str] = []
        self._system: LinearSystem[Value] = LinearSystem()
        self._add_equations()
        values = [op.result for op in module.ops if op.result is not None]
        logs = self._system.solve({value: _wished(value) for value in values})
        self.factors = {value: math.exp(logs.get(value, 0.0)) for value in values}

    def _add_equations(self) -> None:
        for op in self.module.ops:
            rule = RULES.get(op.name)
            late = op.name == "poly.scale"
            if rule is None or not (late or self._holds(op, rule.equation)):
                raise AtlasError(
                    f"{op.name}: no factor suits both its operands and its result",
                    where=op.location,
                    remedy="run normalise-affine before assign-scales",
                )
        for op in self.module.ops:
            if op.name == "poly.scale" and not self._holds(op, _scale):
                # A value that two polynomials read on different ranges keeps one product.
                self.products.add((op, 0))
                self.remarks.append(
                    f"poly.scale %{op.value.name} ({op.location}) stays a product: its operand has "
                    "another reader that needs another factor"
                )
        depth = self.module.depths()
        for op in self.module.ops:
            if op.name in ("poly.add", "poly.sub"):
                for index in sorted(range(2), key=lambda i: -depth[op.operands[i]]):
                    if not self._system.add({op.value: 1.0, op.operands[index]: -1.0}, 0.0):
                        self.products.add((op, index))
                        self.remarks.append(
                            f"operand %{op.operands[index].name} of {op.name} %{op.value.name} "
                            f"({op.location}) is rescaled by a product: the ranges around it differ"
                        )

    def _holds(self, op: Op, rule: Callable[[Op, int], Equation | None] | None) -> bool:
        """Add the equation of an op, if it has one; False if it contradicts earlier equations."""
        equation = None if rule is None else rule(op, self.doublings.get(op, 0))
        return equation is None or self._system.add(*equation)

    def crowded(self) -> dict[Op, int]:
        """Ops around values that are stored above the limit, with the doublings that correct this.

        A Chebyshev sum fixes the sum of squares before it: if the argument is doubled twice, the
        operand of the square is stored at half its size. A product fixes an operand by the other
        operand and the result: if the result is doubled, this operand may be smaller.
        """
        crowded: dict[Op, int] = {}
        for op in self.module.ops:
            if op.name == "poly.chebyshev":
                source = op.operands[0].op
                while source.name in ("poly.add_constant", "poly.scale", "poly.row_sum"):
                    source = source.operands[0].op
                if source.name == "poly.square":
                    crowded[op] = 2 * self._excess(source.operands[0])
            elif op.name == "poly.mul":
                sums = [v for v in op.operands if v.op.name == "poly.chebyshev"]
                crowded[op] = max(map(self._excess, sums), default=0)
        return {op: times for op, times in crowded.items() if times > 0}

    def _excess(self, value: Value) -> int:
        """Number of halvings that bring a value's stored magnitude under the limit."""
        stored = self.factors[value] * value.op.attributes.get("magnitude", 0.0)
        return max(0, math.ceil(math.log2(stored / LIMIT))) if stored > 0 else 0

    def rewritten(self) -> Module:
        """The module with scaled constants, without the scalar factors."""
        rewriter = Rewriter(self.module)
        values = rewriter.values
        for op in self.module.ops:
            operands, times = rewriter.operands(op), self.doublings.get(op, 0)
            positive = op.name == "poly.scale" and _is_positive(op.attributes["factor"])
            if positive and (op, 0) not in self.products:
                values[op.value] = operands[0]
                continue
            if op.name in ("poly.add", "poly.sub"):
                for index, operand in enumerate(op.operands):
                    if (op, index) in self.products:
                        factor = {"factor": self.factors[op.value] / self.factors[operand]}
                        operands[index] = rewriter.add(op, "poly.scale", [operands[index]], factor)
            elif op.name == "poly.chebyshev" and times:
                operands = [_doubled(rewriter, op, operands[0], times)]
            result = rewriter.copy(op, operands, self._attributes(rewriter, op))
            if op.name == "poly.mul" and times:
                values[op.value] = _doubled(rewriter, op, result, times)
        rewriter.module.symbols = rewriter.module.arrays_used()
        return rewriter.module

    def _attributes(self, rewriter: Rewriter, op: Op) -> dict[str, Any]:
        attributes, rule = dict[str, Any](op.attributes), RULES[op.name]
        out = self.factors[op.result] if op.result is not None else 1.0
        if "magnitude" in attributes:
            attributes["magnitude"] *= out
            if op.name == "poly.mul":
                attributes["magnitude"] /= 2 ** self.doublings.get(op, 0)
        if attributes.get("side") == "public":
            return attributes
        ratio = out / self.factors[op.operands[0]] if op.operands else 1.0
        scaled = [(name, ratio) for name in rule.by_ratio] + [(n, out) for n in rule.by_result]
        for name, factor in scaled:
            value = attributes.get(name, rule.default)
            if value is not None:
                attributes[name] = _scaled(rewriter, value, factor)
        return attributes


def _wished(value: Value) -> float:
    """Log of the factor that brings a value's magnitude to ``WISHED``; 0 if none was measured."""
    magnitude = value.op.attributes.get("magnitude", 0.0)
    return math.log(WISHED / magnitude) if magnitude > 0 else 0.0


def _doubled(rewriter: Rewriter, op: Op, x: Value, times: int) -> Value:
    attributes: dict[str, object] = {"times": times}
    if "magnitude" in x.op.attributes:
        attributes["magnitude"] = x.op.attributes["magnitude"] * 2**times
    return rewriter.add(op, "poly.double", [x], attributes)


def _scaled(rewriter: Rewriter, value: Any, factor: float) -> object:
    """A constant times a factor: a number, a list of numbers or an array."""
    if isinstance(value, Symbol):
        if factor == 1.0:
            return value
        array = rewriter.source.symbols[value.name]
        scaled = elementwise(lambda numbers: numbers * factor, array)
        return rewriter.module.constant(f"{value.name}.scaled", scaled)
    if isinstance(value, list):
        return [float(item * factor) for item in value]
    return float(value * factor)
