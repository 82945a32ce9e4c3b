"""``assign-scales``: scalar factors vanish into weights and coefficients.

A ciphertext may hold f·v instead of v for any f > 0 that suits us, as long as all ops agree. With
L = log f every op gives a linear equation: a product adds the L of its operands, a sum wants equal
ones, a Chebyshev argument wants the factor of its domain map. Linear layers, Chebyshev sums and
plaintext products may have any factor on their result, since their constants absorb it; so may
inputs and outputs, where the client does. The equations are solved exactly; what is left free
makes the values as close to 1 in magnitude as it can, which is what a bootstrap and the noise want.

This takes the domain map, 1/2ᵏ, 1/√d, 1/n and the factors between softmax iterations off the levels
of a program (Orion, ASPLOS 2025, fuses the range map in the same spirit, for one op at a time).
Where equations contradict each other, as on a pre-norm residual stream that feeds norms of
different ranges, one operand of an addition gets a plaintext product; the shallower one, which has
levels to spare.

Where an exact solution leaves a value above ``LIMIT``, which a bootstrap could not refresh, the
value is stored smaller and a later one is doubled, by additions, which cost no level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.analyses.depths import depths
from atlasc.passes.framework.linear_system import LinearSystem
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter
from atlasc.passes.framework.uniform import elementwise

Row = dict[Value, float]
ABSORBERS = ("poly.linear", "poly.chebyshev", "poly.mean")
"""Ops whose constants absorb any factor of their result."""


WISHED, LIMIT = 0.8, 0.95
"""Magnitudes that the solution aims at, and above which a value is stored at half its size."""


@dataclass(frozen=True)
class AssignScales(Pass):
    """Solve for a factor of every value and rewrite all constants; no scalar ``scale`` is left.

    The ``magnitude`` attributes of the ops, where calibration set them, guide what is left free.
    """

    name: ClassVar[str] = "assign-scales"

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        doublings: dict[Op, int] = {}
        solution = _solve(module, doublings)
        while crowded := {
            op: times
            for op, times in _crowded(module, solution.factors).items()
            if op not in doublings
        }:
            try:
                more = {**crowded, **doublings}
                solution, doublings = _solve(module, more), more
            except AtlasError:  # the operand is pinned by another op too: its magnitude stays
                break
        for line in solution.remarks:
            report.say(line)
        return _Rewrite(module, solution, doublings).run()


@dataclass(frozen=True)
class _Solution:
    """Factor of every value, and the operands that need a product of their own."""

    factors: Mapping[Value, float]
    breakers: set[tuple[Op, int]]
    remarks: list[str]


def _solve(module: Module, doublings: Mapping[Op, int]) -> _Solution:
    breakers, system, remarks = _equations(module, doublings)
    logs = system.solve(_wishes(module))
    factors = {value: math.exp(logs.get(value, 0.0)) for value in _values(module)}
    return _Solution(factors, breakers, remarks)


def _crowded(module: Module, factors: Mapping[Value, float]) -> dict[Op, int]:
    """Ops around values that are stored above the limit, and the doublings that mend it.

    A Chebyshev sum pins the sum of squares before it: with the argument doubled twice, the operand
    of the square is stored at half its size. A product pins an operand by its other one and its
    result: with the result doubled, that operand may be smaller.
    """
    crowded: dict[Op, int] = {}
    for op in module.ops:
        if op.name == "poly.chebyshev":
            source = op.operands[0].op
            while source.name in ("poly.add_constant", "poly.scale", "poly.row_sum"):
                source = source.operands[0].op
            if source.name == "poly.square":
                excess = _excess(source.operands[0], factors)
                if excess > 0:
                    crowded[op] = 2 * excess
        elif op.name == "poly.mul":
            excess = max(
                (_excess(v, factors) for v in op.operands if v.op.name == "poly.chebyshev"),
                default=0,
            )
            if excess > 0:
                crowded[op] = excess
    return crowded


def _excess(value: Value, factors: Mapping[Value, float]) -> int:
    """Halvings that bring a value's stored magnitude under the limit."""
    stored = factors[value] * value.op.attributes.get("magnitude", 0.0)
    return max(0, math.ceil(math.log2(stored / LIMIT))) if stored > 0 else 0


def _values(module: Module) -> list[Value]:
    return [op.result for op in module.ops if op.result is not None]


def _wishes(module: Module) -> dict[Value, float]:
    """Wished log factor: it brings the magnitude seen to ``WISHED``; 0 where none was measured."""
    return {
        value: math.log(WISHED / value.op.attributes["magnitude"])
        if value.op.attributes.get("magnitude", 0.0) > 0
        else 0.0
        for value in _values(module)
    }


def _equations(
    module: Module, doublings: Mapping[Op, int]
) -> tuple[set[tuple[Op, int]], LinearSystem[Value], list[str]]:
    """All equations; the operands that need a product of their own, and why."""
    system: LinearSystem[Value] = LinearSystem()
    scales = [op for op in module.ops if op.name == "poly.scale"]
    for op in module.ops:
        for row, constant in _rows(op, doublings.get(op, 0)) if op.name != "poly.scale" else []:
            if not system.add(row, constant):
                raise AtlasError(
                    f"{op.name}: no factor suits both its operands and its result",
                    where=op.location,
                    remedy="run normalise-affine before assign-scales",
                )
    breakers: set[tuple[Op, int]] = set()
    remarks = []
    for op in scales:  # a value that two polynomials read on different ranges keeps one product
        if not all(system.add(row, constant) for row, constant in _rows(op, 0)):
            breakers.add((op, 0))
            remarks.append(
                f"poly.scale %{op.value.name} ({op.location}) stays a product: its operand has "
                "another reader that wants another factor"
            )
    depth = depths(module)
    for op in module.ops:
        if op.name in ("poly.add", "poly.sub"):
            order = sorted(range(2), key=lambda i: -depth[op.operands[i]])
            for index in order:
                if not system.add({op.value: 1.0, op.operands[index]: -1.0}, 0.0):
                    breakers.add((op, index))
                    remarks.append(
                        f"operand %{op.operands[index].name} of {op.name} %{op.value.name} "
                        f"({op.location}) is rescaled by a product: the ranges around it differ"
                    )
    return breakers, system, remarks


