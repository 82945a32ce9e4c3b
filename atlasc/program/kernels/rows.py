"""Kernels for values of one token, and for attention with one query, beside values of all tokens.
The step of a decoder, which is a program of one token, has kernels of its own
(:mod:`atlasc.program.kernels.cache`).

The slots of the other tokens are free. They hold copies, so that every slot-wise op does the same
in all of them. Their top bits number *places* (:attr:`~atlasc.ir.layout.Layout.one_row`) for blocks
that would otherwise lie in other ciphertexts.

The query lies in the slots of all tokens. Its scores are Σ_d q[d] · k[d, t]: one product for each
column of heads, and a sum over the features, which wraps around the ciphertext. Now the scores lie
along the tokens, where a sum of the softmax would need a mask and a level. So they are moved to the
place of the features, as diagonals are for many queries: at feature s, only token t = s is kept. A
sum over the tokens brings it to the first token, and from there it is copied to all tokens.

The context goes the same way back. At feature s, only token t = s of p is kept. The sum over the
features holds the weight p[t] in all features. Its product with the values is summed over the
tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from atlasc.ir.layout import UNUSED, Layout
from atlasc.ir.module import Op
from atlasc.program.kernels.attention import fill_masked
from atlasc.program.kernels.cache import cached_context, cached_scores
from atlasc.program.kernels.context import Context, layout_of, place_of
from atlasc.program.kernels.scores import Scores
from atlasc.program.plaintexts import Slots
from atlasc.program.record import Register


def replicate(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.replicate``."""
    target, source = layout_of(op.value), layout_of(op.operands[0])
    if source.features_low:
        return [_spread_over_unused(ctx, source, one) for one in x]
    places = (place_of(target, index) for index in source.ciphertext_index)
    return _in_places(ctx, target, zip(x, places, strict=True))


def _spread_over_unused(ctx: Context, source: Layout, x: Register) -> Register:
    """Copies of index 0 of the unused fields in their other slots, which are zero before."""
    low = 0
    for field in reversed(source.fields):
        if field.axis == UNUSED:
            x = ctx.double_and_add(x, -1 << low, field.bits)
        low += field.bits
    return x


def _in_places(
    ctx: Context, target: Layout, rows: Iterable[tuple[Register, tuple[int, int]]]
) -> list[Register]:
    """Ciphertexts of a layout from ``rows``: pairs of a ciphertext that holds one token and 0
    elsewhere, and the (ciphertext, slot) that the token is copied to.
    """
    totals = ctx.totals((number, ctx.engine.rotate(row, -slot)) for row, (number, slot) in rows)
    copies = target.fields[-1].bits
    return [ctx.double_and_add(totals[number], -1, copies) for number in sorted(totals)]


def _over_features(ctx: Context, op: Op, keys: Layout, x: Register) -> Register:
    """Scores from products [batch, tokens, heads, features] with features in the low bits: the sum
    over the features of a head, in the slots of all of them; 0 for masked keys.
    """
    scores, features = Scores(ctx, layout_of(op.value)), keys.field("d")
    assert features is not None
    total = ctx.double_and_add(x, keys.stride("d"), features.bits)  # complete at feature 0

    def kept() -> Slots:
        return scores.kept(op, 0) * Slots.where(first)

    first = ctx.table("feature = 0", keys, lambda: keys.slot_index("d") == 0)
    one = ctx.engine.mul_plain(total, ctx.slots(kept))
    return ctx.double_and_add(one, -keys.stride("d"), features.bits)


class _Row:
    """Geometry of the scores of one query, beside keys or values of all tokens.

    Attributes:
        scores: geometry of the scores.
        keys: layout of keys or values.
        token: token of every slot among the keys, [slots].
        bits: axis -> slot bits of the keys.
        copies: number of copies of a place among the scores.
    """

    def __init__(self, scores: Scores, keys: Layout) -> None:
        self.scores, self.keys, self.token = scores, keys, keys.slot_index("t")
        self.bits = {field.axis: field.bits for field in keys.fields}
        self.copies = 1 << scores.layout.fields[-1].bits

    def mask(self, name: str, make: Callable[[], np.ndarray]) -> Slots:
        """1 where ``make()`` is true, 0 elsewhere."""
        return Slots.where(self.scores.ctx.slot_table(name, self.keys, make, self.scores.layout))

    def at(self, token: int) -> Slots:
        """1 in the slots of one token, 0 elsewhere."""
        return self.mask(f"token = {token}", lambda: self.token == token)

    def at_key(self, start: int) -> Slots:
        """1 where the token is the key, in the ciphertext whose first key is ``start``; 0
        elsewhere.
        """
        diagonal = self.scores.layout.slot_index("s")
        return self.mask(f"token = key({start})", lambda: self.token == start + diagonal)

    def places(self, start: int) -> list[tuple[int, list[int]]]:
        """Ciphertext and places (first slots) of the scores of each column of heads.

        The first column in a ciphertext also gets the places that belong to no column, so that a
        polynomial stays in its range there.
        """
        layout = self.scores.layout
        columns = [
            (place_of(layout, {**index, "s": start})[0], place_of(layout, index)[1])
            for index in self.keys.ciphertext_index
        ]
        every = set(range(0, 1 << self.bits["t"], self.copies))
        free = {n: sorted(every - {at for m, at in columns if m == n}) for n, _ in columns}
        return [(n, [place, *free.pop(n, [])]) for n, place in columns]


