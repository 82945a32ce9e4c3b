"""Layouts of a program of one token, beside keys and values of all tokens that came before.

Copies lie in the top slot bits, the inputs of a batch in the low ones. Between them are the
features of the row, slot = ((copy · 2^d + d) · 2^g + g) · 2^b + b, or the scores of the tokens in
the place of d. So a rotation by features or by tokens is cyclic and needs no mask, and so does a
sum over them.

Keys and values are matrices that multiply a row: the scores are K · q, the context is Vᵀ · p, for
each head. They are stored by their diagonals, as weights are multiplied
(:mod:`atlasc.program.kernels.skewed`): slot u of diagonal j belongs to one place of the result and
to one place of the row. Each ciphertext holds a diagonal, or as many as it has room for.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from atlasc.ir.layout import REPLICATED, Field, Layout


def bits_for(extent: int) -> int:
    """Number of bits that index ``extent`` elements: ⌈log₂ extent⌉."""
    return (extent - 1).bit_length()


def _copies(bits: int) -> tuple[Field, ...]:
    """Copies in the top bits; no field if there is no room for any."""
    return (Field(REPLICATED, bits),) if bits else ()


def row_layout(slots: int, batch: int, blocks: int, width: int, batch_bits: int) -> Layout:
    """Layout ``[b, g, d]`` of a row of ``blocks`` of ``width`` features for each input of a batch.
    Blocks without room lie in further ciphertexts.
    """
    d, g, free = bits_for(width), bits_for(blocks), bits_for(slots) - batch_bits
    inner = min(g, free - d)
    fields = (Field("d", d), Field("g", inner), Field("b", batch_bits))
    outer = (Field("g", g - inner, inner),) if g > inner else ()
    extents = (("b", batch), ("g", blocks), ("d", width))
    return Layout((*_copies(free - d - inner), *fields), outer, extents)


@dataclass(frozen=True)
class Diagonals:
    """How the diagonals of a matrix that multiplies a row fill ciphertexts.

    With n places in a ciphertext, the row has ``inputs`` places and the result ``outputs``. Slot u
    belongs to place u mod ``outputs`` of the result. The row is *skewed*: block c of ``block``
    places of it is rotated by c · ``steps`` places, c modulo ``copies``. Diagonal j of slot u is
    then the element for place u + j of the skewed row. So copy c computes the diagonals
    from c · ``steps`` on, and ``steps`` ciphertexts hold the whole matrix.

    Attributes:
        inputs, outputs: places of the row and of the result, powers of two.
        copies: how many diagonals a ciphertext holds, a power of two; 1: the row is not skewed.
    """

    inputs: int
    outputs: int
    copies: int

    @property
    def block(self) -> int:
        """Places of a copy: the greater of ``inputs`` and ``outputs``."""
        return max(self.inputs, self.outputs)

    @property
    def steps(self) -> int:
        """Number of ciphertexts: rotations of the row."""
        return min(self.inputs, self.outputs) // self.copies

    @property
    def summed(self) -> int:
        """Number of slots that are summed for a place of the result, one after ``outputs``."""
        return self.copies * self.block // self.outputs

    @cached_property
    def places(self) -> np.ndarray:
        """The place of the row in each place of its skewed copies, ``[copies * block]``."""
        places = np.arange(self.copies * self.block)
        return (places + places // self.block * self.steps) % self.inputs


def most_copies(places: int, inputs: int, outputs: int) -> int:
    """The most diagonals that a ciphertext of ``places`` places can hold."""
    return min(places // max(inputs, outputs), inputs, outputs)


@dataclass(frozen=True)
class Cache:
    """Keys or values of attention ``[batch, tokens, heads, width]`` by their diagonals.

    The tokens that have no room in a ciphertext lie in further *parts*: matrices of their own. The
    layout has an axis ``t`` for keys, whose slots belong to a token of the scores, and ``d`` for
    values, whose slots belong to a feature of the context. Axis ``s`` numbers the diagonals:
    feature minus token for keys, token minus feature for values.

    Attributes:
        layout: the layout.
        keys: whether these are keys.
        tokens: tokens of a part, a power of two.
        parts: number of parts.
        width: padded features of a head, a power of two.
        steps: ciphertexts of a part.
        unit: slots between neighbouring tokens, and between neighbouring features.
    """

    layout: Layout
    keys: bool
    tokens: int
    parts: int
    width: int
    steps: int
    unit: int

    @classmethod
    def choose(cls, keys: bool, row: Layout, tokens: int) -> Cache:
        """The cache of so many rows of keys or values in the layout ``row``, which has all heads in
        one ciphertext.
        """
        bits = {axis: field.bits for axis in "dgb" if (field := row.field(axis))}
        places = row.slots >> bits["g"] + bits["b"]
        d, t = bits["d"], min(bits_for(tokens), bits_for(places))
        least = min(d, t)
        room = range(bits_for(most_copies(places, 1 << d, 1 << t)) + 1)
        # A step is a ciphertext, and a rotation; a copy is a rotation.
        c = min(room, key=lambda c: (1 << c) + 2 * (1 << least - c))
        k, longer = least - c, max(t, d) - least
        axis, own, other = ("t", t, d) if keys else ("d", d, t)
        further = (Field("s", longer, least),) if other > own else ()
        copies = _copies(bits_for(places) - c - max(t, d))
        slots = (Field("s", c, k), *further, Field(axis, own))
        heads = Field("g", bits["g"]), Field("b", bits["b"])
        parts = -(-tokens // (1 << t))
        part = Field("t" if keys else "s", bits_for(parts), t)
        extents = {"b": row.extent("b")}
        if keys:
            extents |= {"t": tokens, "g": row.extent("g"), "s": 1 << d}
        else:
            extents |= {"g": row.extent("g"), "d": row.extent("d"), "s": parts << t}
        layout = Layout((*copies, *slots, *heads), (part, Field("s", k)), tuple(extents.items()))
        return cls(layout, keys, 1 << t, parts, 1 << d, 1 << k, 1 << bits["g"] + bits["b"])

    @staticmethod
    def has(layout: Layout) -> bool:
        """Whether a layout has the axes of keys or values by diagonals."""
        axes = [axis for axis, _ in layout.extents]
        return layout.one_token and axes in (["b", "t", "g", "s"], ["b", "g", "d", "s"])

    @classmethod
    def of(cls, layout: Layout) -> Cache:
        """The geometry of a layout that `choose` made.

        Raises:
            ValueError: it is the layout of something else.
        """
        axis = "t" if layout.field("t") else "d"
        own, heads, batch = (layout.field(one) for one in (axis, "g", "b"))
        made = cls.has(layout) and len(layout.outer) == 2
        if own is None or heads is None or batch is None or not made:
            raise ValueError(f"{layout} is no layout of keys or values by diagonals")
        part, last = layout.outer
        keys, inner = axis == "t", sum(f.bits for f in layout.fields if f.axis == "s")
        other = last.bits + inner
        t, d = (own.bits, other) if keys else (other, own.bits)
        parts = -(-layout.extent("t" if keys else "s") // (1 << t))
        unit = 1 << heads.bits + batch.bits
        found = cls(layout, keys, 1 << t, parts, 1 << d, 1 << last.bits, unit)
        if part != Field("t" if keys else "s", bits_for(parts), t) or not found._fits:
            raise ValueError(f"{layout} is no layout of keys or values by diagonals")
        return found

    @property
    def _fits(self) -> bool:
        axes = [field.axis for field in self.layout.fields]
        order = [axis for at, axis in enumerate(axes) if axis not in axes[:at]]
        own = "t" if self.keys else "d"
        copies = self.diagonals.copies
        return (
            order[-4:] == ["s", own, "g", "b"]
            and set(order[:-4]) <= {REPLICATED}
            and copies >= 1
            and self.layout.slots // self.unit >= copies * self.diagonals.block
        )

    @cached_property
    def diagonals(self) -> Diagonals:
        """The diagonals of a part."""
        inputs, outputs = self.width, self.tokens
        if not self.keys:
            inputs, outputs = outputs, inputs
        return Diagonals(inputs, outputs, min(inputs, outputs) // self.steps)

    @property
    def skewed(self) -> bool:
        """Whether the row that it is multiplied with is skewed."""
        return self.diagonals.copies > 1

    def pack(self, rows: np.ndarray) -> np.ndarray:
        """Slots ``[ciphertexts, slots]`` of keys or values of the first tokens, 0 at the others.

        They are the slots that `ckks.at_tokens` gives, token by token: padding heads of keys copy
        head 0, and padding inputs of the batch copy input 0.

        Args:
            rows: ``[batch, heads, first tokens, width]``.
        """
        at = self.elements(*rows.shape)
        return np.where(at < 0, 0.0, rows.ravel()[np.maximum(at, 0)])

    def elements(self, batch: int, heads: int, tokens: int, width: int) -> np.ndarray:
        """The element of an array ``[batch, heads, tokens, width]`` in each slot, see `pack`; −1 if
        there is none. ``[ciphertexts, slots]``.
        """
        layout, at = self.layout, self.diagonals
        whole = np.full((batch, heads + 1, self.parts * self.tokens, self.width), -1)
        numbers = np.arange(batch * heads * tokens * width).reshape(batch, heads, tokens, width)
        whole[:, :heads, :tokens, :width] = numbers
        b, g = layout.slot_index("b"), layout.slot_index("g")
        b, g = np.where(b < batch, b, 0), np.where(g < heads, g, 0 if self.keys else heads)
        places = np.arange(layout.slots) // self.unit % len(at.places)
        own = places % at.outputs
        found = np.empty((self.parts, self.steps, layout.slots), np.int64)
        for step in range(self.steps):
            other = at.places[(places + step) % len(at.places)]
            token, feature = (own, other) if self.keys else (other, own)
            for part in range(self.parts):
                found[part, step] = whole[b, g, token + part * self.tokens, feature]
        return found.reshape(-1, layout.slots)

    def fits(self, row: Layout) -> bool:
        """Whether a layout is that of one row of these keys or values, or of a query."""
        layout = self.layout
        own, heads, batch = (row.field(axis) for axis in "dgb")
        alike = own is not None and 1 << own.bits == self.width and not row.outer
        same = heads == layout.field("g") and batch == layout.field("b") == row.fields[-1]
        extents = all(row.extent(axis) == layout.extent(axis) for axis in "bg")
        return alike and same and extents and row.slots == layout.slots

    def fits_window(self, window: Layout) -> bool:
        """Whether a layout is that of keys or values of all tokens in a window's packing."""
        layout, width = self.layout, window.extent("d")
        axes = tuple(axis for axis, _ in window.extents)
        own = ("b", "g", "t") if self.keys else ("b", "g", "d")
        same = all(window.extent(axis) == layout.extent(axis) for axis in own)
        fits = bits_for(width) == bits_for(self.width) and window.slots == layout.slots
        return axes == ("b", "t", "g", "d") and same and fits

    def scores(self) -> Layout:
        """Layout ``[b, g, s]`` of the scores of one query: s is the token."""
        layout, t = self.layout, bits_for(self.tokens)
        heads, batch = layout.field("g"), layout.field("b")
        assert heads is not None and batch is not None
        copies = _copies(bits_for(layout.slots) - t - heads.bits - batch.bits)
        tokens = layout.extent("t") if self.keys else layout.extent("s")
        outer = (Field("s", bits_for(self.parts), t),) if self.parts > 1 else ()
        extents = (("b", layout.extent("b")), ("g", layout.extent("g")), ("s", tokens))
        return Layout((*copies, Field("s", t), heads, batch), outer, extents)

    def row(self) -> Layout:
        """Layout of the context of one query: a row of features."""
        layout = self.layout
        batch = layout.field("b")
        assert batch is not None
        features = layout.extent("g"), layout.extent("d")
        return row_layout(layout.slots, layout.extent("b"), *features, batch.bits)
