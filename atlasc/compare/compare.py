"""Two targets side by side, op by op: the first op that is wrong is found.

Both run the program in lock-step (:mod:`atlasc.compare.lock_step`). Only live values are kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from atlasc.client.program import Packed
from atlasc.compare.checkpoint import Checkpoint
from atlasc.compare.lock_step import LockStep, OpError
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op
from atlasc.passes.execution.engine import Engine


@dataclass
class Comparison:
    """The course of two engines through one program.

    Attributes:
        ops: one entry an op, in the order of execution.
        refused: what stopped the execution, if an engine refused an op.
    """

    ops: list[OpError] = field(default_factory=list)
    refused: AtlasError | None = None

    @property
    def first(self) -> OpError | None:
        """The first op that is wrong."""
        return next((op for op in self.ops if op.parts), None)

    @property
    def worst(self) -> OpError | None:
        """The op after which the difference is greatest."""
        return max(self.ops, key=lambda op: op.difference, default=None)


def compare(
    program: Module,
    query: Packed,
    reference: Engine[Any],
    target: Engine[Any],
    *,
    tolerance: float | None = None,
    keep_going: bool = False,
    before: Callable[[Op], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> Comparison:
    """Run one query on two engines, up to the first op that is wrong.

    Args:
        program: ckks module.
        query: packed inputs.
        reference: the engine that is believed, usually the simulator.
        target: the engine that is examined; it must be able to decrypt.
        tolerance: largest difference, for slots up to 1; larger values get proportionally more.
        keep_going: do not stop at the first wrong op; later ones are judged by their own operands.
        before: called before every op.
        checkpoint: where the state is kept, and from which the comparison continues.

    Raises:
        AtlasError: the engines have different parameters; the checkpoint is of another comparison.
    """
    for name in ("slots", "max_level", "bootstrap_level", "bootstrap_batch"):
        ours, theirs = getattr(reference, name), getattr(target, name)
        if ours != theirs:
            raise AtlasError(
                "two engines of different parameters cannot be compared",
                why=f"{name} is {ours} in the reference and {theirs} in the target",
            )
    run = LockStep(program, query, reference, target)
    result, start = Comparison(), 0
    if checkpoint is not None and (state := checkpoint.load()) is not None:
        start, result.ops, live = state
        run.restore(live, start)
    for position, op in enumerate(program.ops[start:], start):
        if before is not None:
            before(op)
        try:
            found = run.step(position, op, tolerance)
        except AtlasError as error:
            result.refused = error
            return result
        if found is not None:
            result.ops.append(found)
            if found.parts and not keep_going:
                return result
        if checkpoint is not None:
            checkpoint.save_now_and_then(position + 1, result.ops, run.live)
    if checkpoint is not None:
        checkpoint.remove()
    return result
