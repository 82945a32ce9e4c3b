"""A model of the output error as a sum over the choices of a setting.

A choice is the integers of one group, which are the ops of a block that share them. The error of a
setting is taken as the q-norm of the errors that each choice causes alone, E^q = sum_g e_g^q, with
q between 1 (errors add up) and 2 (independent errors).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.ir.module import Module, family_of
from atlasc.passes.approximation.approximate import NonlinearPlace, layer_count, places
from atlasc.polynomials.parametrisation import (
    ACTIVATION,
    ALGORITHM,
    FIRST_NORM,
    SECOND_NORM,
    SOFTMAX,
    SOFTMAX_ITERATIONS,
    Parametrisation,
)
from atlasc.search.points import Point, Settings

Choice = tuple[int, ...]
"""The integers of one group."""
LARGEST = 10.0
"""Error that stands for an explosion: no front wants it, and logarithms stay finite."""
SMALLEST = 1e-12
EXPONENTS = np.linspace(1.0, 2.0, 21)
RIDGE = 0.03
"""Weight of staying near the probes, against following the evaluations."""
LARGEST_CORRECTION = float(np.log(3.0))
PENALTY = float(np.log(2.0))
"""Amount added to the logarithmic error of a choice for each explosion that it is blamed for."""


@dataclass(frozen=True)
class Group:
    """Ops of one block, or of consecutive blocks, that share one choice.

    Attributes:
        block: position of the first of the blocks.
        kind: "softmax", "first norm", "second norm" or "activation".
        places: the ops; a single op if a block has no more than two norms.
        columns: positions of the group's integers among those of a layer.
        blocks: number of blocks.
    """

    block: int
    kind: str
    places: tuple[NonlinearPlace, ...]
    columns: tuple[int, ...]
    blocks: int = 1

    def holds(self, where: str | None) -> bool:
        """Whether one of the group's ops is named "module path: op"."""
        return any(f"{place.op.location}: {place.op.name}" == where for place in self.places)

    def pick(self, layer: Sequence[int]) -> Choice:
        """The group's integers among those of a layer."""
        return tuple(layer[column] for column in self.columns)

    def of(self, settings: Settings) -> Choice:
        """The group's choice in a setting."""
        return self.pick(settings[self.block])

    def put(self, settings: Settings, choice: Choice) -> Settings:
        """The setting with another choice of this group."""
        end = self.block + self.blocks
        layers = [list(layer) for layer in settings[self.block : end]]
        for layer, (column, value) in itertools.product(
            layers, list(zip(self.columns, choice, strict=True))
        ):
            layer[column] = value
        return (*settings[: self.block], *map(tuple, layers), *settings[end:])


def groups_of(module: Module, parametrisation: Parametrisation, shared: int = 1) -> list[Group]:
    """All groups of a module in order of execution.

    Args:
        module: the module.
        parametrisation: meaning of the integers of a layer.
        shared: number of consecutive blocks that share their choices.
    """
    algorithm = ALGORITHM if len(parametrisation.algorithms) > 1 else ()
    columns: dict[str, tuple[int, ...]] = {
        "softmax": (*SOFTMAX, *algorithm),
        "first norm": FIRST_NORM,
        "second norm": SECOND_NORM,
        "activation": ACTIVATION,
    }
    found: dict[tuple[int, str], list[NonlinearPlace]] = {}
    for place in places(module):
        if place.block is not None:
            kind = family_of(place.op.name)
            if kind == "norm":
                kind = "second norm" if place.norm else "first norm"
            first = place.block - place.block % shared
            found.setdefault((first, kind), []).append(place)
    count = layer_count(module)
    return [
        Group(first, kind, tuple(ops), columns[kind], min(shared, count - first))
        for (first, kind), ops in found.items()
    ]


def starts(group: Group, lower: Choice, upper: Choice) -> list[Choice]:
    """Choices from which steps of one lead to all others: every degree; for a softmax, equal
    degrees of all iterations, for each algorithm and number of iterations.

    One start would not do. On a narrow range many degrees consume the same levels, because only a
    few of their terms count, and the greatest of these degrees covers the choices next to it.
    """
    degrees = range(max(1, lower[0]), upper[0] + 1)
    if group.kind != "softmax":
        return [(degree,) for degree in degrees]
    bounds = zip(lower[SOFTMAX_ITERATIONS:], upper[SOFTMAX_ITERATIONS:])
    algorithms = itertools.product(*(range(least, most + 1) for least, most in bounds))
    return [
        (
            *[min(degree, most) for most in upper[:count]],
            *[0] * (SOFTMAX_ITERATIONS - count),
            *algorithm,
        )
        for algorithm in algorithms
        for count in range(1, SOFTMAX_ITERATIONS + 1)
        for degree in degrees
    ]


