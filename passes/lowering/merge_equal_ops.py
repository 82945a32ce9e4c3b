"""``merge-equal-ops``: computes equal values only once."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from atlasc.ir.module import Module, Value
from atlasc.ir.rewriting import Rewriter
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class MergeEqualOps(Pass):
    """Keep one of several ops that do the same to the same values.

    Their attributes must be equal, constants by their names; their locations do not matter.
    """

    name = "merge-equal-ops"
    takes = "poly"

    def run(self, module: Module, report: Report) -> Module:
        """Poly module to poly module."""
        rewriter, known = Rewriter(module), dict[Hashable, Value]()
        for op in module.ops:
            # The origin of an op does not affect its value; inputs differ by name.
            attributes = repr(sorted({**op.attributes, "part": ""}.items()))
            key = op.name, tuple(rewriter.operands(op)), attributes
            if op.result is None or key not in known:
                known[key] = rewriter.copy(op)
            else:
                rewriter.values[op.result] = known[key]
                report.say(f"%{op.result.name} ({op.location}) is the same as %{known[key].name}")
        return rewriter.module
