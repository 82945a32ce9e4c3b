"""Kernels of elementwise ops, reductions and level changes."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from atlasc.ir.module import Op
from atlasc.passes.execution.kernels.context import (
    ROWS,
    Context,
    Ct,
    blocked,
    first_rows,
    layout_of,
)
from atlasc.passes.execution.paterson_stockmeyer import (
    ChebyshevPlan,
    Coefficient,
    evaluate_plan,
    plan_chebyshev,
)


def _aligned(op: Op, operands: list[list[Ct]]) -> list[tuple[Ct, Ct]]:
    """Pairs of ciphertexts of a binary op, the reduced operand repeated."""
    full = layout_of(op.value)
    left, right = (
        [operand[i] for i in full.ciphertexts_of(layout_of(value))]
        for operand, value in zip(operands, op.operands, strict=True)
    )
    return list(zip(left, right, strict=True))


def binary(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.add``, ``ckks.sub`` and ``ckks.mul``: the engine's method of that name."""
    method = getattr(ctx.engine, op.name.removeprefix("ckks."))
    return [method(a, b) for a, b in _aligned(op, operands)]


def square(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.square``."""
    return [ctx.engine.square(ciphertext) for ciphertext in operands[0]]


def _plaintexts(ctx: Context[Ct], op: Op) -> list[np.ndarray | float]:
    """A constant in the layout of the result, one plaintext a ciphertext."""
    layout, value = layout_of(op.value), ctx.constant(op, "value")
    zero_padding = op.attributes.get("zero_padding", False)
    rows = op.attributes.get("first_row", False)
    if isinstance(value, float) and not zero_padding and not rows:
        return [value] * layout.ciphertexts
    if ctx.dry:
        return [ctx.blank] * layout.ciphertexts
    repeat: tuple[str, ...] = () if zero_padding else ROWS
    if op.attributes.get("copy_padding", False):
        repeat = (*ROWS, "g")
    value = np.atleast_1d(value)
    # Without features of its own (extent 1), a constant is the same for all, padding included.
    value = value[..., None] if value.shape[-1] == 1 else blocked(value, layout)
    packed = layout.pack(value, repeat)
    return list(packed * first_rows(layout) if rows else packed)


def add_plain(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.add_plain``."""
    pairs = zip(operands[0], _plaintexts(ctx, op), strict=True)
    return [ctx.engine.add_plain(ciphertext, vector) for ciphertext, vector in pairs]


def mul_plain(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.mul_plain``."""
    sources = layout_of(op.value).ciphertexts_of(layout_of(op.operands[0]))
    pairs = zip((operands[0][i] for i in sources), _plaintexts(ctx, op), strict=True)
    return [ctx.engine.mul_plain(ciphertext, vector) for ciphertext, vector in pairs]


def double(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.double``."""
    result = operands[0]
    for _ in range(op.attributes["times"]):
        result = [ctx.engine.add(ciphertext, ciphertext) for ciphertext in result]
    return result


def chebyshev(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.chebyshev``."""
    coefficients = np.asarray(ctx.constant(op, "coefficients"))
    if ctx.dry and (coefficients.ndim > 1 or not coefficients.any()):
        coefficients = _outlined(coefficients)
    if coefficients.ndim > 1:
        return _by_feature(ctx, op, operands[0], coefficients)
    plan = _plan(tuple(coefficients.tolist()))
    return [evaluate_plan(ctx.engine, ciphertext, plan) for ciphertext in operands[0]]


def _outlined(coefficients: np.ndarray) -> np.ndarray:
    """Coefficients of the same cost, of one feature: a module without its arrays has costs too."""
    present = coefficients.reshape(-1, coefficients.shape[-1]).any(axis=0)
    numbers = 1.0 / np.arange(1, coefficients.shape[-1] + 1)  # no two are equal, as in real ones
    if present.any():
        numbers *= present
    return numbers if coefficients.ndim == 1 else numbers[None]


def _by_feature(ctx: Context[Ct], op: Op, operand: list[Ct], coefficients: np.ndarray) -> list[Ct]:
    """Coefficients [F, degree + 1]: vectors over the slots, 0 in the padding of the features."""
    layout, plan = layout_of(op.value), plan_chebyshev(coefficients)

    def plaintext(coefficient: Coefficient, position: int) -> np.ndarray:
        if ctx.dry:
            return ctx.blank
        return np.asarray(layout.pack(blocked(np.asarray(coefficient), layout), ROWS)[position])

    return [
        evaluate_plan(ctx.engine, ciphertext, plan, partial(plaintext, position=position))
        for position, ciphertext in enumerate(operand)
    ]


@lru_cache(maxsize=512)
def _plan(coefficients: tuple[float, ...]) -> ChebyshevPlan:
    return plan_chebyshev(coefficients)


def rotate_sum(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.rotate_sum``: over ciphertexts by additions, then over slots by doubling."""
    source, axes = layout_of(op.operands[0]), op.attributes["axes"]
    totals: dict[int, Ct] = {}
    groups = source.ciphertexts_of(layout_of(op.value))
    for group, ciphertext in zip(groups, operands[0], strict=True):
        totals[group] = ctx.engine.add(totals[group], ciphertext) if group in totals else ciphertext
    result = []
    for total in totals.values():
        for field in source.fields:
            if field.axis in axes:
                total = double_and_add(ctx, total, 1 << source.offset(field), field.bits)
        result.append(total)
    return result


def double_and_add(ctx: Context[Ct], x: Ct, stride: int, bits: int) -> Ct:
    """Σ over 2**bits neighbours at a stride: x[i] + x[i + stride] + …"""
    for bit in range(bits):
        x = ctx.engine.add(x, ctx.engine.rotate(x, stride << bit))
    return x


def select(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.select``: rotate the wanted index to index 0 of its field."""
    layout = layout_of(op.operands[0])
    amount = op.attributes["index"] * layout.stride(op.attributes["axis"])
    return [ctx.engine.rotate(c, amount) if amount else c for c in operands[0]]


def drop(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.drop``."""
    return [ctx.engine.drop_to(ciphertext, op.attributes["level"]) for ciphertext in operands[0]]


def bootstrap(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.bootstrap``; a lower target than the engine's is reached by dropping."""
    refreshed = ctx.engine.bootstrap_many(operands[0])
    return [ctx.engine.drop_to(ciphertext, op.attributes["level"]) for ciphertext in refreshed]
