"""One linear layer over 128 tokens on the engine ``cpu``, in two packings by turns.

    python -m benchmarks.engine.linear [--inputs 768] [--outputs 768] [--level 8]
        [--babies 0] [--rounds 3] [--low-features]

Tokens or features in the low slot bits, as the compiler records the layer. With features in the low
bits diagonals repeat after 256 slots, and the layer is one ``transform`` of all its ciphertexts
(docs/kernels.md). Core seconds of both and their ratio, one line a round; the first
round also warms the memory up. ``--low-features`` leaves the other packing out. Predicted core
seconds are those of the cost table in use, on all threads.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.program.counting_engine import counts_of
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function
from atlasc.program.kernels.context import blocked
from atlasc.program.kernels.linear import choose_plan
from atlasc.program.key_plan import KeyPlan
from atlasc.targets.base import no_progress
from atlasc.targets.costs import costs_of
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.machine import available_threads

TOKENS, WIDTH, PERIOD = 128, 64, 256
LOW_TOKENS = "d:6 g:2 b:0 t:7"
LOW_FEATURES = "t:7 b:0 d:6 g:2"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=768)
    parser.add_argument("--outputs", type=int, default=768)
    parser.add_argument("--level", type=int, default=8)
    parser.add_argument("--babies", type=int, default=0, help="0: as the compiler chooses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--low-features", action="store_true", help="that packing alone")
    options = parser.parse_args()
    parameters = CpuParameters.bootstrapped()
    shape, level = EngineParameters.of(parameters), options.level
    inputs, outputs = options.inputs, options.outputs
    functions = {
        LOW_TOKENS: layer(shape, LOW_TOKENS, inputs, outputs, level),
        LOW_FEATURES: layer(shape, LOW_FEATURES, inputs, outputs, level, options.babies),
    }
    if options.low_features:
        del functions[LOW_TOKENS]
    counts = [counts_of(function) for function in functions.values()]
    amounts = {amount for one in counts for amount in one.rotation_levels}
    costs, threads = costs_of(parameters), available_threads()
    for name, one in zip(functions, counts):
        print(
            f"[{name}]: {one.key_switches} key switches, {one.plaintext_products} products, "
            f"predicted {threads * one.seconds(costs):.2f} core s"
        )
    keys = KeyPlan(dict.fromkeys(amounts, level), conjugation_level=level)
    engine = CpuEngine.fresh(parameters, keys, no_progress)
    random = np.random.default_rng(1)
    weight = random.uniform(-1, 1, (outputs, inputs)) / inputs**0.5
    x = random.uniform(-1, 1, (1, TOKENS, inputs))
    wanted = x @ weight.T
    for _ in range(options.rounds):
        seconds = {}
        for name, function in functions.items():
            source, target = layout(name, inputs), layout(name, outputs)
            packed = source.pack(blocked(x, source))
            operands = [engine.encrypt(one, level) for one in packed]
            started = time.process_time()
            result = engine.play(function, [operands], [weight])
            for one in result:
                engine.settle(one)
            seconds[name] = time.process_time() - started
            slots = np.stack([engine.decrypt(one) for one in result])
            error = np.abs(slots - target.pack(blocked(wanted, target))).max()
            print(f"[{name}] {seconds[name]:.2f} core s, greatest error {error:.1e}", end="; ")
        both = len(seconds) > 1
        ratio = f"ratio {seconds[LOW_FEATURES] / seconds[LOW_TOKENS]:.3f}" if both else ""
        print(ratio, flush=True)


def layout(fields: str, features: int) -> Layout:
    """Of so many features for each token."""
    blocks = features // WIDTH
    outer = (blocks // 4 - 1).bit_length()
    extents = f"b=1 t={TOKENS} g={blocks} d={WIDTH}"
    return Layout.parse(f"[{fields} | g.2:{outer} | {extents}]")


def layer(
    shape: EngineParameters, fields: str, inputs: int, outputs: int, level: int, babies: int = 0
) -> Function:
    """The layer as the compiler records it, with its own number of baby steps or another one."""
    module = Module("linear", "ckks")
    source, target = layout(fields, inputs), layout(fields, outputs)
    about = {"name": "x", "shape": [1, TOKENS, inputs], "layout": source, "level": level}
    x = module.add("ckks.input", [], about)
    plan = choose_plan(source, target, inputs, outputs)
    plan = plan._replace(baby_steps=babies or plan.baby_steps)
    weight = module.constant("weight", np.zeros((outputs, inputs)))
    attributes = {"weight": weight, "layout": target, **plan._asdict()}
    op = module.add("ckks.linear_transform", [x], attributes).op
    return Functions(module, shape).of(op, [(level,) * source.ciphertexts])


if __name__ == "__main__":
    main()
