"""Linear transforms over the packed features, by the diagonal method.

The features occupy the top slot bits, so a rotation by a multiple of their stride is cyclic over
the whole ciphertext and needs no mask (Halevi and Shoup, CRYPTO 2014, with the baby and giant steps
of CRYPTO 2018). With W[p, q] the weight between positions p and q, k = giant·B + baby, and the
rotation rot(x, r)[i] = x[i + r]:

    y = Σ_giant rot( Σ_baby rot(diag_k, −giant·B) ⊙ rot(x, baby), giant·B )
    diag_k[p] = W[p, p + k]

Two diagonals can share a complex plaintext: with P positions and z = x + i·rot(x, P/2),

    y = Re Σ_{k < P/2} (diag_k − i·diag_{k + P/2}) ⊙ rot(z, k),

half the products and half the positions to rotate by, for a rotation and a conjugation.

An operand that is replicated over the bits below its features may have a result whose features lie
anywhere: each slot p has all positions of x in reach, and diag_k[p] is the weight between what p is
to hold and what x has at the position of p, plus k. That is how the values of one token get from
one arrangement of their blocks to another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.passes.execution.kernels.context import (
    KEY_SWITCH,
    ROWS,
    Context,
    Ct,
    blocked,
    first_rows,
    layout_of,
)


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
        index = np.arange(self.features)
        width = self.layout.extent("d")
        full = self.layout
        if self.copy_padding:
            full = self.layout.padded(("g",))
            index = np.arange(full.extent("g") * width)
        place = {"g": index // width, "d": index % width}
        place |= {axis: np.zeros_like(index) for axis in ROWS}
        table = np.full((self.layout.ciphertexts, self.positions), -1)
        feature = np.where(index < self.features, index, index % width)
        table[full.ciphertext_of(place), full.slot_of(place) // self.stride] = feature
        return table

    def occupied(self, stride: int) -> np.ndarray:
        """Which places of ``stride`` slots hold a feature, ``[ciphertexts, places]``."""
        table = self.feature >= 0
        if stride < self.stride:
            return np.repeat(table, self.stride // stride, axis=1)
        return np.asarray(table.reshape(len(table), -1, stride // self.stride).any(axis=2))


@lru_cache(maxsize=256)
def _diagonals(source: FeatureMap, target: FeatureMap) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Diagonals k that can be nonzero, for every [target ciphertext][source ciphertext]."""
    rows = []
    for outputs in target.occupied(source.stride):
        row = []
        for inputs in source.occupied(source.stride):
            # A circular correlation of the two occupancies counts the elements of each diagonal.
            spectrum = np.conj(np.fft.fft(outputs)) * np.fft.fft(inputs)
            row.append(tuple(np.flatnonzero(np.fft.ifft(spectrum).real > 0.5).tolist()))
        rows.append(tuple(row))
    return tuple(rows)


@dataclass(frozen=True)
class DiagonalPlan:
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
    candidates = [
        DiagonalPlan(1 << bit, paired)
        for paired in (False, True)[: one.positions]
        for bit in range(one.positions.bit_length())
    ]
    return min(candidates, key=lambda plan: _cost(one, other, plan))


