"""Linear transforms over the packed features, by the diagonal method.

The features occupy the top slot bits. So a rotation by a multiple of their stride is cyclic over
the whole ciphertext and needs no mask (Halevi and Shoup, CRYPTO 2014, with the baby and giant steps
of CRYPTO 2018). With W[p, q] the weight between positions p and q, k = giant·B + baby, and the
rotation rot(x, r)[i] = x[i + r]:

    y = Σ_giant rot( Σ_baby rot(diag_k, −giant·B) ⊙ rot(x, baby), giant·B )
    diag_k[p] = W[p, p + k]

Two diagonals can share a complex plaintext: with P positions and z = x + i·rot(x, P/2),

    y = Re Σ_{k < P/2} (diag_k − i·diag_{k + P/2}) ⊙ rot(z, k),

half the products and half the positions to rotate by, for a rotation and a conjugation.

An operand that is replicated over the bits below its features may have a result whose features lie
anywhere: each slot p has all positions of x in reach. diag_k[p] is then the weight between what p
is to hold and what x has k places after p. That is how the values of one token get from one
arrangement of their blocks to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.passes.execution.engine import Ct
from atlasc.passes.execution.kernels.context import (
    KEY_SWITCH,
    ROWS,
    Context,
    blocked,
    first_rows,
    layout_of,
)

Diagonals = tuple[tuple[tuple[int, ...], ...], ...]
"""Numbers k of diagonals by [target ciphertext][source ciphertext]."""


@dataclass(frozen=True)
class FeatureMap:
    """Where the features of a layout lie: ``feature[ciphertext, position]``, −1 for padding.

    With ``copy_padding`` the padding blocks hold the features of block 0.
    """

    layout: Layout
    features: int
    copy_padding: bool = False

    @cached_property
    def stride(self) -> int:
        """Slots of one feature position: all bits below the feature fields."""
        lowest = [field for field in self.layout.fields if field.axis in ("d", "g")][-1]
        return 1 << self.layout.offset(lowest)

    @cached_property
    def positions(self) -> int:
        """Feature positions in a ciphertext."""
        return self.layout.slots // self.stride

    @cached_property
    def feature(self) -> np.ndarray:
        """Feature at every position, ``[ciphertexts, positions]``, −1 where there is none."""
        numbers = blocked(np.arange(1, self.features + 1), self.layout)
        packed = self.layout.pack(numbers, ("g",) if self.copy_padding else ())
        return packed[:, :: self.stride].astype(int) - 1

    def occupied(self, stride: int) -> np.ndarray:
        """Which places of ``stride`` slots hold a feature, ``[ciphertexts, places]``."""
        table = self.feature >= 0
        if stride < self.stride:
            return np.repeat(table, self.stride // stride, axis=1)
        return np.asarray(table.reshape(len(table), -1, stride // self.stride).any(axis=2))


@lru_cache(maxsize=512)
def _diagonals(source: FeatureMap, target: FeatureMap, paired: bool) -> Diagonals:
    """Diagonals that can be nonzero; of two that share a plaintext the lower one."""
    period = source.positions // 2 if paired else source.positions

    def between(outputs: np.ndarray, inputs: np.ndarray) -> tuple[int, ...]:
        # A circular correlation of the two occupancies counts the elements of each diagonal.
        spectrum = np.conj(np.fft.fft(outputs)) * np.fft.fft(inputs)
        present = np.flatnonzero(np.fft.ifft(spectrum).real > 0.5)
        return tuple(np.unique(present % period).tolist())

    inputs = source.occupied(source.stride)
    return tuple(
        tuple(between(outputs, one) for one in inputs) for outputs in target.occupied(source.stride)
    )


class DiagonalPlan(NamedTuple):
    """How the diagonals are shared out.

    Attributes:
        baby_steps: B, rotations of the operand.
        paired: two diagonals, P/2 apart, share a complex plaintext.
    """

    baby_steps: int
    paired: bool


@lru_cache(maxsize=256)
def choose_plan(source: Layout, target: Layout, inputs: int, outputs: int) -> DiagonalPlan:
    """The cheapest plan for a weight ``[outputs, inputs]``; B is a power of two."""
    one, other = FeatureMap(source, inputs), FeatureMap(target, outputs)

    def cost(plan: DiagonalPlan) -> int:
        table, steps = _diagonals(one, other, plan.paired), plan.baby_steps
        columns = [{k % steps for cell in set(column) for k in cell} for column in zip(*table)]
        rows = [{k // steps for cell in set(row) for k in cell} for row in table]
        rotations = sum(len(amounts - {0}) for amounts in columns + rows)
        pairing = len(columns) + len(rows) if plan.paired else 0
        return KEY_SWITCH * (rotations + pairing) + sum(len(cell) for row in table for cell in row)

    halved = (False, True)[: one.positions]
    bits = range(one.positions.bit_length())
    return min((DiagonalPlan(1 << bit, paired) for paired in halved for bit in bits), key=cost)


def linear_transform(ctx: Context[Ct], op: Op, x: list[Ct]) -> list[Ct]:
    """Kernel of ``ckks.linear_transform``."""
    outputs, inputs = ctx.symbols[op.attributes["weight"].name].shape
    source = FeatureMap(layout_of(op.operands[0]), inputs)
    target = FeatureMap(layout_of(op.value), outputs, op.attributes.get("copy_padding", False))
    steps, paired = op.attributes["baby_steps"], op.attributes.get("paired", False)
    table, engine = _diagonals(source, target, paired), ctx.engine
    babies = []
    for column, ciphertext in enumerate(x):
        if paired:
            half = engine.rotate(ciphertext, source.positions // 2 * source.stride)
            ciphertext = engine.add(ciphertext, engine.times_i(half))
        amounts = sorted({k % steps for row in table for k in row[column]})
        rotated = engine.rotate_many(ciphertext, [a * source.stride for a in amounts])
        babies.append(dict(zip(amounts, rotated, strict=True)))
    weights, result = _Weights(ctx, op, source, target), []
    for out, row in enumerate(table):
        by_giant: dict[int, list[tuple[int, int]]] = {}
        for column, cell in enumerate(row):
            for k in cell:
                by_giant.setdefault(k // steps, []).append((column, k))
        turned = []
        for giant, terms in by_giant.items():
            operands = [babies[column][k % steps] for column, k in terms]
            vectors = [ctx.slots(weights.plaintext, out, *term) for term in terms]
            inner = engine.dot_plain(operands, vectors)
            turned.append(engine.rotate(inner, giant * steps * source.stride))
        total = ctx.total(turned)
        result.append(engine.add(total, engine.conjugate(total)) if paired else total)
    if "bias" not in op.attributes:
        return result
    pairs = zip(result, ctx.plaintexts(op, weights.bias), strict=True)
    return [engine.add_plain(*pair) for pair in pairs]


@dataclass(frozen=True)
class _Weights:
    """The plaintexts of one linear transform, each made when it is wanted."""

    ctx: Context[Any]
    op: Op
    source: FeatureMap
    target: FeatureMap

    def bias(self) -> np.ndarray:
        """The bias as ``[..., g, d]``."""
        parts = self._parts("bias")
        return np.asarray(sum(blocked(part, self.target.layout) * by for part, by in parts))

    def plaintext(self, out: int, into: int, k: int) -> np.ndarray:
        """Slots of diagonal k between a target and a source ciphertext, for its giant step; of two
        that share a plaintext, halved.
        """
        vector = self._diagonal(out, into, k)
        if self.op.attributes.get("paired"):
            other = self._diagonal(out, into, k + self.source.positions // 2)
            vector = (vector - 1j * other) / 2
        steps = self.op.attributes["baby_steps"]
        return np.roll(vector, k // steps * steps * self.source.stride)

    def _diagonal(self, out: int, into: int, k: int) -> np.ndarray:
        unit = min(self.source.stride, self.target.stride)
        slot = np.arange(0, self.source.layout.slots, unit)
        row = self.target.feature[out][slot // self.target.stride]
        position = (slot // self.source.stride + k) % self.source.positions
        column = self.source.feature[into][position]
        parts = self._slots_of_parts
        return np.asarray(sum(np.repeat(part[row, column], unit) * by[out] for part, by in parts))

    @cached_property
    def _slots_of_parts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Parts of the weight with a zero row and column behind them, which index −1 (padding)
        picks, and their factors in slots ``[ciphertexts, slots]``.
        """
        layout = self.target.layout
        result = []
        for part, by in self._parts("weight"):
            factor = np.ones((layout.ciphertexts, 1))
            if by.ndim > 1:
                factor = layout.pack(by, (*ROWS, "g"))
            if self.op.attributes.get("first_row"):
                factor = factor * first_rows(layout)
            result.append((np.pad(part, ((0, 1), (0, 1))), factor))
        return result

    def _parts(self, name: str) -> list[tuple[np.ndarray, np.ndarray]]:
        """Parts of the weight or the bias; the sum of their products with factors ``[t, 1, d]`` is
        turned by the rotary embedding, if there is one.
        """
        site, width = self.op.site(self.ctx.symbols), self.target.layout.extent("d")
        array = site.constant(name)
        if "cos" not in self.op.attributes:
            return [(array, np.ones(1))]
        heads, half = array.reshape(-1, width, *array.shape[1:]), width // 2
        turned = np.concatenate([-heads[:, half:], heads[:, :half]], axis=1).reshape(array.shape)
        cos, sin = (site.constant(table)[:, None, :] for table in ("cos", "sin"))
        return [(array, cos), (turned, sin)]
