"""Functions: ops of the ckks level as primitives, recorded once and played by every engine.

A kernel runs once for each kind of op, shape and level, on the :class:`Recorder`: an engine whose
ciphertexts are numbered *registers*. What it asks for becomes the instructions of a function. Equal
ops, such as those of equal blocks, share one. Costs, memory and keys are read off functions, and
engines play them: those of the runtime in C++ (``runtime_cuda/src/replay.cpp``), others as
:meth:`atlasc.passes.execution.engine.Engine.play` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from atlasc.ir.module import Op
from atlasc.passes.execution.counting_engine import Counted, CountingEngine, Counts
from atlasc.passes.execution.engine import Engine, Vector
from atlasc.passes.execution.plaintexts import MASK, Plaintext, Slots

Primitive = Literal[
    "add", "sub", "negate", "add_plain", "mul", "square", "dot", "mul_plain", "dot_plain",
    "times_i", "conjugate", "rotate", "rotate_many", "drop_to", "bootstrap_many",
    "transform", "raise_modulus",
]  # fmt: skip
"""What an instruction asks an engine for: a method of :class:`Engine`."""

PRIMITIVES: tuple[Primitive, ...] = Primitive.__args__  # type: ignore[attr-defined]


class Instruction(NamedTuple):
    """One call of an engine.

    Attributes:
        primitive: the method.
        operands: registers; of ``dot`` all left ones, then all right ones.
        plaintexts: one for each operand of a product with plaintexts.
        numbers: amounts of rotations, the level to drop to, or the period of a bootstrap; of
            ``transform`` the amounts of the baby and the giant step of each plaintext.
        results: registers that are written; each is written once.
    """

    primitive: Primitive
    operands: tuple[int, ...]
    plaintexts: tuple[Plaintext, ...]
    numbers: tuple[int, ...]
    results: tuple[int, ...]

    def __str__(self) -> str:
        given = [" ".join(f"%{number}" for number in self.operands)]
        given += [f"[{', '.join(map(str, self.numbers))}]"] if self.numbers else []
        given += [f"{{{value}}}" for value in self.plaintexts]
        return f"{' '.join(f'%{n}' for n in self.results)} = {self.primitive} {' '.join(given)}"


class Shape(NamedTuple):
    """What an engine is made with; see :class:`Engine`."""

    slots: int
    max_level: int
    bootstrap_level: int | None = None
    bootstrap_batch: int = 1

    @staticmethod
    def of(engine: Any) -> Shape:
        """The shape of an engine, or of the parameters of one."""
        return Shape(*(getattr(engine, name) for name in Shape._fields))


@dataclass(frozen=True, eq=False)
class Function:
    """An op in primitives. Registers are numbered from 0, those of the operands first.

    Attributes:
        name: of the op; in a program that is written down with a number.
        shape: of the engines that can play it.
        levels: of the ciphertexts of each encrypted operand.
        code: the instructions in order.
        results: registers of the result.
        result_levels: levels of these.
    """

    name: str
    shape: Shape
    levels: tuple[tuple[int, ...], ...]
    code: tuple[Instruction, ...]
    results: tuple[int, ...]
    result_levels: tuple[int, ...]

    def named(self, name: str) -> Function:
        """The same by another name."""
        return replace(self, name=name)

    @property
    def operands(self) -> int:
        """Ciphertexts of all operands together."""
        return sum(map(len, self.levels))

    @property
    def registers(self) -> int:
        """Ciphertexts that the function has, operands among them."""
        return self.operands + sum(len(instruction.results) for instruction in self.code)

    @cached_property
    def released(self) -> tuple[tuple[int, ...], ...]:
        """After each instruction, the registers that nothing reads any more."""
        last = dict.fromkeys(self.results, len(self.code))
        for position in reversed(range(len(self.code))):
            instruction = self.code[position]
            for register in (*instruction.operands, *instruction.results):
                last.setdefault(register, position)
        found: list[list[int]] = [[] for _ in range(len(self.code) + 1)]
        for register, position in last.items():
            found[position].append(register)
        return tuple(map(tuple, found[:-1]))

    @cached_property
    def roles(self) -> tuple[str, ...]:
        """Of the arrays that a call gives, in their order."""
        plaintexts = (value for one in self.code for value in one.plaintexts)
        slots = (value for value in plaintexts if isinstance(value, Slots))
        return tuple(sorted({argument.role for one in slots for argument in one.arguments}))

    def arrays(self, op: Op) -> list[str]:
        """Names of the arrays that a call for an op gives, one for each role: of the program's, or
        of a public input.
        """
        public = [v.op.attributes["name"] for v in op.operands if not v.encrypted]
        return [public[0] if role == MASK else op.attributes[role].name for role in self.roles]

    @cached_property
    def periods(self) -> frozenset[int]:
        """Of its bootstraps: after how many slots these repeat."""
        bootstraps = (one for one in self.code if one.primitive == "bootstrap_many")
        return frozenset(one.numbers[0] for one in bootstraps)

    @cached_property
    def counts(self) -> Counts:
        """What it costs, as if nothing before it had rescaled its operands."""
        engine = CountingEngine(*self.shape)
        engine.play(self, [[Counted(level) for level in levels] for levels in self.levels])
        return engine.total()

    def text(self) -> str:
        """The function, an instruction a line."""
        numbers, heads = iter(range(self.operands)), []
        for levels in self.levels:
            registers = " ".join(f"%{next(numbers)}" for _ in levels)
            heads.append(f"{registers} at level {levels[0]}")
        head = f"function {self.name}({'; '.join([*heads, *self.roles])})"
        results = " ".join(f"%{number}" for number in self.results)
        return "\n  ".join([head, *map(str, self.code), f"return {results}"])


@dataclass(frozen=True, slots=True)
class Register:
    """A ciphertext while an op is recorded."""

    number: int
    level: int


class Recorder(Engine[Register]):
    """An engine that writes down what it is asked for. It takes descriptors for plaintexts.

    Attributes:
        code: the instructions so far.
    """

    def __init__(self, shape: Shape) -> None:
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
        plaintexts: Sequence[Plaintext] = (),
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
        """Written down, as all that follows."""
        return self._write("add", [left, right], min(left.level, right.level))[0]

    def sub(self, left: Register, right: Register) -> Register:
        """Difference."""
        return self._write("sub", [left, right], min(left.level, right.level))[0]

    def negate(self, ciphertext: Register) -> Register:
        """Negative."""
        return self._write("negate", [ciphertext], ciphertext.level)[0]

    def times_i(self, ciphertext: Register) -> Register:
        """Product with i."""
        return self._write("times_i", [ciphertext], ciphertext.level)[0]

    def conjugate(self, ciphertext: Register) -> Register:
        """Conjugate."""
        return self._write("conjugate", [ciphertext], ciphertext.level)[0]

    def add_plain(self, ciphertext: Register, value: Any) -> Register:
        """Sum with slots or a number."""
        return self._write("add_plain", [ciphertext], ciphertext.level, [value])[0]

    def square(self, ciphertext: Register) -> Register:
        """Square."""
        level = self._require_level("square", ciphertext)
        return self._write("square", [ciphertext], level - 1)[0]

    def mul_plain(self, ciphertext: Register, value: Any) -> Register:
        """Product with slots or a number."""
        level = self._require_level("mul_plain", ciphertext)
        return self._write("mul_plain", [ciphertext], level - 1, [value])[0]

    def dot_plain(self, ciphertexts: Sequence[Register], values: Sequence[Any]) -> Register:
        """Sum of products with slots or numbers."""
        level = self._require_level("dot_plain", *ciphertexts)
        return self._write("dot_plain", ciphertexts, level - 1, values)[0]

    def mul(self, left: Register, right: Register) -> Register:
        """Product."""
        level = self._require_level("mul", left, right)
        return self._write("mul", [left, right], level - 1)[0]

    def _dot(self, lefts: Sequence[Register], rights: Sequence[Register], level: int) -> Register:
        return self._write("dot", [*lefts, *rights], level - 1)[0]

    def _rotate(self, ciphertext: Register, amount: int) -> Register:
        return self._write("rotate", [ciphertext], ciphertext.level, numbers=[amount])[0]

    def rotate_many(self, ciphertext: Register, amounts: Sequence[int]) -> list[Register]:
        """Rotations; each amount once."""
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

    def transform(self, ciphertext: Register, terms: Sequence[tuple[int, int, Any]]) -> Register:
        """Product with a matrix."""
        level = self._require_level("transform", ciphertext)
        values = [value for _, _, value in terms]
        numbers = [amount % self.slots for *amounts, _ in terms for amount in amounts]
        return self._write("transform", [ciphertext], level - 1, values, numbers)[0]

    def raise_modulus(self, ciphertext: Register) -> Register:
        """To the top."""
        return self._write("raise_modulus", [ciphertext], self.max_level)[0]

    def _drop_to(self, ciphertext: Register, level: int) -> Register:
        return self._write("drop_to", [ciphertext], level, numbers=[level])[0]

    def _bootstrap(
        self, ciphertexts: Sequence[Register], level: int, period: int
    ) -> list[Register]:
        count = len(ciphertexts)
        return self._write("bootstrap_many", ciphertexts, level, numbers=[period], results=count)