def _cost(source: FeatureMap, target: FeatureMap, plan: DiagonalPlan) -> int:
    table = _shared_diagonals(source, target, plan.paired)
    steps = plan.baby_steps
    baby = sum(
        len({k % steps for cell in set(column) for k in cell} - {0})
        for column in zip(*table, strict=True)
    )
    giant = sum(len({k // steps for cell in set(row) for k in cell} - {0}) for row in table)
    pairing = len(table) + len(table[0]) if plan.paired else 0
    products = sum(len(cell) for row in table for cell in row)
    return KEY_SWITCH * (baby + giant + pairing) + products


@lru_cache(maxsize=512)
def _shared_diagonals(
    source: FeatureMap, target: FeatureMap, paired: bool
) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """The diagonals; of two that share a plaintext the lower one."""
    table = _diagonals(source, target)
    if not paired:
        return table
    half = source.positions // 2
    return tuple(tuple(tuple(sorted({k % half for k in cell})) for cell in row) for row in table)


class _Weights:
    """Plaintext diagonals of one linear transform, made one at a time."""

    def __init__(self, ctx: Context[Ct], op: Op, source: FeatureMap, target: FeatureMap) -> None:
        self.ctx, self.source, self.target = ctx, source, target
        weight = op.site(ctx.symbols).constant("weight")
        self.rows = first_rows(target.layout) if op.attributes.get("first_row") else None
        self.rotated_half: np.ndarray | None = None
        if "cos" in op.attributes:
            self.cos, self.sin = (
                self._table(op.site(ctx.symbols).constant(name)) for name in ("cos", "sin")
            )
            self.rotated_half = _extend(rotate_half(weight, target.layout.extent("d")))
        self.weight = _extend(weight)

    def _table(self, table: np.ndarray) -> np.ndarray:
        """A rotary table [n, d] in slots ``[ciphertexts, slots]``."""
        layout = self.target.layout
        tokens = table[None, :, None, :] if layout.field("t") else table[:, None, :]
        return layout.pack(tokens, repeat=(*ROWS, "g"))

    def diagonal(self, out: int, into: int, k: int) -> np.ndarray:
        """Slots of diagonal k between a target and a source ciphertext."""
        unit = min(self.source.stride, self.target.stride)
        slot = np.arange(0, self.source.layout.slots, unit)
        row = self.target.feature[out][slot // self.target.stride]
        position = (slot // self.source.stride + k) % self.source.positions
        column = self.source.feature[into][position]
        vector = np.repeat(self.weight[row, column], unit)
        if self.rotated_half is not None:
            other = np.repeat(self.rotated_half[row, column], unit)
            vector = vector * self.cos[out] + other * self.sin[out]
        return vector if self.rows is None else vector * self.rows

    def pair(self, out: int, into: int, k: int) -> np.ndarray:
        """Complex slots of diagonals k and k + P/2, halved."""
        other = self.diagonal(out, into, k + self.source.positions // 2)
        return (self.diagonal(out, into, k) - 1j * other) / 2


def _extend(weight: np.ndarray) -> np.ndarray:
    """A zero row and column behind the weight, which index −1 (padding) picks."""
    return np.pad(weight, ((0, 1), (0, 1)))


def rotate_half(weight: np.ndarray, width: int) -> np.ndarray:
    """Rows of a weight (or elements of a bias) rotated as rotary embedding rotates features."""
    heads = weight.reshape(-1, width, *weight.shape[1:])
    half = width // 2
    return np.concatenate([-heads[:, half:], heads[:, :half]], axis=1).reshape(weight.shape)


def linear_transform(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.linear_transform``."""
    (x,) = operands
    outputs, inputs = ctx.symbols[op.attributes["weight"].name].shape
    source = FeatureMap(layout_of(op.operands[0]), inputs)
    copy_padding = op.attributes.get("copy_padding", False)
    target = FeatureMap(layout_of(op.value), outputs, copy_padding)
    engine, steps = ctx.engine, op.attributes["baby_steps"]
    paired = op.attributes.get("paired", False)
    table = _shared_diagonals(source, target, paired)
    babies = []
    for column, ciphertext in enumerate(x):
        if paired:
            half = engine.rotate(ciphertext, source.positions // 2 * source.stride)
            ciphertext = engine.add(ciphertext, engine.times_i(half))
        amounts = sorted({k % steps for row in table for k in row[column]})
        rotated = engine.rotate_many(ciphertext, [a * source.stride for a in amounts])
        babies.append(dict(zip(amounts, rotated, strict=True)))
    weights = None if ctx.dry else _Weights(ctx, op, source, target)
    result = []
    for out, row in enumerate(table):
        inner: dict[int, Ct] = {}
        for column, cell in enumerate(row):
            for k in cell:
                vector = ctx.blank
                if weights is not None:
                    vector = (weights.pair if paired else weights.diagonal)(out, column, k)
                    vector = np.roll(vector, k // steps * steps * source.stride)
                term = engine.mul_plain(babies[column][k % steps], vector)
                giant = k // steps
                inner[giant] = engine.add(inner[giant], term) if giant in inner else term
        total = ctx.total([engine.rotate(t, g * steps * source.stride) for g, t in inner.items()])
        result.append(engine.add(total, engine.conjugate(total)) if paired else total)
    return _add_bias(ctx, op, target, result)


def _add_bias(ctx: Context[Ct], op: Op, target: FeatureMap, result: list[Ct]) -> list[Ct]:
    if "bias" not in op.attributes:
        return result
    if ctx.dry:
        return [ctx.engine.add_plain(ciphertext, ctx.blank) for ciphertext in result]
    site = op.site(ctx.symbols)
    bias, layout = site.constant("bias"), target.layout
    tensor = blocked(bias, layout)
    if "cos" in op.attributes:
        cos, sin = (site.constant(name)[:, None, :] for name in ("cos", "sin"))
        rotated_half = blocked(rotate_half(bias, layout.extent("d")), layout)
        tensor = tensor * cos + rotated_half * sin
    repeat = (*ROWS, "g") if target.copy_padding else ROWS
    packed = layout.pack(tensor, repeat=repeat)
    if op.attributes.get("first_row"):
        packed = packed * first_rows(layout)
    return [
        ctx.engine.add_plain(ciphertext, vector)
        for ciphertext, vector in zip(result, packed, strict=True)
    ]
