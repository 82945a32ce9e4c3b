"""A model of the output error as a sum over choices, and the front that it implies.

The error of a setting is taken as the q-norm of the errors that its choices cause alone,
E^q = sum_g e_g^q, with q between 1 (errors add up) and 2 (independent errors). Costs are sums too,
so a dynamic program over the cost gives the least error for every cost at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.passes.search.error_model.groups import Choice, Group
from atlasc.passes.search.error_model.local import Candidate
from atlasc.passes.search.point import Point
from atlasc.passes.search.space import Settings

LARGEST = 10.0
"""Error that stands for an explosion: no front wants it, and logarithms stay finite."""
EXPONENTS = np.linspace(1.0, 2.0, 21)
RIDGE = 0.03
"""Weight of keeping to the probes, against following the evaluations."""
LARGEST_CORRECTION = float(np.log(3.0))
PENALTY = float(np.log(2.0))
"""Added to the logarithmic error of a choice for each explosion that it is blamed for."""


@dataclass(frozen=True)
class Predicted:
    """A setting of the predicted front; its cost is depth, levels or seconds."""

    cost: float
    error: float
    settings: Settings


def interpolated(probes: Mapping[float, float], local: float) -> float:
    """Output error of a choice with a local error, from those of the choices that were probed.

    Piecewise linear in logarithms, proportional outside the probes, and never falling.

    Args:
        probes: output error by local error.
    """
    x = np.log(np.maximum(sorted(probes), 1e-12))
    y = np.log(np.clip([probes[key] for key in sorted(probes)], 1e-12, LARGEST))
    y = np.maximum.accumulate(y)
    at = np.log(max(local, 1e-12))
    if at <= x[0]:
        value = y[0] + (at - x[0])
    elif at >= x[-1]:
        value = y[-1] + (at - x[-1])
    else:
        value = np.interp(at, x, y)
    return float(np.exp(min(value, np.log(LARGEST))))


class ErrorModel:
    """Predicts the error of settings from those of single choices.

    Args:
        groups: of the module.
        alone: (index of a group, choice) to the output error when all else is exact.

    Attributes:
        exponent: q.
    """

    def __init__(self, groups: Sequence[Group], alone: Callable[[int, Choice], float]) -> None:
        self.groups, self._alone = groups, alone
        self._logs: list[dict[Choice, float]] = [{} for _ in groups]
        self._corrections: list[dict[Choice, float]] = [{} for _ in groups]
        self._penalties: list[dict[Choice, float]] = [{} for _ in groups]
        self.exponent = 1.5

    def log_error(self, group: int, choice: Choice) -> float:
        """Logarithm of the corrected error of a choice alone."""
        table = self._logs[group]
        if choice not in table:
            table[choice] = float(np.log(np.clip(self._alone(group, choice), 1e-12, LARGEST)))
        corrected = table[choice] + self._corrections[group].get(choice, 0.0)
        return corrected + self._penalties[group].get(choice, 0.0)

    def predict(self, settings: Settings) -> float:
        """Error of a setting."""
        return float(np.exp(_norm(self._row(settings), self.exponent)))

    def _row(self, settings: Settings) -> np.ndarray:
        return np.array([self.log_error(i, g.of(settings)) for i, g in enumerate(self.groups)])

    def fit(self, points: Sequence[Point]) -> None:
        """Choose q, correct the choices, and learn where values explode, from evaluated points.

        The corrections are a ridge regression of the logarithmic residuals on the share that each
        choice has in the predicted error.
        """
        finite = [p for p in points if p.error < LARGEST]
        self._corrections = [{} for _ in self.groups]
        self._penalties = [{} for _ in self.groups]
        if finite:
            rows = np.array([self._row(p.settings) for p in finite])
            wanted = np.log(np.maximum([p.error for p in finite], 1e-12))
            self.exponent = min(
                EXPONENTS, key=lambda q: float(np.abs(wanted - _norm(rows, q)).mean())
            )
            self._correct([p.settings for p in finite], rows, wanted)
        self._blame(points)

    def _blame(self, points: Sequence[Point]) -> None:
        """Make choices dearer that carry later arguments out of their domains.

        A polynomial explodes when errors before it, or its own, do that. The choice that causes
        most of the error up to there gets the blame, once for every beginning of a setting that was
        seen to explode.
        """
        beginnings: set[tuple[Choice, ...]] = set()
        for point in points:
            choices = [group.of(point.settings) for group in self.groups]
            end = self._explosion(point)
            if end is None or tuple(choices[:end]) in beginnings:
                continue
            beginnings.add(tuple(choices[:end]))
            index = int(np.argmax(self._row(point.settings)[:end]))
            table = self._penalties[index]
            table[choices[index]] = table.get(choices[index], 0.0) + PENALTY

    def _explosion(self, point: Point) -> int | None:
        """How many groups a setting gets through before it explodes, that one included."""
        if point.exploded_at is not None:
            for index, group in enumerate(self.groups):
                if group.holds(point.exploded_at):
                    return index + 1
        return None

    def _correct(self, settings: list[Settings], rows: np.ndarray, wanted: np.ndarray) -> None:
        names: dict[tuple[int, Choice], int] = {}
        for setting in settings:
            for index, group in enumerate(self.groups):
                names.setdefault((index, group.of(setting)), len(names))
        shares = np.exp(self.exponent * (rows - rows.max(axis=1, keepdims=True)))
        shares /= shares.sum(axis=1, keepdims=True)
        design = np.zeros((len(settings), len(names)))
        for row, setting in enumerate(settings):
            for index, group in enumerate(self.groups):
                design[row, names[index, group.of(setting)]] += shares[row, index]
        residual = wanted - _norm(rows, self.exponent)
        normal = design.T @ design + RIDGE * np.eye(len(names))
        solution = np.linalg.solve(normal, design.T @ residual)
        for (index, choice), position in names.items():
            bounded = np.clip(solution[position], -LARGEST_CORRECTION, LARGEST_CORRECTION)
            self._corrections[index][choice] = float(bounded)


Solver = Callable[[ErrorModel, Sequence[Sequence[Candidate]], Settings], list[Predicted]]
"""A model, the candidates of each group and a setting of the right shape to a predicted front."""


def _norm(logs: np.ndarray, exponent: float) -> np.ndarray:
    """Logarithm of the q-norm over the last axis of exp(logs)."""
    top = logs.max(axis=-1)
    total = np.exp(exponent * (logs - top[..., None])).sum(axis=-1)
    return top + np.log(total) / exponent


def solve(
    model: ErrorModel, options: Sequence[Sequence[Candidate]], template: Settings
) -> list[Predicted]:
    """The predicted front: for every cost the setting of least error, where it is an improvement.

    A dynamic program over the groups: F_g[c] = min over candidates of F_(g-1)[c - cost] + e^q. Its
    time is the number of candidates times the greatest cost.

    Args:
        model: of the errors.
        options: for each group its candidates.
        template: a setting that has the right shape.
    """
    most = sum(max(c.cost for c in candidates) for candidates in options)
    best = np.full(most + 1, np.inf)
    best[0] = 0.0
    chosen: list[np.ndarray] = []
    for index, candidates in enumerate(options):
        after, arg = np.full(most + 1, np.inf), np.full(most + 1, -1)
        for position, candidate in enumerate(candidates):
            value = np.exp(model.exponent * model.log_error(index, candidate.choice))
            shifted = np.full(most + 1, np.inf)
            shifted[candidate.cost :] = best[: most + 1 - candidate.cost] + value
            better = shifted < after
            after[better], arg[better] = shifted[better], position
        best = after
        chosen.append(arg)
    front: list[Predicted] = []
    least = np.inf
    for cost in np.flatnonzero(np.isfinite(best)):
        if best[cost] < least:
            least = float(best[cost])
            settings = _trace(model.groups, options, chosen, int(cost), template)
            front.append(Predicted(int(cost), least ** (1 / model.exponent), settings))
    return front


def _trace(
    groups: Sequence[Group],
    options: Sequence[Sequence[Candidate]],
    chosen: Sequence[np.ndarray],
    cost: int,
    template: Settings,
) -> Settings:
    settings = template
    for index in range(len(groups) - 1, -1, -1):
        candidate = options[index][chosen[index][cost]]
        settings = groups[index].put(settings, candidate.choice)
        cost -= candidate.cost
    return settings
