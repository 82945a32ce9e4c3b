"""What evaluates settings: in this process, or on workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from atlasc.passes.search.front import Point
from atlasc.passes.search.space import Settings

Found = Callable[[Point], None]
"""Called with each point as soon as it is known."""


class Evaluator(ABC):
    """Evaluates settings of one module; equal settings are evaluated once.

    What a setting costs does not depend on who evaluates it, nor on what was evaluated before.

    Attributes:
        known: all evaluated points by settings; points of an earlier run may be put there.
        layers: of the early-layer proxy; None for the whole model.
    """

    def __init__(self, layers: int | None = None) -> None:
        self.layers = layers
        self.known: dict[Settings, Point] = {}

    def evaluate_all(self, batch: Sequence[Settings], found: Found | None = None) -> list[Point]:
        """Points of settings in canonical form, in their order.

        Args:
            batch: the settings.
            found: called with each point that was not known before, in any order.
        """
        missing = sorted(set(batch) - set(self.known))
        for point in self.points(missing):
            self.known[point.settings] = point
            if found is not None:
                found(point)
        return [self.known[settings] for settings in batch]

    @abstractmethod
    def points(self, settings: Sequence[Settings]) -> Iterator[Point]:
        """Evaluate different settings, in any order."""
