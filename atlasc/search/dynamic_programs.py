"""Dynamic programs that turn the choices of each group into the front of cost against error.

`solve_sums` is for costs that are sums over choices: depth and levels. `solve` is for seconds,
which depend on where the program bootstraps. There a program is a chain of stages. The state
between two stages is the level of the value that crosses, and the error so far. An option of a
stage (approximations of its ops) is a table of seconds by levels, with its bootstraps placed
inside, and the error that it adds. So each state is reached at its least cost over all options and
all placements at once:

    V[k + 1][e + e_o, j] = min over options o and levels i of V[k][e, i] + T_o[i, j]

Errors are counted in units of 1/`RESOLUTION` of a budget, rounded to the nearest. A budget resolves
the errors near it, so budgets are halved until nothing fits. Within a budget the program is exact
for the rounded errors; with n stages the true error is at most n / 2 units off.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from atlasc.search.points import cheap_to_accurate

RESOLUTION = 256
"""Units of error in a budget."""
AT_ONCE = 16
"""Number of options whose tables are applied together; more would not fit the processor's cache."""

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Option:
    """One way to do a stage.

    Attributes:
        table: least seconds [level before, level after]; infinite if it is impossible.
        error: error that it adds to the model's.
        choices: the choices behind the option, for the caller.
    """

    table: Array
    error: float
    choices: tuple[int, ...] = ()


@dataclass(frozen=True)
class Solution:
    """A way through all groups or stages.

    Attributes:
        cost: depth, levels, or the least seconds over all levels.
        error: sum of the options' errors.
        choices: index of the option of each group or stage.
    """

    cost: float
    error: float
    choices: tuple[int, ...]


def solve_sums(groups: Sequence[Sequence[tuple[int, float]]]) -> list[Solution]:
    """The least error for every cost that improves on cheaper ones, from cheap to accurate.

    The program goes over the groups, each a list of options (cost, error): F_g[c] = min over
    options of F_(g-1)[c - cost] + error. Its time is the number of options times the greatest cost.
    """
    size = sum(max(cost for cost, _ in options) for options in groups) + 1
    best = np.full(size, np.inf)
    best[0] = 0.0
    chosen: list[NDArray[np.int64]] = []
    for options in groups:
        ways = np.full((len(options), size), np.inf)
        for row, (cost, error) in zip(ways, options, strict=True):
            row[cost:] = best[: size - cost] + error
        best = ways.min(axis=0)
        chosen.append(ways.argmin(axis=0))

    def track_back(cost: int) -> tuple[int, ...]:
        choices: list[int] = []
        for options, choice in zip(groups[::-1], chosen[::-1], strict=True):
            choices.append(int(choice[cost]))
            cost -= options[choices[-1]][0]
        return tuple(choices[::-1])

    front = cheap_to_accurate(enumerate(best.tolist()), lambda pair: pair)
    return [Solution(cost, error, track_back(cost)) for cost, error in front]


def solve(
    start: Array, stages: Sequence[Sequence[Option]], resolution: int = RESOLUTION
) -> list[Solution]:
    """The front of seconds against error, from cheap to accurate.

    Args:
        start: seconds by the first level, [L].
        stages: options of each stage; the tables of one stage have one shape.
        resolution: units of error in a budget; more units are more exact and slower.
    """
    errors = [[o.error for o in stage if math.isfinite(o.error)] for stage in stages]
    if not all(errors):
        return []
    budget, least = sum(map(max, errors)), sum(map(min, errors))
    smallest = min((e for stage in errors for e in stage if e > 0), default=0.0)
    found: list[Solution] = []
    while True:
        unit = budget / resolution if budget > 0 else 1.0
        found += solve_rounded(start, stages, unit, resolution + len(stages))
        budget /= 2
        if budget < max(least, smallest):
            return cheap_to_accurate(found, lambda path: (path.cost, path.error))


def solve_rounded(
    start: Array, stages: Sequence[Sequence[Option]], unit: float, units: int
) -> list[Solution]:
    """A path of least seconds for each sum of errors up to `units`, rounded to multiples of `unit`.

    Only paths that are cheaper than all paths with smaller sums are returned.
    """
    reached = np.full((units + 1, len(start)), np.inf)
    reached[0] = start
    before: list[Array] = []
    chosen: list[NDArray[np.int32]] = []
    rounded = [
        [round(o.error / unit) if math.isfinite(o.error / unit) else units + 1 for o in stage]
        for stage in stages
    ]
    for stage, counts in zip(stages, rounded, strict=True):
        before.append(reached)
        width = stage[0].table.shape[1]
        after = np.full((units + 1, width), np.inf)
        choice = np.full((units + 1, width), -1, np.int32)
        useful = prune(stage, [c if c <= units else math.inf for c in counts])
        sums = improving(reached)
        for first in range(0, len(useful), AT_ONCE):
            some = useful[first : first + AT_ONCE]
            tables = np.concatenate([stage[index].table for index in some], axis=1)
            through = product(reached[sums], tables).reshape(len(sums), len(some), width)
            for column, index in enumerate(some):
                longer = sums + counts[index]
                longer = longer[longer <= units]
                candidate = through[: len(longer), column]
                better = candidate < after[longer]
                after[longer] = np.where(better, candidate, after[longer])
                choice[longer] = np.where(better, index, choice[longer])
        reached = after
        chosen.append(choice)

    def track_back(total: int, level: int) -> Solution:
        seconds, options = float(reached[total, level]), []
        for number in reversed(range(len(stages))):
            index = int(chosen[number][total, level])
            options.append(index)
            total -= rounded[number][index]
            table = stages[number][index].table
            level = int((before[number][total] + table[:, level]).argmin())
        options.reverse()
        error = math.fsum(stages[n][index].error for n, index in enumerate(options))
        return Solution(seconds, error, tuple(options))

    cheapest = improving(reached.min(axis=1, keepdims=True)).tolist()
    return [track_back(total, int(reached[total].argmin())) for total in cheapest]


def prune(stage: Sequence[Option], errors: Sequence[float] | None = None) -> list[int]:
    """Indices of the options that no other option beats in error and in every entry of its table.

    ``errors`` may be rounded errors. Of options with equal rounded errors, the truly most accurate
    comes first.
    """
    errors = [option.error for option in stage] if errors is None else errors
    order = sorted(
        (index for index in range(len(stage)) if math.isfinite(errors[index])),
        key=lambda index: (errors[index], stage[index].error),
    )
    kept: list[int] = []
    tables = np.empty((len(order), stage[0].table.size)) if stage else np.empty((0, 0))
    for index in order:
        table = stage[index].table.ravel()
        if not (tables[: len(kept)] <= table).all(axis=1).any():
            tables[len(kept)] = table
            kept.append(index)
    return kept


def improving(reached: Array) -> NDArray[np.intp]:
    """The sums of errors that some level reaches at less cost than by any smaller sum.

    A path through another sum is no part of the front: one with a smaller error costs no more.
    """
    sums = np.flatnonzero(np.isfinite(reached).any(axis=1))
    least = np.minimum.accumulate(reached[sums], axis=0)
    cheaper = (reached[sums[1:]] < least[:-1]).any(axis=1)
    return np.concatenate([sums[:1], sums[1:][cheaper]])


def product(reached: Array, table: Array) -> Array:
    """The (min,+) product of [e, i] and [i, j]: the least sum over i, [e, j]."""
    total = reached[:, :1] + table[:1]
    through = np.empty_like(total)
    for level in range(1, len(table)):
        np.add(reached[:, level : level + 1], table[level], out=through)
        np.minimum(total, through, out=total)
    return total
