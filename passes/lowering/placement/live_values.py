"""The exact program over the levels of the live values, for what elimination leaves over.

Variables are taken one after the other, in an order that keeps few of them live; a variable is live
from its place in that order until the last table that it is in can be read. A state is the levels
of the live variables, with the least cost that leads to them. Of two states, one that costs no more
and whose levels are at least as good for everything still to come makes the other superfluous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.placement.factors import Factors, Scope
from atlasc.passes.lowering.placement.min_plus import INFINITY, Table, clip

_BLOCK = 512
_PIVOTS = 1024


def solve_live_values(
    factors: Factors,
    variables: Sequence[int],
    state_limit: int,
    describe: Callable[[int], str],
) -> dict[int, int]:
    """Best level of each of `variables`, which the tables left in `factors` are over.

    Args:
        state_limit: most states kept after a step.
        describe: name of a variable's node, for the error.

    Raises:
        AtlasError: more than `state_limit` states are needed; names the node.
    """
    program = _Program(factors, variables)
    for variable in live_order(factors, variables):
        program.take(variable)
        if len(program.cost) > state_limit:
            live = ", ".join(dict.fromkeys(describe(v) for v in program.live))
            raise AtlasError(
                f"the bootstraps around {describe(variable)} cannot be placed exactly",
                where=describe(variable),
                why=f"{len(program.live)} values are live there ({live}), with "
                f"{len(program.cost)} combinations of levels; the limit is {state_limit}",
                remedy="raise the limit of states, offer fewer levels, or let fewer values cross",
            )
    return program.best()


def live_order(factors: Factors, variables: Sequence[int]) -> list[int]:
    """An order with few live variables: the better of topological order and a greedy one."""
    topological = sorted(variables)
    adjacent = {v: set(factors.neighbours(v)) for v in topological}
    orders = topological, _greedy_order(topological, adjacent)
    return min(orders, key=lambda order: _widths(order, adjacent))


def _greedy_order(variables: list[int], adjacent: dict[int, set[int]]) -> list[int]:
    """Take the variable that leaves the fewest live ones, the first of them in case of a tie."""
    waiting = {v: set(others) for v, others in adjacent.items()}
    left, live, order = set(variables), set[int](), list[int]()
    while left:
        near = {other for v in live for other in waiting[v]} or left

        taken = min((_growth(v, live, waiting, adjacent), v) for v in near)[1]
        order.append(taken)
        left.remove(taken)
        live.add(taken)
        for other in adjacent[taken]:
            waiting[other].discard(taken)
        live = {v for v in live if waiting[v]}
    return order


def _growth(
    variable: int, live: set[int], waiting: dict[int, set[int]], adjacent: dict[int, set[int]]
) -> int:
    """By how many the live variables grow when this one is taken; negative if some end with it."""
    ending = sum(waiting[other] == {variable} for other in adjacent[variable] & live)
    return bool(waiting[variable]) - ending


def _widths(order: Sequence[int], adjacent: dict[int, set[int]]) -> tuple[int, int]:
    """The most variables live at once, and the sum over all steps."""
    place = {v: position for position, v in enumerate(order)}
    last = {v: max((place[other] for other in adjacent[v]), default=-1) for v in order}
    live, widths = set[int](), list[int]()
    for position, variable in enumerate(order):
        live = {v for v in live | {variable} if last[v] > position}
        widths.append(len(live))
    return max(widths, default=0), sum(widths)


class _Program:
    """The states after some of the variables: `levels` [states, live], `cost` [states]."""

    def __init__(self, factors: Factors, variables: Sequence[int]) -> None:
        self.factors = factors
        self.pending: dict[int, set[Scope]] = {v: set(factors.touching[v]) for v in variables}
        self.live: list[int] = []
        self.levels: NDArray[np.int16] = np.zeros((1, 0), np.int16)
        self.cost: Table = np.zeros(1, np.int64)
        self.history: list[tuple[int, NDArray[np.int32], NDArray[np.int16]]] = []
        self._trends: dict[tuple[int, int], tuple[bool, bool]] = {}

    def take(self, variable: int) -> None:
        """Let a variable take every level, read the tables that became complete, prune."""
        count, states = self.factors.levels, len(self.cost)
        parent = np.repeat(np.arange(states, dtype=np.int32), count)
        level = np.tile(np.arange(count, dtype=np.int16), states)
        levels = np.column_stack([self.levels[parent], level])
        cost = self.cost[parent]
        self.live.append(variable)
        column = {v: position for position, v in enumerate(self.live)}
        for scope in sorted(self.pending[variable]):
            if all(v in column for v in scope):
                table = self.factors.tables[self.factors.scopes[scope]]
                cost = clip(cost + table[tuple(levels[:, column[v]] for v in scope)])
                for v in scope:
                    self.pending[v].discard(scope)
        kept = [v for v in self.live if self.pending[v]]
        levels = levels[:, [column[v] for v in kept]]
        self.live = kept
        chosen = self._prune(levels, cost)
        self.levels, self.cost = levels[chosen], cost[chosen]
        self.history.append((variable, parent[chosen], level[chosen]))

    def best(self) -> dict[int, int]:
        """Levels of the cheapest way through, read backwards from the end."""
        state, result = int(self.cost.argmin()), {}
        for variable, parent, level in reversed(self.history):
            result[variable] = int(level[state])
            state = int(parent[state])
        return result

    def _prune(self, levels: NDArray[np.int16], cost: Table) -> NDArray[np.intp]:
        """Rows that no other row makes superfluous; of equal rows the first."""
        better = self._oriented(levels)
        order = np.lexsort((np.arange(len(cost)), *(-better.T), cost))
        order = order[cost[order] < INFINITY]
        pivots = np.zeros((0, better.shape[1]), np.int16)
        kept: list[NDArray[np.intp]] = []
        for start in range(0, len(order), _BLOCK):
            block = order[start : start + _BLOCK]
            block = block[~_dominated(better[block], pivots)]
            inside = _covers(better[block], better[block])
            # Only an earlier row (it costs no more) makes a later one superfluous.
            block = block[~np.tril(inside, -1).any(axis=1)]
            kept.append(block)
            if len(pivots) < _PIVOTS:
                pivots = np.concatenate([pivots, better[block]])[:_PIVOTS]
        # At equal cost the lowest levels come first in the next steps.
        return np.sort(np.concatenate(kept)) if kept else np.zeros(0, np.intp)

    def _oriented(self, levels: NDArray[np.int16]) -> NDArray[np.int16]:
        """Columns in which larger is at least as good for every table still to be read."""
        columns: list[NDArray[np.int16]] = []
        for position, variable in enumerate(self.live):
            trends = [self._trend(scope, variable) for scope in self.pending[variable]]
            if not all(falling for falling, _ in trends):
                columns.append(-levels[:, position])
            if not all(rising for _, rising in trends):
                columns.append(levels[:, position])
        return np.column_stack(columns) if columns else np.zeros((len(levels), 0), np.int16)

    def _trend(self, scope: Scope, variable: int) -> tuple[bool, bool]:
        """Whether a table never grows, and never falls, with the level of a variable."""
        key = self.factors.scopes[scope], scope.index(variable)
        if key not in self._trends:
            slope = np.diff(self.factors.tables[key[0]], axis=key[1])
            self._trends[key] = bool((slope <= 0).all()), bool((slope >= 0).all())
        return self._trends[key]


def _covers(first: NDArray[np.int16], second: NDArray[np.int16]) -> NDArray[np.bool_]:
    """[rows of first, rows of second]: the second is at least as large in every column."""
    result = np.ones((len(first), len(second)), bool)
    for a, b in zip(first.T, second.T, strict=True):
        result &= a[:, None] <= b[None, :]
    return result


def _dominated(rows: NDArray[np.int16], pivots: NDArray[np.int16]) -> NDArray[np.bool_]:
    if not len(pivots):
        return np.zeros(len(rows), bool)
    return np.asarray(_covers(rows, pivots).any(axis=1))
