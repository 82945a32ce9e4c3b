"""The plaintexts of linear transforms: the places of features, and diagonals of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.program.kernels.context import ROWS, Context, blocked
from atlasc.program.plaintexts import NOWHERE, Argument, Root, Slots, Table, TableRotation


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


@dataclass(frozen=True)
class Weights:
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
        return self.turned(out, 1, lambda row: Slots.of(Argument("bias"), row))

    def diagonal(self, out: int, into: int, k: int) -> Slots:
        """Diagonal k between a target and a source ciphertext, rotated back for its giant step.

        Of two diagonals that share a plaintext, each is halved.
        """
        source, steps = self.source, self.op.attributes["baby_steps"]
        one, giant = self.along(out, self._columns(into)), (k - k % steps) * source.stride
        found = one(k * source.stride, giant)
        if not self.op.attributes.get("paired"):
            return found
        return found * 0.5 + one((k + source.positions // 2) * source.stride, giant) * -0.5j

    def repeating_diagonal(self, out: int, into: int, k: int, alike: bool) -> Slots:
        """Diagonal k between a target and a source ciphertext, rotated back for its giant step.

        Where k leads to the next token, the factor −i takes the imaginary part of the operand,
        which is one token behind. The diagonal is halved, because the sum with the conjugate is the
        result. If all tokens are ``alike``, neither is needed.
        """
        steps = self.op.attributes["baby_steps"]
        found = self.along(out, self._columns(into))(k, k - k % steps)
        return found if alike else found * self._wrapped(k, k - k % steps)

    # A layer has thousands of diagonals, of few different tables. So these are made once.

    @cached_property
    def along(self) -> Callable[[int, Table], Callable[[int, int], Slots]]:
        """The weights of a result ciphertext's rows at columns: rotation of these, and of the
        slots as :meth:`Slots.rolled` -> slots.
        """
        return cache(self._along)

    @cached_property
    def _columns(self) -> Callable[[int], Table]:
        return cache(self._columns_of)

    @cached_property
    def _wrapped(self) -> Callable[[int, int], Slots]:
        return cache(self._wrapped_at)

    def _wrapped_at(self, k: int, giant: int) -> Slots:
        """Half, times −i where k leads to the next token; rotated back for the giant step."""
        source = self.source

        def make() -> np.ndarray:
            inside = np.arange(source.positions) + k < source.positions
            return np.where(inside, 0, 3)  # the third power of i is −i

        quarter = self.ctx.table(f"wraps.{k}", source, make, source.layout.feature_repeats)
        return Slots.of(Root(4), (quarter, -giant)) * 0.5

    def _columns_of(self, into: int) -> Table:
        """The feature at each position of a source ciphertext."""
        source = self.source
        repeats = source.layout.feature_repeats
        return self.ctx.table(f"column.{into}", source, lambda: source.feature[into], repeats)

    def _along(self, out: int, column: Table) -> Callable[[int, int], Slots]:
        places, weight = (column, 0), Argument("weight")
        found = self.turned(out, self.source.features, lambda row: Slots.of(weight, row, places))
        return partial(found.along, column)

    def turned(self, out: int, columns: int, of: Callable[[TableRotation], Slots]) -> Slots:
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
