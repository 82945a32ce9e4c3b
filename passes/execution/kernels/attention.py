"""Products of two ciphertexts in attention, with scores packed by diagonals.

The score of query i and key j lies on diagonal s = (j − i) mod n, in the slot of token i; the
diagonal takes the place of the feature d (its high bits number ciphertexts). A row sum of the
softmax is then a sum over the top slot bits, which wraps around and needs no mask.

With cycle(x, r)[t] = x[t + r mod n] over the n tokens, diagonal s of the scores is
Σ_d q[d, t] · k[d, t + s], and the context is Σ_s p[s, t] · v[d, t + s]. Three things make them
cheap:

* *Skewed copies.* s = start + baby, with ``baby`` in the place of the low bits of d. A copy of k
  whose feature d is rotated by (d − r) mod B, times q, holds one feature of each of B diagonals.
  The B copies r = 0 … B − 1, rotated by r along d, add up to B diagonals at once. They take B
  products and one relinearisation; a diagonal at a time would take B of both and B sums over d.
* *Two halves of the diagonals in one ciphertext*: s in the real and s + n/2 in the imaginary part.
* Only ``start`` cycles q (and p), so n/2B cycles are enough.

A cycle is two rotations of the ciphertext, each masked to the tokens that did not cross a border.
The cycle back shares its masks with the packing of the diagonals.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from atlasc.ir.module import Op
from atlasc.passes.execution.kernels.context import Context, Ct, layout_of
from atlasc.passes.execution.kernels.elementwise import double_and_add
from atlasc.passes.execution.kernels.scores import Scores


def _skewed(ctx: Context[Ct], scores: Scores, x: Ct, direction: int, unit: complex) -> list[Ct]:
    """B copies of x, halved: in the real part of copy r, token t of feature d is token t + j of x
    with j = (d + direction · r) mod B, and in the imaginary part ``unit`` times token t + j + n/2.
    """
    moves = [
        (j, unit if part else 1.0, rotation)
        for part, offset in enumerate(scores.halves)
        for j in range(scores.baby)
        for rotation in scores.token_rotations(j + offset)
    ]
    rotated = ctx.engine.rotate_many(x, [move[2] * scores.stride for move in moves])

    def chosen(r: int, j: int, factor: complex, rotation: int) -> np.ndarray:
        shift = (scores.feature + direction * r) % scores.baby
        key = (scores.token + rotation) % scores.tokens
        inside = scores.served(rotation) & (key < scores.layout.extent("t"))
        return np.asarray((inside & (shift == j)) * (factor / len(scores.halves)))

    return [
        ctx.weighted_sum(rotated, (ctx.slots(chosen, r, *move) for move in moves))
        for r in range(scores.baby)
    ]


def _cycle(
    ctx: Context[Ct], scores: Scores, x: Ct, amount: int, chosen: np.ndarray | None = None
) -> Ct:
    """cycle(x, amount) in the chosen slots, 0 elsewhere; in all slots and by 0 it costs nothing."""
    if amount == 0 and chosen is None:
        return x
    turns = scores.token_rotations(amount)
    rotated = ctx.engine.rotate_many(x, [rotation * scores.stride for rotation in turns])

    def inside(rotation: int) -> np.ndarray:
        return scores.served(rotation) & (True if chosen is None else chosen)

    return ctx.weighted_sum(rotated, (ctx.slots(inside, rotation) for rotation in turns))


def _by_feature(ctx: Context[Ct], scores: Scores, x: Ct) -> list[Ct]:
    """x rotated by 0 … B − 1 features."""
    return ctx.engine.rotate_many(x, [r * scores.top_stride for r in range(scores.baby)])


def _sum_over_groups(ctx: Context[Ct], scores: Scores, x: Ct) -> Ct:
    """Σ over the features that are equal modulo B, in all of them."""
    bits = scores.feature_bits - (scores.baby.bit_length() - 1)
    return double_and_add(ctx, x, scores.top_stride * scores.baby, bits)


def ct_matmul_qk(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.ct_matmul_qk``."""
    q, k = operands[:2]
    mask = np.asarray(operands[2]) if len(op.operands) > 2 else None
    scores = Scores(layout_of(op.value))
    result: list[Ct | None] = [None] * scores.layout.ciphertexts
    for column, index in enumerate(layout_of(op.operands[0]).ciphertext_index):
        copies = [
            ctx.engine.rotate(copy, r * scores.top_stride)
            for r, copy in enumerate(_skewed(ctx, scores, k[column], -1, 1j))
        ]
        packed: dict[int, Ct] = {}
        for start in scores.starts:
            query = _cycle(ctx, scores, q[column], -start)
            product = ctx.engine.dot(_by_feature(ctx, scores, query), copies)
            total = _sum_over_groups(ctx, scores, product)
            placed = _placed(ctx, scores, op, total, start, mask)
            first = start - start % scores.inner
            packed[first] = ctx.engine.add(packed[first], placed) if first in packed else placed
        for first, both in packed.items():
            for diagonal, part in _apart(ctx, scores, first, both):
                result[scores.number(index, diagonal)] = part
    complete = [ciphertext for ciphertext in result if ciphertext is not None]
    return _with_fill(ctx, op, complete, mask, op.attributes["fill"])


