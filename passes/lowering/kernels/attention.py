"""Products of two ciphertexts in attention, with scores packed by diagonals.

The score of query i and key j lies on diagonal s = (j − i) mod n, in the slot of token i; the
diagonal takes the place of the feature d (its high bits number ciphertexts). A row sum of the
softmax is then a sum over the top slot bits, which wraps around and needs no mask.

With s = giant·B + baby and turn(x, r) the rotation of the tokens by r, cyclic within n:

    q·k on diagonal s = turn( Σ_d turn(q, −giant·B) ⊙ turn(k, baby), giant·B )
    p·v               = Σ_s replicate_d(p on diagonal s) ⊙ turn(v, s)

A turn is two rotations of the ciphertext, each masked to the tokens that did not cross a border.
The last turn of q·k shares its masks with the packing of the diagonals, so it costs no level.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from atlasc.ir.layout import REPLICATED, Field, Layout
from atlasc.ir.module import Op
from atlasc.passes.lowering.kernels.context import Context, Ct, layout_of
from atlasc.passes.lowering.kernels.elementwise import double_and_add


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
        return 1 << self._token_bits

    @cached_property
    def _token_bits(self) -> int:
        field = self.layout.field("t")
        assert field is not None
        return field.bits

    @cached_property
    def inner(self) -> int:
        """Diagonals in one ciphertext."""
        field = self.layout.field("s")
        assert field is not None
        return 1 << field.bits

    @cached_property
    def token(self) -> np.ndarray:
        """Token of every slot."""
        return self.layout.slot_index("t")

    @cached_property
    def stride(self) -> int:
        """Slots between neighbouring tokens."""
        return self.layout.stride("t")

    @cached_property
    def top_bits(self) -> int:
        """Bits of the field that holds the diagonals: that of the features within a block."""
        position = [f.axis for f in self.layout.fields].index("s")
        return sum(f.bits for f in self.layout.fields[: position + 1])

    @cached_property
    def top_stride(self) -> int:
        """Slots between neighbours along that field."""
        return self.layout.stride("s")

    def keep(self, diagonal: int, mask: np.ndarray | None, causal: bool) -> np.ndarray:
        """Boolean slots: the query may see the key on this diagonal; padding rows act as row 0."""
        tokens = self.layout.extent("t")
        key = (self.token + diagonal) % self.tokens
        query = np.where(self.token < tokens, self.token, 0)
        keep = key < tokens
        if causal:
            keep &= key <= query
        if mask is not None:
            batch = self.layout.slot_index("b")
            row = np.where(batch < self.layout.extent("b"), batch, 0)
            keep &= mask[row, np.minimum(key, tokens - 1)].astype(bool)
        return keep


def _turn(ctx: Context[Ct], scores: Scores, x: Ct, amounts: list[int]) -> dict[int, Ct]:
    """turn(x, r) for every r: result[i] = x[(i + r) mod n] over the tokens."""
    tokens, stride = scores.tokens, scores.stride
    reduced = sorted({r % tokens for r in amounts})
    moving = [r for r in reduced if r]
    rotations = [a for r in moving for a in (r * stride, (r - tokens) * stride)]
    rotated = iter(ctx.engine.rotate_many(x, rotations))
    turned = {0: x} if 0 in reduced else {}
    for r in moving:
        inside = ctx.blank if ctx.dry else (scores.token < tokens - r).astype(np.float64)
        outside = ctx.blank if ctx.dry else 1.0 - inside
        turned[r] = ctx.engine.add(
            ctx.engine.mul_plain(next(rotated), inside),
            ctx.engine.mul_plain(next(rotated), outside),
        )
    return turned


def baby_steps(tokens: int) -> int:
    """Turns of the keys; the queries take tokens / baby_steps. A power of two near √tokens."""
    return 1 << (tokens.bit_length() // 2)


def ct_matmul_qk(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.ct_matmul_qk``."""
    q, k = operands[:2]
    mask = np.asarray(operands[2]) if len(op.operands) > 2 else None
    assert op.result is not None
    layout = layout_of(op.result)
    scores = Scores(layout)
    steps = baby_steps(scores.tokens)
    outer_of = layout.ciphertext_index
    result: list[Ct | None] = [None] * layout.ciphertexts
    for column, index in enumerate(layout_of(op.operands[0]).ciphertext_index):
        keys = _turn(ctx, scores, k[column], list(range(steps)))
        starts = list(range(0, scores.tokens, steps))
        queries = _turn(ctx, scores, q[column], [-start for start in starts])
        for start in starts:
            packed: dict[tuple[int, int], Ct] = {}
            for baby in range(steps):
                s = start + baby
                number = int(layout.ciphertext_of({**index, "s": s, "b": 0, "t": 0}))
                product = ctx.engine.mul(queries[-start % scores.tokens], keys[baby])
                total = double_and_add(ctx, product, scores.top_stride, scores.top_bits)
                for part, vector in _packing(ctx, scores, op, s, start, mask):
                    term = ctx.engine.mul_plain(total, vector)
                    at = (number, part)
                    packed[at] = ctx.engine.add(packed[at], term) if at in packed else term
            for (number, part), term in packed.items():
                placed = ctx.engine.rotate(term, part * scores.stride) if part else term
                so_far = result[number]
                result[number] = placed if so_far is None else ctx.engine.add(so_far, placed)
    return [
        ctx.engine.add_plain(ciphertext, _offsets(ctx, scores, op, outer, mask))
        for ciphertext, outer in zip(result, outer_of, strict=True)
        if ciphertext is not None
    ]


