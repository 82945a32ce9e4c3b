"""Linear transforms over the packed features, by the diagonal method.

If the features occupy the top slot bits, a rotation by a multiple of their stride is cyclic over
the whole ciphertext and needs no mask (Halevi and Shoup, CRYPTO 2014, with the baby steps and giant
steps of CRYPTO 2018). With W[p, q] the weight between positions p and q, k = giant·B + baby, and
the rotation rot(x, r)[i] = x[i + r]:

    y = Σ_giant rot( Σ_baby rot(diag_k, −giant·B) ⊙ rot(x, baby), giant·B )
    diag_k[p] = W[p, p + k]

Two diagonals can share a complex plaintext: with P positions and z = x + i·rot(x, P/2),

    y = Re Σ_{k < P/2} (diag_k − i·diag_{k + P/2}) ⊙ rot(z, k),

This takes half the products and rotations by half the positions, at the cost of one rotation and
one conjugation.

If an operand is replicated over the slot bits below its features, the features of the result may
lie anywhere, because each slot p reaches all positions of x. diag_k[p] is then the weight between
the feature that p will hold and the feature that x has k positions after p. In this way the values
of one token get from one arrangement of their blocks to another.

A row of a program of one token has a kernel of its own (:mod:`atlasc.program.kernels.skewed`).

If the features occupy the low bits, diagonals repeat with every token, which makes them cheap. A
rotation by k then brings features of the next token. With z = x + i·rot(x, −P), whose imaginary
part is one token behind,

    y = Re Σ_k q_k ⊙ rot(z, k),   q_k[p] = W[p, p + k] if p + k < P, otherwise −i·W[p, p + k − P]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.program.kernels.context import GIANT_STEP, KEY_SWITCH, Context, layout_of
from atlasc.program.kernels.skewed import row_transform
from atlasc.program.kernels.weights import FeatureMap, Weights
from atlasc.program.plaintexts import Slots
from atlasc.program.record import Register

Cell = NDArray[np.int64]
"""Numbers k of the diagonals between two ciphertexts, ascending."""
Diagonals = tuple[tuple[Cell, ...], ...]
"""By target ciphertext and source ciphertext. Equal cells are one object, because wide layers have
many ciphertexts, but few that differ."""


@lru_cache(maxsize=512)
def _diagonals(source: FeatureMap, target: FeatureMap, paired: bool) -> Diagonals:
    """Diagonals that can be nonzero; of two that share a plaintext, the lower one."""
    period = source.positions // 2 if paired else source.positions

    @cache
    def between(outputs: bytes, inputs: bytes) -> Cell:
        # A circular correlation of the two occupancies counts the elements of each diagonal.
        there, here = (np.fft.fft(np.frombuffer(one, np.bool_)) for one in (outputs, inputs))
        present = np.flatnonzero(np.fft.ifft(np.conj(there) * here).real > 0.5)
        return np.unique(present % period)

    inputs, outputs = (
        [row.tobytes() for row in one.occupied(source.stride)] for one in (source, target)
    )
    return tuple(tuple(between(out, into) for into in inputs) for out in outputs)


def _steps(cells: Iterable[Cell], numbers: Callable[[Cell], Cell]) -> list[int]:
    """The different baby or giant steps of some cells, ascending."""
    different = {id(cell): cell for cell in cells}
    return np.unique(numbers(np.concatenate(list(different.values())))).tolist()


class DiagonalPlan(NamedTuple):
    """Division of the diagonals into baby steps and giant steps.

    Attributes:
        baby_steps: B, number of baby steps, the rotation by 0 included.
        paired: whether two diagonals, P/2 apart, share a complex plaintext.
    """

    baby_steps: int
    paired: bool


@lru_cache(maxsize=256)
def choose_plan(source: Layout, target: Layout, inputs: int, outputs: int) -> DiagonalPlan:
    """The cheapest plan for a weight ``[outputs, inputs]``; B is a power of two."""
    one, other = FeatureMap(source, inputs), FeatureMap(target, outputs)
    if source.features_low:
        return DiagonalPlan(repeating_baby_steps(one.positions), False)

    def cost(plan: DiagonalPlan) -> int:
        table, steps = _diagonals(one, other, plan.paired), plan.baby_steps
        columns = [_steps(column, lambda k: k % steps) for column in zip(*table)]
        rows = [_steps(row, lambda k: k // steps) for row in table]
        rotations = sum(amount > 0 for amounts in columns + rows for amount in amounts)
        pairing = len(columns) + len(rows) if plan.paired else 0
        return KEY_SWITCH * (rotations + pairing) + sum(len(cell) for row in table for cell in row)

    halved = (False, True)[: one.positions]
    bits = range(one.positions.bit_length())
    return min((DiagonalPlan(1 << bit, paired) for paired in halved for bit in bits), key=cost)


def repeating_baby_steps(positions: int) -> int:
    """B for diagonals that repeat, a power of two.

    It depends on the number of positions alone, so that all layers share their keys. With as many
    ciphertexts in as out, B baby steps and P/B giant steps cost B + 8 · P/B baby steps.
    """
    steps = (1 << bit for bit in range(positions.bit_length()))
    return min(steps, key=lambda babies: babies + GIANT_STEP * positions // babies)


def linear_transform(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.linear_transform``."""
    outputs, inputs = ctx.symbols[op.attributes["weight"].name].shape
    source = FeatureMap(layout_of(op.operands[0]), inputs)
    target = FeatureMap(layout_of(op.value), outputs, op.attributes.get("copy_padding", False))
    weights = Weights(ctx, op, source, target)
    layout = source.layout
    kernel = row_transform if layout.one_token else _turning
    result = (_repeating if layout.features_low else kernel)(ctx, op, weights, x)
    if "bias" not in op.attributes:
        return result
    biases = [ctx.slots(weights.bias, out) for out in range(len(result))]
    return [ctx.engine.add_plain(*pair) for pair in zip(result, biases, strict=True)]


