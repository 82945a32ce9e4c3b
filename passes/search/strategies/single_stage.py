"""NSGA-II on all layers at once from random settings: the paper's search without its stage 1."""

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


@dataclass(frozen=True)
class SingleStageOptions:
    """Budget of a single stage; the default is what fits into the 24,144 evaluations of `atlas`.

    Attributes:
        seed: equal seeds give equal fronts.
        population: as of stage 2 of `atlas`.
        generations: after the first population.
    """

    seed: int = 0
    population: int = 96
    generations: int = field(default=250, metadata=EXTENDS)

    def __post_init__(self) -> None:
        if self.population < LEAST_POPULATION:
            raise AtlasError(f"a population needs at least {LEAST_POPULATION} settings")
        if self.generations < 0:
            raise AtlasError("a search cannot have a negative number of generations")

    @staticmethod
    def within(evaluations: int) -> dict[str, int]:
        """The population and the generations for so many evaluations at most.

        Raises:
            AtlasError: not even one generation fits.
        """
        require_generation(evaluations)
        population, generations = generations_within(evaluations, 96)
        return {"population": population, "generations": generations}

    @property
    def evaluations(self) -> int:
        """Evaluations in all, those of the first population included."""
        return self.population * (self.generations + 1)


def search(
    problem: SearchProblem,
    options: SingleStageOptions | None = None,
    progress: ProgressCallback | None = None,
) -> Front:
    """Search a setting for each layer from the start."""
    options = options or SingleStageOptions()
    session = Session(problem, options, progress)
    with session:
        space = session.objective.space
        minimise(
            session.evaluate,
            space.random(options.population, np.random.default_rng([options.seed, 0])),
            space.lower,
            space.upper,
            generations=options.generations,
            seed=options.seed,
        )
    return session.front("nsga2")
