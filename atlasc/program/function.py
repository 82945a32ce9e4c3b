"""Functions: ops of the ckks level in primitives, recorded once and executed by every engine.

A kernel runs once for each kind of op, shape and level, on a recorder
(:mod:`atlasc.program.record`): an engine whose ciphertexts are numbered *registers*. The calls of
the kernel become the instructions of a function. Equal ops, such as those of equal blocks, share a
function. Costs, memory and keys are derived from functions. Engines execute functions: those of the
runtime in C++ (``runtime_cuda/src/replay.cpp``), others by
:meth:`atlasc.program.engine.Engine.play`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from atlasc.ir.module import Op
from atlasc.program.plaintexts import MASK, Plaintext, Slots
from atlasc.program.transform_work import TransformWork

Primitive = Literal[
    "add", "sub", "negate", "add_plain", "mul", "square", "dot", "mul_plain", "dot_plain",
    "times_i", "conjugate", "rotate", "rotate_many", "drop_to", "bootstrap_many",
    "transform", "raise_modulus", "rotate_sum", "chained_transform",
]  # fmt: skip
"""The primitive of an instruction: a method of :class:`Engine`. A ``chained_transform`` is a
``transform`` with ``chained``."""

PRIMITIVES: tuple[Primitive, ...] = Primitive.__args__  # type: ignore[attr-defined]


class Instruction(NamedTuple):
    """One call of an engine.

    Attributes:
        primitive: name of the method.
        operands: registers; for ``dot`` all left operands, then all right operands.
        plaintexts: one for each operand of a product with plaintexts, or for each term of a
            ``transform``; in a function for costs only, the work of all terms in their place.
        numbers: amounts of rotations, the level to drop to, the level to raise to and the copies
            to add, or the period of a bootstrap and the level of its results; for ``transform`` the
            places of each plaintext's term (``TransformTerm.places``).
        results: registers that are written; each register is written once.
    """

    primitive: Primitive
    operands: tuple[int, ...]
    plaintexts: tuple[Plaintext | TransformWork, ...]
    numbers: tuple[int, ...]
    results: tuple[int, ...]

    def __str__(self) -> str:
        given = [" ".join(f"%{number}" for number in self.operands)]
        given += [f"[{', '.join(map(str, self.numbers))}]"] if self.numbers else []
        given += [f"{{{value}}}" for value in self.plaintexts]
        return f"{' '.join(f'%{n}' for n in self.results)} = {self.primitive} {' '.join(given)}"


class EngineParameters(NamedTuple):
    """Parameters to make an engine; see :class:`Engine`."""

    slots: int
    max_level: int
    bootstrap_level: int | None = None
    bootstrap_batch: int = 1

    @staticmethod
    def of(engine: Any) -> EngineParameters:
        """The shape of an engine, or of an engine's parameters."""
        return EngineParameters(*(getattr(engine, name) for name in EngineParameters._fields))


@dataclass(frozen=True, eq=False)
class Function:
    """An op in primitives. Registers are numbered from 0, those of the operands first.

    Attributes:
        name: name of the op; in the text of a program with a number.
        shape: shape of the engines that can execute it.
        levels: levels of the ciphertexts of each encrypted operand.
        code: the instructions in order.
        results: registers of the result.
        result_levels: levels of these registers.
    """

    name: str
    shape: EngineParameters
    levels: tuple[tuple[int, ...], ...]
    code: tuple[Instruction, ...]
    results: tuple[int, ...]
    result_levels: tuple[int, ...]

    def named(self, name: str) -> Function:
        """The same function with another name."""
        return replace(self, name=name)

    @property
    def operands(self) -> int:
        """Number of ciphertexts of all operands together."""
        return sum(map(len, self.levels))

    @property
    def registers(self) -> int:
        """Number of registers, operands included."""
        return self.operands + sum(len(instruction.results) for instruction in self.code)

    @cached_property
    def released(self) -> tuple[tuple[int, ...], ...]:
        """For each instruction, the registers that are not read after it."""
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
        """The roles of the arrays that a call passes, in order."""
        plaintexts = (value for one in self.code for value in one.plaintexts)
        slots = (value for value in plaintexts if isinstance(value, Slots))
        return tuple(sorted({argument.role for one in slots for argument in one.arguments}))

    def arrays(self, op: Op) -> list[str]:
        """Names of the arrays that the call of an op passes, one for each role: arrays of the
        program, or of a public input.
        """
        public = [v.op.attributes["name"] for v in op.operands if not v.encrypted]
        given: Mapping[str, Any] = op.attributes
        return [public[0] if role == MASK else given[role].name for role in self.roles]

    @cached_property
    def periods(self) -> frozenset[int]:
        """The periods of the function's bootstraps: after so many slots, the slots repeat."""
        bootstraps = (one for one in self.code if one.primitive == "bootstrap_many")
        return frozenset(one.numbers[0] for one in bootstraps)

    def text(self) -> str:
        """The function as text, one instruction a line."""
        numbers, heads = iter(range(self.operands)), []
        for levels in self.levels:
            registers = " ".join(f"%{next(numbers)}" for _ in levels)
            heads.append(f"{registers} at level {levels[0]}")
        head = f"function {self.name}({'; '.join([*heads, *self.roles])})"
        results = " ".join(f"%{number}" for number in self.results)
        return "\n  ".join([head, *map(str, self.code), f"return {results}"])
