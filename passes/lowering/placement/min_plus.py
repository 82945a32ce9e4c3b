"""Tables over levels in the (min,+) algebra, in exact integer arithmetic.

An entry of a table is one int64 key, `round(cost * 2^s) * M + bootstraps`, with M above any
possible number of bootstraps. So a smaller key means less cost and, at equal cost, fewer
bootstraps. Sums are exact in any order, and ties stay ties. `s` is as large as 60 bits allow: costs
that differ by less than about 2^-40 of the greatest possible cost of the program count as equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial, reduce

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Self

from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, LevelNode

Table = NDArray[np.int64]

INFINITY = 1 << 61
_KEY_BITS = 60


class Pieces:
    """The tables on one chain, each distinct one built once.

    Args:
        chain: levels and bootstraps.
        scale: units of cost in a key.
        modulus: above any possible number of bootstraps; 1 if they are not counted.

    Attributes:
        drop: [from, to], 0 for to <= from.
        tables: all distinct tables; a table is identified by its number.
        bytes: bytes of these tables.
    """

    def __init__(self, chain: LevelChain, scale: float, modulus: int = 1) -> None:
        self.chain, self.levels = chain, chain.max_level + 1
        self.drop = np.where(np.tri(self.levels, dtype=bool), 0, INFINITY).astype(np.int64)
        self.tables: list[Table] = []
        self.bytes = 0
        self._numbers: dict[Hashable, int] = {}
        self._scale, self._modulus = scale, modulus

    @classmethod
    def of(cls, graph: LevelGraph, chain: LevelChain) -> Self:
        """Tables with keys that are as fine as the costs of a graph allow.

        Raises:
            ValueError: a node's cost is negative, not a number, or missing for a level.
        """
        calls = sum(chain.bootstraps(node) for node in graph.nodes)
        most = 0.0
        if chain.bootstrap_level is not None:
            most = math.fsum(chain.cost_of(node, chain.bootstrap_level) for node in graph.nodes)
        for node in graph.nodes:
            for way in node.ways if node.level is None else ():
                costs = costs_of(way, chain.max_level)
                most += float(costs[np.isfinite(costs)].max(initial=0.0))
        bits = calls.bit_length()
        # Rounding adds at most half a unit to each of a node's two terms: one bit of room.
        scale = math.ldexp(1.0, _KEY_BITS - bits - 1 - math.frexp(max(most, 2.0**-900))[1])
        return cls(chain, scale, 1 << bits)

    def intern(self, key: Hashable, build: Callable[[], Table]) -> int:
        """Number of the table that `key` describes; the table is built if it is new."""
        if key not in self._numbers:
            table = build()
            self._numbers[key] = len(self.tables)
            self.tables.append(table)
            self.bytes += table.nbytes
        return self._numbers[key]

    def edge(self, node: LevelNode) -> Table:
        """[from, to]: free downwards, one bootstrap of the node's result upwards."""
        top, calls = self.chain.bootstrap_level, self.chain.bootstraps(node)
        if not node.refreshable or top is None:
            return self.drop
        costs = np.full((self.levels, self.levels), np.inf)
        costs[self.chain.lowest :, : top + 1] = [
            self.chain.cost_of(node, level) for level in range(top + 1)
        ]
        return np.minimum(self.drop, self._encode(costs, calls))

    def of_node(self, node: LevelNode, read: bool) -> int:
        """Number of the table [entry level, level of the result at its uses] of a node, with the
        bootstrap of its result. An input lacks the first axis; an unread result lacks the last.
        """
        wanted = (node.ciphertexts, node.refreshable, node.narrow)
        key = (node.level, node.cost, node.depth, node.other, *wanted, read)
        return self.intern(("node", *key), partial(self._node, node, read))

    def _node(self, node: LevelNode, read: bool) -> Table:
        if node.level is not None:
            return self.edge(node)[node.level]
        if node.other is not None:
            return np.asarray(reduce(np.minimum, (self._node(way, read) for way in node.ways)))
        table = np.full((self.levels, self.levels), INFINITY, np.int64)
        if node.depth < self.levels:
            table[node.depth :] = self.edge(node)[: self.levels - node.depth]
        table = plus(table, self._encode(costs_of(node, self.levels - 1), 0)[:, None])
        return table if read else table[:, 0]

    def _encode(self, costs: NDArray[np.float64], bootstraps: int) -> Table:
        """Keys of costs, each with the given number of bootstraps."""
        finite = np.isfinite(costs)
        units = np.rint(np.where(finite, costs, 0.0) * self._scale).astype(np.int64)
        return np.where(finite, units * self._modulus + bootstraps % self._modulus, INFINITY)


def costs_of(node: LevelNode, max_level: int) -> NDArray[np.float64]:
    """Cost of a node by entry level 0..max_level; inf below its depth.

    Raises:
        ValueError: a cost is negative, not a number, or missing for a level.
    """
    if isinstance(node.cost, tuple) and len(node.cost) <= max_level:
        raise ValueError(
            f"node {node.name} has {len(node.cost)} costs; levels 0..{max_level} need one each"
        )
    costs = np.full(max_level + 1, np.inf)
    costs[node.depth :] = [node.cost_at(at) for at in range(node.depth, max_level + 1)]
    for level in np.flatnonzero(~(costs >= 0)):
        raise ValueError(f"node {node.name} has cost {costs[level]} at level {level}, not >= 0")
    return costs


def plus(one: Table, other: Table) -> Table:
    """The sum of two tables that broadcast; a sum with an infinite term is INFINITY."""
    total = one + other
    return np.minimum(total, INFINITY, out=total)


def eliminate(tables: Sequence[Table], axes: Sequence[tuple[int, ...]], width: int) -> Table:
    """The sum of tables, minimised over one level.

    Two tables [i, k] and [k, j] with width 2 give their (min,+) product: a series. Tables with two
    common axes of the result are added: a fork that joins.

    Args:
        tables: tables over levels.
        axes: for each table, the axis of the result for each of its own axes; `width` stands for
            the level that is minimised over.
        width: number of axes of the result.
    """
    levels = tables[0].shape[0]
    slabs = []  # views with the level as first axis, then the axes of the result
    for table, own in zip(tables, axes, strict=True):
        places = [(axis + 1) % (width + 1) for axis in own]
        shape = [levels if place in places else 1 for place in range(width + 1)]
        slabs.append(table.transpose(np.argsort(places)).reshape(shape))
    if levels ** (width + 1) <= 1 << 20:
        return np.asarray(reduce(plus, slabs).min(axis=0))
    # One level at a time, to take only the memory of the result.
    best = np.full((levels,) * width, INFINITY, np.int64)
    for level in range(levels):
        slices = [slab[level if len(slab) > 1 else 0] for slab in slabs]
        np.minimum(best, reduce(plus, slices, np.zeros_like(best)), out=best)
    return best
