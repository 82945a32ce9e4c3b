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

from atlasc.passes.approximation.arithmetic import Constant, Interval
from atlasc.passes.approximation.fits.chebyshev import native_library
from atlasc.passes.approximation.fits.validity import Meaning, valid_range, widened

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
class Step:
    """One operation on values; see `native/row_programs.cpp`."""

    code: str
    target: Cell
    operands: tuple[Cell, ...]
    scalar: float = 0.0
    table: int = 0


@dataclass
class Recorder:
    """An arithmetic that writes down what an algorithm does to its argument, `Cell(0)`.

    Attributes:
        dtype: float32 or float64.
        watched: whether it matters where Chebyshev sums are right.
    """

    dtype: Any
    watched: bool = False
    steps: list[Step] = field(default_factory=list)
    vectors: list[NDArray[np.float64]] = field(default_factory=list)
    tables: list[tuple[NDArray[np.float64], int, float, float, float, float]] = field(
        default_factory=list
    )
    by_column: list[tuple[NDArray[np.float64], float, float]] = field(default_factory=list)

    def _step(
        self, code: str, *operands: Cell, scalar: float = 0.0, table: int = 0, wide: bool = True
    ) -> Cell:
        target = Cell(len(self.steps) + 1, wide)
        self.steps.append(Step(code, target, operands, scalar, table))
        return target

    def add(self, a: Cell, b: Cell) -> Cell:
        """a + b."""
        a, b = (a, b) if a.wide else (b, a)
        return self._step("add", a, b, wide=a.wide)

    def sub(self, a: Cell, b: Cell) -> Cell:
        """a - b."""
        if b.wide and not a.wide:
            return self.add(self.scale(b, -1.0), a)
        return self._step("sub", a, b, wide=a.wide)

    def mul(self, a: Cell, b: Cell) -> Cell:
        """a b."""
        a, b = (a, b) if a.wide else (b, a)
        return self._step("mul", a, b, wide=a.wide)

    def square(self, a: Cell) -> Cell:
        """a a."""
        return self._step("square", a, wide=a.wide)

    def add_const(self, a: Cell, c: Constant) -> Cell:
        """a + c."""
        return self._constant("add", a, c)

    def scale(self, a: Cell, c: Constant) -> Cell:
        """c a."""
        return self._constant("scale", a, c)

    def _constant(self, kind: str, a: Cell, c: Constant) -> Cell:
        c = np.asarray(c, dtype=np.float64)
        if c.ndim == 0:
            code = "scale" if kind == "scale" else "add_scalar"
            return self._step(code, a, scalar=float(c), wide=a.wide)
        if c.ndim > 1 or not a.wide:
            raise NotRecordable
        self.vectors.append(c)
        return self._step(f"{kind}_vector", a, table=len(self.vectors) - 1)

    def row_sum(self, a: Cell) -> Cell:
        """The sum over the last axis."""
        if not a.wide:
            raise NotRecordable
        return self._step("row_sum", a, wide=False)

    def chebyshev(
        self,
        a: Cell,
        coefficients: NDArray[np.float64],
        domain: Interval,
        meaning: Meaning | None = None,
    ) -> Cell:
        """The sum; inside the domain without the terms that do not count."""
        if coefficients.ndim > 1:
            return self._by_column(a, coefficients, domain)
        count = len(coefficients)
        if count > LEAST_TRUNCATED:
            count = significant(coefficients, np.finfo(self.dtype).eps / FRACTION_OF_PRECISION)
        low, high = float(domain[0]), float(domain[1])
        valid = (low, high)
        if self.watched and meaning is not None:
            valid = valid_range(domain, meaning.valid(coefficients))
        self.tables.append((coefficients, count, low, high, *widened(*valid, self.dtype)))
        return self._step("chebyshev", a, table=len(self.tables) - 1, wide=a.wide)

    def _by_column(self, a: Cell, coefficients: NDArray[np.float64], domain: Interval) -> Cell:
        if tuple(domain) != (-1.0, 1.0) or not a.wide:
            raise NotRecordable
        self.by_column.append((coefficients.T.ravel(), *widened(-1.0, 1.0, self.dtype)))
        return self._step("chebyshev_columns", a, table=len(self.by_column) - 1)

    def masked(self, a: Cell, value: float) -> Cell:
        """a with 0 for masked keys."""
        return self._step("mask", a)

    def filled(self, a: Cell, value: float) -> Cell:
        """a with a value for masked keys, which an approximation of softmax starts from."""
        return self._step("fill", a, scalar=value)


def significant(coefficients: NDArray[np.float64], tolerance: float) -> int:
    """How many leading coefficients leave a rest below tolerance times the sum of all."""
    rest = np.cumsum(np.abs(coefficients[::-1]))
    return max(1, len(coefficients) - int(np.searchsorted(rest, tolerance * rest[-1])))


class RowProgram:
    """A recorded algorithm, ready to run.

    Args:
        dtype: float32 or float64.
        algorithm: called with a recorder and its argument.
        watched: whether runs are asked which rows leave a range.

    Raises:
        NotRecordable: the algorithm does something that a row program cannot, or there is no native
            library.
    """

    def __init__(
        self, dtype: Any, algorithm: Callable[[Recorder, Cell], Cell], watched: bool = False
    ) -> None:
        library = native_library()
        recorder = Recorder(dtype, watched)
        result = algorithm(recorder, Cell(0))
        if library is None or not result.wide or result.index == 0:
            raise NotRecordable
        registers, wide = _registers(recorder.steps, result)
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
            for step in recorder.steps
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


def _registers(steps: list[Step], result: Cell) -> tuple[dict[int, int], list[bool]]:
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
