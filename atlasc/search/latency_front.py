"""The front of predicted seconds against error: degrees and bootstraps are chosen together.

Seconds are no sum over choices: the seconds of a choice depend on the level that earlier choices
leave. So the choices of all groups of ops, and the levels between them, go through one (min,+)
program (`min_plus`).

Groups in one segment of the program are combined. A combination that another one beats is dropped
before the next segment. If a segment has more than `MOST_COMBINATIONS`, as in a program of one
segment, only those are computed that would be best if the seconds of choices added up. Their own
seconds are exact again.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from atlasc.latency.model import Approximations, LatencyModel, PackedLatency, TimedChain
from atlasc.polynomials.description import Approximation
from atlasc.search.dynamic_programs import (
    RESOLUTION,
    Array,
    Option,
    Solution,
    product,
    prune,
    solve,
    solve_sums,
)
from atlasc.search.points import cheap_to_accurate

STEPS = 200
"""Greatest number of points of a front; a front of levels has about as many."""


MOST_COMBINATIONS = 4096
"""Greatest number of combinations of alternatives whose tables are computed for one segment."""
MOST_OPEN = 64
"""Number of combinations kept after a segment if the next segment would have too many."""
UNITS = 1000
"""Unit of the seconds of choices when they are taken to add up."""
Choices = tuple[int, ...]
Way = TypeVar("Way", Option, Solution)
NO_COMBINATION = Option(np.zeros((0, 0)), 0.0)


class Alternative(NamedTuple):
    """One choice of a group of ops: their approximations, and the error that it adds."""

    approximations: Approximations
    error: float


def evenly(front: Sequence[Solution]) -> list[Solution]:
    """The most accurate point of each of `STEPS` equal spans of seconds.

    If many choices trade little for little, a front is dense in one place, and otherwise only that
    place would be sampled.
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
    note: Callable[[str], None] | None = None,
) -> list[Solution]:
    """The least predicted seconds for every error, from cheap to accurate.

    Without bootstraps a program of fewer levels may take a little longer, by the parameter set that
    it gets (`ParameterSet.more_work`): what is faster by no more than that may be missed.

    The choices of a solution are indices of the groups' alternatives.

    Args:
        model: predicts seconds.
        groups: alternatives of each group; together with `fixed` they cover all ops.
        fixed: approximations of ops that belong to no group.
        note: called if not all combinations of a segment are computed.
    """
    fixed = fixed or {}
    found: dict[tuple[int, ...], Solution] = {}
    chains = [
        packed.chain(parameters)
        for packed in model.packings
        for parameters in packed.parameters_from(_least_levels(packed, groups, fixed))
    ]
    for chain in chains:
        runs = _runs(chain.names, groups)
        stages = [_options(chain, *run, groups, fixed, note) for run in runs]
        for path in solve(chain.start, stages, RESOLUTION):
            by_group: dict[int, int] = {}
            for (_, members), stage, option in zip(runs, stages, path.choices, strict=True):
                by_group.update(zip(members, stage[option].choices, strict=True))
            choices = tuple(by_group.get(group, 0) for group in range(len(groups)))
            if choices in found:
                continue
            # Another parameter set or packing than this one may be preferred.
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
    model: PackedLatency, groups: Sequence[Sequence[Alternative]], fixed: Approximations
) -> int:
    """Levels of the program if every group in turn takes as few as it can."""
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
    note: Callable[[str], None] | None,
) -> list[Option]:
    """Combinations of the alternatives of some groups that no other combination beats.

    Args:
        chain: the program under one parameter set.
        segments: consecutive segments that contain all ops of these groups.
        members: numbers of the groups.
    """
    names = {number: set(chain.names[number]) for number in segments}
    inside = {n: [g for g in members if names[n] & set(groups[g][0].approximations)] for n in names}
    options, decided = [NO_COMBINATION], list[int]()
    for position, number in enumerate(segments):
        new = [group for group in inside[number] if group not in decided]
        decided = [*decided, *new]
        combinations = len(options) * math.prod(len(groups[group]) for group in new)
        if combinations > MOST_COMBINATIONS:
            options = _some(options, MOST_OPEN)
            if note is not None:
                note(
                    f"the bootstraps of {len(decided)} groups of ops depend on each other: of "
                    f"{combinations:,} combinations of their polynomials, at most "
                    f"{MOST_COMBINATIONS:,} are computed, so faster combinations may be missed"
                )

        def table(choices: Choices, number: int = number, those: list[int] = decided) -> Array:
            chosen = (groups[g][i] for g, i in zip(those, choices, strict=True))
            found = chain.table(number, _merged(fixed, chosen))
            return found if found.ndim == 2 else found[:, None]

        errors = [[one.error for one in groups[group]] for group in new]
        longer = _longer(options, table, errors, MOST_COMBINATIONS // len(options))
        # Compares combinations that are alike for later segments.
        later = {group for after in segments[position + 1 :] for group in inside[after]}
        alike: dict[Choices, list[Option]] = {}
        for option in longer:
            seen = tuple(i for g, i in zip(decided, option.choices) if g in later)
            alike.setdefault(seen, []).append(option)
        options = [some[index] for some in alike.values() for index in prune(some)]
    order = [decided.index(group) for group in members]
    return [Option(o.table, o.error, tuple(o.choices[at] for at in order)) for o in options]


def _longer(
    options: Sequence[Option],
    table: Callable[[Choices], Array],
    errors: Sequence[Sequence[float]],
    most: int,
) -> list[Option]:
    """Combinations of finite error, extended by further groups and by one more segment.

    Args:
        options: the combinations so far.
        table: seconds of the segment, by the choices of all groups so far.
        errors: errors of the alternatives of each further group.
        most: greatest number of extensions for each option.
    """
    before = options[len(options) // 2].choices
    ways = _combinations(lambda way: table((*before, *way)), errors, most)
    found = []
    for option, way in itertools.product(options, ways):
        error = option.error + math.fsum(group[i] for group, i in zip(errors, way, strict=True))
        if math.isfinite(error):
            one = table((*option.choices, *way))
            whole = one if option is NO_COMBINATION else product(option.table, one)
            found.append(Option(whole, error, (*option.choices, *way)))
    return found


def _some(options: Sequence[Way], count: int) -> list[Way]:
    """A sample of the options, evenly from accurate to coarse."""
    ordered = sorted(options, key=lambda option: option.error)
    places = np.linspace(0, len(ordered) - 1, min(count, len(ordered)))
    return [ordered[place] for place in places.round().astype(int)]


def _combinations(
    table: Callable[[Choices], Array], errors: Sequence[Sequence[float]], most: int
) -> list[Choices]:
    """All combinations of alternatives, or at most ``most`` of them.

    The chosen combinations would make the front if the difference in seconds between two
    alternatives of a group never depended on the other groups. This difference is measured beside
    alternatives of middle accuracy.

    Args:
        table: seconds of a combination, [level before, level after].
        errors: errors of the alternatives of each group.
        most: greatest number of combinations.
    """
    if math.prod(map(len, errors)) <= most:
        return list(itertools.product(*(range(len(group)) for group in errors)))
    ordered = [sorted(range(len(group)), key=lambda i: group[i]) for group in errors]
    beside = tuple(some[len(some) // 2] for some in ordered)
    seconds = partial(_mean_seconds, table, np.isfinite(table(beside)))
    costs = [
        [seconds((*beside[:at], i, *beside[at + 1 :])) for i in range(len(group))]
        for at, group in enumerate(errors)
    ]
    finite = [[cost for cost in group if math.isfinite(cost)] for group in costs]
    if not all(finite):
        return [beside]
    unit = max(sum(max(group) - min(group) for group in finite), 1e-9) / UNITS
    front = solve_sums([
        [
            (round((cost - min(least)) / unit), error) if math.isfinite(cost) else (0, math.inf)
            for cost, error in zip(group, some, strict=True)
        ]
        for group, some, least in zip(costs, errors, finite, strict=True)
    ])  # fmt: skip
    return [beside, *(way.choices for way in _some(front, min(STEPS, most - 1)))]


def _mean_seconds(
    table: Callable[[Choices], Array], where: NDArray[np.bool_], way: Choices
) -> float:
    """Mean seconds of a combination over the levels at which another one is possible; infinite if
    it is impossible at one of them.
    """
    return float(table(way)[where].mean()) if where.any() else math.inf


def _runs(
    names: Sequence[Sequence[str]], groups: Sequence[Sequence[Alternative]]
) -> list[tuple[list[int], list[int]]]:
    """Runs of segments such that no group reaches beyond a run; each with its groups.

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
