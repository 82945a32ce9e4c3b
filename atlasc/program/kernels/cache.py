"""Attention of one query with keys and values that are kept by their diagonals.

Scores and context are products of a matrix with a row (:mod:`atlasc.program.kernels.skewed`), for
each head, in which the matrix is encrypted: ``dot`` of its ciphertexts with rotations of the row.
A row of a token is appended by products with public masks, which are 1 in its slots. For keys these
slots belong to the token, and every ciphertext takes another rotation of the row, which is the one
that a query takes. For values the slots belong to the features, and the masks differ.

Keys and values of a window, all tokens at once, are moved to these slots
(:mod:`atlasc.program.kernels.routes`).
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.ir.ops.rows import Cache, bits_for
from atlasc.program.kernels.attention import fill_masked
from atlasc.program.kernels.context import Context, layout_of
from atlasc.program.kernels.routes import Moves, routes
from atlasc.program.kernels.scores import Scores
from atlasc.program.kernels.skewed import skewed, summed
from atlasc.program.plaintexts import MASK, NOWHERE, Argument, Slots, Table
from atlasc.program.record import Register


def _rotations(ctx: Context, cache: Cache, row: Register) -> list[Register]:
    """The rotations of a row that the ciphertexts of a part are multiplied with."""
    row = skewed(ctx, row, cache.diagonals, cache.unit, cache.layout.slots)
    return list(ctx.engine.rotate_many(row, [j * cache.unit for j in range(cache.steps)]))


def _tokens(ctx: Context, cache: Cache, part: int, tokens: int) -> Table:
    """The place in a mask [batch, tokens] of the token that each slot of diagonal 0 holds."""
    layout, at = cache.layout, cache.diagonals
    period = at.copies * at.block * cache.unit

    def make() -> np.ndarray:
        of_place = np.arange(len(at.places)) % cache.tokens if cache.keys else at.places
        token = np.repeat(of_place, cache.unit) + part * cache.tokens
        batch = layout.slot_index("b")[:period]
        batch = np.where(batch < layout.extent("b"), batch, 0)  # padding acts as input 0
        return np.where(token < tokens, batch * tokens + token, NOWHERE)

    about = layout, tokens
    return ctx.table(f"token of part {part}", about, make, layout.slots // period)


def at_tokens(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.at_tokens``."""
    source = layout_of(op.operands[0])
    if not source.one_token:
        return _window_at_tokens(ctx, source, layout_of(op.value), x)
    cache, tokens = Cache.of(layout_of(op.value)), op.operands[1].tensor.shape[1]
    engine, steps = ctx.engine, range(cache.steps)

    def kept(part: int, step: int) -> Slots:
        amount = 0 if cache.keys else step * cache.unit
        return Slots.of(Argument(MASK), (_tokens(ctx, cache, part, tokens), amount))

    rows = _rotations(ctx, cache, x[0]) if cache.keys else x * cache.steps
    return [
        engine.mul_plain(rows[step], ctx.slots(kept, part, step))
        for part in range(cache.parts)
        for step in steps
    ]


@lru_cache(maxsize=8)
def _moves(window: Layout, kept: Layout) -> tuple[tuple[Moves, ...], np.ndarray]:
    """The moves of keys or values of a window to their slots, without the copies of them; and the
    place in a mask [batch, tokens] of the token in each slot, ``[ciphertexts, slots]``.
    """
    batch, tokens, heads, width = window.shape
    elements = Cache.of(kept).elements(batch, heads, tokens, width)
    filled = elements[:, : kept.period] >= 0
    filled[:, 0] |= ~filled.any(axis=1)  # a ciphertext of padding takes any element, times 0
    result, target = np.nonzero(filled)
    found = elements[result, target]
    shape = (batch, heads, tokens, width)
    index = dict(zip("bgtd", np.unravel_index(np.maximum(found, 0), shape), strict=True))
    places = np.full(elements.shape, NOWHERE, np.int32)
    places[result, target] = np.where(found < 0, NOWHERE, index["b"] * tokens + index["t"])
    operand = window.ciphertext_of(index) + np.zeros_like(target)
    moves = Moves(kept.slots, operand, window.slot_of(index), result, target, 1)
    return routes(moves), places


def _window_at_tokens(
    ctx: Context, window: Layout, kept: Layout, x: list[Register]
) -> list[Register]:
    """Keys or values of all tokens of a window, at the tokens that a public mask keeps."""
    moves, places = _moves(window, kept)

    def moved(one: Moves, last: bool, result: int, giant: int, operand: int, baby: int) -> Slots:
        found = one.diagonal(result, giant, operand, baby)
        if last:
            about, make = (window, kept), lambda: places[result]
            token = ctx.table(f"token of result {result}", about, make)
            found = found * Slots.of(Argument(MASK), (token, 0))
        return found.rolled(giant)

    for one in moves:
        x = ctx.transform(x, one.places, partial(moved, one, one is moves[-1]), 1)
    copies = bits_for(kept.slots // kept.period)
    return [ctx.double_and_add(result, kept.period, copies) for result in x]


def cached_scores(ctx: Context, op: Op, q: list[Register], k: list[Register]) -> list[Register]:
    """Kernel of ``ckks.row_scores`` for keys by diagonals: scores [batch, heads, tokens]."""
    cache, scores = Cache.of(layout_of(op.operands[1])), Scores(ctx, layout_of(op.value))
    rotated, result = _rotations(ctx, cache, q[0]), []
    for part in range(cache.parts):
        products = ctx.engine.dot(rotated, k[part * cache.steps :][: cache.steps])
        total = summed(ctx, products, cache.diagonals, cache.unit)
        kept = ctx.slots(scores.kept, op, part * cache.tokens)
        result.append(ctx.engine.mul_plain(total, kept))
    return fill_masked(ctx, op, result)


def cached_context(ctx: Context, op: Op, p: list[Register], v: list[Register]) -> list[Register]:
    """Kernel of ``ckks.row_context`` for values by diagonals: a row [batch, heads, features]."""
    cache = Cache.of(layout_of(op.operands[1]))
    rotated = [one for weights in p for one in _rotations(ctx, cache, weights)]
    return [summed(ctx, ctx.engine.dot(rotated, v), cache.diagonals, cache.unit)]
