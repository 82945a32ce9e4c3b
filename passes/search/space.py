"""The search space: some integers a layer, eight in the paper (its section on the search space)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.parametrisation import EXACT, PAPER, Parametrisation

Settings = tuple[tuple[int, ...], ...]
"""The integers of each layer, in canonical form; `EXACT` for ops that are computed exactly."""

EXPERT_LAYER = (5, 5, 5, 5, 7, 9, 9, 9)
"""The setting `is` of every layer; its cost is the reference cost of hypervolumes."""


@dataclass(frozen=True)
class SearchSpace:
    """Vectors of the integers of all layers, 8 L in the paper.

    Attributes:
        layers: L, the number of blocks.
        parametrisation: what the integers of a layer stand for.
    """

    layers: int
    parametrisation: Parametrisation = PAPER

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise AtlasError("the model has no block to search settings for")

    @property
    def variables(self) -> int:
        """Length of a vector."""
        return self.parametrisation.variables * self.layers

    @property
    def lower(self) -> np.ndarray:
        """Least values, one for each variable."""
        return self.shared(self.parametrisation.lower)

    @property
    def upper(self) -> np.ndarray:
        """Greatest values, one for each variable."""
        return self.shared(self.parametrisation.upper)

    def decode(self, vector: Sequence[int] | np.ndarray) -> Settings:
        """The settings of a vector, in canonical form.

        Raises:
            AtlasError: the wrong length, or a value out of bounds.
        """
        values = np.asarray(vector)
        if values.shape != (self.variables,):
            raise AtlasError(
                f"{self.layers} layers have {self.variables} settings, not {values.size}",
                remedy=f"give {self.parametrisation.variables} integers for each layer",
            )
        outside = np.flatnonzero(
            ((values < self.lower) | (values > self.upper)) & (values != EXACT)
        )
        if len(outside):
            first = int(outside[0])
            layer, index = divmod(first, self.parametrisation.variables)
            raise AtlasError(
                f"{self.parametrisation.names[index]} of layer {layer} cannot be {values[first]}",
                why=f"it goes from {self.lower[first]} to {self.upper[first]}",
            )
        rows = values.reshape(self.layers, -1).tolist()
        return tuple(self.parametrisation.canonical(row) for row in rows)

    def encode(self, settings: Sequence[Sequence[int]]) -> np.ndarray:
        """The vector of settings.

        Raises:
            AtlasError: as `decode`.
        """
        flat = [int(value) for layer in settings for value in layer]
        return np.array(self.decode(flat), dtype=np.int64).ravel()

    def random(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Uniform vectors, [count, variables]."""
        return generator.integers(self.lower, self.upper + 1, size=(count, self.variables))

    def shared(self, layer: Sequence[int] | np.ndarray) -> np.ndarray:
        """The vector in which all layers have the same integers."""
        return np.tile(np.asarray(layer, dtype=np.int64), self.layers)


def is_partial(settings: Settings) -> bool:
    """Whether some op is left exact, so that the setting is a probe and no program."""
    return any(EXACT in layer for layer in settings)


def expert(layers: int) -> Settings:
    """The setting `is` in the paper's integers."""
    return (EXPERT_LAYER,) * layers


def expert_layer(parametrisation: Parametrisation = PAPER) -> tuple[int, ...]:
    """The integers that stand for the setting `is` of a layer: its degrees, or where the ladder
    lacks one the next higher degree, or the highest.
    """
    ladder = [parametrisation.degree(index) for index in range(1, max(parametrisation.upper) + 1)]
    indices = [
        next((index for index, degree in enumerate(ladder, 1) if degree >= PAPER.degree(p)), high)
        for p, high in zip(EXPERT_LAYER, parametrisation.upper)
    ]
    others = parametrisation.lower[len(indices) :]
    return (*map(min, indices, parametrisation.upper), *others)
