"""Candidates of all ops and a latency model to a front of predicted seconds against error."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.passes.approximation.description import Approximation
from atlasc.passes.latency import LatencyModel, TimedChain
from atlasc.passes.search.dynamic_programs.min_plus import (
    RESOLUTION,
    Option,
    Path,
    non_dominated,
    prune,
    solve,
)


@dataclass(frozen=True)
class Candidate:
    """One choice of a group of ops.

    Attributes:
        approximations: of the group's ops, by result name.
        error: that the choice adds to the model's.
    """

    approximations: Mapping[str, Approximation]
    error: float


def latency_front(
    model: LatencyModel,
    groups: Sequence[Sequence[Candidate]],
    fixed: Mapping[str, Approximation] | None = None,
    resolution: int = RESOLUTION,
) -> list[Path]:
    """The least predicted seconds for every error, from cheap to accurate.

    The choices of a path are indices of the groups' candidates.

    Args:
        model: of the module.
        groups: candidates of each group; together with `fixed` they cover all ops.
        fixed: approximations of ops that are in no group.
        resolution: see `solve`.
    """
    found: dict[tuple[int, ...], Path] = {}
    for parameters in model.parameters_from(_least_levels(model, groups, dict(fixed or {}))):
        problem = _Problem(model.chain(parameters), groups, dict(fixed or {}))
        for path in solve(problem.chain.start, problem.stages, resolution):
            choices = problem.choices(path)
            if choices in found:
                continue
            # The target may prefer another parameter set than the one that this was solved for.
            seconds = model.seconds(problem.approximations(choices))
            if math.isfinite(seconds):
                found[choices] = Path(seconds, path.error, choices)
    return non_dominated(found.values())


def _least_levels(
    model: LatencyModel,
    groups: Sequence[Sequence[Candidate]],
    fixed: dict[str, Approximation],
) -> int:
    """Levels of the program where every group takes as few as it can, one after the other."""
    chosen = dict(fixed)
    for group in groups:
        chosen.update(group[0].approximations)
    for group in groups:
        ways = [{**chosen, **candidate.approximations} for candidate in group]
        chosen = min(ways, key=model.levels)
    return model.levels(chosen)


class _Problem:
    """The stages of one parameter set.

    A stage is one segment, or several where a group has ops in each; its options are the
    combinations of the candidates of its groups.
    """

    def __init__(
        self,
        chain: TimedChain,
        groups: Sequence[Sequence[Candidate]],
        fixed: dict[str, Approximation],
    ) -> None:
        self.chain, self._groups, self._fixed = chain, groups, fixed
        self.stages: list[list[Option]] = []
        self._members: list[list[int]] = []
        self._combinations: list[list[tuple[int, ...]]] = []
        for segments, members in _runs(chain.names, groups):
            self._members.append(members)
            self._add(segments, members)

    def choices(self, path: Path) -> tuple[int, ...]:
        """Index of the candidate of each group."""
        chosen = [0] * len(self._groups)
        for number, option in enumerate(path.choices):
            combination = self._combinations[number][option]
            for group, index in zip(self._members[number], combination, strict=True):
                chosen[group] = index
        return tuple(chosen)

    def approximations(self, choices: Sequence[int]) -> dict[str, Approximation]:
        """Of all ops."""
        found = dict(self._fixed)
        for group, index in zip(self._groups, choices, strict=True):
            found.update(group[index].approximations)
        return found

    def _add(self, segments: Sequence[int], members: Sequence[int]) -> None:
        options: list[Option] = []
        combinations: list[tuple[int, ...]] = []
        kept = [range(len(self._groups[group])) for group in members]
        for combination in itertools.product(*kept):
            candidates = [self._groups[g][i] for g, i in zip(members, combination, strict=True)]
            approximations = dict(self._fixed)
            for candidate in candidates:
                approximations.update(candidate.approximations)
            error = math.fsum(candidate.error for candidate in candidates)
            if math.isfinite(error):
                options.append(Option(self._table(segments, approximations), error))
                combinations.append(combination)
        worth = prune(options) if options else []
        self.stages.append([options[index] for index in worth])
        self._combinations.append([combinations[index] for index in worth])

    def _table(
        self, segments: Sequence[int], approximations: Mapping[str, Approximation]
    ) -> np.ndarray:
        first, *rest = segments
        table = self.chain.table(first, approximations)
        for number in rest:
            following = self.chain.table(number, approximations)
            if following.ndim == 1:
                table = (table + following).min(axis=1)
            else:
                table = (table[:, :, None] + following[None]).min(axis=1)
        return table if table.ndim == 2 else table[:, None]


def _runs(
    names: Sequence[Sequence[str]], groups: Sequence[Sequence[Candidate]]
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
