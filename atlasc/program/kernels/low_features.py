"""Attention with features in the low slot bits and tokens above them.

The products are those of :mod:`atlasc.program.kernels.attention`. Here a rotation by tokens is
cyclic over the ciphertext and needs no mask, while a rotation by features crosses into the next
token. So the features that cross the border of their group of B are in copies of their own, which
are rotated by B features less. All masks of copies repeat with each token, and the copies of one
operand are one ``transform``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from atlasc.ir.module import Op
from atlasc.program.kernels.scores import Diagonals
from atlasc.program.plaintexts import Slots
from atlasc.program.record import Register


class _Copy(NamedTuple):
    """A skewed copy of keys or values.

    Attributes:
        r: its number; a feature has diagonal (d − r) mod B for keys, (d + r) mod B for values.
        crosses: whether it has the features that cross the border of their group.
    """

    r: int
    crosses: bool


class LowDiagonals(Diagonals):
    """Scores, and the rotations that bring queries, keys and values to their diagonals; see
    `attention.HighDiagonals` for the meaning of its methods.
    """

    @property
    def _copies(self) -> list[_Copy]:
        numbers = range(self.baby)
        return [_Copy(r, False) for r in numbers] + [_Copy(r, True) for r in numbers[1:]]

    def _by_features(self, x: Register) -> list[Register]:
        return self.ctx.engine.rotate_many(x, [self._amount(copy) for copy in self._copies])

    def _amount(self, copy: _Copy) -> int:
        return (copy.r - self.baby * copy.crosses) * self.feature_stride

    def keys(self, x: Register) -> list[Register]:
        """Skewed copies of keys, each rotated as the query that it is multiplied with."""
        return self._skewed(x, -1, 1j, [self._amount(copy) for copy in self._copies])

    def values(self, x: Register) -> list[Register]:
        """Skewed copies of values."""
        return self._skewed(x, 1, -1j, [0] * len(self._copies))

    def _skewed(
        self, x: Register, direction: int, unit: complex, giants: list[int]
    ) -> list[Register]:
        """Copies of x as in `attention.HighDiagonals.skewed`, rotated by ``giants``."""
        places, repeats = dict[tuple[int, ...], tuple[int, complex]](), self.layout.feature_repeats
        for number, (copy, giant) in enumerate(zip(self._copies, giants, strict=True)):
            for feature in range(self.baby):  # modulo B
                diagonal = feature + direction * copy.r
                if (0 <= diagonal < self.baby) == copy.crosses:
                    continue
                for part, offset in enumerate(self.halves):
                    factor = (unit if part else 1.0) / len(self.halves)
                    turn = (diagonal % self.baby + offset) * self.stride
                    places[number, giant, 0, turn] = feature, factor

        def value(*place: int) -> Slots:
            return self._features(*places[place])

        return self.ctx.transform([x], np.array([*places]), value, repeats)

    def _features(self, feature: int, factor: complex) -> Slots:
        """A factor in the slots of the features that are ``feature`` modulo B, 0 elsewhere."""
        name = f"feature mod {self.baby} = {feature}"
        return self._of_features(name, lambda d: d % self.baby == feature) * factor

    def _group(self, start: int) -> int:
        """The group of B features that holds the diagonals from ``start`` on."""
        return start % self.inner // self.baby

    def _in_group(self, number: int) -> Slots:
        """1 in the slots of a group of B features, 0 elsewhere."""
        return self._of_features(f"group.{number}", lambda d: d // self.baby == number)

    def _of_features(self, name: str, chosen: Callable[[np.ndarray], np.ndarray]) -> Slots:
        """1 in the slots of the chosen features of each token, 0 elsewhere."""
        features = np.arange(self.period) // self.feature_stride
        of, repeats = (self.layout, "features"), self.layout.feature_repeats
        return Slots.where(self.ctx.table(name, of, lambda: chosen(features), repeats))

    def queries(self, x: Register, start: int, level: int) -> list[Register]:
        """x for the diagonals from ``start`` on, one for each copy of the keys, at their level."""
        engine = self.ctx.engine
        return self._by_features(engine.rotate(engine.drop_to(x, level), -start * self.stride))

    def placed(self, op: Op, product: Register, start: int) -> Register:
        """The diagonals from ``start`` on, summed over the features, in their group; 0 elsewhere
        and for masked keys.

        If the two halves have different masks a and b: x ⊙ (a + b)/2 + conj(x) ⊙ (a − b)/2.
        """
        engine, groups = self.ctx.engine, self.width // self.baby
        # The sum is complete in group 0.
        total = self.ctx.double_and_add(
            product, self.feature_stride * self.baby, groups.bit_length() - 1
        )
        place = self._group(start)
        amount = start * self.stride - place * self.baby * self.feature_stride
        if self.sees_all(op):
            one = engine.mul_plain(total, self.ctx.slots(self._in_group, 0))
            return engine.rotate(one, amount)

        def kept(part: int) -> Slots:
            return (self.both_kept(op, start, part) * self._in_group(place)).rolled(amount)

        sources = [total, engine.conjugate(total)]
        vectors = [self.ctx.slots(kept, part) for part in range(len(sources))]
        return engine.rotate(engine.dot_plain(sources, vectors), amount)

    def completed(self, x: Register) -> Register:
        """Scores with copies of the diagonals in the features that have none."""
        copies = (self.width // self.inner).bit_length() - 1
        return self.ctx.double_and_add(x, -self.inner * self.feature_stride, copies)

    def weights(self, x: Register, start: int) -> list[Register]:
        """The diagonals from ``start`` on, in all groups: one for each copy of the values."""
        engine, place = self.ctx.engine, self._group(start)
        one = engine.mul_plain(x, self.ctx.slots(self._in_group, place))
        shift = self.baby * self.feature_stride
        one = engine.rotate(one, place * shift - start * self.stride)  # in group 0
        groups = (self.width // self.baby).bit_length() - 1
        return self._by_features(self.ctx.double_and_add(one, -shift, groups))

    def back(self, product: Register, start: int) -> Register:
        """The context of the diagonals from ``start`` on, at its queries."""
        return self.ctx.engine.rotate(product, start * self.stride)
