"""Products of two ciphertexts in attention, with scores packed by diagonals.

The score of query i and key j lies on diagonal s = (j − i) mod n, in the slot of token i. The
diagonal takes the place of the feature d; its high bits number ciphertexts. So a row sum of the
softmax is a sum over the top slot bits, which wraps around and needs no mask.

With cycle(x, r)[t] = x[t + r mod n] over the n tokens, diagonal s of the scores is
Σ_d q[d, t] · k[d, t + s], and the context is Σ_s p[s, t] · v[d, t + s]. Three things make them
cheap:

* *Skewed copies.* B diagonals, s = start + baby, are computed together; ``baby`` takes the place of
  the low bits of d. Copy r of k has its feature d cycled by (d − r) mod B tokens. Its product with
  q holds one feature of each of the B diagonals. The sum of all B products, each rotated by r along
  d, holds the B diagonals. They take B products and one relinearisation; a diagonal at a time would
  take B of both, and B sums over d.
* *Two halves of the diagonals in one ciphertext*: s in the real and s + n/2 in the imaginary part.
* Only ``start`` cycles q (and p), so n/2B cycles are enough.

A cycle is two rotations of the ciphertext, each masked to the tokens that did not cross a border.
The cycle back shares its masks with the packing of the diagonals.
"""

from __future__ import annotations

from functools import cache
from typing import Generic

import numpy as np

from atlasc.ir.module import Op
from atlasc.passes.execution.engine import Ct
from atlasc.passes.execution.kernels.context import Context, layout_of
from atlasc.passes.execution.kernels.scores import Scores


class _Diagonals(Generic[Ct]):
    """Moves queries, keys and values to where the diagonals of some scores want them."""

    def __init__(self, ctx: Context[Ct], scores: Scores) -> None:
        self.ctx, self.engine, self.scores = ctx, ctx.engine, scores

    def skewed(self, x: Ct, direction: int, unit: complex) -> list[Ct]:
        """B copies of x, halved: in the real part of copy r, token t of feature d is token t + j of
        x with j = (d + direction · r) mod B, and in the imaginary part ``unit`` times token
        t + j + n/2.
        """
        ctx, scores = self.ctx, self.scores
        moves = [
            (j, unit if part else 1.0, rotation)
            for part, offset in enumerate(scores.halves)
            for j in range(scores.baby)
            for rotation in scores.token_rotations(j + offset)
        ]
        rotated = self.engine.rotate_many(x, [move[2] * scores.stride for move in moves])

        def chosen(r: int, j: int, factor: complex, rotation: int) -> np.ndarray:
            shift = (scores.feature + direction * r) % scores.baby
            key = (scores.token + rotation) % scores.tokens
            inside = scores.served(rotation) & (key < scores.layout.extent("t"))
            return np.asarray((inside & (shift == j)) * (factor / len(scores.halves)))

        return [
            ctx.weighted_sum(rotated, (ctx.slots(chosen, r, *move) for move in moves))
            for r in range(scores.baby)
        ]

    def cycle(self, x: Ct, amount: int, start: int | None = None) -> Ct:
        """cycle(x, amount); with ``start`` only of the diagonals from there on, 0 elsewhere."""
        ctx, scores = self.ctx, self.scores
        if amount == 0 and start is None:
            return x
        turns = scores.token_rotations(amount)
        rotated = self.engine.rotate_many(x, [rotation * scores.stride for rotation in turns])

        def inside(rotation: int) -> np.ndarray:
            served = scores.served(rotation)
            if start is None:
                return served
            return served & scores.block(start) & (scores.feature < scores.inner)

        return ctx.weighted_sum(rotated, (ctx.slots(inside, rotation) for rotation in turns))

    def by_feature(self, x: Ct) -> list[Ct]:
        """x rotated by 0 … B − 1 features."""
        amounts = [r * self.scores.top_stride for r in range(self.scores.baby)]
        return self.engine.rotate_many(x, amounts)

    def sum_over_groups(self, x: Ct) -> Ct:
        """Σ over the features that are equal modulo B, in all of them."""
        groups, stride = self.scores.width // self.scores.baby, self.scores.top_stride
        return self.ctx.double_and_add(x, stride * self.scores.baby, groups.bit_length() - 1)

    def placed(self, op: Op, total: Ct, start: int, mask: np.ndarray | None) -> Ct:
        """The diagonals from ``start`` on, cycled back; 0 in other places and for masked keys.

        Where the two halves have different masks a and b: x ⊙ (a + b)/2 + conj(x) ⊙ (a − b)/2.
        """
        ctx, scores = self.ctx, self.scores
        full = scores.layout.extent("t") == scores.tokens
        alike = mask is None and not op.attributes.get("causal") and full
        sources = [total] if alike else [total, self.engine.conjugate(total)]

        @cache
        def masks() -> list[np.ndarray]:
            first, block = start - start % scores.inner, scores.block(start)
            kept = [block & scores.kept(op, first + half, mask) for half in scores.halves]
            one, other = kept[0].astype(np.float64), kept[-1].astype(np.float64)
            return [(one + other) / 2, (one - other) / 2]

        def cycled(rotation: int, part: int) -> np.ndarray:
            return np.roll(scores.served(rotation) * masks()[part], rotation * scores.stride)

        terms = []
        for rotation in scores.token_rotations(start):
            vectors = (ctx.slots(cycled, rotation, part) for part in range(len(sources)))
            both = ctx.weighted_sum(sources, vectors)
            terms.append(self.engine.rotate(both, rotation * scores.stride))
        return ctx.total(terms)

    def apart(self, first: int, both: Ct) -> list[tuple[int, Ct]]:
        """(first diagonal, ciphertext) of what lies in the two parts of a ciphertext."""
        engine, scores = self.engine, self.scores
        if len(scores.halves) == 1:
            return [(first, both)]
        half, other = scores.halves[1], engine.conjugate(both)
        low, high = engine.add(both, other), engine.times_i(engine.sub(other, both))
        if scores.inner == scores.tokens:  # both halves share a ciphertext
            moved = engine.rotate(high, -half * scores.top_stride)
            return [(first, engine.add(low, moved))]
        return [(first, low), (first + half, high)]

    def together(self, weights: list[Ct], index: dict[str, int], first: int) -> Ct:
        """The inverse of ``apart``: weights of two halves of the diagonals in one ciphertext."""
        engine, scores = self.engine, self.scores
        low = weights[scores.number(index, first)]
        if len(scores.halves) == 1:
            return low
        half = scores.halves[1]
        if scores.inner == scores.tokens:
            high = engine.rotate(low, half * scores.top_stride)
        else:
            high = weights[scores.number(index, first + half)]
        return engine.add(low, engine.times_i(high))


