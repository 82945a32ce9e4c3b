"""A level graph as variables (levels to choose) and tables on them whose sum is to be minimised.

Variables, in topological order: the entry level of every operation, and the level of every value
that several operations read (the trunk before the fork). Tables: an operation together with the
bootstrap of its result, between its entry level and the trunk or the entry level of its one user;
the free drop from a trunk to each user. Equal tables are stored once and known by number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from atlasc.passes.lowering.placement.graph import LevelGraph
from atlasc.passes.lowering.placement.min_plus import Pieces, Table, clip

Scope = tuple[int, ...]
"""The variables that a table is over, ascending: one per axis."""


class Factors:
    """Tables on variables; each variable set carries at most one table.

    Attributes:
        levels: number of levels that each variable can take.
        owner: for each variable the index of its node.
        entry: for each node the variable of its entry level; None for inputs.
        tables: the distinct tables.
        scopes: table number by variable set.
        touching: for each variable the sets that it is in.
    """

    def __init__(self, levels: int) -> None:
        self.levels = levels
        self.owner: list[int] = []
        self.entry: list[int | None] = []
        self.tables: list[Table] = []
        self.scopes: dict[Scope, int] = {}
        self.touching: list[set[Scope]] = []
        self._numbers: dict[Hashable, int] = {}

    def add_variable(self, node: int) -> int:
        """A new variable of a node; its number."""
        self.owner.append(node)
        self.touching.append(set())
        return len(self.owner) - 1

    def intern(self, key: Hashable, build: Callable[[], Table]) -> int:
        """Number of the table that `key` describes; built when it is new."""
        if key not in self._numbers:
            self._numbers[key] = len(self.tables)
            self.tables.append(build())
        return self._numbers[key]

    def put(self, scope: Scope, number: int) -> None:
        """Add a table; two on the same variables (a fork that joined) become their sum."""
        if scope in self.scopes:
            first, second = sorted((self.scopes[scope], number))
            number = self.intern(
                ("sum", first, second),
                lambda: clip(self.tables[first] + self.tables[second]),
            )
        self.scopes[scope] = number
        for variable in scope:
            self.touching[variable].add(scope)

    def remove(self, scope: Scope) -> int:
        """Take a factor out; its number."""
        for variable in scope:
            self.touching[variable].discard(scope)
        return self.scopes.pop(scope)

    def neighbours(self, variable: int) -> Scope:
        """Variables that share a table with this one, ascending."""
        found = {other for scope in self.touching[variable] for other in scope}
        return tuple(sorted(found - {variable}))


def build_factors(graph: LevelGraph, pieces: Pieces) -> Factors:
    """The variables and tables of a graph, from the elementary pieces of its operations."""
    factors = Factors(pieces.levels)
    uses = graph.uses()
    trunk: list[int | None] = []
    for index, node in enumerate(graph.nodes):
        factors.entry.append(None if node.is_input else factors.add_variable(index))
        trunk.append(factors.add_variable(index) if len(uses[index]) > 1 else None)

    drop = factors.intern("drop", pieces.drop)
    for index, users in enumerate(uses):
        # Where the value goes: the fork, its one user, or (an output) nowhere.
        ends = [trunk[index]] if len(users) > 1 else [factors.entry[user] for user in users]
        scope = tuple(v for v in (factors.entry[index], *ends) if v is not None)
        if scope:
            factors.put(scope, _value_table(factors, pieces, graph, index, bool(ends)))
        start = trunk[index]
        for user in users if start is not None else ():
            end = factors.entry[user]
            assert start is not None and end is not None
            factors.put((start, end), drop)
    return factors


def _value_table(
    factors: Factors, pieces: Pieces, graph: LevelGraph, index: int, is_read: bool
) -> int:
    """Number of the table of a node, its result's bootstrap included."""
    node, output = graph.nodes[index], pieces.chain.output_level
    if node.level is not None:
        level = node.level
        key: Hashable = ("input", level, node.ciphertexts, node.refreshable)
        return factors.intern(key, lambda: pieces.edge(node)[level])
    key = ("node", node.cost, node.depth, node.ciphertexts, node.refreshable)
    if is_read:
        return factors.intern(key, lambda: pieces.node(node))
    return factors.intern(("output", key), lambda: pieces.node(node)[:, output])
