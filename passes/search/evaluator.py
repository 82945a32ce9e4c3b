"""What evaluates settings: this process, or workers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.point import Point
from atlasc.passes.search.space import Settings


class Evaluator(ABC):
    """Evaluates settings of one module; equal settings are evaluated once.

    What a setting costs does not depend on what evaluates it, nor on what was evaluated before.

    Attributes:
        known: all evaluated points by settings; points of an earlier run may be put there.
        layers: of the early-layer proxy; None for the whole model.
    """

    def __init__(self, layers: int | None = None) -> None:
        self.layers = layers
        self.known: dict[Settings, Point] = {}

    def evaluate_all(
        self, batch: Sequence[Settings], found: Callable[[Point], None] | None = None
    ) -> list[Point]:
        """Points of settings in canonical form, in their order.

        Args:
            batch: the settings.
            found: called with each point that was not known before, in any order, as soon as it is
                known.
        """
        for point in self.points(sorted(set(batch) - set(self.known))):
            self.known[point.settings] = point
            if found is not None:
                found(point)
        return [self.known[settings] for settings in batch]

    @abstractmethod
    def points(self, settings: Sequence[Settings]) -> Iterator[Point]:
        """Evaluate different settings, in any order."""


@dataclass(frozen=True)
class RayWorkers:
    """Processes of Ray that evaluate: on the GPUs of a cluster if it has some, or else on its
    processors.

    Attributes:
        count: workers; None for one on each GPU, or for as many as there are processors for.
        threads: of each worker.
        address: of a running cluster with this atlasc installed on every machine; None for the
            environment variable RAY_ADDRESS, and without it for processes on this machine.
    """

    count: int | None = None
    threads: int = 1
    address: str | None = None

    def __post_init__(self) -> None:
        if (self.count is not None and self.count < 1) or self.threads < 1:
            raise AtlasError("a search needs at least 1 worker with 1 thread")
