"""Approximations as row programs: recorded once, run natively on rows that stay in the cache.

The recorder is one more interpretation of the algorithms, so a kernel always computes what the
algorithm says. NumPy's path (`blockwise`) gives the same results up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.polynomials.arithmetic import Arithmetic, Constant, Term
from atlasc.polynomials.fits.chebyshev import native_library
from atlasc.polynomials.fits.chebyshev_sum import ChebyshevSum, leading_terms

LEAST_TRUNCATED = 32
FRACTION_OF_PRECISION = 128
"""Trailing coefficients are left out if their sum is below the dtype's precision over this."""


class NotRecordable(Exception):
    """The algorithm does something that a row program cannot."""


@dataclass
class RowRecorder(Arithmetic):
    """Records the steps of an algorithm; a value is represented by its number, the argument by 0.

    Attributes:
        dtype: float32 or float64.
        steps: (code, operands, scalar, index of a table) of each further value; see
            `native/row_programs.cpp`.
        wide: for each value, whether it holds whole rows, or one number per row.
    """

    dtype: Any
    steps: list[tuple[str, tuple[int, ...], float, int]] = field(default_factory=list)
    wide: list[bool] = field(default_factory=lambda: [True])
    vectors: list[NDArray[np.float64]] = field(default_factory=list)
    tables: list[tuple[NDArray[np.float64], int, float, float]] = field(default_factory=list)
    by_column: list[NDArray[np.float64]] = field(default_factory=list)

    def _emit(
        self, code: str, *operands: int, scalar: float = 0.0, table: int = 0, wide: bool = True
    ) -> int:
        self.steps.append((code, operands, scalar, table))
        self.wide.append(wide)
        return len(self.steps)

    def step(self, name: str, *operands: int, constant: Any = None) -> int:
        """The result of an operation."""
        a = operands[0]
        match name:
            case "add" | "mul":
                operands = tuple(sorted(operands, key=lambda value: not self.wide[value]))
            case "sub" if self.wide[operands[1]] and not self.wide[a]:
                return self.step("add", self.step("scale", operands[1], constant=-1.0), a)
            case "add_const" | "scale":
                return self._constant(name.removesuffix("_const"), a, constant)
            case "row_sum":
                if not self.wide[a]:
                    raise NotRecordable
                return self._emit("row_sum", a, wide=False)
            case "chebyshev":
                return self._chebyshev(a, constant)
            case "masked":
                return self._emit("mask", a)
            case "filled":
                value, log_keys = constant
                a = self._emit("hidden", a, scalar=log_keys)
                return self._emit("fill", a, scalar=value)
        return self._emit(name, *operands, wide=self.wide[operands[0]])

    def _constant(self, kind: str, a: int, c: Constant) -> int:
        c = np.asarray(c, dtype=np.float64)
        if c.ndim == 0:
            code = "scale" if kind == "scale" else "add_scalar"
            return self._emit(code, a, scalar=float(c), wide=self.wide[a])
        if c.ndim > 1 or not self.wide[a]:
            raise NotRecordable
        self.vectors.append(c)
        return self._emit(f"{kind}_vector", a, table=len(self.vectors) - 1)

    def _chebyshev(self, a: int, total: ChebyshevSum) -> int:
        """The sum; inside the domain, terms without effect are left out."""
        coefficients, (low, high) = total.coefficients, total.domain
        if coefficients.ndim > 1:
            if not total.normalised or not self.wide[a]:
                raise NotRecordable
            self.by_column.append(coefficients.T.ravel())
            return self._emit("chebyshev_columns", a, table=len(self.by_column) - 1)
        count = kept_terms(coefficients, self.dtype)
        self.tables.append((coefficients, count, float(low), float(high)))
        return self._emit("chebyshev", a, table=len(self.tables) - 1, wide=self.wide[a])


def kept_terms(coefficients: NDArray[np.float64], dtype: Any) -> int:
    """Number of leading terms of a sum that count in a dtype; all if there are few."""
    if len(coefficients) <= LEAST_TRUNCATED:
        return len(coefficients)
    return significant(coefficients, np.finfo(dtype).eps / FRACTION_OF_PRECISION)


def significant(coefficients: NDArray[np.float64], tolerance: float) -> int:
    """Number of leading coefficients after which the rest is below tolerance times the total."""
    sizes = np.abs(coefficients)
    return leading_terms(sizes, tolerance * float(sizes.sum()))


class RowProgram:
    """A recorded algorithm, ready to run.

    Raises:
        NotRecordable: the algorithm does something that a row program cannot, or there is no native
            library.
    """

    def __init__(self, dtype: Any, algorithm: Callable[[Term], Term]) -> None:
        library = native_library()
        recorder = RowRecorder(dtype)
        result = recorder.run(algorithm, 0)
        if library is None or not recorder.wide[result] or result == 0:
            raise NotRecordable
        registers, wide = _registers(recorder, result)
        steps = [
            (library.ROW_CODES[code], register, registers[of[0]], registers[of[-1]], scalar, table)
            for register, (code, of, scalar, table) in zip(registers[1:], recorder.steps)
        ]
        tables = recorder.vectors, recorder.tables, recorder.by_column
        program = library.RowProgram(steps, *tables, wide, registers[result])
        self._run = program.run_f32 if np.dtype(dtype) == np.float32 else program.run_f64

    def run(
        self,
        rows: NDArray[Any],
        keep: NDArray[np.bool_] | None,
        result: NDArray[Any],
        limit: float,
        exploded: NDArray[np.bool_] | None = None,
    ) -> bool:
        """Write the results of rows [r, n] into another such matrix.

        Args:
            rows: contiguous, of the program's dtype.
            keep: [r, n], which keys a query may see; None for all.
            result: contiguous.
            limit: of the magnitude of a result; without `exploded` the run ends at the first
                beyond.
            exploded: [r]; True is written for rows with a result beyond the limit.

        Returns:
            whether all results are numbers within the limit.
        """
        kept, found = (None if a is None else a.view(np.uint8) for a in (keep, exploded))
        return bool(self._run(rows, kept, result, limit, found))


def _registers(recorder: RowRecorder, result: int) -> tuple[list[int], list[bool]]:
    """A register for each value, and whether each register is wide; registers are reused.

    The argument has register 0 and the result the last one, both exclusively, because they lie in
    the caller's memory.
    """
    values = list(enumerate((operands for _, operands, *_ in recorder.steps), 1))
    last_use = {operand: value for value, operands in values for operand in operands}
    registers, wide = [0], [True]
    free: dict[bool, list[int]] = {True: [], False: []}
    for value, operands in values:
        kind = recorder.wide[value]
        if value == result:
            registers.append(-1)
            continue
        if free[kind]:
            registers.append(free[kind].pop())
        else:
            registers.append(len(wide))
            wide.append(kind)
        for operand in set(operands) - {0, result}:
            if last_use[operand] == value:
                free[recorder.wide[operand]].append(registers[operand])
    registers[result] = len(wide)
    return registers, [*wide, True]