def _repeating(ctx: Context, op: Op, weights: Weights, x: list[Register]) -> list[Register]:
    """weight · x by diagonals that repeat with each token, [batch, tokens, outputs]."""
    source, steps, engine = weights.source, op.attributes["baby_steps"], ctx.engine
    alike = source.layout.period <= source.positions
    # A rotary embedding differs by token.
    repeats = 1 if "cos" in op.attributes else source.layout.feature_repeats
    if not alike:
        before = (engine.rotate(one, -source.positions) for one in x)
        x = [engine.add(one, engine.times_i(other)) for one, other in zip(x, before)]
    places = _places(_diagonals(source, weights.target, False), steps)

    def value(out: int, giant: int, into: int, baby: int) -> Slots:
        return weights.repeating_diagonal(out, into, giant + baby, alike)

    result = ctx.transform(x, places, value, repeats)
    return result if alike else [engine.add(one, engine.conjugate(one)) for one in result]


def _turning(ctx: Context, op: Op, weights: Weights, x: list[Register]) -> list[Register]:
    """weight · x by rotations that turn the whole ciphertext, [batch, tokens, outputs]."""
    source, target, engine = weights.source, weights.target, ctx.engine
    steps, paired = op.attributes["baby_steps"], op.attributes.get("paired", False)
    if paired:
        half = source.positions // 2 * source.stride
        x = [engine.add(one, engine.times_i(engine.rotate(one, half))) for one in x]
    places = _places(_diagonals(source, target, paired), steps)

    def value(out: int, giant: int, into: int, baby: int) -> Slots:
        return weights.diagonal(out, into, (giant + baby) // source.stride)

    strides, layout = (1, source.stride, 1, source.stride), source.layout
    result = ctx.transform(x, places * strides, value, layout.feature_repeats, layout.copies_first)
    return [engine.add(one, engine.conjugate(one)) for one in result] if paired else result


def _places(table: Diagonals, steps: int) -> NDArray[np.int64]:
    """Result, giant step, operand and baby step of each diagonal, ``[terms, 4]``. Neighbours with
    one result and one giant step are one sum."""
    cells = [(out, into, cell) for out, row in enumerate(table) for into, cell in enumerate(row)]
    out, into = (
        np.repeat(numbers, [len(cell) for *_, cell in cells])
        for numbers in zip(*((out, into) for out, into, _ in cells))
    )
    k = np.concatenate([cell for *_, cell in cells])
    places = np.stack([out, k - k % steps, into, k % steps], axis=1)
    return places[np.lexsort(places.T[::-1])]
