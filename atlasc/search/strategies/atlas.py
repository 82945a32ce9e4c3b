"""The paper's two-stage search: first one setting for all layers, then a setting for each layer."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.search.nsga2 import (
    LEAST_POPULATION,
    check_population,
    generations_within,
    minimise,
    require_generation,
)
from atlasc.search.points import SearchSpace
from atlasc.search.strategy import EXTENDS, SearchRun, Strategy


@dataclass(frozen=True)
class Atlas(Strategy):
    """NSGA-II in two stages; the default budget is the paper's and makes 24,144 evaluations.

    Source: the paper's section on the search. The paper's front is that of the last population;
        here
    it is the front of everything that was evaluated on the whole model, at no further cost.

    Attributes:
        population, generations: of stage 1, which searches one setting for all layers.
        layer_population, layer_generations: of stage 2, which searches a setting for each layer.
        early_layers: stage 1 compares the values after this many blocks instead of the outputs (the
            paper's early-layer proxy); None compares the outputs.
    """

    name = "atlas"
    population: int = 48
    generations: int = 50
    layer_population: int = 96
    layer_generations: int = field(default=225, metadata=EXTENDS)
    early_layers: int | None = None

    def __post_init__(self) -> None:
        check_population(self.population, self.generations)
        check_population(self.layer_population, self.layer_generations)
        if self.early_layers is not None and self.early_layers < 1:
            raise AtlasError("the early-layer proxy needs at least 1 layer")

    @staticmethod
    def within(evaluations: int) -> dict[str, int]:
        """Options for a number of evaluations: a quarter for stage 1, and in both stages about as
        many generations as settings in a population, which is at most the paper's.
        """
        require_generation(evaluations, stages=2)
        first = max(evaluations // 4, LEAST_POPULATION)
        population, generations = generations_within(first, 48)
        layer_population, layer_generations = generations_within(evaluations - first, 96)
        return {
            "population": population,
            "generations": generations,
            "layer_population": layer_population,
            "layer_generations": layer_generations,
        }

    @property
    def evaluations(self) -> int:
        """Number of evaluations, the first populations included."""
        return self.population * (self.generations + 1) + self.layer_population * (
            self.layer_generations + 1
        )

    def run(self, run: SearchRun) -> None:
        """Run both stages."""
        space, generator = run.objective.space, np.random.default_rng([self.seed, 0])
        shared = SearchSpace(1, space.parametrisation)
        proxy = self.early_layers if (self.early_layers or space.layers) < space.layers else None
        found = minimise(
            lambda vectors: run.evaluate(np.stack([space.shared(v) for v in vectors]), proxy),
            shared.random(self.population, generator),
            shared.lower,
            shared.upper,
            generations=self.generations,
            seed=self.seed,
        )
        seeds = [space.shared(layer) for layer in found][: self.layer_population]
        rest = space.random(self.layer_population - len(seeds), generator)
        minimise(
            run.evaluate,
            np.concatenate([np.reshape(seeds, (-1, space.variables)), rest]).astype(np.int64),
            space.lower,
            space.upper,
            generations=self.layer_generations,
            seed=self.seed + 1,
        )
