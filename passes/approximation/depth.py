"""Depth of a module's nonlinear ops in the paper's convention, and levels as compiled.

Source: the paper's section on depth. ``exp`` 5, a softmax iteration p + 5, LayerNorm p + 8, RMSNorm
p + 6, activation p + 1. The paper counts the blocks; ops outside them are counted apart.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from atlasc.ir.module import Module
from atlasc.passes.approximation.algorithms import carried_by
from atlasc.passes.calibration.measure import nonlinear_ops


@dataclass(frozen=True)
class OpDepth:
    """One nonlinear op.

    Attributes:
        layer: index of its block, None outside the blocks.
        depth: in the paper's convention.
        levels: that it consumes in a lowered program.
    """

    op: str
    location: str
    layer: int | None
    depth: int
    levels: int


@dataclass(frozen=True)
class Depth:
    """Depth of a module; `ops` has an entry for each nonlinear op, in order of execution."""

    ops: tuple[OpDepth, ...]

    @property
    def blocks(self) -> int:
        """Total over the blocks: the figure that the paper reports."""
        return sum(self.per_layer.values())

    @property
    def outside(self) -> int:
        """Total over the ops outside the blocks (a final norm, a pooler)."""
        return sum(entry.depth for entry in self.ops if entry.layer is None)

    @property
    def per_layer(self) -> dict[int, int]:
        """Depth by index of the block."""
        layers: Counter[int] = Counter()
        for entry in self.ops:
            if entry.layer is not None:
                layers[entry.layer] += entry.depth
        return dict(layers)

    @property
    def levels(self) -> int:
        """Levels that the blocks consume in a lowered program."""
        return sum(entry.levels for entry in self.ops if entry.layer is not None)


def depth_of(module: Module) -> Depth:
    """Depth of a module whose nonlinear ops carry approximations; no calibration is needed.

    Raises:
        AtlasError: an op has no approximation.
    """
    entries = []
    for op in nonlinear_ops(module):
        chosen = carried_by(op, module.symbols)
        depth, levels = chosen.depth_of(op.name), chosen.levels
        entries.append(OpDepth(op.name, op.location, op.layer, depth, levels))
    return Depth(tuple(entries))
