"""Error and time of the polynomial simulator on MiniLM, with the recipe `is`.

    python benchmarks/simulator.py [--texts 10] [--repeats 20] [--threads N]

Prints the mean absolute error of the last hidden state against the cleartext torch model (over all
tokens, padding too), and the time of one evaluation: the least of all repeats is what a quiet
machine needs, and the processor time is what it costs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]
sys.path[:0] = [str(Path(sys.path[0]) / "examples" / "minilm")]

MARGIN = 0.05
TOKENS = 64
ERROR_TARGET = 1e-5
SECONDS_TARGET = 0.25


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()

    import texts
    import torch

    from atlasc.loading.data import inputs_from_texts
    from atlasc.loading.models import load_model
    from atlasc.passes.approximation.assign import apply_recipe
    from atlasc.passes.approximation.calibration import calibrate
    from atlasc.passes.approximation.simulate import PolynomialSimulator
    from atlasc.passes.frontend.trace import trace

    model = load_model(texts.model_directory())
    rows = texts.short_texts(options.texts, TOKENS)
    arrays = inputs_from_texts(rows, model, TOKENS).arrays
    module = trace(model.module, arrays, name="minilm")
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        expected = model.module(**tensors).last_hidden_state.numpy()

    module = apply_recipe(module, "is", calibrate(module, arrays, margin=MARGIN))
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


def timed(simulator: object, inputs: object) -> tuple[float, float]:
    """Wall-clock and processor seconds of one evaluation."""
    started, processor = time.perf_counter(), time.process_time()
    simulator.run(inputs)  # type: ignore[attr-defined]
    return time.perf_counter() - started, time.process_time() - processor


if __name__ == "__main__":
    main()
