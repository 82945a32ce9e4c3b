"""The recorder of functions: an engine that records the calls of a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from atlasc.program.engine import Engine, Vector
from atlasc.program.function import EngineParameters, Instruction, Primitive
from atlasc.program.plaintexts import Plaintext
from atlasc.program.transform_work import (
    MOST_SUMS,
    TRANSFORMS,
    TransformTerm,
    TransformWork,
    results_of,
)


@dataclass(frozen=True, slots=True)
class Register:
    """A ciphertext during the recording of an op."""

    number: int
    level: int


class Recorder(Engine[Register]):
    """An engine that records its calls. Its plaintexts are descriptors.

    Attributes:
        code: the instructions so far.
    """

    def __init__(self, shape: EngineParameters) -> None:
        super().__init__(*shape)
        self.code: list[Instruction] = []
        self._registers = 0

    def register(self, level: int) -> Register:
        """A new register."""
        self._registers += 1
        return Register(self._registers - 1, level)

    def _write(
        self,
        primitive: Primitive,
        operands: Sequence[Register],
        level: int,
        plaintexts: Sequence[Plaintext | TransformWork] = (),
        numbers: Sequence[int] = (),
        results: int = 1,
    ) -> list[Register]:
        made = [self.register(level) for _ in range(results)]
        read, written = (tuple(one.number for one in some) for some in (operands, made))
        self.code.append(Instruction(primitive, read, tuple(plaintexts), tuple(numbers), written))
        return made

    def _encrypt(self, vector: Any, level: int) -> Register:
        self._refuse("encrypt", "a function has no keys")

    def decrypt(self, ciphertext: Register) -> Vector:
        """Refused."""
        self._refuse("decrypt", "a function has no keys")

    def add(self, left: Register, right: Register) -> Register:
        """Record a sum."""
        return self._write("add", [left, right], min(left.level, right.level))[0]

    def sub(self, left: Register, right: Register) -> Register:
        """Record a difference."""
        return self._write("sub", [left, right], min(left.level, right.level))[0]

    def negate(self, ciphertext: Register) -> Register:
        """Record a negation."""
        return self._write("negate", [ciphertext], ciphertext.level)[0]

    def times_i(self, ciphertext: Register) -> Register:
        """Record a product with i."""
        return self._write("times_i", [ciphertext], ciphertext.level)[0]

    def conjugate(self, ciphertext: Register) -> Register:
        """Record a conjugation."""
        return self._write("conjugate", [ciphertext], ciphertext.level)[0]

    def add_plain(self, ciphertext: Register, value: Any) -> Register:
        """Record a sum with slots or a number."""
        return self._write("add_plain", [ciphertext], ciphertext.level, [value])[0]

    def square(self, ciphertext: Register) -> Register:
        """Record a square."""
        level = self._require_level("square", ciphertext)
        return self._write("square", [ciphertext], level - 1)[0]

    def mul_plain(self, ciphertext: Register, value: Any) -> Register:
        """Record a product with slots or a number."""
        level = self._require_level("mul_plain", ciphertext)
        return self._write("mul_plain", [ciphertext], level - 1, [value])[0]

    def dot_plain(self, ciphertexts: Sequence[Register], values: Sequence[Any]) -> Register:
        """Record a sum of products with slots or numbers."""
        level = self._require_level("dot_plain", *ciphertexts)
        return self._write("dot_plain", ciphertexts, level - 1, values)[0]

    def mul(self, left: Register, right: Register) -> Register:
        """Record a product."""
        level = self._require_level("mul", left, right)
        return self._write("mul", [left, right], level - 1)[0]

    def _dot(self, lefts: Sequence[Register], rights: Sequence[Register], level: int) -> Register:
        return self._write("dot", [*lefts, *rights], level - 1)[0]

    def _rotate(self, ciphertext: Register, amount: int) -> Register:
        return self._write("rotate", [ciphertext], ciphertext.level, numbers=[amount])[0]

    def rotate_many(self, ciphertext: Register, amounts: Sequence[int]) -> list[Register]:
        """Record rotations; equal amounts are recorded once."""
        used = [amount % self.slots for amount in amounts]
        distinct = sorted({amount for amount in used if amount})
        rotated = {0: ciphertext}
        if len(distinct) == 1:
            rotated[distinct[0]] = self._rotate(ciphertext, distinct[0])
        elif distinct:
            level, count = ciphertext.level, len(distinct)
            made = self._write("rotate_many", [ciphertext], level, (), distinct, count)
            rotated |= zip(distinct, made, strict=True)
        return [rotated[amount] for amount in used]

    def transform(
        self,
        ciphertexts: Sequence[Register],
        terms: Sequence[TransformTerm],
        chained: bool = False,
    ) -> list[Register]:
        """Record products with a matrix of blocks."""
        level = self._require_level("transform", *ciphertexts)
        values = [term.value for term in terms]
        numbers = [place for term in terms for place in term.places(self.slots)]
        count = results_of(terms)
        name = TRANSFORMS[chained]
        return self._write(name, ciphertexts, level - 1, values, numbers, count)

    def rotate_sum(self, ciphertext: Register, amounts: Sequence[int]) -> Register:
        """Record a sum of rotations."""
        used = [amount % self.slots for amount in amounts]
        return self._write("rotate_sum", [ciphertext], ciphertext.level, numbers=used)[0]

    def raise_modulus(self, ciphertext: Register, level: int, copies: int) -> Register:
        """Record the raising of a modulus."""
        return self._write("raise_modulus", [ciphertext], level, numbers=[level, copies])[0]

    def _drop_to(self, ciphertext: Register, level: int) -> Register:
        return self._write("drop_to", [ciphertext], level, numbers=[level])[0]

    def _bootstrap(
        self, ciphertexts: Sequence[Register], level: int, period: int
    ) -> list[Register]:
        count = len(ciphertexts)
        return self._write("bootstrap_many", ciphertexts, level, (), [period, level], count)


class CostRecorder(Recorder):
    """A recorder of functions for costs only. Of a ``transform`` it records the work, of an engine
    that holds ``most_sums`` sums at once.
    """

    def __init__(self, shape: EngineParameters, most_sums: int = MOST_SUMS) -> None:
        super().__init__(shape)
        self._most_sums = most_sums

    def transform(
        self,
        ciphertexts: Sequence[Register],
        terms: Sequence[TransformTerm],
        chained: bool = False,
    ) -> list[Register]:
        """Record the work of products with a matrix of blocks."""
        level = self._require_level("transform", *ciphertexts)
        work = TransformWork.of(level, terms, self.slots, self._most_sums, chained)
        return self._work(ciphertexts, work)

    def transform_at(
        self,
        ciphertexts: Sequence[Register],
        places: NDArray[Any],
        repeats: int | NDArray[Any],
        chained: bool = False,
    ) -> list[Register]:
        """The same for terms without values; see `TransformWork.at`."""
        level = self._require_level("transform", *ciphertexts)
        work = TransformWork.at(level, places, repeats, self.slots, self._most_sums, chained)
        return self._work(ciphertexts, work)

    def _work(self, ciphertexts: Sequence[Register], work: TransformWork) -> list[Register]:
        return self._write("transform", ciphertexts, work.level - 1, [work], (), work.results)
