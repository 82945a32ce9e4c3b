"""The choices of a setting: which of a layer's integers belong to which op."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from atlasc.ir.module import Module
from atlasc.passes.approximation.approximate import Place, places
from atlasc.passes.approximation.description import family_of
from atlasc.passes.approximation.parametrisation import (
    ACTIVATION,
    ALGORITHM,
    FIRST_NORM,
    SECOND_NORM,
    SOFTMAX,
    SOFTMAX_ITERATIONS,
    Parametrisation,
)
from atlasc.passes.search.space import Settings

Choice = tuple[int, ...]
"""The integers of one group."""


@dataclass(frozen=True)
class Group:
    """Ops of one block that one choice governs.

    Attributes:
        block: position of the block.
        kind: "softmax", "first norm", "second norm" or "activation".
        places: its ops, one where a block has no more than two norms.
        columns: positions of its integers in those of a layer.
    """

    block: int
    kind: str
    places: tuple[Place, ...]
    columns: tuple[int, ...]

    def holds(self, where: str) -> bool:
        """Whether one of its ops is the one named "module path: op"."""
        return any(f"{place.op.location}: {place.op.name}" == where for place in self.places)

    def pick(self, layer: Sequence[int]) -> Choice:
        """Its integers among those of a layer."""
        return tuple(layer[column] for column in self.columns)

    def of(self, settings: Settings) -> Choice:
        """Its choice in a setting."""
        return self.pick(settings[self.block])

    def put(self, settings: Settings, choice: Choice) -> Settings:
        """The setting with another choice of this group."""
        layer = list(settings[self.block])
        for column, value in zip(self.columns, choice, strict=True):
            layer[column] = value
        return (*settings[: self.block], tuple(layer), *settings[self.block + 1 :])


def kind_of(place: Place) -> str:
    """The kind of group that an op belongs to."""
    family = family_of(place.op.name)
    if family == "norm":
        return "second norm" if place.norm else "first norm"
    return family


def groups_of(module: Module, parametrisation: Parametrisation) -> list[Group]:
    """All groups of a module in order of execution."""
    algorithm = ALGORITHM if len(parametrisation.algorithms) > 1 else ()
    columns: dict[str, tuple[int, ...]] = {
        "softmax": (*SOFTMAX, *algorithm),
        "first norm": FIRST_NORM,
        "second norm": SECOND_NORM,
        "activation": ACTIVATION,
    }
    found: dict[tuple[int, str], list[Place]] = {}
    for place in places(module):
        if place.block is not None:
            found.setdefault((place.block, kind_of(place)), []).append(place)
    return [Group(b, kind, tuple(ops), columns[kind]) for (b, kind), ops in found.items()]


def starts(group: Group, lower: Choice, upper: Choice) -> list[Choice]:
    """Choices from which steps of one lead to all others: the greatest ones, of a softmax for each
    algorithm and number of iterations.
    """
    if group.kind != "softmax":
        return [upper]
    bounds = zip(lower[SOFTMAX_ITERATIONS:], upper[SOFTMAX_ITERATIONS:])
    algorithms = itertools.product(*(range(least, most + 1) for least, most in bounds))
    return [
        (*upper[:count], *[0] * (SOFTMAX_ITERATIONS - count), *algorithm)
        for algorithm in algorithms
        for count in range(1, SOFTMAX_ITERATIONS + 1)
    ]
