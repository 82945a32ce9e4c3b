"""The geometry of packed scores: the (batch, head, diagonal, query) of each slot, and the diagonals
that are computed together. :mod:`atlasc.program.kernels.attention` computes them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from atlasc.ir.layout import REPLICATED, Field, Layout
from atlasc.ir.module import Op
from atlasc.program.kernels.context import (
    HOISTED,
    KEY_SWITCH,
    Context,
    has_mask,
    place_of,
)
from atlasc.program.plaintexts import (
    MASK,
    Argument,
    Literal,
    Slots,
    Table,
    log_hidden,
    log_hidden_near,
)
from atlasc.program.record import Register


def score_layout(hidden: Layout, heads: int) -> Layout:
    """Layout of the scores ``[b, g, s, t]`` of queries in a ``hidden`` layout ``[b, t, g, d]``."""
    bits = {field.axis: field.bits for field in hidden.fields}
    inner = min(bits["d"], bits["t"])
    copies = (Field(REPLICATED, bits["d"] - inner),) if bits["d"] > inner else ()
    diagonals = (*copies, Field("s", inner))
    at = [field.axis for field in hidden.fields].index("d")
    spilled = (Field("s", bits["t"] - inner, inner),) if bits["t"] > inner else ()
    extents = {"b": hidden.extent("b"), "g": heads, "s": 1 << bits["t"], "t": hidden.extent("t")}
    fields = (*hidden.fields[:at], *diagonals, *hidden.fields[at + 1 :])
    return Layout(fields, (*hidden.outer, *spilled), tuple(extents.items()))


def row_score_layout(keys: Layout, heads: int) -> Layout:
    """Layout of the scores ``[b, g, s]`` of one query, for keys in a ``hidden`` layout; ``s`` is
    the key. With features in the low bits a score lies at its key, in the slots of all features.
    """
    if keys.features_low:
        stands = {"t": "s", "d": REPLICATED}
        fields = tuple(replace(f, axis=stands.get(f.axis, f.axis)) for f in keys.fields)
        extent = {"b": keys.extent("b"), "g": heads, "s": keys.extent("t")}
        return Layout(fields, keys.outer, tuple(extent.items()))
    layout = score_layout(keys, heads).one_row
    extents = [(axis, keys.extent("t") if axis == "s" else n) for axis, n in layout.extents]
    return Layout(layout.fields, layout.outer, tuple(extents))


class Scores:
    """Geometry of packed scores.

    Attributes:
        tokens: padded number of tokens, which is the number of diagonals.
        real: number of tokens; scores of one query number its keys by ``s``.
        inner: number of diagonals in one ciphertext.
        parts: first diagonal of each ciphertext.
        period: number of slots that a token has, with features in the low bits; otherwise all.
        feature_stride: slots between neighbouring features.
        token, feature: token and feature of every slot, [slots].
    """

    def __init__(self, ctx: Context, layout: Layout) -> None:
        self.ctx, self.layout = ctx, layout
        bits = [field.bits for field in (*layout.fields, *layout.outer) if field.axis == "s"]
        self.tokens, self.inner = 1 << sum(bits), 1 << bits[0]
        self.real = layout.extent("t" if layout.field("t") else "s")
        self.parts = range(0, layout.extent("s"), self.inner)
        self.period = layout.slots // layout.feature_repeats
        self.feature_stride = layout.stride("s")
        self.token = layout.slot_index("t")
        self.feature = np.arange(layout.slots) % self.period // self.feature_stride

    def mask(self, name: str, make: Callable[[], np.ndarray]) -> Slots:
        """1 where ``make()`` is true, 0 elsewhere."""
        return Slots.where(self._table(name, (), make))

    def _table(self, name: str, of: Hashable, make: Callable[[], np.ndarray]) -> Table:
        return self.ctx.slot_table(name, self.layout, make, of)

    def kept(self, op: Op, first: int) -> Slots:
        """1 where the query may see the key, 0 elsewhere; padding rows act as row 0.

        A public mask of the op, boolean ``[batch, tokens]``, is true for keys that may be seen.

        Args:
            op: ``causal``: a key must not come after the query; ``window``: a key must be less than
                so many tokens away; ``query``: the token of the single query, in scores that number
                keys.
            first: the diagonal of slots with index 0 of ``s``.
        """
        causal, window = op.attributes.get("causal", False), op.attributes.get("window", 0)

        def seen(name: str, near: bool) -> Slots:
            """Keys within the window if ``near``, others if not; all keys without a window."""

            def make() -> np.ndarray:
                key, query = self._key(first), self._place(op)
                inside = (key < self.real) & ((key <= query) if causal else True)
                return inside & ((np.abs(query - key) < window) == near if window else True)

            about = self._query(op), window, causal
            return Slots.where(self._table(f"{name}({first})", about, make))

        name = "near" if window else "visible" if causal else "real"
        if not has_mask(op):
            return seen(name, True)
        key = Slots.of(Argument(MASK), (self._keys(first), 0))
        if not window:
            return seen(name, True) * key
        # Queries of padding have no window.
        query, far = Slots.of(Argument(MASK), (self._queries(op), 0)), seen("far", False) * key
        return seen(name, True) * key + far + far * query * -1.0

    def by_position(self, first: int, head: int) -> Slots:
        """What ``slopes`` add to the score of each slot: that of its head, times the visible keys
        before its key; see `bias`.
        """
        heads = self._table(f"head({head})", (), lambda: self._heads(head))
        positions = Slots.of(Argument(MASK, "positions"), (self._keys(first), 0))
        return Slots.of(Argument("slopes"), (heads, 0)) * positions

    def log_hidden(self, op: Op) -> Slots:
        """log(keys / visible keys) of the query of each slot; see `kept`."""
        causal, masked = op.attributes.get("causal", False), has_mask(op)
        if window := op.attributes.get("window", 0):
            if masked:
                near = Argument(MASK, "log_hidden", window, causal)
                return Slots.of(near, (self._queries(op), 0))
            every = Literal(log_hidden_near(np.ones((1, self.real)), window, causal)[0])
            places = self._table("query", self._query(op), lambda: self._place(op))
            return Slots.of(every, (places, 0))

        def make() -> np.ndarray:
            last = self._place(op) if causal else np.array([self.real - 1])
            return last + self._input * self.real if masked else last

        name = "last visible key" if causal else "last key"
        keys = self._table(name, (self._query(op), masked), make)
        every = Literal(log_hidden(np.ones((1, self.real)))[0])
        return Slots.of(Argument(MASK, "log_hidden") if masked else every, (keys, 0))

    def bias(self, op: Op, first: int, head: int) -> Slots:
        """What ``bias`` adds to the score of each slot; padding acts as head and query 0, which it
        copies.

        Args:
            op: has the constant [heads, queries, keys], or with 1 in their place.
            first: see `kept`.
            head: the head of slots with index 0 of ``g``.
        """
        shape = op.site(self.ctx.symbols).constant_shape("bias")

        def make() -> np.ndarray:
            queries = np.where(self.token < self.real, self.token, 0)
            keys = np.minimum(self._key(first), self.real - 1)
            axes = self._heads(head), queries, keys
            at = [i * (n > 1) for i, n in zip(axes, shape, strict=True)]
            return np.ravel_multi_index(at, shape)

        table = self._table(f"bias({first}, {head})", shape, make)
        return Slots.of(Argument("bias"), (table, 0))

    def _heads(self, head: int) -> np.ndarray:
        """The head of every slot, [slots]; padding heads act as head 0, which they copy."""
        heads = head + self.layout.slot_index("g")
        return np.where(heads < self.layout.extent("g"), heads, 0)

    def _keys(self, first: int) -> Table:
        """The place of the key of every slot in a mask [batch, tokens]."""

        def make() -> np.ndarray:
            return self._input * self.real + np.minimum(self._key(first), self.real - 1)

        return self._table(f"key({first})", (), make)

    def _key(self, first: int) -> np.ndarray:
        """The key of every slot, [slots]; ``first`` is the diagonal at index 0 of ``s``."""
        return (self.token + first + self.layout.slot_index("s")) % self.tokens

    @property
    def _input(self) -> np.ndarray:
        """The input of every slot, [slots]; padding of the batch acts as input 0."""
        batch = self.layout.slot_index("b")
        return np.where(batch < self.layout.extent("b"), batch, 0)

    def _query(self, op: Op) -> int:
        return int(op.attributes.get("query", 0))

    def _queries(self, op: Op) -> Table:
        """The place of the query of every slot in a mask [batch, tokens]."""

        def make() -> np.ndarray:
            return self._input * self.real + self._place(op)

        return self._table("masked query", self._query(op), make)

    def _place(self, op: Op) -> np.ndarray:
        """The token of the query of every slot, [slots]; padding acts as token 0."""
        return np.where(self.token < self.real, self.token, 0) + self._query(op)


class Diagonals(Scores):
    """Scores of all queries, and the groups of diagonals that are computed together.

    Attributes:
        stride: slots between neighbouring tokens.
        width: padded number of features in a block, which are replaced by diagonals; with features
            in the top bits of all blocks.
        baby: B, number of diagonals that are computed together.
        starts: first diagonals of the groups that are computed together.
        halves: offsets from ``start + baby`` to the diagonals in the real and imaginary part.
    """

    def __init__(self, ctx: Context, layout: Layout) -> None:
        super().__init__(ctx, layout)
        self.stride = layout.stride("t")
        self.width = self.period // self.feature_stride
        self.baby = baby_steps(self.tokens, self.inner, self.width, layout.features_low)
        self.starts = range(0, max(self.tokens // 2, 1), self.baby)
        self.halves = (0, self.tokens // 2) if self.tokens > 1 else (0,)

    def number(self, index: dict[str, int], diagonal: int) -> int:
        """The ciphertext of the scores with a diagonal of the heads at an index."""
        return place_of(self.layout, {**index, "s": diagonal})[0]

    def sees_all(self, op: Op) -> bool:
        """Whether every query may see every key, and no token is padding."""
        full = self.layout.extent("t") == self.tokens
        return not has_mask(op) and not any(op.chosen("causal", "window").values()) and full

    def both_kept(self, op: Op, start: int, part: int) -> Slots:
        """(a + b)/2, or (a − b)/2 for part 1, where a and b are 1 for the diagonals in the real and
        the imaginary part, from ``start`` on, that a query may see.
        """
        first = start - start % self.inner
        one, *others = [self.kept(op, first + half) * 0.5 for half in self.halves]
        return one + (others[-1] if others else one) * (-1.0 if part else 1.0)

    def apart(self, first: int, both: Register) -> list[tuple[int, Register]]:
        """(first diagonal, ciphertext) of the real and the imaginary part of a ciphertext."""
        engine = self.ctx.engine
        if len(self.halves) == 1:
            return [(first, both)]
        half, other = self.halves[1], engine.conjugate(both)
        low, high = engine.add(both, other), engine.times_i(engine.sub(other, both))
        if self.inner == self.tokens:  # both halves share a ciphertext
            moved = engine.rotate(high, -half * self.feature_stride)
            return [(first, engine.add(low, moved))]
        return [(first, low), (first + half, high)]

    def together(self, weights: list[Register], index: dict[str, int], first: int) -> Register:
        """The inverse of ``apart``: one ciphertext with two halves of the diagonals as its
        parts.
        """
        engine, low = self.ctx.engine, weights[self.number(index, first)]
        if len(self.halves) == 1:
            return low
        half = self.halves[1]
        if self.inner == self.tokens:
            high = engine.rotate(low, half * self.feature_stride)
        else:
            high = weights[self.number(index, first + half)]
        return engine.add(low, engine.times_i(high))


@lru_cache(maxsize=256)
def baby_steps(tokens: int, inner: int, width: int, features_low: bool = False) -> int:
    """The power of two B for which the two products of attention are cheapest.

    Args:
        tokens: n, a power of two.
        inner: number of diagonals in a ciphertext.
        width: padded number of features in a block.
        features_low: whether rotations by features need a mask, and not those by tokens.
    """
    candidates = [1 << bit for bit in range(max(min(tokens // 2, inner), 1).bit_length())]

    def cost(baby: int) -> float:
        starts = max(tokens // 2, 1) // baby
        sums = (width // baby).bit_length() - 1
        if features_low:  # 2B − 1 copies of both, their keys; 2(B − 1) hoisted rotations a start
            return KEY_SWITCH * (5 * baby + 2 * starts * (3 + 2 * (baby - 1) * HOISTED + sums))
        key_switches = 5 * baby + starts * (2 + baby - 1 + 1 + sums + 2)
        return KEY_SWITCH * key_switches + 4 * baby * baby

    return min(candidates, key=cost)
