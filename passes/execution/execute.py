"""Runs a ckks module on an engine, op by op."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module, Op, Value
from atlasc.passes.execution.engine import Ct, Engine
from atlasc.passes.execution.kernels import attention, elementwise, linear, rows
from atlasc.passes.execution.kernels.context import Context

_NAMED = (
    linear.linear_transform, elementwise.add_plain, elementwise.bootstrap, elementwise.chebyshev,
    elementwise.double, elementwise.drop, elementwise.gather, elementwise.mul_plain,
    elementwise.rotate_sum, elementwise.select, elementwise.spread, elementwise.square,
    attention.ct_matmul_pv, attention.ct_matmul_qk,
    rows.replicate, rows.row_context, rows.row_scores,
)  # fmt: skip
KERNELS: dict[str, Callable[..., list[Any]]] = {
    **{f"ckks.{kernel.__name__}": kernel for kernel in _NAMED},
    **dict.fromkeys(("ckks.add", "ckks.sub", "ckks.mul"), elementwise.binary),
    "ckks.mask_zero": attention.fill_masked,
}
"""Kernels by op. A kernel takes a `Context`, the op, and of each operand its ciphertexts, or the
array of a public one. It returns the ciphertexts of the result."""


def execute(
    engine: Engine[Ct],
    program: Module,
    encrypted: Mapping[str, list[Ct]],
    public: Mapping[str, np.ndarray] | None = None,
    before: Callable[[Op], None] | None = None,
    observe: Callable[[Op, list[Any]], None] | None = None,
) -> dict[str, list[Ct]]:
    """Run a ckks module; rotations follow its plan.

    Args:
        encrypted: ciphertexts by input name.
        public: arrays of public inputs by name.
        before: called before every op (scopes, timing), such as `atlasc.run.timing.Pace`.
        observe: called after every op with its ciphertexts (progress, comparison, timing).

    Returns:
        encrypted outputs by name.

    Raises:
        AtlasError: an input is missing, or the engine refused an op (level, key, memory).
    """
    given = {"ckks.input": encrypted, "ckks.public_input": public or {}}
    ctx = Context(engine, program)
    last_use = {v: n for n, op in enumerate(program.ops) for v in op.operands}
    values: dict[Value, Any] = {}
    outputs: dict[str, list[Ct]] = {}
    # On sim an input outside the ranges overflows; decryption then says so, in one message.
    with np.errstate(over="ignore", invalid="ignore"):
        for position, op in enumerate(program.ops):
            if before is not None:
                before(op)
            if op.result is None:
                outputs[op.attributes["name"]] = values[op.operands[0]]
            else:
                if op.name not in given:
                    values[op.result] = apply(ctx, op, [values[operand] for operand in op.operands])
                elif (name := op.attributes["name"]) in given[op.name]:
                    values[op.result] = given[op.name][name]
                elif ctx.dry:
                    values[op.result] = ctx.blank
                else:
                    raise AtlasError(f"input {name!r} is missing", where=op.location)
                if observe is not None:
                    observe(op, values[op.result])
            for operand in op.operands:
                if last_use[operand] == position:
                    values.pop(operand, None)
    return outputs


def apply(ctx: Context[Ct], op: Op, operands: list[Any]) -> list[Ct]:
    """The result of an op that has a kernel.

    Args:
        ctx: engine and constants.
        op: of a ckks module.
        operands: ciphertexts, or an array for a public operand.

    Raises:
        AtlasError: the engine refused it; says which op of which module.
    """
    if op.name not in KERNELS:
        raise AtlasError(
            f"{op.name} cannot be run",
            where=op.location,
            why="it stands for what a server returns, in the client's view of a program",
            remedy="give the server's program",
        )
    try:
        return KERNELS[op.name](ctx, op, *operands)
    except AtlasError as error:
        raise AtlasError(
            f"{op.name} %{op.value.name}: {error.what}",
            where=op.location or error.where,
            why=error.why,
            remedy=error.remedy,
        ) from None
