"""``rotation-keys``: which rotation keys a placed program needs, and at which level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from atlasc.ir.module import Module
from atlasc.passes.lowering.costs import program_costs
from atlasc.passes.pass_base import Pass, Report
from atlasc.passes.rewriting import Rewriter


@dataclass(frozen=True)
class RotationKeys(Pass):
    """Record the rotation amounts, each with the highest level at which it is used.

    A key is made for that level: the size of a key grows with the square of its level. The module
    gets ``rotations`` = [[amount, level], …] and ``relinearization_level`` (−1 without a product).
    """

    name: ClassVar[str] = "rotation-keys"

    def run(self, module: Module, report: Report) -> Module:
        """Ckks module with levels to the same with its keys listed."""
        total = program_costs(module).total
        rotations = [[amount, level] for amount, level in sorted(total.rotation_levels.items())]
        products = [
            level for primitive, level in total.primitives if primitive in ("mul", "square")
        ]
        rewriter = Rewriter(module)
        for op in module.ops:
            rewriter.copy(op)
        rewriter.module.attributes["rotations"] = rotations
        top = max(products, default=-1)
        rewriter.module.attributes["relinearization_level"] = top
        report.say(f"{len(rotations)} rotation keys, relinearisation to level {top}")
        return rewriter.module


def key_plan(program: Module) -> tuple[dict[int, int], int | None]:
    """Rotation amounts with their levels, and the level of the relinearisation key (or None)."""
    rotations = dict(program.attributes["rotations"])
    level = program.attributes["relinearization_level"]
    return rotations, None if level < 0 else level
