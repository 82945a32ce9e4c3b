"""Mends a setting under which a few inputs get wrong answers, one choice of one group at a time.

A search compares settings by the mean error of a few inputs. Such a mean hides a polynomial that is
right for nearly all inputs and wrong for one in a hundred: mostly that of a softmax, whose rows
differ from input to input. So the setting that would be taken is tried on many inputs that
calibration saw. If an op is to blame for wrong answers, another choice is taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.passes.search.error_model import Choice, Group, groups_of
from atlasc.passes.search.points import Point, Settings
from atlasc.passes.search.search_problem import Objective, SearchProblem
from atlasc.passes.search.validation import Validator

MOST_WRONG = 0.05
"""Share of the inputs that may be wrong: beyond it a setting is too coarse, not a single choice."""
ROUNDS, DEARER = 2, 6
"""How often all ops are looked at, and how many dearer choices are tried for one that is to blame.
"""


@dataclass(frozen=True)
class Mender:
    """Mends settings of a problem.

    Args:
        problem: what is searched.
        known: settings whose choices are taken instead of others.
        validator: of many inputs that calibration saw.
        report: called with what is done.
    """

    problem: SearchProblem
    known: Sequence[Settings]
    validator: Validator
    report: Callable[[str], object] = lambda note: None

    def mended(self, point: Point) -> Point | None:
        """The point with other choices, under which fewer of the inputs get wrong answers; None
        where none does, where too many do, or where no choice helps.
        """
        objective = self.problem.objective()
        wrong = self.validator.wrong(objective.approximations(point.settings), point.error)
        self.report(f"{int(wrong.sum())} of {len(wrong)} inputs are wrong")
        if not 0 < wrong.mean() <= MOST_WRONG:
            return None
        allowed = max(point.error, self.problem.aim or 0.0)
        hard = self.validator.only(np.flatnonzero(wrong))
        search = _Search(objective, hard, point.error, allowed)
        groups = groups_of(self.problem.module, self.problem.parametrisation)
        choices = {group: search.choices(group, self.known) for group in groups}
        settings, left = point.settings, hard.inputs
        for _ in range(ROUNDS):
            settings, fewer = search.better(settings, choices, left)
            if fewer in (0, left):
                break
            left = fewer
        return None if settings == point.settings else objective.evaluate(settings)


class _Search:
    """Looks for choices under which fewer of some inputs are wrong.

    Args:
        hard: of these inputs.
        error: of the setting on the search inputs, from which follows what it promises.
        allowed: error that a mended setting may have on them.
    """

    def __init__(self, objective: Objective, hard: Validator, error: float, allowed: float) -> None:
        self._objective, self._hard = objective, hard
        self._error, self._allowed = error, allowed

    def choices(self, group: Group, known: Sequence[Settings]) -> list[Choice]:
        """The choices of a group in some settings, from cheap to dear."""

        def cost(settings: Settings) -> tuple[int, int]:
            depth, levels = self._objective.costs(
                self._objective.approximations(settings, group.places)
            )
            return levels, depth

        costs = {group.of(settings): cost(settings) for settings in known}
        return sorted(costs, key=lambda choice: (costs[choice], choice))

    def better(
        self, settings: Settings, choices: dict[Group, list[Choice]], left: int
    ) -> tuple[Settings, int]:
        """The setting with other choices for the ops that are to blame: those without whose
        polynomials fewer inputs are wrong. Of the choices under which fewer are, the cheapest one.

        Args:
            left: how many inputs are wrong under the setting.

        Returns:
            the setting, and how many inputs are wrong under it.
        """
        blamed = {group: n for group in choices if (n := self._wrong(settings, group)) < left}
        for group, least in sorted(blamed.items(), key=lambda item: item[1]):
            here, before = choices[group].index(group.of(settings)), settings
            for choice in choices[group][here + 1 :][:DEARER]:
                changed = group.put(before, choice)
                found = self._wrong(changed)
                if found < left and self._objective.evaluate(changed).error <= self._allowed:
                    settings, left = changed, found
                if left <= least:
                    break
        return settings, left

    def _wrong(self, settings: Settings, without: Group | None = None) -> int:
        """How many inputs are wrong under a setting; a group may be computed exactly."""
        chosen = self._objective.approximations(settings)
        for place in () if without is None else without.places:
            chosen.pop(place.op.value.name, None)
        return int(self._hard.wrong(chosen, self._error).sum())
