"""Kernels of values of one token, and of attention with one query.

The slots of the other tokens are free. They hold copies, so that every slot-wise op does the same
in all of them, and their top bits number the blocks that would number ciphertexts otherwise: their
*places* (:attr:`~atlasc.ir.layout.Layout.one_row`).

With the query in the slots of all tokens, its scores are Σ_d q[d] · k[d, t]: one product a column
of heads, and a sum over the features, which wraps around the ciphertext. They then lie along the
tokens, and a softmax would sum over these, which takes a mask and a level for every sum. So the
keys move to the place of the features, as diagonals do where there are many queries: where s is the
place of a feature, token t = s is kept, and a sum over the tokens brings it to the first one, from
which it is copied to all. The context goes the same way back: Σ_s of what is kept of p at t = s
holds weight p[t] in all features, and its product with the values is summed over the tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.passes.execution.kernels.context import Context, Ct, layout_of
from atlasc.passes.execution.kernels.elementwise import double_and_add
from atlasc.passes.execution.kernels.scores import Scores


def replicate(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.replicate``."""
    source, target = layout_of(op.operands[0]), layout_of(op.value)
    rows = zip(operands[0], source.ciphertext_index, strict=True)
    return _in_places(ctx, target, ((row, *_place(target, index)) for row, index in rows))


def _in_places(ctx: Context[Ct], target: Layout, rows: Iterable[tuple[Ct, int, int]]) -> list[Ct]:
    """Ciphertexts that hold one token, 0 elsewhere, in their places and copied there.

    Args:
        ctx: the engine.
        target: layout of the result.
        rows: for each ciphertext its number in the result, and its place in slots.
    """
    totals: dict[int, Ct] = {}
    for row, number, place in rows:
        moved = ctx.engine.rotate(row, -place)
        totals[number] = ctx.engine.add(totals[number], moved) if number in totals else moved
    return [double_and_add(ctx, totals[n], -1, target.fields[-1].bits) for n in sorted(totals)]


def _place(layout: Layout, index: dict[str, int]) -> tuple[int, int]:
    """Ciphertext and place, in slots, of what another layout has in the ciphertext at an index."""
    at = {axis: index.get(axis, 0) for axis, _ in layout.extents}
    return int(layout.ciphertext_of(at)), int(layout.slot_of({**at, "s": 0}))


def _bits(layout: Layout, axis: str) -> int:
    field = layout.field(axis)
    assert field is not None
    return field.bits


@dataclass(frozen=True)
class _Row:
    """Geometry of the scores of one query, beside keys or values of all tokens.

    Attributes:
        scores: where each key of each head is.
        keys: layout of keys or values.
    """

    scores: Scores
    keys: Layout

    @cached_property
    def token(self) -> np.ndarray:
        """Token of every slot among the keys."""
        return self.keys.slot_index("t")

    def at(self, token: int) -> np.ndarray:
        """Slots of a token."""
        return self.token == token

    def at_key(self, start: int) -> np.ndarray:
        """Slots where the token is the key, in the ciphertext whose first key is ``start``."""
        return self.token == start + self.scores.layout.slot_index("s")

    def places(self, start: int) -> list[tuple[int, list[int]]]:
        """Ciphertext and places, in slots, of each column of heads: its own; of the first one in a
        ciphertext also those that no column has, so that a polynomial stays in its range there.
        """
        layout = self.scores.layout
        columns = [_place(layout, {**index, "s": start}) for index in self.keys.ciphertext_index]
        every = set(range(0, 1 << _bits(self.keys, "t"), 1 << layout.fields[-1].bits))
        free = {n: sorted(every - {at for m, at in columns if m == n}) for n, _ in columns}
        return [(n, [place, *free.pop(n, [])]) for n, place in columns]


def row_scores(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.row_scores``."""
    q, k = operands[:2]
    mask = np.asarray(operands[2]) if len(op.operands) > 2 else None
    scores, keys = Scores(layout_of(op.value)), layout_of(op.operands[1])
    row = _Row(scores, keys)
    causal, query = (op.attributes.get(name, 0) for name in ("causal", "query"))

    def kept(start: int) -> np.ndarray:
        return scores.kept(start, mask, causal, query=query)

    def chosen(start: int) -> np.ndarray:
        return kept(start) & row.at_key(start)

    def fill(start: int) -> np.ndarray:
        return ~kept(start) * np.float64(op.attributes["fill"])

    rows = []
    for column in range(keys.ciphertexts):
        total = ctx.engine.mul(q[column], k[column])
        total = double_and_add(ctx, total, keys.stride("d"), _bits(keys, "d"))
        for start in scores.parts:
            one = ctx.engine.mul_plain(total, ctx.slots(chosen, start))
            one = double_and_add(ctx, one, 1, _bits(scores.layout, "s"))
            one = ctx.engine.mul_plain(one, ctx.slots(row.at, start))
            number, places = row.places(start)[column]
            rows += [(one, number, place - start) for place in places]
    result = _in_places(ctx, scores.layout, rows)
    firsts = [outer.get("s", 0) for outer in scores.layout.ciphertext_index]
    return [
        ctx.engine.add_plain(x, ctx.slots(fill, first))
        for x, first in zip(result, firsts, strict=True)
    ]


def row_context(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.row_context``."""
    p, v = operands
    scores, values = Scores(layout_of(op.operands[0])), layout_of(op.operands[1])
    row, target, engine = _Row(scores, values), layout_of(op.value), ctx.engine
    copies = 1 << scores.layout.fields[-1].bits  # of a place
    moves: list[list[tuple[int, int, int, int]]] = []  # of each column
    for column in range(values.ciphertexts):
        moves.append([])
        for start in scores.parts:
            number, (place, *_) = row.places(start)[column]
            for there in range(start // copies * copies, start + scores.inner, copies):
                moves[column].append((number, place - there, start, there))
    moved = _moved(ctx, p, {move[:2] for column in moves for move in column})

    def chosen(start: int, there: int) -> np.ndarray:
        inside = (row.token // copies == there // copies) & (row.token < scores.real)
        return row.at_key(start) & scores.first_copy & inside

    rows = []
    for column, index in enumerate(values.ciphertext_index):
        weights = ctx.weighted_sum(
            (moved[move[:2]] for move in moves[column]),
            (ctx.slots(chosen, *move[2:]) for move in moves[column]),
        )
        weights = double_and_add(ctx, weights, values.stride("d"), _bits(values, "d"))
        one = double_and_add(ctx, engine.mul(weights, v[column]), 1, _bits(values, "t"))
        one = engine.mul_plain(one, ctx.slots(row.at, 0))
        rows.append((one, *_place(target, index)))
    return _in_places(ctx, target, rows)


def _moved(
    ctx: Context[Ct], x: list[Ct], wanted: set[tuple[int, int]]
) -> dict[tuple[int, int], Ct]:
    """Ciphertexts of x, by number, rotated by amounts."""
    result: dict[tuple[int, int], Ct] = {}
    for number, ciphertext in enumerate(x):
        amounts = sorted(amount for n, amount in wanted if n == number)
        rotated = ctx.engine.rotate_many(ciphertext, amounts)
        result |= {(number, amount): r for amount, r in zip(amounts, rotated, strict=True)}
    return result
