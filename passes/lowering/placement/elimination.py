"""A level graph as variables (levels to choose) and tables on them, minimised one by one.

Variables, in topological order: the entry level of every operation, and the level of every value
that several operations read (the trunk before the fork). Tables: an operation together with the
bootstrap of its result, between its entry level and the trunk or the entry level of its one user;
the free drop from a trunk to each user. Wanted is the least sum of all tables.

A variable with two neighbours is a series (the (min,+) product of its tables). Tables that then lie
on the same two variables are a fork that has joined (their sum). This reduces every series-parallel
graph to nothing. Where a graph is not series-parallel, a variable with the fewest neighbours goes
next, and the table that replaces it has one axis per neighbour. That is still exact, and such a
spot (a normalisation whose mean feeds both the variance and the difference) is over after a step
or two.

The order is our own, not networkx's. Its `treewidth_min_degree` finds the same width (3 for twelve
layers with entangled norms, 0.3 s), but takes variables of equal blocks in different orders: a
minimum-degree order without rounds computes 280 distinct tables there, this one 75. Equal tables
have one number, and a step is described by the numbers of the tables that it combines and by how
they meet. Steps with the same description share their result, so equal blocks are computed once.

Source: Bertele and Brioschi, Nonserial Dynamic Programming (1972); Valdes, Tarjan and Lawler, The
recognition of series parallel digraphs (1982).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial

import numpy as np

from atlasc.passes.lowering.placement.graph import LevelGraph, Node
from atlasc.passes.lowering.placement.min_plus import Pieces, Table, clip, eliminate

TABLE_LIMIT = 1 << 25
"""Entries of the largest table (256 MiB): at 31 levels, values that meet five others at once."""
SERIES_PARALLEL = 2
"""Most neighbours of a variable that goes in a series-parallel reduction."""

Scope = tuple[int, ...]
"""The variables that a table is over, ascending: one per axis."""


class Factors:
    """Tables on variables; each variable set carries at most one table.

    Attributes:
        pieces: the tables, and the levels that each variable can take.
        owner: for each variable the index of its node.
        entry: for each node the variable of its entry level; None for inputs.
        scopes: table number by variable set.
        touching: for each variable the sets that it is in.
    """

    def __init__(self, pieces: Pieces) -> None:
        self.pieces = pieces
        self.owner: list[int] = []
        self.entry: list[int | None] = []
        self.scopes: dict[Scope, int] = {}
        self.touching: list[set[Scope]] = []

    def add_variable(self, node: int) -> int:
        """A new variable of a node; its number."""
        self.owner.append(node)
        self.touching.append(set())
        return len(self.owner) - 1

    def put(self, scope: Scope, number: int) -> None:
        """Add a table; two on the same variables (a fork that joined) become their sum."""
        if scope in self.scopes:
            one, other = sorted((self.scopes[scope], number))
            tables = self.pieces.tables
            number = self.pieces.intern(
                ("sum", one, other), lambda: clip(tables[one] + tables[other])
            )
        self.scopes[scope] = number
        for variable in scope:
            self.touching[variable].add(scope)

    def neighbours(self, variable: int) -> Scope:
        """Variables that share a table with this one, ascending."""
        found = {other for scope in self.touching[variable] for other in scope}
        return tuple(sorted(found - {variable}))

    def eliminate(self, variable: int) -> Step:
        """Replace the tables on a variable by one on its neighbours."""
        neighbours = self.neighbours(variable)
        place = {other: axis for axis, other in enumerate((*neighbours, variable))}
        tables = []
        for scope in sorted(self.touching[variable]):
            for other in scope:
                self.touching[other].discard(scope)
            tables.append((scope, self.scopes.pop(scope)))
        if neighbours:
            meeting = sorted((number, tuple(place[v] for v in scope)) for scope, number in tables)
            number = self.pieces.intern(
                ("eliminate", *meeting),
                lambda: eliminate(
                    [self.pieces.tables[number] for number, _ in meeting],
                    [axes for _, axes in meeting],
                    len(neighbours),
                ),
            )
            self.put(neighbours, number)
        return Step(variable, neighbours, tables)


@dataclass(frozen=True)
class Step:
    """One variable minimised away: its neighbours, and its tables by variable set and number."""

    variable: int
    neighbours: Scope
    tables: list[tuple[Scope, int]]


def build_factors(graph: LevelGraph, pieces: Pieces) -> Factors:
    """The variables and tables of a graph, from the elementary pieces of its operations."""
    factors, uses = Factors(pieces), graph.uses()
    trunks: list[int | None] = []
    for index, node in enumerate(graph.nodes):
        factors.entry.append(None if node.level is not None else factors.add_variable(index))
        trunks.append(factors.add_variable(index) if len(uses[index]) > 1 else None)
    drop = pieces.intern("drop", lambda: pieces.drop)
    for index, (node, trunk) in enumerate(zip(graph.nodes, trunks, strict=True)):
        users = [factors.entry[user] for user in uses[index]]
        # Where the value goes: the fork, its one user, or (an output) nowhere.
        ends = users if trunk is None else [trunk]
        scope = tuple(v for v in (factors.entry[index], *ends) if v is not None)
        if scope:
            read = bool(ends)
            key = (node.level, node.cost, node.depth, node.ciphertexts, node.refreshable, read)
            build = partial(_value_table, pieces, node, read)
            factors.put(scope, pieces.intern(("node", *key), build))
        for user in users if trunk is not None else ():
            assert trunk is not None
            assert user is not None
            factors.put((trunk, user), drop)
    return factors


def _value_table(pieces: Pieces, node: Node, read: bool) -> Table:
    """The table of a node, its result's bootstrap included."""
    if node.level is not None:
        return pieces.edge(node)[node.level]
    return pieces.node(node) if read else pieces.node(node)[:, 0]


