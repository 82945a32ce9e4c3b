"""Layer after layer: a greedy search that never goes back to a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.search.nsga2 import LEAST_POPULATION, check_population, minimise
from atlasc.search.points import expert_layer
from atlasc.search.search_problem import REFERENCE_ERROR
from atlasc.search.strategy import SearchRun, Strategy

LEAST_TARGET = 1e-4


@dataclass(frozen=True)
class Sequential(Strategy):
    """Chooses the first layer's setting, then the second's, and so on.

    Our reading of the paper's baseline: while a layer is searched, by NSGA-II on its integers
    alone, the layers before have what was chosen for them and those after have the expert setting
    `is`. Of what was found, the layer gets the cheapest setting with an error of at most its share
    of the target: l / L of it after l of L layers.

    Attributes:
        evaluations: at most, among all targets and layers alike.
        targets: errors to aim at, from 0.2 down to 1e-4 in equal ratios: one walk through the
            layers each, so that the points make a front. Fewer where the budget is small.
        population: settings of one layer in a generation; likewise.
    """

    name = "sequential"
    evaluations: int = 24_144
    targets: int = 8
    population: int = 24

    def __post_init__(self) -> None:
        if self.targets < 1:
            raise AtlasError("a sequential search needs at least 1 error target")
        check_population(self.population)

    def run(self, run: SearchRun) -> None:
        """One walk for each target.

        Raises:
            AtlasError: a budget of less than 4 evaluations for each layer.
        """
        layers = run.objective.space.layers
        population = min(self.population, self.evaluations // layers)
        if population < LEAST_POPULATION:
            raise AtlasError(
                f"{self.evaluations} evaluations are too few for a sequential search",
                remedy=f"give {LEAST_POPULATION} or more for each of {layers} layers",
            )
        targets = min(self.targets, self.evaluations // (layers * population))
        generations = self.evaluations // (targets * layers * population) - 1
        run.total = targets * layers * population * (generations + 1)
        for target in np.geomspace(REFERENCE_ERROR, LEAST_TARGET, targets):
            _walk(run, float(target), population, generations, self.seed)


def _walk(run: SearchRun, target: float, population: int, generations: int, seed: int) -> None:
    """Choose the layers' settings for one error target."""
    space = run.objective.space
    layer_space = replace(space, layers=1)
    expert = np.array(expert_layer(run.problem.parametrisation))
    rows = np.tile(expert, (space.layers, 1))
    for layer in range(space.layers):
        seen: list[tuple[float, float, tuple[int, ...]]] = []

        def evaluate(vectors: np.ndarray, layer: int = layer, seen: list = seen) -> np.ndarray:
            whole = np.tile(rows, (len(vectors), 1, 1))
            whole[:, layer] = vectors
            found = run.evaluate(whole.reshape(len(vectors), -1))
            seen += [(*pair, tuple(v)) for pair, v in zip(found.tolist(), vectors.tolist())]
            return found

        # One generator for all targets: the first layer's settings are seen only once.
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
        within = [entry for entry in seen if entry[1] <= share]
        most_accurate = min(seen, key=lambda entry: entry[1::-1])
        rows[layer] = (min(within) if within else most_accurate)[2]
