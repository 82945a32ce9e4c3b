"""The (min,+) table of a segment: least seconds from the level before it to the level after it.

A segment is a small placement problem in which the levels at its ends stay open. The order in which
its inner levels are minimised away is found once; equal parts, of whatever segment or setting, are
computed once.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.costs import PrimitiveCosts, Profile, seconds_by_level
from atlasc.passes.latency.outline import Polynomial
from atlasc.passes.latency.segments import ProgramSegment
from atlasc.passes.lowering.placement.elimination import Factors
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode
from atlasc.passes.lowering.placement.min_plus import INFINITY, Pieces, Table, plus

UNIT = 2.0**-24
"""Seconds of one unit of a table."""


class Tables:
    """Tables of segments on one chain under one cost table.

    Args:
        chain: levels, and bootstraps by their seconds, all to the top level.
        costs: seconds of primitives.
    """

    def __init__(self, chain: LevelChain, costs: PrimitiveCosts) -> None:
        self._pieces = Pieces(chain, 1 / UNIT)
        self._orders: dict[ProgramSegment, list[int]] = {}
        self._known: dict[tuple[ProgramSegment, tuple[Polynomial, ...]], NDArray[np.float64]] = {}

        @cache
        def seconds(profile: Profile, depth: int, calls: int) -> tuple[float, ...]:
            each = seconds_by_level(profile, depth, costs, chain.max_level)
            return tuple(calls * one for one in each)

        self._seconds_by_level = seconds

    def start(self, ciphertexts: int) -> NDArray[np.float64]:
        """Seconds by level of the fresh input, [levels]."""
        return _seconds(self._pieces.edge(LevelNode("input", ciphertexts=ciphertexts))[-1])

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
            self._known[key] = _seconds(self._solve(segment, polynomials))
        return self._known[key]

    def _solve(self, segment: ProgramSegment, polynomials: tuple[Polynomial, ...]) -> Table:
        graph = LevelGraph([LevelNode("entering", refreshable=False)])
        for piece in segment.pieces:
            depth, profile, calls = piece.depth, piece.profile, 1
            if piece.open is not None:
                polynomial = polynomials[piece.open]
                depth, profile, calls = polynomial.depth, polynomial.profile, piece.ciphertexts
            cost = self._seconds_by_level(profile, depth, calls)
            graph.add(LevelNode("piece", piece.operands, depth, cost, piece.ciphertexts))
        if not segment.last:
            graph.add(LevelNode("leaving", (len(segment.pieces),), refreshable=False))
        factors = Factors(graph, self._pieces)
        before, after = factors.entry[0], factors.entry[-1]
        ends = [end for end in (before, None if segment.last else after) if end is not None]
        if segment not in self._orders:
            steps = factors.reduce(keep=ends)
            self._orders[segment] = [step.variable for step in steps]
        else:
            for variable in self._orders[segment]:
                factors.eliminate(variable)
        levels, total = self._pieces.levels, np.zeros(1, np.int64)
        for scope, number in factors.scopes.items():
            assert set(scope) <= set(ends), "levels so entangled that they cannot be eliminated"
            shape = [levels if end in scope else 1 for end in ends]
            total = plus(total, self._pieces.tables[number].reshape(shape))
        return np.broadcast_to(total, (levels,) * len(ends))


def _seconds(table: Table) -> NDArray[np.float64]:
    return np.where(table < INFINITY, table * UNIT, np.inf)
