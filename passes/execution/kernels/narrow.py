"""Kernels that bring replicated values of several ciphertexts into one, and back.

A sum is the same in all copies along the axis that it was taken over. One copy is enough, so the
other ones make room for the other ciphertexts: a softmax's sums of all heads in one ciphertext.
"""

from __future__ import annotations

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.passes.execution.kernels.context import Context, Ct, layout_of
from atlasc.passes.execution.kernels.elementwise import double_and_add


def gather(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.gather``. Places without a ciphertext hold the first one, so that a
    polynomial stays in its range there.
    """
    layout = layout_of(op.operands[0])
    places = _places(layout)
    masks = [np.isin(_place_of_slot(layout), place).astype(np.float64) for place in places]
    masks[0] = 1.0 - np.sum(masks[1:], axis=0)
    pairs = zip(operands[0], masks, strict=True)
    terms = (ctx.engine.mul_plain(ciphertext, mask) for ciphertext, mask in pairs)
    return [ctx.total(terms)]


def spread(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.spread``."""
    layout, (gathered,) = layout_of(op.value), operands[0]
    bits = _bits(layout)
    result = []
    for place in _places(layout):
        mask = (_place_of_slot(layout) == place).astype(np.float64)
        one = ctx.engine.mul_plain(gathered, mask)
        result.append(double_and_add(ctx, one, layout.slots >> bits, bits))
    return result


def _bits(layout: Layout) -> int:
    return sum(field.bits for field in layout.outer)


def _place_of_slot(layout: Layout) -> np.ndarray:
    """The top bits of every slot, which number the places of the ciphertexts."""
    return np.arange(layout.slots) // (layout.slots >> _bits(layout))


def _places(layout: Layout) -> list[int]:
    """Place of every ciphertext in the one that holds them all."""
    assert layout.gathered is not None
    size = layout.slots >> _bits(layout)
    places = []
    for index in layout.ciphertext_index:
        at = {axis: index.get(axis, 0) for axis, _ in layout.extents}
        places.append(int(layout.gathered.slot_of(at)) // size)
    return places
