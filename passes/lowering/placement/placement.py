"""Exact placement of bootstraps: the entry level of every node at the least total cost."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.placement.elimination import SERIES_PARALLEL, TABLE_LIMIT, Factors
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode
from atlasc.passes.lowering.placement.min_plus import Pieces, costs_of


class Method(NamedTuple):
    """The way in which a placement was found.

    Attributes:
        widest: greatest number of neighbours of an eliminated variable; at most 2 in a
            series-parallel graph.
        tables: number of distinct tables computed; equal blocks count once.
        eliminated: number of eliminated variables.
    """

    widest: int
    tables: int
    eliminated: int

    def __str__(self) -> str:
        how = "series-parallel reduction"
        if self.widest > SERIES_PARALLEL:
            how = f"elimination with up to {self.widest} neighbours"
        return f"{how}, {self.tables} distinct tables for {self.eliminated} steps"


class Placement(NamedTuple):
    """Levels and bootstraps of a graph; nodes are identified by their index.

    A value is bootstrapped once, right after its node or at the only use that needs it. Uses above
    its result level read the bootstrapped value. Other uses read the original value, which is more
    precise.

    Attributes:
        cost: sum of the costs of nodes and bootstraps, in the caller's unit.
        entry_levels: level at which a node's operands arrive; an input's fresh level.
        result_levels: level of a node's result before any bootstrap.
        bootstraps: bootstrapped value -> its level afterwards.
        bootstrap_count: number of bootstraps of all these values.
        others: nodes that are done in their other way.
        method: how the placement was found.
    """

    cost: float
    entry_levels: tuple[int, ...]
    result_levels: tuple[int, ...]
    bootstraps: dict[int, int]
    bootstrap_count: int
    others: frozenset[int]
    method: Method


def place(graph: LevelGraph, chain: LevelChain, *, table_limit: int = TABLE_LIMIT) -> Placement:
    """Place bootstraps at the least total cost.

    Equally cheap placements differ first in the number of bootstraps (the fewest) and then in the
    levels (the lowest, so bootstraps come late). The same graph on the same chain always gives the
    same placement.

    Args:
        graph: operations in topological order.
        chain: levels and bootstraps of the backend.
        table_limit: entries of the largest table.

    Raises:
        AtlasError: a node needs more levels than can reach it, an input is above the chain, or the
            graph is so entangled that its tables exceed the limit. Each names the node.
        ValueError: a cost is negative, not a number, or missing for a level.
    """
    pieces = Pieces.of(graph, chain)
    check_feasible(graph, chain)
    factors = Factors(graph, pieces)
    steps = factors.reduce(table_limit)
    left = set(range(len(factors.owner))) - {step.variable for step in steps}
    if left:
        variable = min(left, key=lambda one: (len(factors.neighbours(one)), one))
        others = factors.neighbours(variable)
        name, *names = (graph.nodes[factors.owner[one]].name for one in (variable, *others))
        raise AtlasError(
            f"the bootstraps around {name} cannot be placed exactly",
            where=name,
            why=f"its level depends on those of {', '.join(dict.fromkeys(names))}, a table of "
            f"{pieces.levels ** len(others)} entries; the limit is {table_limit}",
            remedy="use fewer levels, or a model in which fewer values cross",
        )
    chosen = factors.recover(steps)
    entries = tuple(
        chosen[variable] if variable is not None else node.level or 0
        for variable, node in zip(factors.entry, graph.nodes, strict=True)
    )
    widest = max((len(step.neighbours) for step in steps), default=0)
    method = Method(widest, len(pieces.tables), len(steps))
    wanted = [max((entries[user] for user in users), default=0) for users in graph.uses()]
    nodes = [
        _done(node, pieces, entry, highest)
        for node, entry, highest in zip(graph.nodes, entries, wanted, strict=True)
    ]
    results = tuple(level - node.depth for level, node in zip(entries, nodes, strict=True))
    bootstraps = {
        index: chain.landing(highest)
        for index, (highest, result) in enumerate(zip(wanted, results, strict=True))
        if highest > result
    }
    counts = [chain.bootstraps(nodes[index]) for index in bootstraps]
    costs = [chain.cost_of(nodes[index], level) for index, level in bootstraps.items()]
    costs += [
        node.cost_at(at) for at, node in zip(entries, nodes, strict=True) if node.level is None
    ]
    otherwise = frozenset(
        index
        for index, (node, done) in enumerate(zip(graph.nodes, nodes, strict=True))
        if node.other == (done.depth, done.cost)
    )
    return Placement(math.fsum(costs), entries, results, bootstraps, sum(counts), otherwise, method)


def _done(node: LevelNode, pieces: Pieces, entry: int, wanted: int) -> LevelNode:
    """The node in its cheapest way from an entry level to a level that its uses want; the first of
    equally cheap ways.
    """
    if node.other is None:
        return node
    costs = [int(pieces.tables[pieces.of_node(way, True)][entry, wanted]) for way in node.ways]
    return node.ways[int(np.argmin(costs))]


def check_feasible(graph: LevelGraph, chain: LevelChain) -> None:
    """Check that every node can be entered; the highest levels decide, because dropping is free.

    Raises:
        AtlasError: a node cannot be entered; the error names the first, its depth and the levels
            that reach it.
    """
    reach: list[int] = []
    for node in graph.nodes:
        result = node.level
        if result is None:
            available = min(reach[operand] for operand in node.operands)
            possible = np.flatnonzero(np.isfinite(costs_of(node, chain.max_level)[: available + 1]))
            if not len(possible):
                no_bootstrap = chain.bootstrap_level is None
                source = f"a bootstrap returns to {chain.bootstrap_level}"
                raise AtlasError(
                    f"{node.name} needs {node.depth} levels, but at most {available} are available"
                    if node.depth > available
                    else f"{node.name} cannot run at any level from {node.depth} to {available}",
                    where=node.name,
                    why=f"the modulus chain has levels 0 to {chain.max_level}; "
                    + ("there are no bootstraps" if no_bootstrap else source),
                    remedy="use a longer modulus chain or a polynomial of lower degree"
                    + (", or a backend with bootstraps" if no_bootstrap else ""),
                )
            result = int(possible[-1]) - node.depth
        elif result > chain.max_level:
            raise AtlasError(
                f"input {node.name} is encrypted at level {node.level}",
                where=node.name,
                why=f"the modulus chain has levels 0 to {chain.max_level}",
                remedy="encrypt it at a lower level or use a longer modulus chain",
            )
        can = node.refreshable and result >= chain.lowest
        refreshed = chain.bootstrap_level if can else None
        reach.append(result if refreshed is None else max(result, refreshed))
