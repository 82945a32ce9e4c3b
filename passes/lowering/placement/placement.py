"""Exact placement of bootstraps: the entry level of every node at the least total cost."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.placement.elimination import (
    SERIES_PARALLEL,
    recover_levels,
    reduce_factors,
)
from atlasc.passes.lowering.placement.factors import build_factors
from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph
from atlasc.passes.lowering.placement.live_values import solve_live_values
from atlasc.passes.lowering.placement.min_plus import Pieces

TABLE_LIMIT = 1 << 23
"""Entries of the largest table (64 MiB): at 31 levels, values that meet four others at once."""

STATE_LIMIT = 1 << 16


@dataclass(frozen=True)
class Method:
    """How a placement was found.

    Attributes:
        widest: most neighbours of a variable that was eliminated.
        tables: number of distinct tables computed; equal blocks count once.
        eliminated: number of variables eliminated.
        left: number of variables that went to the program over the live values.
    """

    widest: int
    tables: int
    eliminated: int
    left: int

    @property
    def is_series_parallel(self) -> bool:
        """Whether series and parallel steps alone reduced the graph."""
        return self.widest <= SERIES_PARALLEL and not self.left

    def __str__(self) -> str:
        if self.is_series_parallel:
            how = "series-parallel reduction"
        elif not self.left:
            how = f"elimination with up to {self.widest} neighbours"
        else:
            how = f"program over live values for {self.left} variables"
        return f"{how}, {self.tables} distinct tables for {self.eliminated} steps"


@dataclass(frozen=True)
class Placement:
    """Levels and bootstraps of a graph; nodes are named by their index.

    Attributes:
        cost: sum of the costs of nodes and bootstraps, in the caller's unit.
        entry_levels: level at which a node's operands arrive; an input's fresh level.
        result_levels: level of a node's result before any bootstrap.
        bootstraps: for each value that is bootstrapped the level that it has afterwards. It is
            bootstrapped once, right after its node or at its only use that needs it.
        refreshed_uses: for each node, one flag per operand: reads the bootstrapped value. Uses that
            the value reaches without it read the value as it was, which is the more precise one.
        bootstrap_count: number of bootstraps of all these values.
        method: how it was found.
    """

    cost: float
    entry_levels: tuple[int, ...]
    result_levels: tuple[int, ...]
    bootstraps: Mapping[int, int]
    refreshed_uses: tuple[tuple[bool, ...], ...]
    bootstrap_count: int
    method: Method


def place(
    graph: LevelGraph,
    chain: LevelChain,
    *,
    table_limit: int = TABLE_LIMIT,
    state_limit: int = STATE_LIMIT,
) -> Placement:
    """Place bootstraps at the least total cost.

    Equally cheap placements differ first in the number of bootstraps (the fewest) and then in the
    levels (the lowest, so bootstraps come late). The same graph on the same chain always gives the
    same placement.

    Args:
        graph: operations in topological order.
        chain: levels and bootstraps of the backend.
        table_limit: largest table of the elimination, in entries; 0 leaves everything to the
            program over the live values, levels**2 everything that is not series-parallel.
        state_limit: most states of the program over the live values.

    Raises:
        AtlasError: a node needs more levels than can reach it, an input is above the chain, or the
            graph is so entangled that an exact answer exceeds both limits. Each names the node.
        ValueError: a cost is negative, not a number, or missing for a level.
    """
    pieces = Pieces(graph, chain)
    check_feasible(graph, pieces)
    factors = build_factors(graph, pieces)
    done = reduce_factors(factors, table_limit)
    eliminated = {step.variable for step in done.steps}
    left = [v for v in range(len(factors.owner)) if v not in eliminated]

    def describe(variable: int) -> str:
        return graph.nodes[factors.owner[variable]].name

    chosen = solve_live_values(factors, left, state_limit, describe)
    recover_levels(factors, done.steps, chosen)
    entries = tuple(
        chosen[variable] if variable is not None else node.level or 0
        for variable, node in zip(factors.entry, graph.nodes, strict=True)
    )
    method = Method(done.widest, len(factors.tables), len(eliminated), len(left))
    return _placement(graph, chain, entries, method)


def check_feasible(graph: LevelGraph, pieces: Pieces) -> None:
    """Whether every node can be entered at all; the highest levels decide, as dropping is free.

    Raises:
        AtlasError: names the first node that cannot, its depth and the levels that reach it.
    """
    chain, uses = pieces.chain, graph.uses()
    bootstrap = chain.bootstrap_level
    reach: list[int] = []
    for index, node in enumerate(graph.nodes):
        if node.level is not None:
            if node.level > chain.max_level:
                raise AtlasError(
                    f"input {node.name} is encrypted at level {node.level}",
                    where=node.name,
                    why=f"the modulus chain has levels 0 to {chain.max_level}",
                    remedy="encrypt it at a lower level or use a longer modulus chain",
                )
            result = node.level
        else:
            available = min(reach[operand] for operand in node.operands)
            entry = _highest_entry(pieces.costs(node), available)
            if entry is None:
                raise _too_deep(node.name, node.depth, available, chain)
            result = entry - node.depth
        if node.refreshable and bootstrap is not None and result >= chain.bootstrap_from:
            reach.append(max(result, bootstrap))
        else:
            reach.append(result)
        if not node.is_input and not uses[index] and reach[index] < chain.output_level:
            raise _too_deep(f"the output {node.name}", chain.output_level, reach[index], chain)


def _highest_entry(costs: NDArray[np.float64], available: int) -> int | None:
    possible = np.flatnonzero(np.isfinite(costs[: available + 1]))
    return int(possible[-1]) if len(possible) else None


def _too_deep(name: str, depth: int, available: int, chain: LevelChain) -> AtlasError:
    bootstrap = chain.bootstrap_level
    if bootstrap is None:
        source = "there are no bootstraps"
    else:
        source = f"a bootstrap from level {chain.bootstrap_from} or above returns to {bootstrap}"
    remedy = "use a longer modulus chain or a polynomial of lower degree"
    if bootstrap is None:
        remedy += ", or a backend with bootstraps"
    return AtlasError(
        f"{name} needs {depth} levels and at most {available} are available"
        if depth > available
        else f"{name} cannot run at any level from {depth} to {available}",
        where=name,
        why=f"the modulus chain has levels 0 to {chain.max_level}; {source}",
        remedy=remedy,
    )


def _placement(
    graph: LevelGraph, chain: LevelChain, entries: tuple[int, ...], method: Method
) -> Placement:
    """Read the bootstraps off the entry levels and sum the costs as they were given."""
    uses = graph.uses()
    results = tuple(level - node.depth for level, node in zip(entries, graph.nodes, strict=True))
    costs = [node.cost_at(entries[i]) for i, node in enumerate(graph.nodes) if not node.is_input]
    bootstraps: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        idle = 0 if node.is_input else chain.output_level
        needed = max((entries[user] for user in uses[index]), default=idle)
        if needed > results[index]:
            cost, target = chain.refresh(needed)
            assert target is not None, "a level was chosen that no bootstrap reaches"
            bootstraps[index] = target
            costs.append(cost * chain.bootstraps(node.ciphertexts))
    return Placement(
        cost=math.fsum(costs),
        entry_levels=entries,
        result_levels=results,
        bootstraps=bootstraps,
        refreshed_uses=tuple(
            tuple(entries[i] > results[operand] for operand in node.operands)
            for i, node in enumerate(graph.nodes)
        ),
        bootstrap_count=sum(
            chain.bootstraps(graph.nodes[index].ciphertexts) for index in bootstraps
        ),
        method=method,
    )
