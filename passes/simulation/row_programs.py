"""Approximations as row programs: recorded once, run natively on rows that stay in the cache.

The recorder is one more interpretation of the algorithms, so what a kernel computes is what they
say, whichever they are. NumPy's path (`blockwise`) gives the same to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.approximation.arithmetic import Arithmetic, Constant, Term
from atlasc.passes.approximation.fits.chebyshev import native_library
from atlasc.passes.approximation.fits.chebyshev_sum import ChebyshevSum, valid_range, widened

LEAST_TRUNCATED = 32
FRACTION_OF_PRECISION = 128
"""Trailing coefficients that add up to less than the dtype's precision over this are left out."""


class NotRecordable(Exception):
    """The algorithm does something that a row program cannot."""


@dataclass(frozen=True)
class Cell:
    """A value of the program: rows, or one number a row.

    Attributes:
        index: which value, counted from 0, the argument.
        wide: whether it holds whole rows.
    """

    index: int
    wide: bool = True


@dataclass(frozen=True)
class Instruction:
    """One operation on values; see `native/row_programs.cpp`."""

    code: str
    target: Cell
    operands: tuple[Cell, ...]
    scalar: float = 0.0
    table: int = 0


@dataclass
class RowRecorder(Arithmetic):
    """Writes down the instructions for what an algorithm does to its argument, `Cell(0)`.

    Attributes:
        dtype: float32 or float64.
        watched: whether it matters where Chebyshev sums are right.
    """

    dtype: Any
    watched: bool = False
    instructions: list[Instruction] = field(default_factory=list)
    vectors: list[NDArray[np.float64]] = field(default_factory=list)
    tables: list[tuple[NDArray[np.float64], int, float, float, float, float]] = field(
        default_factory=list
    )
    by_column: list[tuple[NDArray[np.float64], float, float]] = field(default_factory=list)

    def _emit(
        self, code: str, *operands: Cell, scalar: float = 0.0, table: int = 0, wide: bool = True
    ) -> Cell:
        target = Cell(len(self.instructions) + 1, wide)
        self.instructions.append(Instruction(code, target, operands, scalar, table))
        return target

    def step(self, name: str, *operands: Cell, constant: Any = None) -> Cell:
        """The target of the operation's instruction."""
        a = operands[0]
        match name:
            case "add" | "mul":
                operands = tuple(sorted(operands, key=lambda cell: not cell.wide))
            case "sub" if operands[1].wide and not a.wide:
                return self.step("add", self.step("scale", operands[1], constant=-1.0), a)
            case "add_const" | "scale":
                return self._constant(name.removesuffix("_const"), a, constant)
            case "row_sum":
                if not a.wide:
                    raise NotRecordable
                return self._emit("row_sum", a, wide=False)
            case "chebyshev":
                return self._chebyshev(a, constant)
            case "masked":
                return self._emit("mask", a)
            case "filled":
                return self._emit("fill", a, scalar=constant)
        return self._emit(name, *operands, wide=operands[0].wide)

    def _constant(self, kind: str, a: Cell, c: Constant) -> Cell:
        c = np.asarray(c, dtype=np.float64)
        if c.ndim == 0:
            code = "scale" if kind == "scale" else "add_scalar"
            return self._emit(code, a, scalar=float(c), wide=a.wide)
        if c.ndim > 1 or not a.wide:
            raise NotRecordable
        self.vectors.append(c)
        return self._emit(f"{kind}_vector", a, table=len(self.vectors) - 1)

    def _chebyshev(self, a: Cell, total: ChebyshevSum) -> Cell:
        """The sum; inside the domain without the terms that do not count."""
        coefficients, (low, high) = total.coefficients, total.domain
        if coefficients.ndim > 1:
            if not total.normalised or not a.wide:
                raise NotRecordable
            self.by_column.append((coefficients.T.ravel(), *widened(-1.0, 1.0, self.dtype)))
            return self._emit("chebyshev_columns", a, table=len(self.by_column) - 1)
        count = kept_terms(coefficients, self.dtype)
        valid = total.domain
        if self.watched and total.meaning is not None:
            valid = valid_range(total.domain, total.valid)
        ends = widened(*valid, self.dtype)
        self.tables.append((coefficients, count, float(low), float(high), *ends))
        return self._emit("chebyshev", a, table=len(self.tables) - 1, wide=a.wide)


