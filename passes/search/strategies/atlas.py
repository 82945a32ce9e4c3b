"""The paper's two-stage search: one setting for all layers first, then a setting for each."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.front import Front
from atlasc.passes.search.journal import EXTENDS
from atlasc.passes.search.nsga2 import (
    LEAST_POPULATION,
    generations_within,
    minimise,
    require_generation,
)
from atlasc.passes.search.problem import SearchProblem
from atlasc.passes.search.session import ProgressCallback, Session
from atlasc.passes.search.space import SearchSpace


@dataclass(frozen=True)
class AtlasOptions:
    """Budget of the search; the defaults are the paper's and make 24,144 evaluations.

    Attributes:
        seed: equal seeds give equal fronts.
        population, generations: of stage 1, which searches one setting for all layers.
        layer_population, layer_generations: of stage 2, which searches a setting for each.
        early_layers: stage 1 compares the values after that many blocks instead of the outputs
            (the paper's early-layer proxy); None compares the outputs.
    """

    seed: int = 0
    population: int = 48
    generations: int = 50
    layer_population: int = 96
    layer_generations: int = field(default=225, metadata=EXTENDS)
    early_layers: int | None = None

    def __post_init__(self) -> None:
        if min(self.population, self.layer_population) < LEAST_POPULATION:
            raise AtlasError(f"a population needs at least {LEAST_POPULATION} settings")
        if min(self.generations, self.layer_generations) < 0:
            raise AtlasError("a search cannot have a negative number of generations")
        if self.early_layers is not None and self.early_layers < 1:
            raise AtlasError("the early-layer proxy needs at least 1 layer")

    @staticmethod
    def within(evaluations: int) -> dict[str, int]:
        """Sizes of both stages for so many evaluations at most: a quarter for stage 1, and about as
        many generations as settings in a population, which is never larger than the paper's.

        Raises:
            AtlasError: not even one generation fits.
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
        """Evaluations in all, those of the first populations included."""
        return self.population * (self.generations + 1) + self.layer_population * (
            self.layer_generations + 1
        )


def search(
    problem: SearchProblem,
    options: AtlasOptions | None = None,
    progress: ProgressCallback | None = None,
) -> Front:
    """Run both stages.

    Source: the paper's section on the search. Its front is that of the last population; here it is
    that of everything evaluated on the whole model, which costs nothing more.

    Args:
        problem: what to search.
        options: the budget.
        progress: called after every generation. An interrupt from the keyboard ends the search,
            and the front so far is returned.
    """
    options = options or AtlasOptions()
    session = Session(problem, options, progress)
    with session:
        space, generator = session.objective.space, np.random.default_rng([options.seed, 0])
        shared = SearchSpace(1, space.parametrisation)
        proxy = options.early_layers if (options.early_layers or 0) < space.layers else None
        with session.proxy(proxy) as evaluate:
            found = minimise(
                lambda vectors: evaluate(np.stack([space.shared(v) for v in vectors])),
                shared.random(options.population, generator),
                shared.lower,
                shared.upper,
                generations=options.generations,
                seed=options.seed,
            )
        seeds = [space.shared(layer) for layer in found][: options.layer_population]
        rest = space.random(options.layer_population - len(seeds), generator)
        minimise(
            session.evaluate,
            np.concatenate([np.reshape(seeds, (-1, space.variables)), rest]).astype(np.int64),
            space.lower,
            space.upper,
            generations=options.layer_generations,
            seed=options.seed + 1,
        )
    return session.front("atlas")
