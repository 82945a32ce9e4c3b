"""The search space: eight integers a layer (the paper's section on the search space)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.assign import SOFTMAX_ITERATIONS, VARIABLES, LayerSetting

NAMES = ("p1", "p2", "p3", "p4", "p5", "norm 1", "norm 2", "activation")
LOWER = (1, 0, 0, 0, 0, 1, 1, 1)
UPPER = (7, 7, 7, 7, 7, 9, 9, 9)

Settings = tuple[tuple[int, ...], ...]
"""Eight integers for each layer, in canonical form."""


def choices_per_layer() -> int:
    """Number of different settings of a layer."""
    softmax = 1
    for low, high in zip(LOWER[1:SOFTMAX_ITERATIONS][::-1], UPPER[1:SOFTMAX_ITERATIONS][::-1]):
        softmax = 1 + (high - low) * softmax  # a zero ends the iterations
    softmax *= UPPER[0] - LOWER[0] + 1
    rest = [high - low + 1 for low, high in zip(LOWER, UPPER)][SOFTMAX_ITERATIONS:]
    return softmax * int(np.prod(rest))


@dataclass(frozen=True)
class SearchSpace:
    """Vectors of 8 L integers.

    Attributes:
        layers: L, the number of blocks.
    """

    layers: int

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise AtlasError("the model has no block to search settings for")

    @property
    def variables(self) -> int:
        """8 L."""
        return VARIABLES * self.layers

    @property
    def lower(self) -> np.ndarray:
        """Least values, [8 L]."""
        return np.tile(LOWER, self.layers)

    @property
    def upper(self) -> np.ndarray:
        """Greatest values, [8 L]."""
        return np.tile(UPPER, self.layers)

    def decode(self, vector: Sequence[int] | np.ndarray) -> Settings:
        """The settings of a vector, in canonical form: what follows a zero is zero.

        Raises:
            AtlasError: the wrong length, or a value out of bounds.
        """
        values = np.asarray(vector)
        if values.shape != (self.variables,):
            raise AtlasError(
                f"{self.layers} layers have {self.variables} settings, not {values.size}",
                remedy=f"give {VARIABLES} integers for each layer",
            )
        outside = np.flatnonzero((values < self.lower) | (values > self.upper))
        if len(outside):
            first = int(outside[0])
            layer, index = divmod(first, VARIABLES)
            raise AtlasError(
                f"{NAMES[index]} of layer {layer} cannot be {values[first]}",
                why=f"it goes from {LOWER[index]} to {UPPER[index]}",
            )
        return tuple(
            LayerSetting.of(row).integers for row in values.reshape(-1, VARIABLES).tolist()
        )

    def encode(self, settings: Sequence[Sequence[int]]) -> np.ndarray:
        """The vector of settings, [8 L] integers.

        Raises:
            AtlasError: as `decode`.
        """
        flat = [int(value) for layer in settings for value in layer]
        return np.array([value for layer in self.decode(flat) for value in layer], dtype=np.int64)

    def random(self, count: int, generator: np.random.Generator) -> np.ndarray:
        """Uniform vectors, [count, 8 L]."""
        return generator.integers(self.lower, self.upper + 1, size=(count, self.variables))

    def shared(self, layer: Sequence[int] | np.ndarray) -> np.ndarray:
        """The vector in which all layers have the same eight integers."""
        return np.tile(np.asarray(layer, dtype=np.int64), self.layers)
