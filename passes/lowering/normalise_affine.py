"""``normalise-affine``: turns affine maps into scale and add_constant, and domains into (−1, 1)."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.module import Module, Op, Value
from atlasc.ir.opdef import Symbol
from atlasc.ir.rewriting import Rewriter, without_dead_ops
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class NormaliseAffine(Pass):
    """Split ``affine`` and the domain map of ``chebyshev`` into a factor and a constant.

    ``assign-scales`` removes the factors. The constants are additions and take no level. A constant
    that is added to attention scores joins their ``mask_fill``.
    """

    name = "normalise-affine"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        rewriter = Rewriter(module)

        def mapped(op: Op, scale: float | Symbol, shift: float | Symbol) -> Value:
            """The operand of an op, times a factor, plus a constant."""
            (x,) = rewriter.operands(op)
            if scale != 1.0:
                x = rewriter.add(op, "poly.scale", [x], {"factor": scale})
            if shift != 0.0:
                x = rewriter.add(op, "poly.add_constant", [x], {"value": shift})
            return x

        for op in module.ops:
            if op.name == "poly.affine":
                scale, shift = op.attributes["scale"], op.attributes["shift"]
                rewriter.values[op.value] = mapped(op, scale, shift)
            elif op.name == "poly.chebyshev" and op.attributes["domain"] != [-1.0, 1.0]:
                low, high = op.attributes["domain"]
                x = mapped(op, 2.0 / (high - low), -(high + low) / (high - low))
                rewriter.copy(op, [x], {**op.attributes, "domain": [-1.0, 1.0]})
            elif op.name == "poly.mask_fill" and (more := _added(rewriter, op.operands[0].op)):
                scores, *masks = op.operands
                operands = [rewriter.values[value] for value in (scores.op.operands[0], *masks)]
                rewriter.copy(op, operands, {**op.attributes, **more})
            else:
                rewriter.copy(op)
        return without_dead_ops(rewriter.module)


def _added(rewriter: Rewriter, op: Op) -> dict[str, Symbol]:
    """What an op adds to attention scores, where it differs from key to key, as attributes of their
    ``mask_fill``.
    """
    if op.name == "poly.add_positions":
        return {"slopes": op.attributes["slopes"]}
    value = op.attributes["value"] if op.name == "poly.add_constant" else None
    if not isinstance(value, Symbol):
        return {}
    array = rewriter.source.symbols[value.name]
    array = array.reshape((1,) * (3 - array.ndim) + array.shape[-3:])
    return {"bias": rewriter.module.constant(value.name, array)}
