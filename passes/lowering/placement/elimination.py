"""Series-parallel reduction, and elimination beyond it: levels are minimised away one by one.

A variable with two neighbours is a series (the (min,+) product of its tables); tables that then lie
on the same two variables are a fork that has joined (their sum). This reduces every series-parallel
graph to nothing. Where a graph is not series-parallel, a variable with the fewest neighbours goes
next, and the table that replaces it has one axis per neighbour; that is still exact, and such a
spot (a normalisation whose mean feeds both the variance and the difference) is over after a step
or two.

The order is our own, not networkx's. Its `treewidth_min_degree` finds the same width (3 for twelve
layers with entangled norms, 0.3 s), but takes variables of equal blocks in different orders: a
minimum-degree order without rounds computes 280 distinct tables there, this one 75.

A step is described by the numbers of the tables that it combines and by how they meet. Steps with
the same description share their result, so equal blocks are computed once.

Source: Bertele and Brioschi, Nonserial Dynamic Programming (1972); Valdes, Tarjan and Lawler, The
recognition of series parallel digraphs (1982).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from atlasc.passes.lowering.placement.factors import Factors, Scope
from atlasc.passes.lowering.placement.min_plus import clip, eliminate

SERIES_PARALLEL = 2
"""Most neighbours of a variable that goes in a series-parallel reduction."""


@dataclass(frozen=True)
class Step:
    """One variable minimised away: the tables that it was in, by variable set and number."""

    variable: int
    tables: tuple[tuple[Scope, int], ...]


@dataclass
class Elimination:
    """What was eliminated, in order, and the most neighbours that a variable had."""

    steps: list[Step]
    widest: int


def reduce_factors(factors: Factors, table_limit: int, keep: Collection[int] = ()) -> Elimination:
    """Eliminate variables as long as no table gets more than `table_limit` entries.

    `factors` keeps what is left: nothing at all, or the core that would need larger tables, and
    the variables of `keep`.
    """
    done = Elimination([], 0)
    degree = [len(factors.neighbours(variable)) for variable in range(len(factors.owner))]
    rounds = [-1 if variable in keep else 0 for variable in range(len(degree))]
    queue = [_priority(degree[v], 0, v) for v in range(len(degree)) if rounds[v] == 0]
    heapq.heapify(queue)
    while queue:
        entry = heapq.heappop(queue)
        variable = entry[2]
        if rounds[variable] < 0 or entry != _priority(degree[variable], rounds[variable], variable):
            continue
        if factors.levels ** degree[variable] > table_limit:
            break
        neighbours = _eliminate(factors, variable, done)
        # The next round comes after all that was ready before: blocks reduce inside first, and
        # in the same order, which is what makes equal blocks meet equal tables.
        following = rounds[variable] + 1
        rounds[variable] = -1
        for other in neighbours:
            if rounds[other] < 0:
                continue
            degree[other] = len(factors.neighbours(other))
            rounds[other] = following
            heapq.heappush(queue, _priority(degree[other], following, other))
    return done


def _priority(degree: int, rounds: int, variable: int) -> tuple[int, int, int]:
    return max(degree, SERIES_PARALLEL), rounds, variable


def _eliminate(factors: Factors, variable: int, done: Elimination) -> Scope:
    """Replace the tables on a variable by one on its neighbours; returns the neighbours."""
    neighbours = factors.neighbours(variable)
    place = {other: axis for axis, other in enumerate(neighbours)}
    place[variable] = len(neighbours)
    tables = tuple((scope, factors.remove(scope)) for scope in sorted(factors.touching[variable]))
    done.steps.append(Step(variable, tables))
    done.widest = max(done.widest, len(neighbours))
    if neighbours:
        meeting = sorted((number, tuple(place[v] for v in scope)) for scope, number in tables)
        number = factors.intern(
            ("eliminate", *meeting),
            lambda: eliminate(
                [factors.tables[number] for number, _ in meeting],
                [axes for _, axes in meeting],
                len(neighbours),
            ),
        )
        factors.put(neighbours, number)
    return neighbours


def recover_levels(factors: Factors, steps: list[Step], chosen: dict[int, int]) -> None:
    """Add to `chosen` the level of every eliminated variable, the last one eliminated first.

    Of equally good levels the lowest is taken: what was not needed is not kept, so a bootstrap
    comes as late as it can.
    """
    for step in reversed(steps):
        total = np.zeros(factors.levels, np.int64)
        for scope, number in step.tables:
            position = tuple(slice(None) if v == step.variable else chosen[v] for v in scope)
            total = clip(total + factors.tables[number][position])
        chosen[step.variable] = int(total.argmin())