def interpolated(probes: Mapping[float, float], local: float) -> float:
    """Output error of a choice with a local error, from probes (local error -> output error).

    Piecewise linear in logarithms, proportional outside the probes, and never falling.
    """
    x = np.log(np.maximum(sorted(probes), SMALLEST))
    y = np.log(np.clip([probes[key] for key in sorted(probes)], SMALLEST, LARGEST))
    y = np.maximum.accumulate(y)
    at = np.log(max(local, SMALLEST))
    # Beyond the first and the last probe, np.interp is constant; the rest is added in proportion.
    value = np.interp(at, x, y) + min(at - x[0], 0) + max(at - x[-1], 0)
    return float(np.exp(min(value, np.log(LARGEST))))


class ErrorModel:
    """Predicts the error of settings from the errors of single choices.

    Args:
        groups: groups of the module.
        alone: (index of a group, choice) -> output error if everything else is exact.

    Attributes:
        exponent: q.
    """

    def __init__(self, groups: Sequence[Group], alone: Callable[[int, Choice], float]) -> None:
        self.groups, self._alone = groups, alone
        self._logs: dict[tuple[int, Choice], float] = {}
        self._corrections: dict[tuple[int, Choice], float] = {}
        self._penalties: defaultdict[tuple[int, Choice], float] = defaultdict(float)
        self.exponent = 1.5

    def log_error(self, group: int, choice: Choice) -> float:
        """Logarithm of the corrected error of a choice alone."""
        key = group, choice
        if key not in self._logs:
            self._logs[key] = float(np.log(np.clip(self._alone(*key), SMALLEST, LARGEST)))
        return self._logs[key] + self._corrections.get(key, 0.0) + self._penalties.get(key, 0.0)

    def _choices(self, settings: Settings) -> list[tuple[int, Choice]]:
        return [(index, group.of(settings)) for index, group in enumerate(self.groups)]

    def _row(self, settings: Settings) -> np.ndarray:
        return np.array([self.log_error(*key) for key in self._choices(settings)])

    def fit(self, points: Sequence[Point]) -> None:
        """Choose q, correct the choices, and learn where values explode, from evaluated points.

        The corrections are a ridge regression of the logarithmic residuals on the share that each
        choice has in the predicted error.
        """
        finite = [p for p in points if p.error < LARGEST]
        self._corrections.clear()
        self._penalties.clear()
        if finite:
            rows = np.array([self._row(p.settings) for p in finite])
            true = np.log(np.maximum([p.error for p in finite], SMALLEST))
            self.exponent = min(
                EXPONENTS, key=lambda q: float(np.abs(true - _norm(rows, q)).mean())
            )
            self._correct([p.settings for p in finite], rows, true)
        self._blame(points)

    def _correct(self, settings: Sequence[Settings], rows: np.ndarray, true: np.ndarray) -> None:
        choices = [self._choices(setting) for setting in settings]
        positions = {
            key: n for n, key in enumerate(dict.fromkeys(k for row in choices for k in row))
        }
        shares = np.exp(self.exponent * (rows - rows.max(axis=1, keepdims=True)))
        shares /= shares.sum(axis=1, keepdims=True)
        design = np.zeros((len(settings), len(positions)))
        for row, keys in enumerate(choices):
            design[row, [positions[key] for key in keys]] = shares[row]
        residual = true - _norm(rows, self.exponent)
        normal = design.T @ design + RIDGE * np.eye(len(positions))
        solution = np.linalg.solve(normal, design.T @ residual)
        bounded = np.clip(solution, -LARGEST_CORRECTION, LARGEST_CORRECTION).tolist()
        self._corrections.update(zip(positions, bounded, strict=True))

    def _blame(self, points: Sequence[Point]) -> None:
        """Raise the predicted error of choices that drive later arguments out of their domains.

        A polynomial explodes because of errors before it, or its own. The choice that causes most
        of the error up to there gets the blame, once for every prefix of a setting that was seen to
        explode.
        """
        beginnings: set[tuple[tuple[int, Choice], ...]] = set()
        for point in points:
            where = point.exploded_at
            at = next((i for i, group in enumerate(self.groups) if group.holds(where)), None)
            if at is None:
                continue
            beginning = tuple(self._choices(point.settings)[: at + 1])
            if beginning in beginnings:
                continue
            beginnings.add(beginning)
            errors = [self.log_error(*key) for key in beginning]
            self._penalties[beginning[int(np.argmax(errors))]] += PENALTY


def _norm(logs: np.ndarray, exponent: float) -> np.ndarray:
    """Logarithm of the q-norm over the last axis of exp(logs)."""
    top = logs.max(axis=-1)
    total = np.exp(exponent * (logs - top[..., None])).sum(axis=-1)
    return top + np.log(total) / exponent
