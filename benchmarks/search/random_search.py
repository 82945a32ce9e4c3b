"""Uniform random settings: what any search has to beat."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.search.strategy import EXTENDS, SearchRun, Strategy


@dataclass(frozen=True)
class RandomSearch(Strategy):
    """Draws settings uniformly from the whole space.

    Attributes:
        evaluations: settings to draw; as many as the paper's search makes.
        batch: settings between two reports of progress.
    """

    name = "random"
    evaluations: int = field(default=24_144, metadata=EXTENDS)
    batch: int = 96

    def __post_init__(self) -> None:
        if min(self.evaluations, self.batch) < 1:
            raise AtlasError("a random search needs at least 1 evaluation")

    def run(self, run: SearchRun) -> None:
        """Draw until the budget is spent."""
        generator = np.random.default_rng(self.seed)
        while run.front.evaluations < self.evaluations:
            count = min(self.batch, self.evaluations - run.front.evaluations)
            run.evaluate(run.objective.space.random(count, generator))
