"""Products of a matrix with a row of one token, whose copies fill the ciphertext.

The diagonal method multiplies the row, rotated by j places, with diagonal j. In copies of the row
it would compute the same thing many times. So copy c is first rotated by c · ``steps`` places
(`Diagonals`), which takes a level. Then each product computes ``copies`` diagonals, and a matrix of
weights needs as many plaintexts as its elements fill. A sum over the copies gives the result, in
copies again (the hybrid method of Juvekar et al., GAZELLE, USENIX Security 2018, section 4). Two
diagonals may also share a complex plaintext, as in :mod:`atlasc.program.kernels.linear`.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.ir.ops.rows import Diagonals, bits_for, most_copies
from atlasc.program.kernels.context import Context
from atlasc.program.kernels.weights import FeatureMap, Weights
from atlasc.program.plaintexts import Slots, Table
from atlasc.program.record import Register

HOISTED, KEY_SWITCH, LEVEL = 2.4, 3.3, 50.0
"""Rough costs of a hoisted rotation, of another key switch, and of a level of one ciphertext (its
share of a bootstrap), in products with a plaintext whose slots do not repeat, encoding included.
By the cost table of ``cpu`` at level 8 such a product takes 2.6 ms.
"""


class RowPlan(NamedTuple):
    """How the diagonals of a weight are computed.

    Attributes:
        baby_steps: B, number of baby steps, the rotation by 0 included.
        paired: whether two diagonals share a complex plaintext.
        copies: number of diagonals that one product computes in the copies of the row.
    """

    baby_steps: int
    paired: bool
    copies: int


@lru_cache(maxsize=256)
def choose_row_plan(source: Layout, target: Layout, inputs: int, outputs: int) -> RowPlan:
    """The cheapest plan for a weight ``[outputs, inputs]``."""
    one, other = FeatureMap(source, inputs), FeatureMap(target, outputs)
    places = source.slots // one.stride
    columns, rows = source.ciphertexts, target.ciphertexts

    def cost(plan: RowPlan) -> float:
        at, skewed = Diagonals(one.positions, other.positions, plan.copies), plan.copies > 1
        steps = at.steps // (1 + plan.paired)
        hoisted = columns * (plan.copies + plan.baby_steps - 2)
        single = rows * (steps // plan.baby_steps - 1 + bits_for(at.summed))
        single += (columns + rows) * plan.paired
        products = columns * (rows * steps + plan.copies * skewed)
        return HOISTED * hoisted + KEY_SWITCH * single + products + LEVEL * skewed

    most = bits_for(most_copies(places, one.positions, other.positions))
    plans = [
        RowPlan(1 << baby, paired, 1 << copy)
        for copy in range(most + 1)
        for paired in (False, True)
        for baby in range(Diagonals(one.positions, other.positions, 1 << copy).steps.bit_length())
        if Diagonals(one.positions, other.positions, 1 << copy).steps >> baby + paired
    ]
    return min(plans, key=cost)


def skewed(ctx: Context, x: Register, at: Diagonals, unit: int, slots: int) -> Register:
    """A row whose copy c is rotated by c · ``steps`` places; takes a level if there are copies.

    Args:
        x: the row; it repeats after ``at.inputs`` places.
        at: its diagonals.
        unit: slots of a place.
        slots: slots of the ciphertext.
    """
    if at.copies == 1:
        return x
    repeats = slots // (at.copies * at.block * unit)

    def copy(number: int) -> Slots:
        table = ctx.table(
            f"copy = {number}", (at, repeats), lambda: np.arange(at.copies) == number, repeats
        )
        return Slots.where(table)

    rotated = ctx.engine.rotate_many(x, [c * at.steps * unit for c in range(at.copies)])
    masks = [ctx.slots(copy, c, repeats=repeats) for c in range(at.copies)]
    return ctx.engine.dot_plain(rotated, masks)


def summed(ctx: Context, x: Register, at: Diagonals, unit: int) -> Register:
    """The result, in copies: the sum of all slots that belong to its places."""
    return ctx.double_and_add(x, at.outputs * unit, bits_for(at.summed))


def row_transform(ctx: Context, op: Op, weights: Weights, x: list[Register]) -> list[Register]:
    """weight · x for rows, without the bias: [batch, outputs]."""
    source, target, engine = weights.source, weights.target, ctx.engine
    unit, slots = source.stride, source.layout.slots
    at = Diagonals(source.positions, target.positions, op.attributes.get("copies", 1))
    paired, babies = op.attributes.get("paired", False), op.attributes["baby_steps"]
    steps, repeats = at.steps // (1 + paired), slots // (at.copies * at.block * unit)

    @cache
    def columns(into: int) -> Table:
        name = f"skewed column.{into}"
        return ctx.table(name, (source, at), lambda: source.feature[into][at.places], repeats)

    def diagonal(out: int, into: int, giant: int, baby: int) -> Slots:
        """Rotated back for its giant step; of two that share a plaintext, each is halved."""
        one = weights.along(out, columns(into))
        found = one((giant + baby) * unit, giant * unit)
        if not paired:
            return found
        return found * 0.5 + one((giant + baby + steps) * unit, giant * unit) * -0.5j

    rows = []
    for one in x:
        row = skewed(ctx, one, at, unit, slots)
        if paired:
            row = engine.add(row, engine.times_i(engine.rotate(row, steps * unit)))
        rows.append(row)
    out, giant, into, baby = np.indices(
        (target.layout.ciphertexts, steps // babies, len(x), babies)
    ).reshape(4, -1)
    places = np.stack([out, giant * babies * unit, into, baby * unit], axis=1)

    def value(out: int, giant: int, into: int, baby: int) -> Slots:
        return diagonal(out, into, giant // unit, baby // unit)

    result = []
    for total in ctx.transform(rows, places, value, repeats):
        total = engine.add(total, engine.conjugate(total)) if paired else total
        result.append(summed(ctx, total, at, unit))
    return result
