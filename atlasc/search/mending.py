"""Mends a setting that answers a few inputs wrongly, one choice of one group at a time.

A search compares settings by the mean error of a few inputs. Such a mean hides a polynomial that is
right for nearly all inputs and wrong for one in a hundred. Mostly this is the polynomial of a
softmax, whose rows differ from input to input. So the setting that would be taken is checked on
many calibration inputs. If an op is to blame for wrong answers, another choice is taken for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.search.error_model import Choice, Group
from atlasc.search.points import Point, Settings
from atlasc.search.search_problem import Objective, SearchProblem
from atlasc.search.validation import Validator

MOST_WRONG = 0.05
"""Share of wrong inputs beyond which the whole setting is too coarse, not a single choice."""
ROUNDS, DEARER = 2, 6
"""Number of passes over all ops, and number of costlier choices that are checked for an op that is
to blame."""


@dataclass(frozen=True)
class Mender:
    """Mends settings of a problem.

    Args:
        problem: the search problem.
        objective: objective of the problem.
        known: settings whose choices may replace others.
        validator: validator on many calibration inputs.
        report: called with a description of the current work.
    """

    problem: SearchProblem
    objective: Objective
    known: Sequence[Settings]
    validator: Validator
    report: Callable[[str], object] = lambda note: None

    def mended(self, point: Point) -> Point | None:
        """The point with other choices, under which fewer inputs are answered wrongly.

        None if no input is wrong, if too many are, or if no choice helps.
        """
        wrong = self.validator.wrong(self.objective.approximations(point.settings), point.error)
        self.report(f"{int(wrong.sum())} of {len(wrong)} inputs are wrong")
        if not 0 < wrong.mean() <= MOST_WRONG:
            return None
        hard = self.validator.only(np.flatnonzero(wrong))
        search = _Search(self, hard, point.error, max(point.error, self.problem.aim or 0.0))
        best, left = point, hard.inputs
        for _ in range(ROUNDS):
            best, fewer = search.better(best, left)
            if fewer in (0, left):
                break
            left = fewer
        return None if best is point else best


@dataclass(frozen=True)
class _Search:
    """Looks for choices under which fewer of some inputs are answered wrongly.

    Args:
        of: the mender.
        hard: validator on these inputs.
        error: error of the point on the search inputs, which determines its promise.
        allowed: error that a mended point may have on the search inputs.
    """

    of: Mender
    hard: Validator
    error: float
    allowed: float

    def better(self, point: Point, left: int) -> tuple[Point, int]:
        """The point with other choices for the ops that are to blame.

        An op is to blame if fewer inputs are wrong when it is computed exactly. Of the choices
        under which fewer inputs are wrong, the cheapest is taken.

        Args:
            point: the point to mend.
            left: number of inputs that are wrong under it.

        Returns:
            The point, and the number of inputs that are wrong under it.
        """
        groups = self.of.problem.groups
        blamed = {group: n for group in groups if (n := self._wrong(point.settings, group)) < left}
        for group, least in sorted(blamed.items(), key=lambda item: item[1]):
            before = point.settings
            for choice in self._dearer(group, before)[:DEARER]:
                changed = group.put(before, choice)
                found = self._wrong(changed)
                if found < left:
                    one = self.of.objective.evaluate(changed)
                    if one.error <= self.allowed:
                        point, left = one, found
                if left <= least:
                    break
        return point, left

    def _dearer(self, group: Group, settings: Settings) -> list[Choice]:
        """The choices of a group in known settings that cost more than its own, the cheapest
        first.
        """
        objective = self.of.objective

        def cost(settings: Settings) -> tuple[int, int]:
            depth, levels = objective.costs(objective.approximations(settings, group.places))
            return levels, depth

        known = {group.of(one): one for one in self.of.known}
        costs = {choice: (*cost(one), choice) for choice, one in known.items()}
        own = (*cost(settings), group.of(settings))
        return sorted((one for one in costs if costs[one] > own), key=lambda one: costs[one])

    def _wrong(self, settings: Settings, without: Group | None = None) -> int:
        """Number of wrong inputs under a setting; the group ``without`` is computed exactly."""
        chosen = self.of.objective.approximations(settings)
        for place in () if without is None else without.places:
            chosen.pop(place.op.value.name, None)
        return int(self.hard.wrong(chosen, self.error).sum())
