"""The front where the cost is the predicted seconds: degrees and bootstraps are chosen together.

Seconds are no sum over choices: what a choice takes depends on the level that the ones before it
leave. So the choices of all groups of ops, and the levels between them, go through one (min,+)
program (`min_plus`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import NamedTuple

from atlasc.passes.approximation.description import Approximation
from atlasc.passes.latency.model import Approximations, LatencyModel, TimedChain
from atlasc.passes.search.dynamic_programs import (
    RESOLUTION,
    Option,
    Solution,
    product,
    prune,
    solve,
)
from atlasc.passes.search.points import cheap_to_accurate

STEPS = 200
"""Points of a front at most, as many as a front of levels has about."""


class Alternative(NamedTuple):
    """One choice of a group of ops: their approximations, and the error that it adds."""

    approximations: Approximations
    error: float


def evenly(front: Sequence[Solution]) -> list[Solution]:
    """The most accurate point of each of `STEPS` equal spans of seconds. Where many choices trade
    little for little a front is dense, and would be sampled there alone.
    """
    if not front:
        return []
    first, last = front[0].cost, front[-1].cost
    step = max(last - first, 1e-9) / (STEPS - 1)
    return list({int((point.cost - first) / step): point for point in front}.values())


def latency_front(
    model: LatencyModel,
    groups: Sequence[Sequence[Alternative]],
    fixed: Approximations | None = None,
) -> list[Solution]:
    """The least predicted seconds for every error, from cheap to accurate.

    The choices of a path are indices of the groups' alternatives.

    Args:
        groups: alternatives of each group; together with `fixed` they cover all ops.
        fixed: approximations of ops that are in no group.
    """
    fixed = fixed or {}
    found: dict[tuple[int, ...], Solution] = {}
    for parameters in model.parameters_from(_least_levels(model, groups, fixed)):
        chain = model.chain(parameters)
        runs = _runs(chain.names, groups)
        stages = [_options(chain, *run, groups, fixed) for run in runs]
        for path in solve(chain.start, stages, RESOLUTION):
            by_group: dict[int, int] = {}
            for (_, members), stage, option in zip(runs, stages, path.choices, strict=True):
                by_group.update(zip(members, stage[option].choices, strict=True))
            choices = tuple(by_group.get(group, 0) for group in range(len(groups)))
            if choices in found:
                continue
            # The target may prefer another parameter set than the one that this was solved for.
            every = (group[index] for group, index in zip(groups, choices, strict=True))
            seconds = model.seconds(_merged(fixed, every))
            if math.isfinite(seconds):
                found[choices] = Solution(seconds, path.error, choices)
    return cheap_to_accurate(found.values(), lambda path: (path.cost, path.error))


def _merged(fixed: Approximations, chosen: Iterable[Alternative]) -> dict[str, Approximation]:
    found = dict(fixed)
    for alternative in chosen:
        found.update(alternative.approximations)
    return found


def _least_levels(
    model: LatencyModel, groups: Sequence[Sequence[Alternative]], fixed: Approximations
) -> int:
    """Levels of the program where every group takes as few as it can, one after the other."""
    chosen = _merged(fixed, (group[0] for group in groups))
    for group in groups:
        ways = [{**chosen, **alternative.approximations} for alternative in group]
        chosen = min(ways, key=model.levels)
    return model.levels(chosen)


def _options(
    chain: TimedChain,
    segments: Sequence[int],
    members: Sequence[int],
    groups: Sequence[Sequence[Alternative]],
    fixed: Approximations,
) -> list[Option]:
    """Combinations of the alternatives of some groups that no other one beats.

    Args:
        segments: consecutive ones that hold all ops of these groups.
        members: numbers of the groups.
    """
    options = []
    for combination in itertools.product(*(range(len(groups[group])) for group in members)):
        chosen = [groups[g][i] for g, i in zip(members, combination, strict=True)]
        error = math.fsum(alternative.error for alternative in chosen)
        if math.isfinite(error):
            approximations = _merged(fixed, chosen)
            tables = (chain.table(number, approximations) for number in segments)
            table = reduce(product, (t if t.ndim == 2 else t[:, None] for t in tables))
            options.append(Option(table, error, combination))
    return [options[index] for index in prune(options)]


def _runs(
    names: Sequence[Sequence[str]], groups: Sequence[Sequence[Alternative]]
) -> list[tuple[list[int], list[int]]]:
    """Runs of segments that no group reaches beyond, each with its groups.

    Returns:
        (numbers of segments, numbers of groups) of each run, in order.
    """
    owner = {n: g for g, group in enumerate(groups) for n in group[0].approximations}
    inside = [sorted({owner[name] for name in segment if name in owner}) for segment in names]
    last = {group: number for number, members in enumerate(inside) for group in members}
    runs: list[tuple[list[int], list[int]]] = []
    until = -1
    for number, members in enumerate(inside):
        if number > until:
            runs.append(([], []))
        runs[-1][0].append(number)
        runs[-1][1].extend(group for group in members if group not in runs[-1][1])
        until = max([until, *(last[group] for group in members)])
    return runs
