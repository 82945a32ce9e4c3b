"""Rotary embeddings as an op of their own.

With features in the top bits, a rotary embedding just after a linear layer is part of that layer
(:mod:`atlasc.program.kernels.linear`).
"""

from __future__ import annotations

from atlasc.ir.module import Op
from atlasc.program.kernels.context import ROWS, Context, layout_of
from atlasc.program.plaintexts import Argument, Slots
from atlasc.program.record import Register


def rotary(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.rotary``: the two halves of a head lie half a head apart. Where a head fills
    the top bits, half a head further is half a head before, and one rotation serves both.
    """
    layout, engine = layout_of(op.value), ctx.engine
    half, width = layout.extent("d") // 2, layout.extent("d")
    tokens, _ = op.site(ctx.symbols).constant_shape("cos")
    places = ctx.places(layout, (tokens, 1, width), (*ROWS, "g"))
    low = ctx.table("first half", layout, lambda: layout.slot_index("d") < half)
    high = ctx.table("second half", layout, lambda: layout.slot_index("d") >= half)
    amount = half * layout.stride("d")
    wraps = 2 * amount == layout.slots

    def factors(out: int) -> list[Slots]:
        cos, sin = (Slots.of(Argument(name), (places[out], 0)) for name in ("cos", "sin"))
        further, before = sin * Slots.where(low) * -1.0, sin * Slots.where(high)
        return [cos, further + before] if wraps else [cos, further, before]

    result = []
    for out, one in enumerate(x):
        turned = engine.rotate_many(one, [amount] if wraps else [amount, -amount])
        result.append(engine.dot_plain([one, *turned], factors(out)))
    return result
