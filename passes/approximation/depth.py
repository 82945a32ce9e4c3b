"""Depth of a module's nonlinear ops in the paper's convention, and the levels once folded.

Source: the paper's section on depth. ``exp`` 5, a softmax iteration p + 5, LayerNorm p + 8, RMSNorm
p + 6, activation p + 1. The paper counts the blocks; what stands outside them is kept apart.
"""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.passes.approximation.algorithms.activation import ActivationApproximation
from atlasc.passes.approximation.algorithms.channel_activation import ChannelActivation
from atlasc.passes.approximation.algorithms.direct_softmax import DirectSoftmax
from atlasc.passes.approximation.algorithms.norm import NormApproximation
from atlasc.passes.approximation.algorithms.softmax import SoftmaxApproximation
from atlasc.passes.approximation.description import Approximation, carried_by
from atlasc.passes.approximation.fits.chebyshev import levels_of_degree
from atlasc.passes.calibration.measure import nonlinear_ops


@dataclass(frozen=True)
class OpDepth:
    """One nonlinear op.

    Attributes:
        op, location: which op.
        layer: index of its block, None outside the blocks.
        depth: in the paper's convention.
        levels: that it consumes once affine maps are folded, None for an algorithm whose count is
            only known after lowering.
    """

    op: str
    location: str
    layer: int | None
    depth: int
    levels: int | None


@dataclass(frozen=True)
class Depth:
    """Depth of a module.

    Attributes:
        ops: one entry for each nonlinear op, in order of execution.
    """

    ops: tuple[OpDepth, ...]

    @property
    def blocks(self) -> int:
        """Total over the blocks: the figure that the paper reports."""
        return sum(entry.depth for entry in self.ops if entry.layer is not None)

    @property
    def outside(self) -> int:
        """Total over what stands outside the blocks (a final norm, a pooler)."""
        return sum(entry.depth for entry in self.ops if entry.layer is None)

    @property
    def per_layer(self) -> dict[int, int]:
        """Depth by index of the block."""
        layers: dict[int, int] = {}
        for entry in self.ops:
            if entry.layer is not None:
                layers[entry.layer] = layers.get(entry.layer, 0) + entry.depth
        return layers

    @property
    def levels(self) -> int | None:
        """Levels of the blocks once folded; None if some op's count is not known."""
        counts = [entry.levels for entry in self.ops if entry.layer is not None]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None


def depth_of(module: Module) -> Depth:
    """Depth of a module whose nonlinear ops carry approximations; no calibration is needed.

    Raises:
        AtlasError: an op has no approximation.
    """
    ops = nonlinear_ops(module)
    for op in ops:
        if "approximation" not in op.attributes:
            raise AtlasError(
                f"{op.name} has no approximation, so its depth is not known",
                where=op.location,
                remedy="apply a recipe or a search result first",
            )
    carried = {op: carried_by(op, module.symbols) for op in ops}
    return Depth(tuple(op_depth(op, carried[op]) for op in ops))


def op_depth(op: Op, chosen: Approximation) -> OpDepth:
    """Depth and levels of one op under an approximation."""
    depth = chosen.depth_of(op.name)
    return OpDepth(op.name, op.location, op.layer, depth, folded_levels(chosen))


def folded_levels(approximation: Approximation) -> int | None:
    """Levels of an op once domain maps, 1/n, gamma and beta are folded into their neighbours.

    exp e = ceil(log2(degree + 1)), a softmax iteration p + 3, a renormalisation 1, a direct softmax
    e + p + 1, a norm p + 2, an activation p. A formula, for the search; the count of a compiled
    program is read off that program.
    """
    if isinstance(approximation, SoftmaxApproximation):
        iterations = sum(p + 3 for p in approximation.iterations)
        iterations += approximation.renormalisations or 0
        return levels_of_degree(approximation.exp_degree) + iterations
    if isinstance(approximation, DirectSoftmax):
        exponential = levels_of_degree(approximation.exp_degree)
        return exponential + levels_of_degree(approximation.degree) + 1
    if isinstance(approximation, NormApproximation):
        return levels_of_degree(approximation.degree) + 2
    if isinstance(approximation, ActivationApproximation | ChannelActivation):
        return levels_of_degree(approximation.degree)
    return None
