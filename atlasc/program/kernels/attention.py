"""Products of two ciphertexts in attention, with scores packed by diagonals.

The score of query i and key j lies on diagonal s = (j − i) mod n, in the slot of token i. The
diagonal takes the place of the feature d; its high bits number ciphertexts. So a row sum of the
softmax is a sum over the top slot bits, which wraps around the ciphertext and needs no mask.

With cycle(x, r)[t] = x[t + r mod n] over the n tokens, diagonal s of the scores is
Σ_d q[d, t] · k[d, t + s], and the context is Σ_s p[s, t] · v[d, t + s]. Three tricks make them
cheap:

* *Skewed copies.* B diagonals, s = start + baby, are computed together; ``baby`` takes the place of
  the low bits of d. Copy r of k has its feature d cycled by (d − r) mod B tokens. Its product with
  q holds one feature of each of the B diagonals. The sum of all B products, each rotated by r along
  d, holds the B diagonals. This takes B products and one relinearization. One diagonal at a time
  would take B of both, and B sums over d.
* *Two halves of the diagonals in one ciphertext*: s in the real and s + n/2 in the imaginary part.
* Only ``start`` cycles q (and p), so n/2B cycles are enough.

A cycle is two rotations of the ciphertext, each masked to the tokens that did not cross a border.
The cycle back shares its masks with the packing of the diagonals.
"""

from __future__ import annotations

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Op
from atlasc.ir.opdef import number
from atlasc.program.kernels.context import Context, layout_of
from atlasc.program.kernels.low_features import LowDiagonals
from atlasc.program.kernels.scores import Diagonals, Scores
from atlasc.program.plaintexts import Slots
from atlasc.program.record import Register


class HighDiagonals(Diagonals):
    """Scores with features in the top bits, and the rotations that bring queries, keys and values
    to their diagonals.
    """

    def keys(self, x: Register) -> list[Register]:
        """Skewed copies of keys; copy r is rotated by r features, as the query."""
        return [
            self.ctx.engine.rotate(copy, r * self.feature_stride)
            for r, copy in enumerate(self.skewed(x, -1, 1j))
        ]

    def values(self, x: Register) -> list[Register]:
        """Skewed copies of values."""
        return self.skewed(x, 1, -1j)

    def skewed(self, x: Register, direction: int, unit: complex) -> list[Register]:
        """B copies of x, halved. In the real part of copy r, token t of feature d is token t + j of
        x, with j = (d + direction · r) mod B. In the imaginary part it is ``unit`` times token
        t + j + n/2.
        """
        engine = self.ctx.engine
        moves = [
            (j, unit if part else 1.0, rotation)
            for part, offset in enumerate(self.halves)
            for j in range(self.baby)
            for rotation in self.token_rotations(j + offset)
        ]
        rotated = engine.rotate_many(x, [move[2] * self.stride for move in moves])

        def chosen(r: int, j: int, factor: complex, rotation: int) -> Slots:
            skew = (j - direction * r) % self.baby
            real, width = self.layout.extent("t"), np.arange(self.width)
            low = self.mask(f"feature mod {self.baby} = {skew}", lambda: width % self.baby == skew)
            keys = self.mask(
                f"real key({rotation})", lambda: (self.token + rotation) % self.tokens < real
            )
            return self.served(rotation) * keys * low * (factor / len(self.halves))

        return [
            engine.dot_plain(rotated, [self.ctx.slots(chosen, r, *move) for move in moves])
            for r in range(self.baby)
        ]

    def cycle(self, x: Register, amount: int, start: int | None = None) -> Register:
        """cycle(x, amount); with ``start`` only of the diagonals from ``start`` on, 0 elsewhere."""
        if amount == 0 and start is None:
            return x
        engine, turns = self.ctx.engine, self.token_rotations(amount)
        rotated = engine.rotate_many(x, [rotation * self.stride for rotation in turns])

        def inside(rotation: int) -> Slots:
            served = self.served(rotation)
            if start is None:
                return served
            first = self.mask("first copy", lambda: np.arange(self.width) < self.inner)
            return served * self.block(start) * first

        vectors = [self.ctx.slots(inside, rotation) for rotation in turns]
        return engine.dot_plain(rotated, vectors)

    def token_rotations(self, amount: int) -> list[int]:
        """Rotations, in tokens, that make up ``cycle(x, amount)``; ``served`` has their slots."""
        other = amount - self.tokens if amount > 0 else amount + self.tokens
        return [rotation for rotation in (amount, other) if abs(rotation) != self.tokens]

    def served(self, rotation: int) -> Slots:
        """1 where a token stays within the border under a rotation, 0 elsewhere."""

        def make() -> np.ndarray:
            source = self.token + rotation
            return (source >= 0) & (source < self.tokens)

        return self.mask(f"stays({rotation})", make)

    def block(self, start: int) -> Slots:
        """1 in the slots of the diagonals ``start … start + B − 1`` in their ciphertext, 0
        elsewhere.
        """
        number = start % self.inner // self.baby
        return self.mask(
            f"block.{number}", lambda: self.layout.slot_index("s") // self.baby == number
        )

    def queries(self, x: Register, start: int, level: int) -> list[Register]:
        """x for the diagonals from ``start`` on, one for each copy of the keys, at their level. It
        gets there before it is rotated: each rotation of it would take a rescaling to get there.
        """
        return self._by_features(self.ctx.engine.drop_to(self.cycle(x, -start), level))

    def _by_features(self, x: Register) -> list[Register]:
        """x rotated by 0 … B − 1 features."""
        amounts = [r * self.feature_stride for r in range(self.baby)]
        return self.ctx.engine.rotate_many(x, amounts)

    def _sum_over_groups(self, x: Register) -> Register:
        """Σ over the features that are equal modulo B; all of these get the sum."""
        groups, stride = self.width // self.baby, self.feature_stride
        return self.ctx.double_and_add(x, stride * self.baby, groups.bit_length() - 1)

    def placed(self, op: Op, product: Register, start: int) -> Register:
        """The diagonals from ``start`` on, summed over the features and cycled back; 0 elsewhere
        and for masked keys.

        If the two halves have different masks a and b: x ⊙ (a + b)/2 + conj(x) ⊙ (a − b)/2.
        """
        engine = self.ctx.engine
        total = self._sum_over_groups(product)  # [batch, tokens, heads, (groups), B diagonals]
        sources = [total] if self.sees_all(op) else [total, engine.conjugate(total)]

        def cycled(rotation: int, part: int) -> Slots:
            both = self.both_kept(op, start, part)
            return (self.served(rotation) * self.block(start) * both).rolled(rotation * self.stride)

        terms = []
        for rotation in self.token_rotations(start):
            vectors = [self.ctx.slots(cycled, rotation, part) for part in range(len(sources))]
            both = engine.dot_plain(sources, vectors)
            terms.append(engine.rotate(both, rotation * self.stride))
        return self.ctx.total(terms)

    def completed(self, x: Register) -> Register:
        """Scores with copies of the diagonals in the features that have none: they have them."""
        return x

    def weights(self, x: Register, start: int) -> list[Register]:
        """The diagonals from ``start`` on, in all groups: one for each copy of the values."""
        return self._by_features(self._sum_over_groups(self.cycle(x, -start, start)))

    def back(self, product: Register, start: int) -> Register:
        """The context of the diagonals from ``start`` on, at its queries."""
        return self.cycle(product, start)


