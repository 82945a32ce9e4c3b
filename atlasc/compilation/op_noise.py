"""Errors that one op adds: the op's function, replayed on variances.

A ciphertext is represented by the variance of its error: the mean over its slots, equal for real
and imaginary parts. Errors of different primitives are independent, so variances add up. A mask
keeps the share of slots that it leaves. A product with a weight multiplies variances by the squares
of a row. A value and its conjugate add up to twice the real part, so here errors, not variances,
add up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from atlasc.ir.module import Op
from atlasc.ir.opdef import Symbol
from atlasc.program.engine import Engine, Vector
from atlasc.program.function import Function
from atlasc.program.plaintexts import Argument, Slots, built
from atlasc.targets.noise import NoiseModel

_KNOWN = 4096
"""How many plaintexts' mean squares are kept in memory."""


@dataclass(frozen=True)
class OpNoise:
    """Variances that an op adds.

    Attributes:
        before: added to the copies of its operands, before they are multiplied with each other.
        after: added to its result.
    """

    before: float
    after: float


@dataclass(frozen=True, eq=False)
class _Variance:
    """Variance ``of`` the error of a ciphertext's slots; ``mirrored``: of its conjugate, if
    known.
    """

    level: int
    of: float = 0.0
    mirrored: _Variance | None = None


class _Ones:
    """An array of which every element is 1."""

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        return np.ones(np.shape(places))


class _Shares:
    """Mean squares of plaintexts, cached by their descriptors."""

    def __init__(self, slots: int) -> None:
        self._slots, self._known = slots, dict[int, tuple[Slots, float]]()

    def of(self, slots: Slots) -> float:
        """The mean square of a plaintext, with every element of a program's array taken as 1."""
        known = self._known.get(id(slots))
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            ones: Any = _Ones()
            values = built(slots, self._slots, lambda _: ones)
            known = slots, float(np.square(np.abs(values)).mean())
            # Keeps the descriptor alive, so that its id stays unique.
            self._known[id(slots)] = known
        return known[1]


