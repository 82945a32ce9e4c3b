"""Error and time of the polynomial simulator on MiniLM, with the recipe `is`; then its speed on the
settings of a search.

    python benchmarks/simulator.py [--texts 10] [--repeats 20] [--threads N] [--settings 200]

Prints the mean absolute error of the last hidden state against the cleartext torch model (over all
tokens, padding too), and the time of one evaluation: the least of all repeats is what a quiet
machine needs, and the processor time is what it costs.

The settings are in the paper's space: random ones, of which most explode, and neighbours of one
that is good, which a search visits. Both are evaluated one by one, and as a batch, in
which settings that begin alike share their beginning. Processor seconds are divided by two, for a
machine of two cores that others use too.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from atlasc.calibration.calibrate import Calibration
    from atlasc.ir.module import Module
    from atlasc.search.points import SearchSpace

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
sys.path[:0] = [str(Path(sys.path[0]) / "examples" / "minilm")]

MARGIN = 0.05
TOKENS = 64
ERROR_TARGET = 1e-5
SECONDS_TARGET = 0.25
GOOD = (5, 5, 5, 5, 5, 7, 7, 7)
CHANGES = 4
"""Integers in which a neighbour differs by one from `GOOD`."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--settings", type=int, default=200)
    options = parser.parse_args()

    import texts
    import torch

    from atlasc.calibration.calibrate import calibrate
    from atlasc.loading.data import inputs_of
    from atlasc.loading.models import load_model
    from atlasc.passes.approximation.approximate import apply_recipe
    from atlasc.passes.frontend.trace import trace
    from atlasc.simulation.simulate import PolynomialSimulator

    model = load_model(texts.model_directory())
    rows = texts.short_texts(options.texts, TOKENS)
    arrays = inputs_of(rows, model, TOKENS).arrays
    module = trace(model.module, arrays, name="minilm", outputs="last_hidden_state")
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        expected = model.module(**tensors)["last_hidden_state"].numpy()

    calibration = calibrate(module, arrays, margin=MARGIN)
    plain, module = module, apply_recipe(module, "is", calibration)
    print(f"MiniLM, {len(rows)} texts of {TOKENS} tokens, recipe is, {os.cpu_count()} processors")
    for dtype in (np.float32, np.float64):
        simulator = PolynomialSimulator(module, dtype, options.threads)
        inputs = simulator.prepare(arrays)
        simulated = simulator.run(inputs)
        if not simulated.finite:
            raise SystemExit(f"values explode in {simulated.exploded_at}")
        error = np.abs(simulated.outputs["last_hidden_state"] - expected)
        wall, processor = np.array([timed(simulator, inputs) for _ in range(options.repeats)]).T
        print(f"{np.dtype(dtype).name}: mean error {error.mean():.2e} (greatest {error.max():.2e})")
        print(
            f"  one evaluation: {wall.min():.3f} s at least, {np.median(wall):.3f} s in the "
            f"median, {np.min(processor):.3f} s of processor time"
        )
        if dtype is np.float32:
            verdict = error.mean() <= ERROR_TARGET and wall.min() <= SECONDS_TARGET
            outcome = "met" if verdict else "missed"
            print(f"  targets {ERROR_TARGET:g} and {SECONDS_TARGET} s: {outcome}")
    search_speed(plain, calibration, arrays, options.settings, options.threads)


def search_speed(
    module: Module,
    calibration: Calibration,
    arrays: dict[str, np.ndarray],
    count: int,
    threads: int | None,
) -> None:
    """Print evaluations a second of settings that are finite and of those that are not."""
    from atlasc.passes.approximation.approximate import layer_count
    from atlasc.search.points import SearchSpace
    from atlasc.search.search_problem import SNAPSHOT_MEMORY, SearchProblem
    from atlasc.simulation.simulate import PolynomialSimulator

    objective = SearchProblem(module, calibration, arrays, memory=0).objective()
    space, generator = SearchSpace(layer_count(module)), np.random.default_rng(0)
    for name, vectors in (
        ("random settings", space.random(count, generator)),
        (f"neighbours of {GOOD}", neighbours(space, count, generator)),
    ):
        distinct = dict.fromkeys(space.decode(vector) for vector in vectors)
        for reuse in (False, True):
            simulator = PolynomialSimulator(module, np.float32, threads, SNAPSHOT_MEMORY)
            inputs = simulator.prepare(arrays)
            seconds: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
            chosen = [objective.approximations(settings) for settings in distinct]
            if reuse:
                chosen.sort(key=lambda approximations: simulator.prefix(approximations))
            for approximations in chosen:
                if not reuse:
                    inputs = simulator.prepare(arrays)
                started, processor = time.perf_counter(), time.process_time()
                finite = simulator.run(inputs, approximations).finite
                processor = time.process_time() - processor
                seconds[finite].append((time.perf_counter() - started, processor))
            print(f"{name}, {'as a batch' if reuse else 'one by one'}:")
            for finite, times in seconds.items():
                if times:
                    wall, cost = np.mean(times, axis=0)
                    print(
                        f"  {len(times)} {'finite' if finite else 'not finite'}: {1 / wall:.1f} a "
                        f"second, {2 / cost:.1f} by processor time"
                    )


def neighbours(space: SearchSpace, count: int, generator: np.random.Generator) -> np.ndarray:
    """Vectors near `GOOD`, [count, 8 L]."""
    vectors = np.tile(space.shared(GOOD), (count, 1))
    for vector in vectors:
        changed = generator.choice(len(vector), CHANGES, replace=False)
        vector[changed] += generator.choice([-1, 1], CHANGES)
    return np.clip(vectors, space.lower, space.upper)


def timed(simulator: object, inputs: object) -> tuple[float, float]:
    """Wall-clock and processor seconds of one evaluation."""
    started, processor = time.perf_counter(), time.process_time()
    simulator.run(inputs)  # type: ignore[attr-defined]
    return time.perf_counter() - started, time.process_time() - processor


if __name__ == "__main__":
    main()