def _placed(
    ctx: Context[Ct], scores: Scores, op: Op, total: Ct, start: int, mask: np.ndarray | None
) -> Ct:
    """The diagonals from ``start`` on, cycled back; zero in other places and for masked keys.

    Where the two halves have different masks a and b: x ⊙ (a + b)/2 + conj(x) ⊙ (a − b)/2.
    """
    causal, layout = op.attributes.get("causal", False), scores.layout
    alike = mask is None and not causal and layout.extent("t") == scores.tokens
    sources = [total] if alike else [total, ctx.engine.conjugate(total)]

    @cache
    def masks() -> list[np.ndarray]:
        first, block = start - start % scores.inner, scores.block(start)
        kept = [block & scores.kept(first, mask, causal, half) for half in scores.halves]
        one, other = kept[0].astype(np.float64), kept[-1].astype(np.float64)
        return [(one + other) / 2, (one - other) / 2]

    def cycled(rotation: int, part: int) -> np.ndarray:
        return np.roll(scores.served(rotation) * masks()[part], rotation * scores.stride)

    terms = []
    for rotation in scores.token_rotations(start):
        vectors = (ctx.slots(cycled, rotation, part) for part in range(len(sources)))
        both = ctx.weighted_sum(sources, vectors)
        terms.append(ctx.engine.rotate(both, rotation * scores.stride))
    return ctx.total(terms)


def _apart(ctx: Context[Ct], scores: Scores, first: int, both: Ct) -> list[tuple[int, Ct]]:
    """(first diagonal, ciphertext) of what lies in the two parts of a ciphertext."""
    if len(scores.halves) == 1:
        return [(first, both)]
    engine = ctx.engine
    other = engine.conjugate(both)
    low, high = engine.add(both, other), engine.times_i(engine.sub(other, both))
    if scores.inner == scores.tokens:  # both halves share a ciphertext
        moved = engine.rotate(high, -scores.halves[1] * scores.top_stride)
        return [(first, engine.add(low, moved))]
    return [(first, low), (first + scores.halves[1], high)]


def _together(
    ctx: Context[Ct], scores: Scores, weights: list[Ct], index: dict[str, int], first: int
) -> Ct:
    """The inverse of ``_apart``: weights of two halves of the diagonals in one ciphertext."""
    low = weights[scores.number(index, first)]
    if len(scores.halves) == 1:
        return low
    half = scores.halves[1]
    if scores.inner == scores.tokens:
        high = ctx.engine.rotate(low, half * scores.top_stride)
    else:
        high = weights[scores.number(index, first + half)]
    return ctx.engine.add(low, ctx.engine.times_i(high))


def _with_fill(
    ctx: Context[Ct], op: Op, packed: list[Ct], mask: np.ndarray | None, fill: float
) -> list[Ct]:
    """Scores with a number added where the query may not see the key."""
    scores = Scores(layout_of(op.value))
    causal, query = (op.attributes.get(name, 0) for name in ("causal", "query"))

    def offsets(first: int) -> np.ndarray:
        return np.where(scores.kept(first, mask, causal, query=query), 0.0, fill)

    return [
        ctx.engine.add_plain(ciphertext, ctx.slots(offsets, outer.get("s", 0)))
        for ciphertext, outer in zip(packed, scores.layout.ciphertext_index, strict=True)
    ]


def mask_zero(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.mask_zero``: subtract what masked and padding keys are known to hold."""
    mask = np.asarray(operands[1]) if len(op.operands) > 1 else None
    return _with_fill(ctx, op, operands[0], mask, -op.attributes["value"])


def ct_matmul_pv(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.ct_matmul_pv``."""
    p, v = operands
    scores = Scores(layout_of(op.operands[0]))
    result = []
    for column, index in enumerate(layout_of(op.operands[1]).ciphertext_index):
        copies = _skewed(ctx, scores, v[column], 1, -1j)
        both: dict[int, Ct] = {}
        terms = []
        for start in scores.starts:
            first = start - start % scores.inner
            if first not in both:
                both[first] = _together(ctx, scores, p, index, first)
            chosen = ctx.blank if ctx.dry else scores.block(start) & scores.first_copy
            group = _sum_over_groups(ctx, scores, _cycle(ctx, scores, both[first], -start, chosen))
            product = ctx.engine.dot(_by_feature(ctx, scores, group), copies)
            terms.append(_cycle(ctx, scores, product, start))
        total = ctx.total(terms)
        if len(scores.halves) > 1:
            total = ctx.engine.add(total, ctx.engine.conjugate(total))
        result.append(total)
    return result
