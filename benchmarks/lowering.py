"""How long lowering takes and what the program costs, for BERT-base's shape with random weights.

    python benchmarks/lowering.py [--layers 12] [--tokens 128] [--recipe is]
    python benchmarks/lowering.py --growth 6,12,24,48
    python benchmarks/lowering.py --compile 4

With `--growth` nothing but the time for models of so many layers, each in a process of its own.
With `--compile` the processor seconds of each stage of `compile --target cuda` and its search, on
so many random inputs, for a classifier of 256 features.
Else first one line for each stage of the recipe and the counts of its lowered program. Then
bootstraps and predicted hours of the recipe and of two settings of depth 845 in the paper's
convention (with 12 layers; its setting S6 has that depth).
Ranges are nominal: they change neither levels nor counts.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from atlasc.calibration.calibrate import nominal_calibration
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.ir.module import Module
from atlasc.latency.model import LatencyTarget
from atlasc.passes.approximation.approximate import apply_recipe, apply_settings, depth_of
from atlasc.passes.framework.pass_base import Goal, Parameters, run_passes
from atlasc.passes.frontend.trace import trace
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.pipeline import (
    LOWERING,
    Lowered,
    levels_and_slots,
    lower_nn,
    packed,
    select_optional,
    to_poly,
)
from atlasc.program.costs import program_costs
from atlasc.progress import Step
from atlasc.report.summary import costs_summary
from atlasc.targets import find_target

LATENCY = LatencyTarget.of(find_target("desilo"))

SEARCHED = {
    "five softmax iterations, low degrees": ((2, 2, 2, 2, 2, 5, 5, 4), (2, 2, 2, 2, 2, 5, 5, 3)),
    "three softmax iterations": ((5, 5, 5, 0, 0, 6, 6, 7), (5, 5, 5, 0, 0, 6, 6, 6)),
}
"""Integers of a layer of depth 71 and of one of depth 70: 5 * 71 + 7 * 70 = 845. An iteration p
counts p + 5 beside 5 for the exponential, a norm p + 8, the activation p + 1."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--recipe", default="is")
    parser.add_argument("--growth", help="numbers of layers, with commas in between")
    parser.add_argument("--compile", type=int, help="number of inputs of a whole compile")
    arguments = parser.parse_args()
    if arguments.compile is not None:
        compiled(arguments)
        return
    if arguments.growth is not None:
        growth([int(layers) for layers in arguments.growth.split(",")], arguments)
        return
    lap = Laps()
    module = bert(arguments.layers, arguments.tokens)
    lap("trace")
    calibration = nominal_calibration(module)
    approximated = apply_recipe(module, arguments.recipe, calibration)
    lowered = place(approximated, lap)
    summary = costs_summary(program_costs(lowered.program), lowered.parameters)  # type: ignore[arg-type]
    lap("count")
    print(f"trace to ckks IR: {lap.last - lap.started:.1f} s")
    for name, value in summary.items():
        if name != "per_layer":
            print(f"{name:20s} {value}")
    print("layer 0:", summary["per_layer"][0])
    print(f"\n{'setting':36s}  depth  levels  bootstraps  hours")
    rows = {arguments.recipe: approximated}
    for name, (deep, shallow) in SEARCHED.items():
        deeper = round(5 / 12 * arguments.layers)
        settings = [deep] * deeper + [shallow] * (arguments.layers - deeper)
        rows[name] = apply_settings(module, settings, calibration)
    for name, row in rows.items():
        depth = depth_of(row)
        total = program_costs(place(row).program).total
        hours = total.seconds(LATENCY.costs(lowered.parameters)) / 3600
        print(
            f"{name:36s}  {sum(depth.per_layer.values()):5}  {depth.levels:6}  "
            f"{total.bootstraps:10}  {hours:5.2f}",
            flush=True,
        )


