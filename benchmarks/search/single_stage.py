"""NSGA-II on all layers at once from random settings: the paper's search without its stage 1."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from atlasc.search.nsga2 import (
    check_population,
    generations_within,
    minimise,
    require_generation,
)
from atlasc.search.strategy import EXTENDS, SearchRun, Strategy


@dataclass(frozen=True)
class SingleStage(Strategy):
    """Searches a setting for each layer from the start; the default budget is what fits into the
    24,144 evaluations of `atlas`.

    Attributes:
        population: as of stage 2 of `atlas`.
        generations: after the first population.
    """

    name = "nsga2"
    population: int = 96
    generations: int = field(default=250, metadata=EXTENDS)

    def __post_init__(self) -> None:
        check_population(self.population, self.generations)

    @staticmethod
    def within(evaluations: int) -> dict[str, int]:
        """The population and the generations for so many evaluations at most."""
        require_generation(evaluations)
        population, generations = generations_within(evaluations, 96)
        return {"population": population, "generations": generations}

    @property
    def evaluations(self) -> int:
        """Evaluations in all, those of the first population included."""
        return self.population * (self.generations + 1)

    def run(self, run: SearchRun) -> None:
        """One run of NSGA-II."""
        space = run.objective.space
        minimise(
            run.evaluate,
            space.random(self.population, np.random.default_rng([self.seed, 0])),
            space.lower,
            space.upper,
            generations=self.generations,
            seed=self.seed,
        )
