"""Tables over levels in the (min,+) algebra, in exact integer arithmetic.

An entry of a table is one int64 key, `round(cost * 2^s) * M + bootstraps`, with M above any
possible number of bootstraps. So a smaller key means less cost and, at equal cost, fewer
bootstraps. Sums are exact in any order, and ties are ties. `s` is as large as 60 bits allow: costs
that differ by less than about 2^-40 of the most that the program could cost are equal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from atlasc.passes.lowering.placement.graph import LevelChain, LevelGraph, Node

Table = NDArray[np.int64]

INFINITY = 1 << 61
_KEY_BITS = 60


class Pieces:
    """The tables on one chain, each distinct one built once.

    Args:
        chain: levels and bootstraps.
        scale: units of cost in a key.
        modulus: above any possible number of bootstraps; 1 where they are not counted.

    Attributes:
        drop: [from, to], 0 where to <= from.
        tables: all distinct tables; a table is spoken of by its number.
    """

    def __init__(self, chain: LevelChain, scale: float, modulus: int = 1) -> None:
        self.chain, self.levels = chain, chain.max_level + 1
        self.drop = np.where(np.tri(self.levels, dtype=bool), 0, INFINITY).astype(np.int64)
        self.tables: list[Table] = []
        self._numbers: dict[Hashable, int] = {}
        self._costs: dict[object, NDArray[np.float64]] = {}
        self._edges: dict[int, Table] = {}
        self._scale, self._modulus = scale, modulus

    @classmethod
    def of(cls, graph: LevelGraph, chain: LevelChain) -> Pieces:
        """For the keys that are as fine as the costs of a graph allow.

        Raises:
            ValueError: a node's cost is negative, not a number, or missing for a level.
        """
        pieces = cls(chain, 1.0)
        calls = [chain.bootstraps(node.ciphertexts) for node in graph.nodes]
        possible = 0.0 if chain.bootstrap_level is None else chain.bootstrap_cost
        most = sum(calls) * possible
        for node in graph.nodes:
            if node.level is None:
                costs = pieces.costs(node)
                most += float(costs[np.isfinite(costs)].max(initial=0.0))
        bits = sum(calls).bit_length()
        pieces._modulus = 1 << bits
        # Rounding adds at most half a unit to each of two terms a node: one bit keeps it inside.
        pieces._scale = math.ldexp(1.0, _KEY_BITS - bits - 1 - math.frexp(max(most, 2.0**-900))[1])
        return pieces

    def intern(self, key: Hashable, build: Callable[[], Table]) -> int:
        """Number of the table that `key` describes; built when it is new."""
        if key not in self._numbers:
            table = build()
            self._numbers[key] = len(self.tables)
            self.tables.append(table)
        return self._numbers[key]

    def costs(self, node: Node) -> NDArray[np.float64]:
        """Cost of a node by entry level, [levels]; inf below its depth."""
        key = (node.cost, node.depth)
        if key not in self._costs:
            if isinstance(node.cost, tuple) and len(node.cost) < self.levels:
                raise ValueError(
                    f"node {node.name} has {len(node.cost)} costs; levels 0..{self.levels - 1} "
                    "need one each"
                )
            costs = np.full(self.levels, np.inf)
            costs[node.depth :] = [node.cost_at(at) for at in range(node.depth, self.levels)]
            for level in np.flatnonzero(~(costs >= 0)):
                raise ValueError(
                    f"node {node.name} has cost {costs[level]} at level {level}, not >= 0"
                )
            self._costs[key] = costs
        return self._costs[key]

    def edge(self, node: Node) -> Table:
        """[from, to]: free down, one bootstrap of the node's result up."""
        bootstrap = self.chain.bootstrap_level
        if not node.refreshable or bootstrap is None:
            return self.drop
        calls = self.chain.bootstraps(node.ciphertexts)
        if calls not in self._edges:
            cost = self.chain.bootstrap_cost * calls if calls else 0.0
            reached = np.where(np.arange(self.levels) <= bootstrap, cost, np.inf)
            self._edges[calls] = np.minimum(self.drop, self._encode(reached, calls))
        return self._edges[calls]

    def node(self, node: Node) -> Table:
        """[entry level, level of the result at its uses]."""
        table = np.full((self.levels, self.levels), INFINITY, np.int64)
        if node.depth < self.levels:
            table[node.depth :] = self.edge(node)[: self.levels - node.depth]
        return clip(table + self._encode(self.costs(node), 0)[:, None])

    def _encode(self, costs: NDArray[np.float64], bootstraps: int) -> Table:
        """Keys of costs; so many bootstraps are counted in each."""
        finite = np.isfinite(costs)
        units = np.rint(np.where(finite, costs, 0.0) * self._scale).astype(np.int64)
        return np.where(finite, units * self._modulus + bootstraps % self._modulus, INFINITY)


def clip(table: Table) -> Table:
    """Sums with an infinite term, brought back to INFINITY (in place)."""
    np.minimum(table, INFINITY, out=table)
    return table


def eliminate(tables: Sequence[Table], axes: Sequence[tuple[int, ...]], width: int) -> Table:
    """The sum of tables, minimised over one level.

    Two tables [i, k] and [k, j] with width 2 give their (min,+) product: a series. A table with two
    other axes in common with the result adds: a fork that joins.

    Args:
        tables: tables over levels.
        axes: for each table the axis of the result that each of its own axes is; `width` stands for
            the level to be minimised over.
        width: number of axes of the result.
    """
    levels = tables[0].shape[0]
    slabs = [_align(table, axis, width) for table, axis in zip(tables, axes, strict=True)]
    if levels ** (width + 1) <= 1 << 20:
        return clip(np.asarray(_sum(slabs, (levels,) * (width + 1)).min(axis=0)))
    # One level at a time: the memory is that of the result.
    best = np.full((levels,) * width, INFINITY, np.int64)
    for level in range(levels):
        slices = [slab[level if slab.shape[0] > 1 else 0] for slab in slabs]
        np.minimum(best, _sum(slices, best.shape), out=best)
    return best


def _align(table: Table, axes: tuple[int, ...], width: int) -> Table:
    """A view with the eliminated axis first and all others in the order of the result."""
    places = [(axis + 1) % (width + 1) for axis in axes]
    shape = [1] * (width + 1)
    for place in places:
        shape[place] = table.shape[0]
    return table.transpose(np.argsort(places)).reshape(shape)


def _sum(terms: Sequence[Table], shape: tuple[int, ...]) -> Table:
    total = np.broadcast_to(terms[0], shape)
    for term in terms[1:]:
        total = clip(total + term)
    return total
