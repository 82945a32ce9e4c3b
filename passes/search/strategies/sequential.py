"""Layer after layer: a greedy search that never goes back to a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.search.front import REFERENCE_ERROR, Front
from atlasc.passes.search.nsga2 import LEAST_POPULATION, minimise
from atlasc.passes.search.problem import SearchProblem, expert_layer
from atlasc.passes.search.session import ProgressCallback, Session

LEAST_TARGET = 1e-4


@dataclass(frozen=True)
class SequentialOptions:
    """Budget of a sequential search.

    Attributes:
        seed: equal seeds give equal fronts.
        evaluations: at most, among all targets and layers alike.
        targets: errors to aim at, from 0.2 down to 1e-4 in equal ratios: one walk through the
            layers each, so that the points make a front. Fewer where the budget is small.
        population: settings of one layer in a generation; likewise.
    """

    seed: int = 0
    evaluations: int = 24_144
    targets: int = 8
    population: int = 24

    def __post_init__(self) -> None:
        if self.targets < 1:
            raise AtlasError("a sequential search needs at least 1 error target")
        if self.population < LEAST_POPULATION:
            raise AtlasError(f"a population needs at least {LEAST_POPULATION} settings")


def search(
    problem: SearchProblem,
    options: SequentialOptions | None = None,
    progress: ProgressCallback | None = None,
) -> Front:
    """Choose the first layer's setting, then the second's, and so on.

    Our reading of the paper's baseline: while a layer is searched, by NSGA-II on its integers
    alone, the layers before have what was chosen for them and those after have the expert setting
    `is`. Of what was found, the layer gets the cheapest setting with an error of at most its share
    of the target: l / L of it after l of L layers.

    Raises:
        AtlasError: a budget of less than 4 evaluations for each layer.
    """
    options = options or SequentialOptions()
    session = Session(problem, options, progress)
    with session:
        layers = session.objective.space.layers
        population = min(options.population, options.evaluations // layers)
        if population < LEAST_POPULATION:
            raise AtlasError(
                f"{options.evaluations} evaluations are too few for a sequential search",
                remedy=f"give {LEAST_POPULATION} or more for each of {layers} layers",
            )
        targets = min(options.targets, options.evaluations // (layers * population))
        generations = options.evaluations // (targets * layers * population) - 1
        session.total = targets * layers * population * (generations + 1)
        for target in np.geomspace(REFERENCE_ERROR, LEAST_TARGET, targets):
            _walk(session, float(target), population, generations, options.seed)
    return session.front("sequential")


def _walk(session: Session, target: float, population: int, generations: int, seed: int) -> None:
    """Choose the layers' settings for one error target."""
    space = session.objective.space
    layer_space = replace(space, layers=1)
    expert = np.array(expert_layer(session.problem.parametrisation))
    rows = np.tile(expert, (space.layers, 1))
    for layer in range(space.layers):
        tried: list[tuple[float, float, tuple[int, ...]]] = []

        def evaluate(vectors: np.ndarray, layer: int = layer, tried: list = tried) -> np.ndarray:
            whole = np.tile(rows, (len(vectors), 1, 1))
            whole[:, layer] = vectors
            found = session.evaluate(whole.reshape(len(vectors), -1))
            tried += [(*pair, tuple(v)) for pair, v in zip(found.tolist(), vectors.tolist())]
            return found

        # One generator for all targets: the first layer's settings are evaluated only once.
        generator = np.random.default_rng([seed, layer])
        others = layer_space.random(population - 1, generator)
        minimise(
            evaluate,
            np.concatenate([expert[np.newaxis], others]),
            layer_space.lower,
            layer_space.upper,
            generations=generations,
            seed=seed + layer,
        )
        share = target * (layer + 1) / space.layers
        within = [entry for entry in tried if entry[1] <= share]
        most_accurate = min(tried, key=lambda entry: entry[1::-1])
        rows[layer] = (min(within) if within else most_accurate)[2]
