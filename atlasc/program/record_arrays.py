"""The functions of a program as arrays, and back. The C++ runtime replays the arrays
(``runtime_cuda/include/atlasc/record.hpp``); other engines play the functions that they stand for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, partial
from itertools import islice

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.program.function import PRIMITIVES, EngineParameters, Function, Instruction
from atlasc.program.plaintexts import (
    MASK,
    Argument,
    Literal,
    Lookup,
    Plaintext,
    Root,
    Slots,
    Table,
    Term,
)
from atlasc.program.transform_work import TransformWork

_MASK, _LITERAL, _ARGUMENT, _LOG_HIDDEN, _ROOT, _SHARES, _POSITIONS, _LOG_HIDDEN_NEAR = range(8)
_LAST_KEPT = 8
_SOURCES = {
    "": _ARGUMENT,
    "log_hidden": _LOG_HIDDEN,
    "shares": _SHARES,
    "positions": _POSITIONS,
    "last_kept": _LAST_KEPT,
}
"""Kinds of arrays in which a lookup finds its elements; see ``Lookup::Source``."""
_DERIVED = {kind: name for name, kind in _SOURCES.items()}
RECORD = ("record/code", "record/tables", "record/floats", "record/names")
"""Names of the arrays of a record."""


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


class Recorded:
    """Functions as the arrays that :func:`record_arrays` wrote.

    Args:
        arrays: the arrays by name; others are ignored.
        shape: shape of the engines that play the functions.

    Attributes:
        arrays: the arrays of the record.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], shape: EngineParameters) -> None:
        self.arrays = {name: arrays[name] for name in RECORD}
        self._shape = shape

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the functions."""
        return frozenset(self._ordered_names())

    def _ordered_names(self) -> list[str]:
        return self.arrays["record/names"].tobytes().decode("utf-8", "replace").splitlines()

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Name -> function, for engines that are not the runtime's. Levels are 0 and roles are
        numbers, because the arrays do not tell them.

        Raises:
            AtlasError: the arrays are no record.
        """
        try:
            reader = _Reader(self.arrays)
            return {name: reader.function(name, self._shape) for name in self._ordered_names()}
        except (IndexError, ValueError) as error:
            raise AtlasError(
                "the record of a program cannot be read",
                why=f"it ends too early, or has a wrong number: {error}",
                remedy="compile the model again",
            ) from None


class _Reader:
    """Reads the integers of a record, one after the other."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._code = iter(arrays["record/code"].view("<i4").tolist())
        self._floats = arrays["record/floats"].view("<f8")
        numbers, end = arrays["record/tables"].view("<i4"), 0
        self._tables: list[Table] = []
        for number in range(self._integer()):
            begin, end = end, end + self._integer()
            part = numbers[begin:end]
            self._tables.append(Table(f"table{number}", partial(np.copy, part), self._integer()))
        self._plaintexts = [self._plaintext() for _ in range(self._integer())]

    def function(self, name: str, shape: EngineParameters) -> Function:
        """The next function, with the name that stands at its place."""
        operands, _, _ = self._counted(), self._integer(), self._counted()
        code = []
        for _ in range(self._integer()):
            primitive, given = PRIMITIVES[self._integer()], self._counted()
            plaintexts = tuple(self._plaintexts[at] for at in self._counted())
            numbers, results, _ = self._counted(), self._counted(), self._counted()
            code.append(Instruction(primitive, given, plaintexts, numbers, results))
        results = self._counted()
        levels = tuple((0,) * count for count in operands)
        return Function(name, shape, levels, tuple(code), results, (0,) * len(results))

    def _integer(self) -> int:
        found = next(self._code, None)
        if found is None:
            raise IndexError("the integers end")
        return found

    def _counted(self) -> tuple[int, ...]:
        return tuple(islice(self._code, self._integer()))

    def _number(self) -> float:
        return float(self._floats[self._integer()])

    def _plaintext(self) -> Plaintext:
        terms = self._integer()
        return Slots(tuple(self._term() for _ in range(terms))) if terms else self._number()

    def _term(self) -> Term:
        real, imaginary = self._number(), self._number()
        factor = complex(real, imaginary) if imaginary else real
        return Term(factor, tuple(self._lookup() for _ in range(self._integer())))

    def _lookup(self) -> Lookup:
        kind = self._integer()
        array: Argument | Literal | Root | None = None
        if kind == _LITERAL:
            size, begin = self._integer(), self._integer()
            array = Literal(self._floats[begin : begin + size])
        elif kind == _ROOT:
            array = Root(self._integer())
        elif kind == _LOG_HIDDEN_NEAR:
            role, window, causal = (self._integer() for _ in range(3))
            array = Argument(_role(role), "log_hidden", window, bool(causal))
        elif kind != _MASK:
            array = Argument(_role(self._integer()), _DERIVED[kind])
        places = [(self._tables[self._integer()], self._integer()) for _ in range(self._integer())]
        return Lookup(array, tuple(places))


def _role(number: int) -> str:
    """A role that sorts as its number does."""
    return f"{number:09d}"
