"""Linear transforms over the packed features, by the diagonal method.

The features occupy the top slot bits, so a rotation by a multiple of their stride is cyclic over
the whole ciphertext and needs no mask (Halevi and Shoup, CRYPTO 2014, with the baby and giant steps
of CRYPTO 2018). With W[p, q] the weight between positions p and q, k = giant·B + baby, and the
rotation rot(x, r)[i] = x[i + r]:

    y = Σ_giant rot( Σ_baby rot(diag_k, −giant·B) ⊙ rot(x, baby), giant·B )
    diag_k[p] = W[p, p + k]
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from atlasc.ir.layout import UNUSED, Layout
from atlasc.ir.module import Op
from atlasc.passes.lowering.kernels.context import (
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
        low = [f for f in self.layout.fields if f.axis in ("b", "t", UNUSED)]
        return 1 << sum(f.bits for f in low)

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


@lru_cache(maxsize=256)
def _diagonals(source: FeatureMap, target: FeatureMap) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """Diagonals k that can be nonzero, for every [target ciphertext][source ciphertext]."""
    count = source.positions
    rows = []
    for outputs in target.feature:
        row = []
        for inputs in source.feature:
            # A circular correlation of the two occupancies counts the elements of each diagonal.
            spectrum = np.conj(np.fft.fft(outputs >= 0)) * np.fft.fft(inputs >= 0)
            row.append(tuple(np.flatnonzero(np.fft.ifft(spectrum).real[:count] > 0.5).tolist()))
        rows.append(tuple(row))
    return tuple(rows)


@lru_cache(maxsize=256)
def choose_baby_steps(source: Layout, target: Layout, inputs: int, outputs: int) -> int:
    """The power of two that needs the fewest rotations for a weight ``[outputs, inputs]``."""
    one, other = FeatureMap(source, inputs), FeatureMap(target, outputs)
    candidates = [1 << bit for bit in range(one.positions.bit_length())]
    return min(candidates, key=lambda steps: _rotations(one, other, steps))


def _rotations(source: FeatureMap, target: FeatureMap, baby_steps: int) -> int:
    table = _diagonals(source, target)
    baby = sum(
        len({k % baby_steps for cell in set(column) for k in cell} - {0})
        for column in zip(*table, strict=True)
    )
    giant = sum(len({k // baby_steps for cell in set(row) for k in cell} - {0}) for row in table)
    return baby + giant


class _Weights:
    """Plaintext diagonals of one linear transform, made one at a time."""

    def __init__(self, ctx: Context[Ct], op: Op, source: FeatureMap, target: FeatureMap) -> None:
        self.ctx, self.source, self.target = ctx, source, target
        weight = op.site(ctx.symbols).constant("weight")
        self.rows = first_rows(target.layout) if op.attributes.get("first_row") else None
        self.turned: np.ndarray | None = None
        if "cos" in op.attributes:
            self.cos, self.sin = (
                self._table(op.site(ctx.symbols).constant(name)) for name in ("cos", "sin")
            )
            self.turned = _extend(rotate_half(weight, target.layout.extent("d")))
        self.weight = _extend(weight)

    def _table(self, table: np.ndarray) -> np.ndarray:
        """A rotary table [n, d] in slots ``[ciphertexts, slots]``."""
        return self.target.layout.pack(table[None, :, None, :], repeat=(*ROWS, "g"))

    def block(self, out: int, into: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Weights between the positions of a target and of a source ciphertext."""
        rows, columns = self.target.feature[out][:, None], self.source.feature[into][None, :]
        turned = None if self.turned is None else self.turned[rows, columns]
        return self.weight[rows, columns], turned

    def diagonal(self, block: tuple[np.ndarray, np.ndarray | None], out: int, k: int) -> np.ndarray:
        """Slots of diagonal k."""
        index = np.arange(self.source.positions)
        column = (index + k) % len(index)
        plain, turned = block
        vector = np.repeat(plain[index, column], self.target.stride)
        if turned is not None:
            other = np.repeat(turned[index, column], self.target.stride)
            vector = vector * self.cos[out] + other * self.sin[out]
        return vector if self.rows is None else vector * self.rows


def _extend(weight: np.ndarray) -> np.ndarray:
    """A zero row and column behind the weight, which index −1 (padding) picks."""
    return np.pad(weight, ((0, 1), (0, 1)))


def rotate_half(weight: np.ndarray, width: int) -> np.ndarray:
    """Rows of a weight (or elements of a bias) turned as rotary embedding turns features."""
    heads = weight.reshape(-1, width, *weight.shape[1:])
    half = width // 2
    return np.concatenate([-heads[:, half:], heads[:, :half]], axis=1).reshape(weight.shape)


def linear_transform(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.linear_transform``."""
    (x,) = operands
    assert op.result is not None
    outputs, inputs = ctx.symbols[op.attributes["weight"].name].shape
    source = FeatureMap(layout_of(op.operands[0]), inputs)
    copy_padding = op.attributes.get("copy_padding", False)
    target = FeatureMap(layout_of(op.result), outputs, copy_padding)
    table = _diagonals(source, target)
    engine, steps = ctx.engine, op.attributes["baby_steps"]
    babies = []
    for column, ciphertext in enumerate(x):
        amounts = sorted({k % steps for row in table for k in row[column]})
        rotated = engine.rotate_many(ciphertext, [a * source.stride for a in amounts])
        babies.append(dict(zip(amounts, rotated, strict=True)))
    weights = None if ctx.dry else _Weights(ctx, op, source, target)
    result = []
    for out, row in enumerate(table):
        inner: dict[int, Ct] = {}
        for column, cell in enumerate(row):
            block = None if weights is None else weights.block(out, column)
            for k in cell:
                vector = ctx.blank
                if weights is not None and block is not None:
                    vector = weights.diagonal(block, out, k)
                    vector = np.roll(vector, k // steps * steps * source.stride)
                term = engine.mul_plain(babies[column][k % steps], vector)
                giant = k // steps
                inner[giant] = engine.add(inner[giant], term) if giant in inner else term
        result.append(_giant_sum(ctx, inner, steps * source.stride))
    return _add_bias(ctx, op, target, result)


def _giant_sum(ctx: Context[Ct], inner: dict[int, Ct], stride: int) -> Ct:
    total: Ct | None = None
    for giant, term in inner.items():
        rotated = ctx.engine.rotate(term, giant * stride) if giant else term
        total = rotated if total is None else ctx.engine.add(total, rotated)
    assert total is not None
    return total


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
        turned = blocked(rotate_half(bias, layout.extent("d")), layout)
        tensor = tensor * cos + turned * sin
    repeat = (*ROWS, "g") if target.copy_padding else ROWS
    packed = layout.pack(tensor, repeat=repeat)
    if op.attributes.get("first_row"):
        packed = packed * first_rows(layout)
    return [
        ctx.engine.add_plain(ciphertext, vector)
        for ciphertext, vector in zip(result, packed, strict=True)
    ]
