"""Predicted latencies: how true they are, and how fast they and the joint program are.

    python benchmarks/latency.py [--model bert|vit|minilm] [--settings 10] [--candidates 20]

Models have the shape of BERT-base (128 tokens), ViT-base (224 by 224 pixels) or MiniLM (64 tokens)
and random weights. Random settings are predicted, then lowered, placed and counted; after that
every op gets random candidates with made-up errors, and the whole front is solved for.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyModel, LatencyTarget
from atlasc.passes.approximation.approximate import (
    layer_count,
    settings_approximations,
    with_approximations,
)
from atlasc.passes.frontend.trace import trace
from atlasc.passes.pipeline import lower_nn
from atlasc.polynomials.description import Approximation
from atlasc.polynomials.parametrisation import PAPER
from atlasc.program.costs import program_costs
from atlasc.search.error_model import groups_of
from atlasc.search.latency_front import Alternative, latency_front
from atlasc.search.points import SearchSpace, Settings, expert
from atlasc.targets import find_target

LATENCY = LatencyTarget.of(find_target("desilo"))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("bert", "vit", "minilm"), default="bert")
    parser.add_argument("--settings", type=int, default=10)
    parser.add_argument("--candidates", type=int, default=20)
    arguments = parser.parse_args()
    module = traced(arguments.model)
    calibration = nominal_calibration(module)
    space, rng = SearchSpace(layer_count(module)), np.random.default_rng(0)

    def approximations(settings: Settings) -> dict[str, Approximation]:
        return settings_approximations(module, settings, calibration)

    started = time.perf_counter()
    reference = approximations(expert(space.layers))
    model = LatencyModel(module, LATENCY, reference)
    predicted = model.seconds(reference)
    print(f"first prediction {time.perf_counter() - started:.1f} s")
    approximated = with_approximations(module, reference)
    lowered = lower_nn(approximated, LATENCY.choose, costs=LATENCY.costs)
    total = program_costs(lowered.program).total
    seconds = total.seconds(LATENCY.costs(lowered.parameters))
    print(f"`is`: {total.bootstraps} bootstraps, {seconds:.0f} s; predicted {predicted:.0f} s")
    agreement(module, model, [approximations(space.decode(v)) for v in space.random(200, rng)],
              arguments.settings)  # fmt: skip
    groups = []
    names = set()
    for group in groups_of(module, PAPER):
        choices = []
        for _ in range(arguments.candidates):
            settings = group.put(expert(space.layers), tuple(random_choice(group.columns, rng)))
            found = approximations(settings)
            ops = {place.op.value.name: found[place.op.value.name] for place in group.places}
            spent = sum(group.of(settings))
            choices.append(Alternative(ops, float(10 ** (-0.3 * spent + 0.3 * rng.normal()))))
            names |= ops.keys()
        groups.append(choices)
    fixed = {name: one for name, one in reference.items() if name not in names}
    for attempt in ("first", "again"):
        started = time.perf_counter()
        front = latency_front(model, groups, fixed)
        print(
            f"joint program, {len(groups)} ops with {arguments.candidates} candidates ({attempt}): "
            f"{len(front)} points in {time.perf_counter() - started:.1f} s"
        )


def agreement(
    module: Module, model: LatencyModel, settings: list[dict[str, Approximation]], count: int
) -> None:
    """Print times of predictions, and how far they are from counts of lowered programs."""
    for attempt in ("new", "known"):
        times = []
        for chosen in settings:
            started = time.perf_counter()
            model.seconds(chosen)
            times.append(1e3 * (time.perf_counter() - started))
        print(f"{attempt} setting: median {np.median(times):.1f} ms, mean {np.mean(times):.1f} ms")
    deviations = []
    for chosen in settings[:count]:
        approximated = with_approximations(module, chosen)
        lowered = lower_nn(approximated, LATENCY.choose, costs=LATENCY.costs)
        costs = LATENCY.costs(lowered.parameters)
        counted = program_costs(lowered.program).total.seconds(costs)
        deviations.append(abs(model.seconds(chosen) / counted - 1))
    print(f"{count} lowered settings: greatest relative deviation {max(deviations):.1e}")


def random_choice(columns: tuple[int, ...], rng: np.random.Generator) -> list[int]:
    """Integers of one group; a softmax gets one to five iterations."""
    values = [int(rng.integers(max(PAPER.lower[c], 1), PAPER.upper[c] + 1)) for c in columns]
    if len(values) > 1:
        length = int(rng.integers(1, len(values) + 1))
        values[length:] = [0] * (len(values) - length)
    return values


def traced(name: str) -> Module:
    """The nn module of a shape, with random weights."""
    import torch
    import transformers

    torch.manual_seed(0)
    if name == "vit":
        model = transformers.ViTModel(transformers.ViTConfig(), add_pooling_layer=False).eval()
        return trace(model, {"pixel_values": np.zeros((1, 3, 224, 224), np.float32)}, name=name)
    shape = {"hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6}
    config = transformers.BertConfig(**(shape if name == "minilm" else {}))
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    ids = np.zeros((1, 64 if name == "minilm" else 128), np.int64)
    return trace(model, {"input_ids": ids, "attention_mask": np.ones_like(ids)}, name=name)


if __name__ == "__main__":
    main()
