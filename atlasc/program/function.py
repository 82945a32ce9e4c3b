"""Functions: ops of the ckks level as primitives, recorded once and played by every engine.

A kernel runs once for each kind of op, shape and level, on a recorder
(:mod:`atlasc.program.record`): an engine whose ciphertexts are numbered *registers*. What
it asks for becomes the instructions of a function. Equal ops, such as those of equal blocks, share
one. Costs, memory and keys are read off functions, and engines play them: those of the runtime in
C++ (``runtime_cuda/src/replay.cpp``), others as
:meth:`atlasc.program.engine.Engine.play` does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from atlasc.ir.module import Op
from atlasc.program.plaintexts import MASK, Plaintext, Slots

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
            ``transform`` the places of each plaintext's term (``TransformTerm.places``).
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


class EngineParameters(NamedTuple):
    """What an engine is made with; see :class:`Engine`."""

    slots: int
    max_level: int
    bootstrap_level: int | None = None
    bootstrap_batch: int = 1

    @staticmethod
    def of(engine: Any) -> EngineParameters:
        """The shape of an engine, or of the parameters of one."""
        return EngineParameters(*(getattr(engine, name) for name in EngineParameters._fields))


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
    shape: EngineParameters
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

    def text(self) -> str:
        """The function, an instruction a line."""
        numbers, heads = iter(range(self.operands)), []
        for levels in self.levels:
            registers = " ".join(f"%{next(numbers)}" for _ in levels)
            heads.append(f"{registers} at level {levels[0]}")
        head = f"function {self.name}({'; '.join([*heads, *self.roles])})"
        results = " ".join(f"%{number}" for number in self.results)
        return "\n  ".join([head, *map(str, self.code), f"return {results}"])