def _packing(
    ctx: Context[Ct], scores: Scores, op: Op, s: int, start: int, mask: np.ndarray | None
) -> list[tuple[int, np.ndarray]]:
    """(final turn in tokens, mask) pairs that put diagonal ``s`` into its place."""
    parts = [start] if start == 0 else [start, start - scores.tokens]
    if ctx.dry:
        return [(part, ctx.blank) for part in parts]
    place = scores.layout.slot_index("s") == s % scores.inner
    final = place & scores.keep(s, mask, op.attributes.get("causal", False))
    inside = scores.token < scores.tokens - start
    masks = [final & inside, final & ~inside]
    return [
        (part, np.roll(chosen.astype(np.float64), part * scores.stride))
        for part, chosen in zip(parts, masks, strict=False)
    ]


def _offsets(
    ctx: Context[Ct], scores: Scores, op: Op, outer: dict[str, int], mask: np.ndarray | None
) -> np.ndarray:
    """What is added to the packed scores: the fill of masked keys."""
    if ctx.dry:
        return ctx.blank
    return np.where(_kept(scores, op, outer, mask), 0.0, op.attributes["fill"])


def _kept(scores: Scores, op: Op, outer: dict[str, int], mask: np.ndarray | None) -> np.ndarray:
    """Boolean slots of a ciphertext: the key on the slot's diagonal may be seen."""
    causal, diagonal = op.attributes.get("causal", False), scores.layout.slot_index("s")
    keep = np.zeros(scores.layout.slots, dtype=bool)
    for low in range(scores.inner):
        keep |= (diagonal == low) & scores.keep(outer.get("s", 0) + low, mask, causal)
    return keep


def mask_zero(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.mask_zero``: subtract what masked and padding keys are known to hold."""
    assert op.result is not None
    scores = Scores(layout_of(op.result))
    mask = np.asarray(operands[1]) if len(op.operands) > 1 else None
    result = []
    for ciphertext, outer in zip(operands[0], scores.layout.ciphertext_index, strict=True):
        vector = ctx.blank
        if not ctx.dry:
            vector = np.where(_kept(scores, op, outer, mask), 0.0, -op.attributes["value"])
        result.append(ctx.engine.add_plain(ciphertext, vector))
    return result


def ct_matmul_pv(ctx: Context[Ct], op: Op, operands: list[list[Ct]]) -> list[Ct]:
    """Kernel of ``ckks.ct_matmul_pv``."""
    p, v = operands
    weights, hidden = layout_of(op.operands[0]), layout_of(op.operands[1])
    scores = Scores(weights)
    first = scores.layout.slot_index("s")
    copies = _first_copy(scores)
    result = []
    for column, index in enumerate(hidden.ciphertext_index):
        values = _turn(ctx, scores, v[column], list(range(scores.tokens)))
        total: Ct | None = None
        for s in range(scores.tokens):
            number = int(weights.ciphertext_of({**index, "s": s, "b": 0, "t": 0}))
            chosen = ctx.blank
            if not ctx.dry:
                keys = (scores.token + s) % scores.tokens < scores.layout.extent("t")
                chosen = (copies & keys & (first == s % scores.inner)).astype(np.float64)
            one = ctx.engine.mul_plain(p[number], chosen)
            spread = double_and_add(ctx, one, scores.top_stride, scores.top_bits)
            term = ctx.engine.mul(spread, values[s])
            total = term if total is None else ctx.engine.add(total, term)
        assert total is not None
        result.append(total)
    return result


def _first_copy(scores: Scores) -> np.ndarray:
    """Slots of the first copy, where diagonals are fewer than the places in the top field."""
    top = scores.layout.slots >> scores.top_bits
    return np.arange(scores.layout.slots) // top < scores.inner