def kept_terms(coefficients: NDArray[np.float64], dtype: Any) -> int:
    """How many leading terms of a sum count in a dtype; all where there are few."""
    if len(coefficients) <= LEAST_TRUNCATED:
        return len(coefficients)
    return significant(coefficients, np.finfo(dtype).eps / FRACTION_OF_PRECISION)


def significant(coefficients: NDArray[np.float64], tolerance: float) -> int:
    """How many leading coefficients leave a rest below tolerance times the sum of all."""
    rest = np.cumsum(np.abs(coefficients[::-1]))
    return max(1, len(coefficients) - int(np.searchsorted(rest, tolerance * rest[-1])))


class RowProgram:
    """A recorded algorithm, ready to run.

    Args:
        dtype: float32 or float64.
        algorithm: what is recorded.
        watched: whether runs are asked which rows leave a range.

    Raises:
        NotRecordable: the algorithm does something that a row program cannot, or there is no native
            library.
    """

    def __init__(
        self, dtype: Any, algorithm: Callable[[Term], Term], watched: bool = False
    ) -> None:
        library = native_library()
        recorder = RowRecorder(dtype, watched)
        result = recorder.run(algorithm, Cell(0))
        if library is None or not result.wide or result.index == 0:
            raise NotRecordable
        registers, wide = _registers(recorder.instructions, result)
        codes = library.ROW_CODES
        instructions = [
            (
                codes[step.code],
                registers[step.target.index],
                registers[step.operands[0].index],
                registers[step.operands[-1].index],
                step.scalar,
                step.table,
            )
            for step in recorder.instructions
        ]
        program = library.RowProgram(
            instructions,
            recorder.vectors,
            recorder.tables,
            recorder.by_column,
            wide,
            registers[result.index],
        )
        self._run = program.run_f32 if np.dtype(dtype) == np.float32 else program.run_f64

    def run(
        self,
        rows: NDArray[Any],
        keep: NDArray[np.bool_] | None,
        result: NDArray[Any],
        limit: float,
        left: NDArray[np.bool_] | None = None,
    ) -> bool:
        """Write the results of rows [r, n] into another such matrix.

        Args:
            rows: contiguous, of the program's dtype.
            keep: [r, n], which keys a query may see; None for all.
            result: contiguous.
            limit: the run ends where the magnitude of a result is beyond it.
            left: [r], contiguous; True is written for rows of which an argument of a Chebyshev sum
                lies where the sum is not right, if the program is watched.

        Returns:
            whether all results are numbers within the limit.
        """
        kept, outside = (None if a is None else a.view(np.uint8) for a in (keep, left))
        return bool(self._run(rows, kept, result, limit, outside))


def _registers(steps: list[Instruction], result: Cell) -> tuple[dict[int, int], list[bool]]:
    """A register for each value, used again once the value is not needed; which ones are wide.

    The argument has register 0 for itself, and so has the result the last one: they lie in the
    caller's memory.
    """
    last_use = {cell.index: at for at, step in enumerate(steps) for cell in step.operands}
    registers, wide = {0: 0}, [True]
    free: dict[bool, list[int]] = {True: [], False: []}
    for at, step in enumerate(steps):
        if step.target == result:
            continue
        ended = [c for c in set(step.operands) if c.index != 0 and last_use[c.index] == at]
        if free[step.target.wide]:
            registers[step.target.index] = free[step.target.wide].pop()
        else:
            registers[step.target.index] = len(wide)
            wide.append(step.target.wide)
        for cell in ended:
            if cell != result:
                free[cell.wide].append(registers[cell.index])
    registers[result.index] = len(wide)
    return registers, [*wide, True]