class VarianceEngine(Engine[_Variance]):
    """Replays the function of any op, except a bootstrap and a Chebyshev sum.

    Args:
        function: the function to replay.
        noise: the noise model.
        weight: mean square of the elements of a row of the op's weight.
        shares: mean squares of masks.
        size: mean square of an operand's slots.
    """

    def __init__(
        self, function: Function, noise: NoiseModel, weight: float, shares: _Shares, size: float
    ) -> None:
        super().__init__(*function.shape)
        self._function, self._noise = function, noise
        self._weight, self._shares, self._size = weight, shares, size
        self._before = 0.0

    def run(self) -> OpNoise:
        """Run the function and return the variances that it adds."""
        given = [[_Variance(level) for level in levels] for levels in self._function.levels]
        results = self.play(self._function, given)
        return OpNoise(self._before, max((one.of for one in results), default=0.0))

    def _made(self, slots: Slots, array: Any) -> Slots:
        return slots

    def _encrypt(self, vector: Any, level: int) -> _Variance:
        self._refuse("encrypt", "a variance is no ciphertext")

    def decrypt(self, ciphertext: _Variance) -> Vector:
        """Refused: a variance is no ciphertext."""
        self._refuse("decrypt", "a variance is no ciphertext")

    def add(self, left: _Variance, right: _Variance) -> _Variance:
        """Variances add up, except for a sum of a ciphertext with itself or its conjugate."""
        total = left.of + right.of
        if left is right or left.mirrored is right or right.mirrored is left:
            total += 2 * min(left.of, right.of)
        return _Variance(min(left.level, right.level), total)

    def sub(self, left: _Variance, right: _Variance) -> _Variance:
        """Variances add up, as for a sum."""
        return self.add(left, right)

    def negate(self, ciphertext: _Variance) -> _Variance:
        """Keeps the variance."""
        return ciphertext

    def times_i(self, ciphertext: _Variance) -> _Variance:
        """Keeps the variance."""
        return _Variance(ciphertext.level, ciphertext.of)

    def add_plain(self, ciphertext: _Variance, value: Any) -> _Variance:
        """Adds the error of an encoding."""
        return _Variance(ciphertext.level, ciphertext.of + self._noise.encode**2)

    def conjugate(self, ciphertext: _Variance) -> _Variance:
        """Adds the error of a key switch."""
        return replace(self._rotate(ciphertext, 0), mirrored=ciphertext)

    def _rotate(self, ciphertext: _Variance, amount: int) -> _Variance:
        level = ciphertext.level
        return _Variance(level, ciphertext.of + self._noise.of_key_switch(level) ** 2)

    def rotate_many(self, ciphertext: _Variance, amounts: Sequence[int]) -> list[_Variance]:
        """Adds the error of a key switch to each rotation."""
        return [self.rotate(ciphertext, amount) for amount in amounts]

    def mul_plain(self, ciphertext: _Variance, value: Any) -> _Variance:
        """See ``dot_plain``."""
        return self.dot_plain([ciphertext], [value])

    def dot_plain(self, ciphertexts: Sequence[_Variance], values: Sequence[Any]) -> _Variance:
        """Multiplies errors by the factors, and adds the rounding of each encoding."""
        total = self._noise.rescale**2
        for one, value in zip(ciphertexts, values, strict=True):
            if isinstance(value, Slots):
                total += one.of * self._share(value) + self._size * self._noise.encode**2
            else:  # the rounding of a single coefficient
                total += one.of * value**2 + self._size * self._noise.encode**2 / self.slots
        return _Variance(min(one.level for one in ciphertexts) - 1, total)

    def square(self, ciphertext: _Variance) -> _Variance:
        """See ``dot``."""
        return self._dot([ciphertext], [ciphertext], ciphertext.level)

    def _dot(
        self, lefts: Sequence[_Variance], rights: Sequence[_Variance], level: int
    ) -> _Variance:
        self._before = max(self._before, *(one.of for one in (*lefts, *rights)))
        return _Variance(level - 1, self._noise.rescale**2 + self._noise.relinearize**2)

    def _drop_to(self, ciphertext: _Variance, level: int) -> _Variance:
        return _Variance(level, ciphertext.of)

    def _bootstrap(
        self, ciphertexts: Sequence[_Variance], level: int, period: int
    ) -> list[_Variance]:
        self._refuse("bootstrap", "its error is that of the noise model")

    def _share(self, slots: Slots) -> float:
        arrays = [array for _, lookups in slots.terms for array, _ in lookups]
        if any(type(array) is Argument and array.role == "weight" for array in arrays):
            return self._weight * sum([abs(factor) ** 2 for factor, _ in slots.terms])
        return self._shares.of(slots)


def op_noise(symbols: Any, op: Op, function: Function, noise: NoiseModel) -> OpNoise:
    """The variances that an op adds; ``function`` is the op's own."""
    size = float(f"{max(v.op.attributes.get('magnitude', 1.0) for v in op.operands) ** 2:.1g}")
    weight = op.attributes.get("weight")
    inputs = symbols[weight.name].shape[1] if isinstance(weight, Symbol) else 1
    mean = float(f"{row_norm(symbols, op):.2g}") ** 2 / inputs
    return _replayed(function, noise, mean, size)


@lru_cache(maxsize=4096)
def _replayed(function: Function, noise: NoiseModel, weight: float, size: float) -> OpNoise:
    return VarianceEngine(function, noise, weight, _shares(function.shape.slots), size).run()


@lru_cache(maxsize=4)
def _shares(slots: int) -> _Shares:
    return _Shares(slots)


def row_norm(symbols: Any, op: Op) -> float:
    """The greatest norm of a row of a linear layer's weight."""
    weight = op.attributes.get("weight")
    if not isinstance(weight, Symbol):
        return 0.0
    array = np.asarray(symbols[weight.name], dtype=np.float64)
    return float(np.sqrt(np.square(array).sum(axis=1).max()))
