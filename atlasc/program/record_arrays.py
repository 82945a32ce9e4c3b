"""The functions of a program as arrays, which the C++ runtime replays (``atlasc/record.hpp``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from atlasc.program.function import PRIMITIVES, Function
from atlasc.program.plaintexts import (
    MASK,
    Argument,
    Literal,
    Lookup,
    Plaintext,
    Root,
    Slots,
    Table,
)
from atlasc.program.transform_work import TransformWork

_MASK, _LITERAL, _ARGUMENT, _LOG_HIDDEN, _ROOT, _SHARES, _POSITIONS, _LOG_HIDDEN_NEAR = range(8)
_SOURCES = {"": _ARGUMENT, "log_hidden": _LOG_HIDDEN, "shares": _SHARES, "positions": _POSITIONS}
"""Kinds of arrays in which a lookup finds its elements; see ``Lookup::Source``."""


def record_arrays(functions: Sequence[Function]) -> dict[str, np.ndarray]:
    """The arrays ``record/code``, ``record/tables`` (int32), ``record/floats`` (float64) and
    ``record/names`` (lines), as bytes, little-endian. Equal tables, plaintexts and numbers are
    stored once.
    """
    return Recording().added(functions)


class Recording:
    """Functions as arrays, added in parts: parts that were added before are not repeated."""

    def __init__(self) -> None:
        self._pool = _Pool()

    def added(self, functions: Sequence[Function]) -> dict[str, np.ndarray]:
        """The arrays of some functions, as :func:`record_arrays`; all names must be new."""
        pool = self._pool
        tables, plaintexts, floats = len(pool.tables), len(pool.plaintexts), len(pool.floats)
        bodies = [number for function in functions for number in _body(function, pool)]
        new = pool.tables[tables:]
        code = [len(new)]
        code += [number for table, repeats in new for number in (len(table), repeats)]
        code.append(len(pool.plaintexts) - plaintexts)
        code += [number for plaintext in pool.plaintexts[plaintexts:] for number in plaintext]
        numbers = np.concatenate([np.zeros(0, np.int32), *(table for table, _ in new)])
        names = "\n".join(function.name for function in functions).encode()
        arrays = {
            "code": np.asarray([*code, *bodies], dtype="<i4"),
            "tables": numbers.astype("<i4"),
            "floats": np.asarray(pool.floats[floats:], dtype="<f8"),
            "names": np.frombuffer(names, dtype=np.uint8),
        }
        return {f"record/{name}": array.view(np.uint8) for name, array in arrays.items()}


class _Pool:
    """Parts that functions share.

    Attributes:
        tables: distinct tables, with their repetitions.
        plaintexts: integers of each plaintext.
        floats: numbers that plaintexts refer to.
    """

    def __init__(self) -> None:
        self.tables: list[tuple[np.ndarray, int]] = []
        self.plaintexts: list[tuple[int, ...]] = []
        self.floats: list[float] = []
        self._tables: dict[Table, int] = {}
        self._contents: dict[tuple[bytes, int], int] = {}
        self._plaintexts: dict[tuple[int, ...], int] = {}
        self._floats: dict[bytes, int] = {}

    def plaintext(self, value: Plaintext, roles: Sequence[str]) -> int:
        """The number of a plaintext in a function with these roles of arrays."""
        if not isinstance(value, Slots):
            words = [0, self._stored(np.array([value]))]
        else:
            words = [len(value.terms)]
            for factor, lookups in value.terms:
                parts = (np.real(factor), np.imag(factor))
                words += [self._stored(np.array([part])) for part in parts]
                words.append(len(lookups))
                for lookup in lookups:
                    words += self._lookup(lookup, roles)
        key = tuple(words)
        if key not in self._plaintexts:
            self._plaintexts[key] = len(self.plaintexts)
            self.plaintexts.append(key)
        return self._plaintexts[key]

    def _lookup(self, lookup: Lookup, roles: Sequence[str]) -> list[int]:
        if isinstance(lookup.array, Argument):
            role, derived, window, causal = lookup.array
            words = [_SOURCES[derived], roles.index(role)]
            if window:
                words = [_LOG_HIDDEN_NEAR, roles.index(role), window, int(causal)]
        elif isinstance(lookup.array, Literal):
            numbers = lookup.array.numbers
            words = [_LITERAL, numbers.size, self._stored(numbers)]
        elif isinstance(lookup.array, Root):
            words = [_ROOT, lookup.array.order]
        else:
            words = [_MASK]
        words.append(len(lookup.places))
        for table, rotation in lookup.places:
            words += [self._table(table), rotation]
        return words

    def _stored(self, numbers: np.ndarray) -> int:
        """Store some numbers, and return the position of the first."""
        content = numbers.astype("<f8").tobytes()
        if content not in self._floats:
            self._floats[content] = len(self.floats)
            self.floats += numbers.ravel().tolist()
        return self._floats[content]

    def _table(self, table: Table) -> int:
        if table not in self._tables:
            content = table.numbers.tobytes(), table.repeats
            if content not in self._contents:
                self._contents[content] = len(self.tables)
                self.tables.append((table.numbers, table.repeats))
            self._tables[table] = self._contents[content]
        return self._tables[table]


def _body(function: Function, pool: _Pool) -> Iterable[int]:
    """The integers of a function after its name."""
    yield from _counted(map(len, function.levels))
    yield function.registers
    yield from _counted(role == MASK for role in function.roles)
    yield len(function.code)
    for instruction, released in zip(function.code, function.released, strict=True):
        yield PRIMITIVES.index(instruction.primitive)
        yield from _counted(instruction.operands)
        yield from _counted(
            pool.plaintext(value, function.roles)
            for value in instruction.plaintexts
            if not isinstance(value, TransformWork)  # functions for costs are not stored
        )
        yield from _counted(instruction.numbers)
        yield from _counted(instruction.results)
        yield from _counted(released)
    yield from _counted(function.results)


def _counted(numbers: Iterable[int]) -> list[int]:
    """Some numbers, preceded by their count."""
    found = [int(number) for number in numbers]
    return [len(found), *found]
