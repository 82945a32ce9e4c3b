"""``normalise-affine``: every affine map becomes scale and add_constant, every domain (−1, 1)."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.passes.framework.pass_base import Pass, Report
from atlasc.passes.framework.rewriting import Rewriter


@dataclass(frozen=True)
class NormaliseAffine(Pass):
    """Split ``affine`` and the domain map of ``chebyshev`` into a factor and a constant.

    The factors are removed by ``assign-scales``; the constants are additions and cost no level.
    """

    name = "normalise-affine"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        rewriter = Rewriter(module)
        for op in module.ops:
            if op.name == "poly.affine":
                (x,) = rewriter.operands(op)
                x = _scale(rewriter, op, x, op.attributes["scale"])
                rewriter.values[op.value] = _shift(rewriter, op, x, op.attributes["shift"])
            elif op.name == "poly.chebyshev" and op.attributes["domain"] != [-1.0, 1.0]:
                low, high = op.attributes["domain"]
                (x,) = rewriter.operands(op)
                x = _scale(rewriter, op, x, 2.0 / (high - low))
                x = _shift(rewriter, op, x, -(high + low) / (high - low))
                rewriter.copy(op, [x], {**op.attributes, "domain": [-1.0, 1.0]})
            else:
                rewriter.copy(op)
        return rewriter.module


def _scale(rewriter: Rewriter, op: Op, x: Value, factor: float | Symbol) -> Value:
    if factor == 1.0:
        return x
    return rewriter.add(op, "poly.scale", [x], {"factor": factor})


def _shift(rewriter: Rewriter, op: Op, x: Value, value: float | Symbol) -> Value:
    if value == 0.0:
        return x
    return rewriter.add(op, "poly.add_constant", [x], {"value": value})