def _diagonals(ctx: Context, scores: Layout) -> HighDiagonals | LowDiagonals:
    return (LowDiagonals if scores.features_low else HighDiagonals)(ctx, scores)


def ct_matmul_qk(ctx: Context, op: Op, q: list[Register], k: list[Register]) -> list[Register]:
    """Kernel of ``ckks.ct_matmul_qk``: scores [batch, heads, diagonals, tokens] of q and k."""
    engine, at = ctx.engine, _diagonals(ctx, layout_of(op.value))
    result: dict[int, Register] = {}
    for column, index in enumerate(layout_of(op.operands[0]).ciphertext_index):
        copies = at.keys(k[column])
        packed: dict[int, Register] = {}
        for start in at.starts:
            # [batch, tokens, heads, features]
            product = engine.dot(at.queries(q[column], start, engine.level(copies[0])), copies)
            placed = at.placed(op, product, start)  # [batch, tokens, heads, diagonals]
            first = start - start % at.inner
            packed[first] = engine.add(packed[first], placed) if first in packed else placed
        for first, both in packed.items():
            for diagonal, part in at.apart(first, both):
                result[at.number(index, diagonal)] = at.completed(part)
    complete = [result[number] for number in sorted(result)]
    return fill_masked(ctx, op, complete)


def fill_masked(ctx: Context, op: Op, x: list[Register]) -> list[Register]:
    """Kernel of ``ckks.mask_fill``: add the ``fill`` of scores where the query may not see the
    key, and elsewhere the numbers that ``poly.mask_fill`` adds.

    As the kernel of ``ckks.mask_zero``, it instead subtracts the known ``value`` of masked and
    padding keys.
    """
    scores, flags = Scores(ctx, layout_of(op.value)), op.attributes
    fill = flags["fill"] if "fill" in flags else -number(flags["value"])
    log_keys = flags.get("log_keys", 0.0)

    def offsets(first: int, head: int) -> Slots:
        kept = scores.kept(op, first)
        result = scores.mask("everywhere", lambda: np.array([True])) * fill + kept * -fill
        if log_keys:
            result += kept * scores.log_hidden(op) * log_keys
        if "slopes" in flags:
            result += kept * scores.by_position(first, head)
        return result + kept * scores.bias(op, first, head) if "bias" in flags else result

    starts = ((outer.get("s", 0), outer.get("g", 0)) for outer in scores.layout.ciphertext_index)
    pairs = zip(x, starts, strict=True)
    return [ctx.engine.add_plain(one, ctx.slots(offsets, *start)) for one, start in pairs]


def ct_matmul_pv(ctx: Context, op: Op, p: list[Register], v: list[Register]) -> list[Register]:
    """Kernel of ``ckks.ct_matmul_pv``: the context [batch, tokens, heads, features] of p and v."""
    engine, at, result = ctx.engine, _diagonals(ctx, layout_of(op.operands[0])), []
    for column, index in enumerate(layout_of(op.operands[1]).ciphertext_index):
        copies = at.values(v[column])
        both: dict[int, Register] = {}
        terms = []
        for start in at.starts:
            first = start - start % at.inner
            if first not in both:
                both[first] = at.together(p, index, first)
            # [batch, tokens, heads, features]
            product = engine.dot(at.weights(both[first], start), copies)
            terms.append(at.back(product, start))
        total = ctx.total(terms)
        if len(at.halves) > 1:
            total = engine.add(total, engine.conjugate(total))
        result.append(total)
    return result
