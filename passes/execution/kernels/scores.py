"""Geometry of packed scores: where each (batch, head, diagonal, query) lies, and how diagonals are
grouped. How they are computed is in :mod:`atlasc.passes.execution.kernels.attention`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from atlasc.ir.layout import REPLICATED, Field, Layout
from atlasc.passes.execution.kernels.context import KEY_SWITCH


def score_layout(hidden: Layout, heads: int) -> Layout:
    """Layout of the scores ``[b, g, s, t]`` of queries in a ``hidden`` layout ``[b, t, g, d]``."""
    d, t = hidden.field("d"), hidden.field("t")
    assert d is not None
    assert t is not None
    inner = min(d.bits, t.bits)
    fields = [Field("s", inner)]
    if d.bits > inner:
        fields.insert(0, Field(REPLICATED, d.bits - inner))
    fields += [field for field in hidden.fields if field.axis != "d"]
    outer = list(hidden.outer)
    if t.bits > inner:
        outer.append(Field("s", t.bits - inner, inner))
    extents = (
        ("b", hidden.extent("b")),
        ("g", heads),
        ("s", 1 << t.bits),
        ("t", hidden.extent("t")),
    )
    return Layout(tuple(fields), tuple(outer), extents)


@dataclass(frozen=True)
class Scores:
    """Geometry of packed scores: which (batch, head, diagonal, query) a slot is."""

    layout: Layout

    @cached_property
    def tokens(self) -> int:
        """Padded number of tokens = number of diagonals."""
        diagonals = (*self.layout.fields, *self.layout.outer)
        return 1 << sum(field.bits for field in diagonals if field.axis == "s")

    @cached_property
    def real(self) -> int:
        """Number of tokens; scores of one query number its keys by ``s``."""
        return self.layout.extent("t" if self.layout.field("t") else "s")

    @cached_property
    def inner(self) -> int:
        """Diagonals in one ciphertext."""
        field = self.layout.field("s")
        assert field is not None
        return 1 << field.bits

    @cached_property
    def parts(self) -> range:
        """First diagonal of each ciphertext."""
        return range(0, self.layout.extent("s"), self.inner)

    @cached_property
    def baby(self) -> int:
        """B: diagonals that are computed together."""
        return baby_steps(self.tokens, self.inner, 1 << self.feature_bits)

    @cached_property
    def halves(self) -> tuple[int, ...]:
        """What a diagonal in the real and in the imaginary part adds to ``start + baby``."""
        return (0, self.tokens // 2) if self.tokens > 1 else (0,)

    @cached_property
    def starts(self) -> range:
        """First diagonals of the groups that are computed together."""
        return range(0, max(self.tokens // 2, 1), self.baby)

    @cached_property
    def token(self) -> np.ndarray:
        """Token of every slot."""
        return self.layout.slot_index("t")

    @cached_property
    def stride(self) -> int:
        """Slots between neighbouring tokens."""
        return self.layout.stride("t")

    @cached_property
    def feature_bits(self) -> int:
        """Bits of the fields in the place of the features of a block."""
        position = [f.axis for f in self.layout.fields].index("s")
        return sum(f.bits for f in self.layout.fields[: position + 1])

    @cached_property
    def top_stride(self) -> int:
        """Slots between neighbours along that field."""
        return self.layout.stride("s")

    @cached_property
    def feature(self) -> np.ndarray:
        """Feature of every slot within its block: its index in the top bits."""
        return np.arange(self.layout.slots) // self.top_stride

    def number(self, index: dict[str, int], diagonal: int) -> int:
        """Which ciphertext of the scores holds a diagonal of the heads at an index."""
        return int(self.layout.ciphertext_of({**index, "s": diagonal, "b": 0, "t": 0}))

    def token_rotations(self, amount: int) -> list[int]:
        """Rotations in tokens that ``cycle(x, amount)`` is made of; ``served`` has their slots."""
        other = amount - self.tokens if amount > 0 else amount + self.tokens
        return [rotation for rotation in (amount, other) if abs(rotation) != self.tokens]

    def served(self, rotation: int) -> np.ndarray:
        """Boolean slots: the token stays within the border when it is rotated so far."""
        source = self.token + rotation
        return (source >= 0) & (source < self.tokens)

    @cached_property
    def first_copy(self) -> np.ndarray:
        """Slots of the first copy, where diagonals are fewer than the places of the features."""
        return self.feature < self.inner

    def block(self, start: int) -> np.ndarray:
        """Slots of the diagonals ``start … start + B − 1`` in their ciphertext."""
        return self.layout.slot_index("s") // self.baby == start % self.inner // self.baby

    def kept(
        self, first: int, mask: np.ndarray | None, causal: bool, offset: int = 0, query: int = 0
    ) -> np.ndarray:
        """Boolean slots: the query may see the key; padding rows act as row 0.

        Args:
            first: diagonal of the slots where the index of ``s`` is 0.
            mask: boolean ``[batch, tokens]``, the keys that may be seen.
            causal: a key must not come after the query.
            offset: added to the diagonals.
            query: token of the one query, in scores that number keys.
        """
        tokens = self.real
        key = (self.token + first + self.layout.slot_index("s") + offset) % self.tokens
        keep = key < tokens
        if causal:
            keep &= key <= np.where(self.token < tokens, self.token, 0) + query
        if mask is not None:
            batch = self.layout.slot_index("b")
            row = np.where(batch < self.layout.extent("b"), batch, 0)
            keep &= mask[row, np.minimum(key, tokens - 1)].astype(bool)
        return keep


def row_score_layout(keys: Layout, heads: int) -> Layout:
    """Layout of the scores ``[b, g, s]`` of one query and keys in a ``hidden`` layout; ``s`` is the
    key.
    """
    layout = score_layout(keys, heads).one_row
    extents = [(axis, keys.extent("t") if axis == "s" else n) for axis, n in layout.extents]
    return Layout(layout.fields, layout.outer, tuple(extents))


@lru_cache(maxsize=256)
def baby_steps(tokens: int, inner: int, width: int) -> int:
    """The power of two B for which the two products of attention cost least.

    Args:
        tokens: n, a power of two.
        inner: diagonals in a ciphertext.
        width: padded number of features in a block.
    """
    candidates = [1 << bit for bit in range(max(min(tokens // 2, inner), 1).bit_length())]

    def cost(baby: int) -> int:
        starts = max(tokens // 2, 1) // baby
        sums = (width // baby).bit_length() - 1
        key_switches = 5 * baby + starts * (2 + baby - 1 + 1 + sums + 2)
        return KEY_SWITCH * key_switches + 4 * baby * baby

    return min(candidates, key=cost)