def growth(layers: list[int], arguments: argparse.Namespace) -> None:
    """Time from the model to the counted program, for several numbers of layers."""
    print("layers  lowering, s  processor s  a layer, processor s  peak memory, GiB")
    for count in layers:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            found = process.submit(lowering_time, count, arguments.tokens, arguments.recipe)
            seconds, processor, memory = found.result()
        print(
            f"{count:6}  {seconds:11.1f}  {processor:11.1f}  {processor / count:20.2f}  "
            f"{memory:16.2f}",
            flush=True,
        )


def lowering_time(layers: int, tokens: int, recipe: str) -> tuple[float, float, float]:
    """Seconds by the clock and of the processors, and GiB of peak memory."""
    import transformers  # noqa: F401  what the import takes is not the model's

    started, processor = time.perf_counter(), time.process_time()
    module = bert(layers, tokens)
    lowered = place(apply_recipe(module, recipe, nominal_calibration(module)))
    costs_summary(program_costs(lowered.program), lowered.parameters)  # type: ignore[arg-type]
    return time.perf_counter() - started, time.process_time() - processor, peak_memory()


def compiled(arguments: argparse.Namespace) -> None:
    """Processor seconds of each stage of a whole `compile --target cuda`."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_hidden_layers=arguments.layers, hidden_size=256, num_attention_heads=4,
        intermediate_size=1024, num_labels=2,
    )  # fmt: skip
    shape = (arguments.compile, arguments.tokens)
    ids = np.random.default_rng(0).integers(config.vocab_size, size=shape)
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    model = transformers.BertForSequenceClassification(config).eval()
    started = last = time.process_time()

    @contextmanager
    def steps(label: str, total: int | None = None, *, resume: str = "") -> Iterator[Step]:
        """Prints what was spent since the stage before."""
        nonlocal last
        yield Step(label, total)
        print(f"{label:60s} {time.process_time() - last:6.1f} s", flush=True)
        last = time.process_time()

    with tempfile.TemporaryDirectory() as folder:
        options = CompileOptions(target="cuda")
        bundle, _, _ = compile_model(model, arrays, Path(folder) / "bundle", options, steps)
        predicted = bundle.manifest.costs["seconds"]
    print(f"{'all':60s} {time.process_time() - started:6.1f} s, predicted {predicted:.4f} s")


def peak_memory() -> float:
    """GiB that this process has held at once."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


class Laps:
    """Prints seconds and peak memory of one stage after the other."""

    def __init__(self) -> None:
        self.started = self.last = time.perf_counter()

    def __call__(self, what: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        print(
            f"{what:20s} {now - self.last:6.2f} s   peak memory {peak_memory():5.2f} GiB",
            flush=True,
        )
        self.last = now


def bert(layers: int, tokens: int) -> Module:
    """BERT-base's shape with random weights, traced."""
    import torch
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=layers)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    ids = np.zeros((1, tokens), np.int64)
    return trace(model, {"input_ids": ids, "attention_mask": np.ones_like(ids)}, name="bert")


def place(module: Module, lap: Laps | None = None) -> Lowered:
    """The module lowered."""
    after_each = None if lap is None else lambda step, result, report: lap(step.name)
    return lower_nn(module, LATENCY.choose, None, after_each, LATENCY.costs)


def in_packing(
    module: Module, latency: LatencyTarget, features_low: bool
) -> tuple[Module, Parameters]:
    """A program in one of the two packings (`Pack`), not in the faster one, and its parameters.

    Args:
        module: a model with approximations.
        latency: of the target that is compiled for.
        features_low: whether features lie in the low slot bits.
    """
    program, goal = before_placement(module, latency, features_low)
    placed = [kind.for_goal(goal) for kind in LOWERING[LOWERING.index(PlaceBootstraps) :]]
    return run_passes(program, placed), goal.parameters


def before_placement(
    module: Module, latency: LatencyTarget, features_low: bool
) -> tuple[Module, Goal]:
    """A packed program without levels, and what its bootstraps are placed for; see `in_packing`."""
    poly = select_optional(to_poly(module)[1])
    parameters = latency.choose(*levels_and_slots(poly, features_low))
    goal = Goal(parameters, latency.costs(parameters))
    return packed(poly, Pack.of(parameters, features_low)), goal


if __name__ == "__main__":
    main()
