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

If the features occupy the low bits, diagonals repeat with every token, which makes them cheap. A
rotation by k then brings features of the next token. With z = x + i·rot(x, −P), whose imaginary
part is one token behind,

    y = Re Σ_k q_k ⊙ rot(z, k),   q_k[p] = W[p, p + k] if p + k < P, otherwise −i·W[p, p + k − P]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.program.kernels.context import (
    GIANT_STEP,
    KEY_SWITCH,
    ROWS,
    Context,
    blocked,
    layout_of,
)
from atlasc.program.plaintexts import NOWHERE, Argument, Root, Slots, Table, TableRotation
from atlasc.program.record import Register

Cell = NDArray[np.int64]
"""Numbers k of the diagonals between two ciphertexts, ascending."""
Diagonals = tuple[tuple[Cell, ...], ...]
"""By target ciphertext and source ciphertext. Equal cells are one object, because wide layers have
many ciphertexts, but few that differ."""


@dataclass(frozen=True)
class FeatureMap:
    """The places of a layout's features: ``feature[ciphertext, position]``, −1 for padding.

    With ``copy_padding`` the padding blocks hold the features of block 0.
    """

    layout: Layout
    features: int
    copy_padding: bool = False

    @cached_property
    def stride(self) -> int:
        """Number of slots of one feature position: all bits below the feature fields."""
        lowest = [field for field in self.layout.fields if field.axis in ("d", "g")][-1]
        return 1 << self.layout.offset(lowest)

    @cached_property
    def positions(self) -> int:
        """Number of different feature positions in a ciphertext."""
        return self.layout.slots // self.stride // self.layout.feature_repeats

    @cached_property
    def feature(self) -> np.ndarray:
        """The feature at every position, ``[ciphertexts, positions]``; −1 if there is none."""
        numbers = blocked(np.arange(1, self.features + 1), self.layout)  # [blocks, width]
        # The slots of one token are enough. [ciphertexts, slots]
        packed = self._of_one_token.pack(numbers, ("g",) if self.copy_padding else ())
        return packed[:, : self.positions * self.stride : self.stride].astype(int) - 1

    @property
    def _of_one_token(self) -> Layout:
        """The layout with index 0 alone of the axes that do not number ciphertexts; of features,
        all.
        """
        kept = {"d", "g", *(field.axis for field in self.layout.outer)}
        extents = ((axis, n if axis in kept else 1) for axis, n in self.layout.extents)
        return replace(self.layout, extents=tuple(extents))

    def occupied(self, stride: int) -> np.ndarray:
        """Whether each place of ``stride`` slots holds a feature, ``[ciphertexts, places]``."""
        table = self.feature >= 0
        if stride < self.stride:
            return np.repeat(table, self.stride // stride, axis=1)
        return np.asarray(table.reshape(len(table), -1, stride // self.stride).any(axis=2))


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
    weights = _Weights(ctx, op, source, target)
    result = (_repeating if source.layout.features_low else _turning)(ctx, op, weights, x)
    if "bias" not in op.attributes:
        return result
    biases = [ctx.slots(weights.bias, out) for out in range(len(result))]
    return [ctx.engine.add_plain(*pair) for pair in zip(result, biases, strict=True)]


def _repeating(ctx: Context, op: Op, weights: _Weights, x: list[Register]) -> list[Register]:
    """weight · x by diagonals that repeat with each token, [batch, tokens, outputs]."""
    source, steps, engine = weights.source, op.attributes["baby_steps"], ctx.engine
    alike = source.layout.period <= source.positions
    # A rotary embedding differs by token.
    repeats = 1 if "cos" in op.attributes else source.layout.feature_repeats
    if not alike:
        before = (engine.rotate(one, -source.positions) for one in x)
        x = [engine.add(one, engine.times_i(other)) for one, other in zip(x, before)]
    cells = [
        (out, into, cell)
        for out, row in enumerate(_diagonals(source, weights.target, False))
        for into, cell in enumerate(row)
    ]
    out, into = (
        np.repeat(numbers, [len(cell) for *_, cell in cells])
        for numbers in zip(*((out, into) for out, into, _ in cells))
    )
    k = np.concatenate([cell for *_, cell in cells])
    places = np.stack([out, k - k % steps, into, k % steps], axis=1)  # [terms, 4]
    # Neighbours with one result and one giant step are one sum.
    places = places[np.lexsort(places.T[::-1])]

    def value(out: int, giant: int, into: int, baby: int) -> Slots:
        return weights.repeating_diagonal(out, into, giant + baby, alike)

    result = ctx.transform(x, places, value, repeats)
    return result if alike else [engine.add(one, engine.conjugate(one)) for one in result]


def _turning(ctx: Context, op: Op, weights: _Weights, x: list[Register]) -> list[Register]:
    """weight · x by rotations that turn the whole ciphertext, [batch, tokens, outputs]."""
    source, target, engine = weights.source, weights.target, ctx.engine
    steps, paired = op.attributes["baby_steps"], op.attributes.get("paired", False)
    table = _diagonals(source, target, paired)
    babies = []  # for each source ciphertext: baby step -> rotated ciphertext
    for column, ciphertext in enumerate(x):
        if paired:
            half = engine.rotate(ciphertext, source.positions // 2 * source.stride)
            ciphertext = engine.add(ciphertext, engine.times_i(half))
        amounts = _steps((row[column] for row in table), lambda k: k % steps)
        rotated = engine.rotate_many(ciphertext, [a * source.stride for a in amounts])
        babies.append(dict(zip(amounts, rotated, strict=True)))
    result = []
    for out, row in enumerate(table):
        by_giant: dict[int, list[tuple[int, int]]] = {}
        for column, cell in enumerate(row):
            for k in cell.tolist():
                by_giant.setdefault(k // steps, []).append((column, k))
        turned = []
        for giant, terms in by_giant.items():
            operands = [babies[column][k % steps] for column, k in terms]
            slots = [ctx.slots(weights.diagonal, out, *term) for term in terms]
            inner = engine.dot_plain(operands, slots)
            turned.append(engine.rotate(inner, giant * steps * source.stride))
        total = ctx.total(turned)  # [batch, tokens, outputs]
        result.append(engine.add(total, engine.conjugate(total)) if paired else total)
    return result


@dataclass(frozen=True)
class _Weights:
    """The plaintexts of one linear transform.

    A rotary embedding combines rows of weight and bias: row r becomes cos · r + sin · s, where s is
    the row half a head further on, negated for the first half of a head.
    """

    ctx: Context
    op: Op
    source: FeatureMap
    target: FeatureMap

    def bias(self, out: int) -> Slots:
        """The bias in the layout of a result ciphertext."""
        return self._turned(out, 1, lambda row: Slots.of(Argument("bias"), row))

    def diagonal(self, out: int, into: int, k: int) -> Slots:
        """Diagonal k between a target and a source ciphertext, rotated back for its giant step.

        Of two diagonals that share a plaintext, each is halved.
        """
        source, steps = self.source, self.op.attributes["baby_steps"]
        column = self._table(f"column.{into}", source, lambda: source.feature[into])

        def one(k: int) -> Slots:
            places = (column, k * source.stride)
            weight = Argument("weight")
            return self._turned(out, source.features, lambda row: Slots.of(weight, row, places))

        found = one(k)
        if self.op.attributes.get("paired"):
            found = found * 0.5 + one(k + source.positions // 2) * -0.5j
        return found.rolled(k // steps * steps * source.stride)

    def repeating_diagonal(self, out: int, into: int, k: int, alike: bool) -> Slots:
        """Diagonal k between a target and a source ciphertext, rotated back for its giant step.

        Where k leads to the next token, the factor −i takes the imaginary part of the operand,
        which is one token behind. The diagonal is halved, because the sum with the conjugate is the
        result. If all tokens are ``alike``, neither is needed.
        """
        source, steps = self.source, self.op.attributes["baby_steps"]
        column = self._table(f"column.{into}", source, lambda: source.feature[into])
        found = self._turned(
            out, source.features, lambda row: Slots.of(Argument("weight"), row, (column, k))
        )
        if not alike:
            inside = np.arange(source.positions) + k < source.positions
            quarter = self._table(f"wraps.{k}", source, lambda: np.where(inside, 0, 3))
            found = found * Slots.of(Root(4), (quarter, 0)) * 0.5  # the third power of i is −i
        return found.rolled(k - k % steps)

    def _table(self, name: str, of: FeatureMap, make: Callable[[], np.ndarray]) -> Table:
        """A table over the positions of features."""
        return self.ctx.table(name, of, make, of.layout.feature_repeats)

    def _turned(self, out: int, columns: int, of: Callable[[TableRotation], Slots]) -> Slots:
        """Slots of a result ciphertext, from rows of an array with ``columns`` columns; rotary
        factors are applied."""
        ctx, layout, feature = self.ctx, self.target.layout, self.target.feature[out]

        def rows(name: str, found: np.ndarray) -> Slots:
            def make() -> np.ndarray:
                return np.where(found < 0, NOWHERE, found * columns)

            of_rows, repeats = (self.target, columns), self.target.layout.feature_repeats
            return of((ctx.table(f"{name}.{out}", of_rows, make, repeats), 0))

        result = rows("row", feature)
        if "cos" in self.op.attributes:
            half = layout.extent("d") // 2
            low, there = feature % (2 * half) < half, feature >= 0
            behind = rows("row+half", np.where(low & there, feature + half, NOWHERE))
            before = rows("row-half", np.where(~low & there, feature - half, NOWHERE))
            cos, sin = (self._factor(name, out) for name in ("cos", "sin"))
            result = result * cos + (behind * -1.0 + before) * sin
        if self.op.attributes.get("only_first"):
            result = result * ctx.first_of_unused(layout)
        return result

    def _factor(self, name: str, out: int) -> Slots:
        """A rotary table ``[tokens, width of a head]``, the same for all blocks."""
        tokens, width = self.op.site(self.ctx.symbols).constant_shape(name)
        places = self.ctx.places(self.target.layout, (tokens, 1, width), (*ROWS, "g"))
        return Slots.of(Argument(name), (places[out], 0))
