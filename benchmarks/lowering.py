"""How long lowering takes and what the program costs, for BERT-base's shape with random weights.

    python benchmarks/lowering.py [--layers 12] [--tokens 128] [--recipe is]

Random weights make calibration meaningless, so all ranges are set to fixed intervals: they do not
change the number of levels. Prints one line per stage and the counts of the lowered program.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np

from atlasc.backends.desilo_parameters import DesiloParameters, choose_parameters
from atlasc.driver import costs_summary
from atlasc.ir.module import Module
from atlasc.passes.approximation.recipes import Recipe, recipe
from atlasc.passes.frontend.trace import trace
from atlasc.passes.lowering.costs import program_costs
from atlasc.passes.lowering.pipeline import lower


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--recipe", default="is")
    arguments = parser.parse_args()
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=arguments.layers)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    started = last = time.perf_counter()

    def lap(what: str) -> None:
        nonlocal last
        now = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{what:20s} {now - last:6.2f} s   peak memory {peak:5.2f} GiB", flush=True)
        last = now

    ids = np.zeros((1, arguments.tokens), np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    module = trace(model, inputs, name="bert")
    del model
    lap("trace")
    approximate(module, recipe(arguments.recipe))
    lowered = lower(
        module,
        lambda levels, slots: choose_parameters(levels, min_slots=slots),
        after_each=lambda step, result, report: lap(step.name),
    )
    assert isinstance(lowered.parameters, DesiloParameters)
    summary = costs_summary(program_costs(lowered.program), lowered.parameters)
    lap("count")
    print(f"trace to ckks IR: {time.perf_counter() - started:.1f} s")
    for name, value in summary.items():
        if name != "per_layer":
            print(f"{name:20s} {value}")
    print("layer 0:", summary["per_layer"][0])


def approximate(module: Module, chosen: Recipe) -> None:
    """Attach the recipe with fixed ranges to every nonlinear op on the server (in place)."""
    for op in module.ops:
        if not op.definition.nonlinear or getattr(op.value.type, "side", "") != "server":
            continue
        if op.name == "nn.softmax":
            width = op.value.type.shape[-1]  # type: ignore[union-attr]
            approximation = chosen.softmax(op.layer, shift=2.0, scores=(-60.0, 2.0), width=width)
            op.attributes["approximation"] = approximation.to_attribute()
        elif op.name.endswith("norm"):
            norm = chosen.norm(op.name, (0.1, 10.0), op.location)
            op.attributes["approximation"] = norm.to_attribute()
        else:
            activation = chosen.activation(op.name, (-10.0, 10.0))
            op.attributes["approximation"] = activation.to_attribute()


if __name__ == "__main__":
    main()
