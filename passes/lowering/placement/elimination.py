"""The tables of a level graph over its variables (levels to choose), minimised one by one.

The variables are the entry level of every operation, and the level of every value that several
operations read (its trunk, before the fork). There is a table for each operation with the bootstrap
of its result, from its entry level to the trunk, or to the entry level of its only user. Another
table is the free drop from a trunk to each user. The least sum of all tables is wanted.

A variable with two neighbours is a series: the (min,+) product of its tables replaces it. Tables
that then depend on the same two variables are a fork that has joined: their sum replaces them. This
reduces every series-parallel graph to nothing. In any other graph, a variable with the fewest
neighbours is eliminated next, and the table that replaces it has one axis for each neighbour. That
is still exact, and such a spot is over after a step or two. An example is a normalisation whose
mean feeds both the variance and the difference.

Equal blocks are computed once. Equal tables have one number, and a step is described by the numbers
of its tables and by their common variables; steps with one description share their result. For
that, equal blocks must be reduced in the same order. So the order is our own, not networkx's: its
`treewidth_min_degree` finds the same width (3 for twelve layers with entangled norms, 0.3 s), but a
minimum-degree order without rounds computes 280 distinct tables there, and this order 75.

Source: Bertele and Brioschi, Nonserial Dynamic Programming (1972); Valdes, Tarjan and Lawler, The
recognition of series parallel digraphs (1982).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from atlasc.passes.lowering.placement.graph import LevelGraph
from atlasc.passes.lowering.placement.min_plus import Pieces, eliminate, plus

TABLE_LIMIT = 1 << 25
"""Entries of the largest table (256 MiB): at 31 levels, a value that meets five others at once."""
SERIES_PARALLEL = 2
"""Greatest number of neighbours of a variable that a series-parallel reduction eliminates."""

Scope = tuple[int, ...]
"""The variables of a table in ascending order, one per axis."""


class Eliminated(NamedTuple):
    """One eliminated variable: its neighbours, and its tables by variable set and number."""

    variable: int
    neighbours: Scope
    tables: list[tuple[Scope, int]]


class Factors:
    """The tables of a graph on its variables; each variable set carries at most one table.

    Attributes:
        pieces: the tables, and the levels that each variable can take.
        owner: index of the node of each variable.
        entry: variable of the entry level of each node; None for inputs.
        scopes: variable set -> number of its table.
    """

    def __init__(self, graph: LevelGraph, pieces: Pieces) -> None:
        self.pieces = pieces
        self.owner: list[int] = []
        self.entry: list[int | None] = []
        self.scopes: dict[Scope, int] = {}
        self._touching: list[set[Scope]] = []
        uses, trunks = graph.uses(), list[int | None]()
        for index, node in enumerate(graph.nodes):
            self.entry.append(None if node.level is not None else self._variable(index))
            trunks.append(self._variable(index) if len(uses[index]) > 1 else None)
        for index, (node, trunk) in enumerate(zip(graph.nodes, trunks, strict=True)):
            # The value goes to the fork, to its only user, or (an output) nowhere.
            ends = [self.entry[user] for user in uses[index]] if trunk is None else [trunk]
            if scope := tuple(v for v in (self.entry[index], *ends) if v is not None):
                self._put(scope, pieces.of_node(node, bool(ends)))
            for user in uses[index] if trunk is not None else ():
                entry = self.entry[user]
                assert trunk is not None and entry is not None
                self._put((trunk, entry), pieces.intern("drop", lambda: pieces.drop))

    def _variable(self, node: int) -> int:
        """Add a variable of a node, and return its number."""
        self.owner.append(node)
        self._touching.append(set())
        return len(self.owner) - 1

    def _put(self, scope: Scope, number: int) -> None:
        """Add a table; two tables on the same variables (a fork that joined) become their sum."""
        if scope in self.scopes:
            one, other = sorted((self.scopes[scope], number))
            tables = self.pieces.tables
            number = self.pieces.intern(
                ("sum", one, other), lambda: plus(tables[one], tables[other])
            )
        self.scopes[scope] = number
        for variable in scope:
            self._touching[variable].add(scope)

    def neighbours(self, variable: int) -> Scope:
        """Variables that share a table with this one, ascending."""
        found = {other for scope in self._touching[variable] for other in scope}
        return tuple(sorted(found - {variable}))

    def eliminate(self, variable: int) -> Eliminated:
        """Replace the tables of a variable by one table of its neighbours."""
        neighbours = self.neighbours(variable)
        place = {other: axis for axis, other in enumerate((*neighbours, variable))}
        tables = []
        for scope in sorted(self._touching[variable]):
            for other in scope:
                self._touching[other].discard(scope)
            tables.append((scope, self.scopes.pop(scope)))
        if neighbours:
            meeting = sorted((number, tuple(place[v] for v in scope)) for scope, number in tables)
            numbers, axes = zip(*meeting, strict=True)
            known = self.pieces.tables
            number = self.pieces.intern(
                ("eliminate", *meeting),
                lambda: eliminate([known[one] for one in numbers], axes, len(neighbours)),
            )
            self._put(neighbours, number)
        return Eliminated(variable, neighbours, tables)

    def reduce(
        self, table_limit: int = TABLE_LIMIT, keep: Collection[int] = ()
    ) -> list[Eliminated]:
        """Eliminate variables as long as no table gets more than `table_limit` entries.

        What is left is nothing, or the core that would need larger tables, and the variables of
        `keep`.
        """
        steps: list[Eliminated] = []
        rounds = {v: 0 for v in range(len(self.owner)) if v not in keep}

        def priority(variable: int) -> tuple[int, int, int]:
            degree = len(self.neighbours(variable))
            return max(degree, SERIES_PARALLEL), rounds[variable], variable

        queue = [priority(variable) for variable in rounds]
        heapq.heapify(queue)
        while queue:
            entry = heapq.heappop(queue)
            variable = entry[2]
            if variable not in rounds or entry != priority(variable):
                continue
            if self.pieces.levels ** len(self.neighbours(variable)) > table_limit:
                break
            steps.append(self.eliminate(variable))
            # The next round starts when everything ready before is done: blocks reduce inside
            # first, and in the same order, so that equal blocks meet equal tables.
            following = rounds.pop(variable) + 1
            for other in steps[-1].neighbours:
                if other in rounds:
                    rounds[other] = following
                    heapq.heappush(queue, priority(other))
        return steps

    def recover(self, steps: list[Eliminated]) -> dict[int, int]:
        """The level of every eliminated variable, the last eliminated first.

        Of equally good levels the lowest is taken, so that a bootstrap comes as late as possible.
        """
        chosen: dict[int, int] = {}
        for step in reversed(steps):
            total = np.zeros(self.pieces.levels, np.int64)
            for scope, number in step.tables:
                position = tuple(slice(None) if v == step.variable else chosen[v] for v in scope)
                total = plus(total, self.pieces.tables[number][position])
            chosen[step.variable] = int(total.argmin())
        return chosen
