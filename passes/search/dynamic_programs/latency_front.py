"""The front where the cost is the predicted seconds: degrees and bootstraps are chosen together.

Seconds are no sum over choices: what a choice takes depends on the level that the ones before it
leave. So the choices of all groups of ops, and the levels between them, go through one (min,+)
program (`min_plus`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.passes.approximation.description import Approximation
from atlasc.passes.latency import LatencyModel, TimedChain
from atlasc.passes.search.dynamic_programs.additive import Predicted
from atlasc.passes.search.dynamic_programs.min_plus import (
    RESOLUTION,
    Option,
    Path,
    non_dominated,
    prune,
    solve,
)
from atlasc.passes.search.error_model.groups import Choice, Group
from atlasc.passes.search.error_model.local import Candidate
from atlasc.passes.search.error_model.surrogate import ErrorModel
from atlasc.passes.search.space import Settings

STEPS = 200
"""Points of a front at most, as many as a front of levels has about."""

Approximations = Mapping[str, Approximation]
"""By result name."""


@dataclass(frozen=True)
class Alternative:
    """One choice of a group of ops.

    Attributes:
        approximations: of the group's ops.
        error: that the choice adds to the model's.
    """

    approximations: Approximations
    error: float


def solve_seconds(
    latency: LatencyModel,
    approximations: Callable[[Group, Choice], Approximations],
    fixed: Approximations,
    model: ErrorModel,
    options: Sequence[Sequence[Candidate]],
    template: Settings,
) -> list[Predicted]:
    """The front of predicted seconds against predicted error; see `additive.solve`. As there, the
    powers e^q of the errors add up.

    Args:
        latency: of the module.
        approximations: of the ops of a group under a choice.
        fixed: approximations of the ops that are in no group.
        model: of the errors.
        options: for each group its candidates.
        template: a setting that has the right shape.
    """
    groups = [
        [
            Alternative(
                approximations(group, candidate.choice),
                math.exp(model.exponent * model.log_error(index, candidate.choice)),
            )
            for candidate in candidates
        ]
        for index, (group, candidates) in enumerate(zip(model.groups, options, strict=True))
    ]
    front = []
    for path in evenly(latency_front(latency, groups, fixed)):
        settings = template
        for group, candidates, index in zip(model.groups, options, path.choices, strict=True):
            settings = group.put(settings, candidates[index].choice)
        front.append(Predicted(path.seconds, path.error ** (1 / model.exponent), settings))
    return front


def evenly(front: Sequence[Path]) -> list[Path]:
    """The most accurate point of each of `STEPS` equal spans of seconds. Where many choices trade
    little for little a front is dense, and would be sampled there alone.
    """
    if not front:
        return []
    first, last = front[0].seconds, front[-1].seconds
    step = max(last - first, 1e-9) / (STEPS - 1)
    return list({int((point.seconds - first) / step): point for point in front}.values())


def latency_front(
    model: LatencyModel,
    groups: Sequence[Sequence[Alternative]],
    fixed: Approximations | None = None,
    resolution: int = RESOLUTION,
) -> list[Path]:
    """The least predicted seconds for every error, from cheap to accurate.

    The choices of a path are indices of the groups' alternatives.

    Args:
        model: of the module.
        groups: alternatives of each group; together with `fixed` they cover all ops.
        fixed: approximations of ops that are in no group.
        resolution: see `solve`.
    """
    fixed = fixed or {}
    found: dict[tuple[int, ...], Path] = {}
    for parameters in model.parameters_from(_least_levels(model, groups, fixed)):
        chain = model.chain(parameters)
        stages = [_Stage(chain, *run, groups, fixed) for run in _runs(chain.names, groups)]
        for path in solve(chain.start, [stage.options for stage in stages], resolution):
            by_group: dict[int, int] = {}
            for stage, option in zip(stages, path.choices, strict=True):
                by_group.update(zip(stage.members, stage.combinations[option], strict=True))
            choices = tuple(by_group.get(group, 0) for group in range(len(groups)))
            if choices in found:
                continue
            # The target may prefer another parameter set than the one that this was solved for.
            every = (group[index] for group, index in zip(groups, choices, strict=True))
            seconds = model.seconds(_merged(fixed, every))
            if math.isfinite(seconds):
                found[choices] = Path(seconds, path.error, choices)
    return non_dominated(found.values())


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


class _Stage:
    """One segment, or several where a group has ops in each.

    Attributes:
        members: numbers of its groups.
        combinations: for each option the indices of the alternatives of these groups.
        options: combinations that no other one beats.
    """

    def __init__(
        self,
        chain: TimedChain,
        segments: Sequence[int],
        members: Sequence[int],
        groups: Sequence[Sequence[Alternative]],
        fixed: Approximations,
    ) -> None:
        self.members = members
        options: list[Option] = []
        combinations: list[tuple[int, ...]] = []
        for combination in itertools.product(*(range(len(groups[group])) for group in members)):
            chosen = [groups[g][i] for g, i in zip(members, combination, strict=True)]
            error = math.fsum(alternative.error for alternative in chosen)
            if math.isfinite(error):
                options.append(Option(_table(chain, segments, _merged(fixed, chosen)), error))
                combinations.append(combination)
        kept = prune(options)
        self.options = [options[index] for index in kept]
        self.combinations = [combinations[index] for index in kept]


def _table(
    chain: TimedChain, segments: Sequence[int], approximations: Approximations
) -> np.ndarray:
    """Seconds of consecutive segments, [level before, level after]."""
    first, *rest = segments
    table = chain.table(first, approximations)
    for number in rest:
        following = chain.table(number, approximations)
        if following.ndim == 1:
            table = (table + following).min(axis=1)
        else:
            table = (table[:, :, None] + following[None]).min(axis=1)
    return table if table.ndim == 2 else table[:, None]


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