def ct_matmul_qk(
    ctx: Context[Ct], op: Op, q: list[Ct], k: list[Ct], mask: np.ndarray | None = None
) -> list[Ct]:
    """Kernel of ``ckks.ct_matmul_qk``."""
    engine, scores = ctx.engine, Scores(layout_of(op.value))
    at, result = _Diagonals(ctx, scores), dict[int, Ct]()
    for column, index in enumerate(layout_of(op.operands[0]).ciphertext_index):
        copies = [
            engine.rotate(copy, r * scores.top_stride)
            for r, copy in enumerate(at.skewed(k[column], -1, 1j))
        ]
        packed: dict[int, Ct] = {}
        for start in scores.starts:
            query = at.cycle(q[column], -start)
            product = engine.dot(at.by_feature(query), copies)
            total = at.sum_over_groups(product)
            placed = at.placed(op, total, start, mask)
            first = start - start % scores.inner
            packed[first] = engine.add(packed[first], placed) if first in packed else placed
        for first, both in packed.items():
            for diagonal, part in at.apart(first, both):
                result[scores.number(index, diagonal)] = part
    complete = [result[number] for number in sorted(result)]
    return fill_masked(ctx, op, complete, mask)


def fill_masked(ctx: Context[Ct], op: Op, x: list[Ct], mask: np.ndarray | None = None) -> list[Ct]:
    """Where the query may not see the key, add the ``fill`` of scores; or (the kernel of
    ``ckks.mask_zero``) subtract the ``value`` that masked and padding keys are known to hold.
    """
    scores, flags = Scores(layout_of(op.value)), op.attributes
    fill = flags["fill"] if "fill" in flags else -flags["value"]

    def offsets(first: int) -> np.ndarray:
        return np.where(scores.kept(op, first, mask), 0.0, fill)

    firsts = (outer.get("s", 0) for outer in scores.layout.ciphertext_index)
    pairs = zip(x, firsts, strict=True)
    return [ctx.engine.add_plain(one, ctx.slots(offsets, first)) for one, first in pairs]


def ct_matmul_pv(ctx: Context[Ct], op: Op, p: list[Ct], v: list[Ct]) -> list[Ct]:
    """Kernel of ``ckks.ct_matmul_pv``."""
    engine, scores = ctx.engine, Scores(layout_of(op.operands[0]))
    at, result = _Diagonals(ctx, scores), []
    for column, index in enumerate(layout_of(op.operands[1]).ciphertext_index):
        copies = at.skewed(v[column], 1, -1j)
        both: dict[int, Ct] = {}
        terms = []
        for start in scores.starts:
            first = start - start % scores.inner
            if first not in both:
                both[first] = at.together(p, index, first)
            group = at.sum_over_groups(at.cycle(both[first], -start, start))
            product = engine.dot(at.by_feature(group), copies)
            terms.append(at.cycle(product, start))
        total = ctx.total(terms)
        if len(scores.halves) > 1:
            total = engine.add(total, engine.conjugate(total))
        result.append(total)
    return result