def row_scores(ctx: Context, op: Op, q: list[Register], k: list[Register]) -> list[Register]:
    """Kernel of ``ckks.row_scores``: scores [batch, heads, keys] of one query."""
    if layout_of(op.operands[1]).one_token:
        return cached_scores(ctx, op, q, k)
    engine, keys, scores = ctx.engine, layout_of(op.operands[1]), Scores(ctx, layout_of(op.value))
    if keys.features_low:
        products = [engine.mul(*pair) for pair in zip(q, k, strict=True)]
        return fill_masked(ctx, op, [_over_features(ctx, op, keys, one) for one in products])
    row = _Row(scores, keys)
    diagonals = scores.inner.bit_length() - 1

    def chosen(start: int) -> Slots:
        return scores.kept(op, start) * row.at_key(start)

    rows = []
    for column in range(keys.ciphertexts):
        total = engine.mul(q[column], k[column])  # [batch, tokens, heads, features]
        # [batch, tokens, heads, (features)]
        total = ctx.double_and_add(total, keys.stride("d"), row.bits["d"])
        for start in scores.parts:
            # Keep token t = s at feature s; its sum, at one token: [batch, heads, keys].
            one = engine.mul_plain(total, ctx.slots(chosen, start))
            one = ctx.double_and_add(one, 1, diagonals)
            # Keep that token: [batch, 1, heads, keys].
            one = engine.mul_plain(one, ctx.slots(row.at, start))
            number, places = row.places(start)[column]
            rows += [(one, (number, place - start)) for place in places]
    return fill_masked(ctx, op, _in_places(ctx, scores.layout, rows))


def row_context(ctx: Context, op: Op, p: list[Register], v: list[Register]) -> list[Register]:
    """Kernel of ``ckks.row_context``: the context [batch, heads, features] of one query."""
    if layout_of(op.operands[1]).one_token:
        return cached_context(ctx, op, p, v)
    scores, values = Scores(ctx, layout_of(op.operands[0])), layout_of(op.operands[1])
    if values.features_low:
        tokens = values.field("t")
        assert tokens is not None
        products = [ctx.engine.mul(*pair) for pair in zip(p, v, strict=True)]
        return [ctx.double_and_add(x, values.stride("t"), tokens.bits) for x in products]
    row, target, engine = _Row(scores, values), layout_of(op.value), ctx.engine
    moves: list[list[tuple[int, int, int, int]]] = [[] for _ in values.ciphertext_index]
    for column, of_column in enumerate(moves):
        for start in scores.parts:
            number, (place, *_) = row.places(start)[column]
            first = start // row.copies * row.copies
            for there in range(first, start + scores.inner, row.copies):
                of_column.append((number, place - there, start, there))
    moved: dict[tuple[int, int], Register] = {}
    for number, ciphertext in enumerate(p):
        amounts = sorted({by for of_column in moves for n, by, *_ in of_column if n == number})
        rotated = engine.rotate_many(ciphertext, amounts)
        moved |= {(number, by): one for by, one in zip(amounts, rotated, strict=True)}

    def chosen(start: int, there: int) -> Slots:
        place = there // row.copies

        def make() -> np.ndarray:
            inside = (row.token // row.copies == place) & (row.token < scores.real)
            return np.asarray(inside & (scores.feature < scores.inner))

        return row.at_key(start) * row.mask(f"keys of place {place}", make)

    rows = []
    for column, index in enumerate(values.ciphertext_index):
        # p of key s, only at token t = s: [batch, tokens, heads, keys].
        weights = engine.dot_plain(
            [moved[move[:2]] for move in moves[column]],
            [ctx.slots(chosen, *move[2:]) for move in moves[column]],
        )
        # p[t] in all features: [batch, tokens, heads, (features)].
        weights = ctx.double_and_add(weights, values.stride("d"), row.bits["d"])
        # The sum over tokens, complete at token 0: [batch, heads, features].
        one = ctx.double_and_add(engine.mul(weights, v[column]), 1, row.bits["t"])
        one = engine.mul_plain(one, ctx.slots(row.at, 0))  # [batch, 1, heads, features]
        rows.append((one, place_of(target, index)))
    return _in_places(ctx, target, rows)