def reduce_factors(
    factors: Factors, table_limit: int = TABLE_LIMIT, keep: Collection[int] = ()
) -> list[Step]:
    """Eliminate variables as long as no table gets more than `table_limit` entries.

    `factors` keeps what is left: nothing at all, or the core that would need larger tables, and
    the variables of `keep`.
    """
    steps: list[Step] = []
    rounds = {v: 0 for v in range(len(factors.owner)) if v not in keep}

    def priority(variable: int) -> tuple[int, int, int]:
        degree = len(factors.neighbours(variable))
        return max(degree, SERIES_PARALLEL), rounds[variable], variable

    queue = [priority(variable) for variable in rounds]
    heapq.heapify(queue)
    while queue:
        entry = heapq.heappop(queue)
        variable = entry[2]
        if variable not in rounds or entry != priority(variable):
            continue
        if factors.pieces.levels ** len(factors.neighbours(variable)) > table_limit:
            break
        steps.append(factors.eliminate(variable))
        # The next round comes after all that was ready before: blocks reduce inside first, and
        # in the same order, which is what makes equal blocks meet equal tables.
        following = rounds.pop(variable) + 1
        for other in steps[-1].neighbours:
            if other in rounds:
                rounds[other] = following
                heapq.heappush(queue, priority(other))
    return steps


def recover_levels(factors: Factors, steps: list[Step]) -> dict[int, int]:
    """The level of every eliminated variable, found for the last one eliminated first.

    Of equally good levels the lowest is taken: what was not needed is not kept, so a bootstrap
    comes as late as it can.
    """
    chosen: dict[int, int] = {}
    for step in reversed(steps):
        total = np.zeros(factors.pieces.levels, np.int64)
        for scope, number in step.tables:
            position = tuple(slice(None) if v == step.variable else chosen[v] for v in scope)
            total = clip(total + factors.pieces.tables[number][position])
        chosen[step.variable] = int(total.argmin())
    return chosen
