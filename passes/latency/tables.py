"""The (min,+) table of a segment: least seconds from the level before it to the level after it.

The elimination of `placement` runs once on symbols, and what it did is kept as an expression. The
tables of an expression are then computed for any polynomials in place of the open sums; equal
parts, of whatever segment or setting, are computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.costs import PrimitiveCosts, Profile, seconds_by_level
from atlasc.passes.latency.outline import Polynomial
from atlasc.passes.latency.segments import ProgramSegment
from atlasc.passes.lowering.placement.elimination import Factors, reduce_factors
from atlasc.passes.lowering.placement.graph import LevelChain
from atlasc.passes.lowering.placement.min_plus import INFINITY, Table, clip, eliminate

UNIT = 2.0**-24
"""Seconds of one unit of a table."""


class Expression(Factors):
    """The elimination of a segment's inner levels, on symbols.

    Attributes:
        keys: what each table is made of, in order: a piece, the free drop, a sum or an elimination
            of earlier ones.
        ends: the variables that stay: the levels before and after (the last segment: before).
    """

    def __init__(self, segment: ProgramSegment, levels: int) -> None:
        super().__init__(levels)
        self.keys: list[tuple[Any, ...]] = []
        self.ends = self._build(segment)
        reduce_factors(self, keep=self.ends)
        left = {variable for scope in self.scopes for variable in scope}
        assert left <= set(self.ends), "a segment so entangled that its levels cannot be eliminated"

    def intern(self, key: Hashable, build: Callable[[], Table]) -> int:
        """Number of what `key` describes; nothing is built."""
        if key not in self._numbers:
            assert isinstance(key, tuple)
            self._numbers[key] = len(self.keys)
            self.keys.append(key)
        return self._numbers[key]

    def _build(self, segment: ProgramSegment) -> tuple[int, ...]:
        """Variables and tables, as in `build_factors`; returns the variables that stay."""
        users: list[list[int]] = [[] for _ in range(len(segment.pieces) + 1)]
        for position, piece in enumerate(segment.pieces, 1):
            for operand in dict.fromkeys(piece.operands):
                users[operand].append(position)
        leaving = -1 if segment.last else len(segment.pieces)
        entry, trunk = [self.add_variable(0)], [0]
        for position in range(1, len(users)):
            entry.append(self.add_variable(position))
            forks = len(users[position]) > 1 or position == leaving
            trunk.append(self.add_variable(position) if forks else -1)
        drop = self._symbol("drop")
        for position, readers in enumerate(users):
            start = trunk[position]
            if position:
                end = [start] if start >= 0 else [entry[reader] for reader in readers]
                piece = segment.pieces[position - 1]
                key = (piece.depth, piece.profile, piece.ciphertexts, piece.open)
                self.put((entry[position], *end), self._symbol("piece", *key, bool(end)))
            for reader in readers if start >= 0 else ():
                self.put((start, entry[reader]), drop)
        return (0,) if segment.last else (0, trunk[leaving])

    def _symbol(self, *key: Hashable) -> int:
        return self.intern(key, lambda: np.empty(0, np.int64))


class Tables:
    """Tables of segments on one chain under one cost table.

    Args:
        chain: levels, and bootstraps by their seconds, all to the top level.
        costs: seconds of primitives.
    """

    def __init__(self, chain: LevelChain, costs: PrimitiveCosts) -> None:
        self.levels, self._chain, self._costs = chain.max_level, chain, costs
        self._tables: list[Table] = []
        self._numbers: dict[Hashable, int] = {}
        self._expressions: dict[ProgramSegment, Expression] = {}
        self._known: dict[tuple[ProgramSegment, tuple[Polynomial, ...]], NDArray[np.float64]] = {}

    def start(self, ciphertexts: int) -> NDArray[np.float64]:
        """Seconds by level of the fresh input, [levels + 1]."""
        return _seconds(self._edge(ciphertexts)[self.levels])

    def of(
        self, segment: ProgramSegment, polynomials: tuple[Polynomial, ...]
    ) -> NDArray[np.float64]:
        """Seconds [level before, level after]; of the last segment [level before].

        The level before is that of the entering value after its bootstrap, if it has one; the
        bootstrap of the leaving value is inside.

        Args:
            polynomials: in place of the segment's open sums.
        """
        key = (segment, polynomials)
        if key not in self._known:
            if segment not in self._expressions:
                self._expressions[segment] = Expression(segment, self.levels + 1)
            self._known[key] = self._evaluate(self._expressions[segment], polynomials)
        return self._known[key]

    def _evaluate(
        self, expression: Expression, polynomials: Sequence[Polynomial]
    ) -> NDArray[np.float64]:
        made: list[int] = []
        for key in expression.keys:
            made.append(self._table(key, made, polynomials))
        total = np.zeros((self.levels + 1,) * len(expression.ends), np.int64)
        for scope, number in expression.scopes.items():
            shape = [self.levels + 1 if end in scope else 1 for end in expression.ends]
            total = clip(total + self._tables[made[number]].reshape(shape))
        return _seconds(total)

    def _table(
        self, key: tuple[Any, ...], made: Sequence[int], polynomials: Sequence[Polynomial]
    ) -> int:
        """Number of the table of a key of an expression."""
        if key[0] == "eliminate":
            meeting = [(made[number], axes) for number, axes in key[1:]]
            meeting.sort()
            width = max(axis for _, axes in meeting for axis in axes)
            tables = [self._tables[number] for number, _ in meeting]
            return self._intern(
                ("eliminate", *meeting),
                lambda: eliminate(tables, [axes for _, axes in meeting], width),
            )
        if key[0] == "sum":
            one, other = sorted((made[key[1]], made[key[2]]))
            return self._intern(
                ("sum", one, other), lambda: clip(self._tables[one] + self._tables[other])
            )
        if key[0] == "drop":
            return self._intern(key, self._drop)
        _, depth, profile, ciphertexts, opened, read = key
        polynomial = None if opened is None else polynomials[opened]
        return self._intern(
            ("piece", depth, profile, ciphertexts, polynomial, read),
            lambda: self._piece(depth, profile, ciphertexts, polynomial, read),
        )

    def _intern(self, key: Hashable, build: Callable[[], Table]) -> int:
        if key not in self._numbers:
            table = build()
            self._numbers[key] = len(self._tables)
            self._tables.append(table)
        return self._numbers[key]

    def _piece(
        self,
        depth: int,
        profile: Profile,
        ciphertexts: int,
        polynomial: Polynomial | None,
        read: bool,
    ) -> Table:
        """[entry level, level of the result at its uses]; where nobody reads it [entry level]."""
        calls = 1
        if polynomial is not None:
            depth, profile, calls = polynomial.depth, polynomial.profile, ciphertexts
        own = calls * np.array(seconds_by_level(profile, depth, self._costs, self.levels))
        table = np.full((self.levels + 1,) * 2, INFINITY, np.int64)
        if depth <= self.levels:
            table[depth:] = self._edge(ciphertexts)[: self.levels + 1 - depth]
        table = clip(table + _units(own)[:, None])
        return table if read else table[:, 0]

    def _drop(self) -> Table:
        allowed = np.tri(self.levels + 1, dtype=bool)
        return np.where(allowed, 0, INFINITY).astype(np.int64)

    def _edge(self, ciphertexts: int) -> Table:
        """Free down, one bootstrap up; the same as `Pieces.edge`."""
        if self._chain.bootstrap_level is None:
            return self._drop()
        seconds = self._chain.bootstrap_cost * self._chain.bootstraps(ciphertexts)
        return np.minimum(self._drop(), _units(np.array([seconds])))


def _units(seconds: NDArray[np.float64]) -> Table:
    finite = np.isfinite(seconds)
    return np.where(finite, np.rint(np.where(finite, seconds, 0.0) / UNIT), INFINITY).astype(
        np.int64
    )


def _seconds(table: Table) -> NDArray[np.float64]:
    return np.where(table < INFINITY, table * UNIT, np.inf)