def _rows(op: Op, doublings: int) -> list[tuple[Row, float]]:
    """Equations Σ coefficient·L(value) = constant of one op; additions come later."""
    if op.name == "poly.input" and op.attributes["side"] == "public":
        return [({op.value: 1.0}, 0.0)]  # the server takes it as it is
    if op.result is None or not op.operands or op.name in ("poly.add", "poly.sub"):
        return []
    result, first = op.result, op.operands[0]
    if op.name in ("poly.mul", "poly.matmul", "poly.square"):
        row: Row = {result: 1.0}
        for operand in op.operands if len(op.operands) > 1 else (first, first):
            row[operand] = row.get(operand, 0.0) - 1.0
        return [(row, doublings * math.log(2.0))]
    if op.name == "poly.scale":
        factor = op.attributes["factor"]
        if isinstance(factor, Symbol) or factor <= 0:
            return []
        # The op disappears: the stored f(x)·x is the stored f(y)·factor·x.
        return [({first: 1.0, result: -1.0}, math.log(factor))]
    if op.name == "poly.chebyshev":
        return [({first: 1.0}, -doublings * math.log(2.0))]
    if op.name in ABSORBERS:
        return []
    return [({result: 1.0, first: -1.0}, 0.0)]


class _Rewrite:
    """Multiplies the factors into the constants."""

    def __init__(self, module: Module, solution: _Solution, doublings: Mapping[Op, int]) -> None:
        self.factors, self.breakers = solution.factors, solution.breakers
        self.doublings = doublings
        self.rewriter = Rewriter(module)

    def run(self) -> Module:
        for op in self.rewriter.source.ops:
            self._op(op)
        module = self.rewriter.module
        module.symbols = module.arrays_used()
        return module

    def _op(self, op: Op) -> None:
        attributes = dict(op.attributes)
        out = self.factors[op.result] if op.result is not None else 1.0
        into = self.factors[op.operands[0]] if op.operands else 1.0
        if "magnitude" in attributes:
            attributes["magnitude"] *= out
        if op.name == "poly.input":
            if op.attributes["side"] == "server":
                attributes["factor"] = op.attributes.get("factor", 1.0) * out
        elif op.name == "poly.output":
            plain = {**op.attributes, "factor": op.attributes.get("factor", 1.0)}
            attributes["factor"] = self._scaled(op, "factor", 1.0 / into, plain)
        elif op.name == "poly.linear":
            attributes["weight"] = self._scaled(op, "weight", out / into)
            if "bias" in attributes:
                attributes["bias"] = self._scaled(op, "bias", out)
        elif op.name == "poly.chebyshev":
            attributes["coefficients"] = self._scaled(op, "coefficients", out)
            if op in self.doublings:
                argument = self._doubled(op, self.rewriter.values[op.operands[0]])
                self.rewriter.copy(op, [argument], attributes)
                return
        elif op in self.doublings:
            if "magnitude" in attributes:
                attributes["magnitude"] /= 2 ** self.doublings[op]
            product = self.rewriter.copy(op, None, attributes)
            self.rewriter.values[op.value] = self._doubled(op, product)
            return
        elif op.name == "poly.add_constant":
            attributes["value"] = self._scaled(op, "value", out)
        elif op.name == "poly.mask_fill":
            attributes["fill"] = op.attributes["fill"] * out
        elif op.name == "poly.mask_zero":
            attributes["value"] = op.attributes["value"] * out
        elif op.name == "poly.mean":
            attributes["factor"] = op.attributes.get("factor", 1.0) * out / into
        elif op.name == "poly.scale":
            number = not isinstance(attributes["factor"], Symbol)
            if number and attributes["factor"] > 0 and (op, 0) not in self.breakers:
                self.rewriter.values[op.value] = self.rewriter.values[op.operands[0]]
                return
            attributes["factor"] = self._scaled(op, "factor", out / into)
        elif op.name in ("poly.add", "poly.sub"):
            self.rewriter.copy(op, [self._addend(op, index) for index in range(2)], attributes)
            return
        self.rewriter.copy(op, None, attributes)

    def _doubled(self, op: Op, x: Value) -> Value:
        times = self.doublings[op]
        attributes: dict[str, object] = {"times": times}
        if "magnitude" in x.op.attributes:
            attributes["magnitude"] = x.op.attributes["magnitude"] * 2**times
        return self.rewriter.add(op, "poly.double", [x], attributes)

    def _addend(self, op: Op, index: int) -> Value:
        operand = op.operands[index]
        new = self.rewriter.values[operand]
        if (op, index) not in self.breakers:
            return new
        factor = self.factors[op.value] / self.factors[operand]
        return self.rewriter.add(op, "poly.scale", [new], {"factor": factor})

    def _scaled(
        self, op: Op, name: str, factor: float, attributes: Mapping[str, object] | None = None
    ) -> object:
        value: Any = (attributes or op.attributes)[name]
        if isinstance(value, Symbol):
            array = self.rewriter.source.symbols[value.name]
            if factor == 1.0:
                return value
            scaled = elementwise(lambda numbers: numbers * factor, array)
            return self.rewriter.module.constant(f"{value.name}.scaled", scaled)
        if isinstance(value, list):
            return [float(item * factor) for item in value]
        return float(value * factor)
