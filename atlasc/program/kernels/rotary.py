"""Rotary embeddings as an op of their own.

With features in the top bits, a rotary embedding just after a linear layer is part of that layer
(:mod:`atlasc.program.kernels.linear`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.program.kernels.context import ROWS, Context, has_mask, layout_of
from atlasc.program.plaintexts import MASK, NOWHERE, Argument, Slots, Table
from atlasc.program.record import Register

OfTable = Callable[[str], Slots]
"""Maps the attribute of a table [tokens, d] to the slots of its elements."""


def rotary(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.rotary``: the two halves of a head lie half a head apart. Where a head fills
    the top bits, or those below the copies of a row, half a head further is half a head before, and
    one rotation serves both.
    """
    layout, engine = layout_of(op.value), ctx.engine
    half = layout.extent("d") // 2
    low = ctx.slot_table("first half", layout, lambda: layout.slot_index("d") < half)
    high = ctx.slot_table("second half", layout, lambda: layout.slot_index("d") >= half)
    amount = half * layout.stride("d")
    wraps = 2 * amount == layout.period

    def factors(of: OfTable) -> list[Slots]:
        cos, sin = of("cos"), of("sin")
        further, before = sin * Slots.where(low) * -1.0, sin * Slots.where(high)
        return [cos, further + before] if wraps else [cos, further, before]

    result = []
    for one, of in zip(x, _tables(ctx, op, layout), strict=True):
        turned = engine.rotate_many(one, [amount] if wraps else [amount, -amount])
        result.append(engine.dot_plain([one, *turned], factors(of)))
    return result


def _tables(ctx: Context, op: Op, layout: Layout) -> list[OfTable]:
    """The tables in the slots of each ciphertext: of the tokens of the slots, or of the token that
    a position keeps.
    """
    tokens, width = op.site(ctx.symbols).constant_shape("cos")
    if has_mask(op):
        return [partial(_at_position, ctx, layout, tokens, width)] * layout.ciphertexts
    places = ctx.places(layout, (tokens, 1, width), (*ROWS, "g"))
    return [partial(_at_tokens, at) for at in places]


def _at_tokens(at: Table, name: str) -> Slots:
    return Slots.of(Argument(name), (at, 0))


def _at_position(ctx: Context, layout: Layout, tokens: int, width: int, name: str) -> Slots:
    """Σ_t position[batch, t] · table[t, d]."""
    repeats = layout.feature_repeats

    def number(n: int) -> Table:
        return ctx.table(f"{n}", repeats, lambda: np.array([n]), repeats)

    def features() -> np.ndarray:
        found = layout.slot_index("d")[: layout.slots // repeats]
        return np.where(found < width, found, NOWHERE)

    def inputs() -> np.ndarray:  # padding of the batch acts as input 0
        found = layout.slot_index("b")
        return np.where(found < layout.extent("b"), found, 0) * tokens

    several = layout.extent("b") > 1
    batch = [(ctx.table(f"input · {tokens}", layout, inputs), 0)] * several
    feature = ctx.table("feature", (layout, width), features, repeats)
    kept = (Slots.of(Argument(MASK), (number(t), 0), *batch) for t in range(tokens))
    rows = (Slots.of(Argument(name), (number(t * width), 0), (feature, 0)) for t in range(tokens))
    return reduce(operator.add, map(operator.mul, kept, rows))
