"""How large the errors are that one op adds: its function, replayed on variances.

A ciphertext is the variance of its error, the mean over its slots, of the real part as of the
imaginary one. Errors of different primitives are independent, so variances add up; a mask keeps the
share of slots that it leaves; a product with a weight takes them by the squares of a row. A value
and its conjugate add up to twice the real part, so their errors do not add up as variances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atlasc.ir.module import Module, Op
from atlasc.ir.opdef import Symbol
from atlasc.program.engine import Engine, Vector
from atlasc.program.function import Function
from atlasc.program.plaintexts import Slots, built
from atlasc.targets.noise import NoiseModel

_KNOWN = 4096
"""Plaintexts whose mean squares are kept."""


@dataclass(frozen=True)
class OpNoise:
    """Variances of what an op adds.

    Attributes:
        before: to the copies of its operands, before they are multiplied with one another.
        after: to its result.
    """

    before: float
    after: float


@dataclass(frozen=True, eq=False)
class _Variance:
    """Of the error of a ciphertext's slots; ``mirrored``: whose conjugate it is."""

    level: int
    of: float = 0.0
    mirrored: _Variance | None = None


class _Ones:
    """An array of which every element is 1."""

    def __getitem__(self, places: np.ndarray) -> np.ndarray:
        return np.ones(np.shape(places))


class _Shares:
    """Mean squares of plaintexts, by their descriptors."""

    def __init__(self, slots: int) -> None:
        self._slots, self._known = slots, dict[int, tuple[Slots, float]]()

    def of(self, slots: Slots) -> float:
        """The mean square, every element of a program's array taken for 1."""
        known = self._known.get(id(slots))
        if known is None:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            ones: Any = _Ones()
            values = built(slots, self._slots, lambda _: ones)
            known = slots, float(np.square(np.abs(values)).mean())
            self._known[id(slots)] = known  # with its descriptor, so that the number stays its own
        return known[1]


class VarianceEngine(Engine[_Variance]):
    """Replays a function of any op but a bootstrap and a Chebyshev sum.

    Args:
        function: what is replayed.
        noise: the model.
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
        """What the function adds."""
        given = [[_Variance(level) for level in levels] for levels in self._function.levels]
        results = self.play(self._function, given)
        return OpNoise(self._before, max((one.of for one in results), default=0.0))

    def _made(self, slots: Slots, array: Any) -> Slots:
        return slots

    def _encrypt(self, vector: Any, level: int) -> _Variance:
        self._refuse("encrypt", "a variance is no ciphertext")

    def decrypt(self, ciphertext: _Variance) -> Vector:
        """Refused."""
        self._refuse("decrypt", "a variance is no ciphertext")

    def add(self, left: _Variance, right: _Variance) -> _Variance:
        """Independent errors, but for a sum of a ciphertext with itself or its conjugate."""
        total = left.of + right.of
        if left is right or left.mirrored is right or right.mirrored is left:
            total += 2 * min(left.of, right.of)
        return _Variance(min(left.level, right.level), total)

    def sub(self, left: _Variance, right: _Variance) -> _Variance:
        """As a sum."""
        return self.add(left, right)

    def negate(self, ciphertext: _Variance) -> _Variance:
        """The same."""
        return ciphertext

    def times_i(self, ciphertext: _Variance) -> _Variance:
        """The same."""
        return _Variance(ciphertext.level, ciphertext.of)

    def add_plain(self, ciphertext: _Variance, value: Any) -> _Variance:
        """An encoding."""
        return _Variance(ciphertext.level, ciphertext.of + self._noise.encode**2)

    def conjugate(self, ciphertext: _Variance) -> _Variance:
        """A key switch."""
        return replace(self._rotate(ciphertext, 0), mirrored=ciphertext)

    def _rotate(self, ciphertext: _Variance, amount: int) -> _Variance:
        level = ciphertext.level
        return _Variance(level, ciphertext.of + self._noise.of_key_switch(level) ** 2)

    def rotate_many(self, ciphertext: _Variance, amounts: Sequence[int]) -> list[_Variance]:
        """A key switch each."""
        return [self.rotate(ciphertext, amount) for amount in amounts]

    def mul_plain(self, ciphertext: _Variance, value: Any) -> _Variance:
        """See ``dot_plain``."""
        return self.dot_plain([ciphertext], [value])

    def dot_plain(self, ciphertexts: Sequence[_Variance], values: Sequence[Any]) -> _Variance:
        """Errors by the factors, and the rounding of each encoding."""
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
        if any(argument.role == "weight" for argument in slots.arguments):
            return self._weight * sum(abs(term.factor) ** 2 for term in slots.terms)
        return self._shares.of(slots)


class OpNoises:
    """`OpNoise` of the ops of a program."""

    def __init__(self, program: Module, noise: NoiseModel) -> None:
        self._symbols, self._noise = program.symbols, noise
        self._shares: dict[int, _Shares] = {}
        self._found: dict[tuple[Function, float, float], OpNoise] = {}

    def of(self, op: Op, function: Function) -> OpNoise:
        """What an op adds whose function this is."""
        size = float(f"{max(v.op.attributes.get('magnitude', 1.0) for v in op.operands) ** 2:.1g}")
        key = function, float(f"{row_norm(self._symbols, op):.2g}"), size
        if key not in self._found:
            shares = self._shares.setdefault(function.shape.slots, _Shares(function.shape.slots))
            weight = op.attributes.get("weight")
            inputs = self._symbols[weight.name].shape[1] if isinstance(weight, Symbol) else 1
            mean = key[1] ** 2 / inputs
            self._found[key] = VarianceEngine(function, self._noise, mean, shares, size).run()
        return self._found[key]


def row_norm(symbols: Any, op: Op) -> float:
    """Of a linear layer: the greatest norm of a row of its weight."""
    weight = op.attributes.get("weight")
    if not isinstance(weight, Symbol):
        return 0.0
    array = np.asarray(symbols[weight.name], dtype=np.float64)
    return float(np.sqrt(np.square(array).sum(axis=1).max()))
