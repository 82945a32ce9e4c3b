"""One linear layer over 128 tokens on the engine ``cpu``, in two packings by turns.

    python -m benchmarks.engine.linear [--inputs 768] [--outputs 768] [--level 8]
        [--babies 32] [--rounds 3]

Tokens in the low slot bits: the function that the compiler records. Features in the low bits,
tokens above: diagonals repeat after 256 slots, and the layer is one ``transform`` of all its
ciphertexts (docs/kernels.md). Core seconds of both and their ratio, one line a round; the first
round also warms the memory up. Predicted core seconds are those of the cost table in use, on all
threads.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from atlasc.ir.layout import Layout
from atlasc.ir.module import Module
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.program.counting_engine import counts_of
from atlasc.program.engine import TransformTerm
from atlasc.program.execute import Functions
from atlasc.program.function import EngineParameters, Function
from atlasc.program.kernels.context import blocked
from atlasc.program.kernels.linear import FeatureMap, choose_plan
from atlasc.program.plaintexts import Argument, Lookup, Root, Slots, Table, Term
from atlasc.program.record import Recorder
from atlasc.targets.base import no_progress
from atlasc.targets.costs import costs_of
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.machine import available_threads

TOKENS, WIDTH, PERIOD = 128, 64, 256
LOW_TOKENS = "d:6 g:2 b:0 t:7"
LOW_FEATURES = "b:0 t:7 d:6 g:2"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=768)
    parser.add_argument("--outputs", type=int, default=768)
    parser.add_argument("--level", type=int, default=8)
    parser.add_argument("--babies", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    parameters = CpuParameters.bootstrapped()
    shape, level = EngineParameters.of(parameters), options.level
    inputs, outputs = options.inputs, options.outputs
    functions = {
        LOW_TOKENS: low_tokens(shape, inputs, outputs, level),
        LOW_FEATURES: low_features(shape, inputs, outputs, level, options.babies),
    }
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
        print(f"ratio {seconds[LOW_FEATURES] / seconds[LOW_TOKENS]:.3f}", flush=True)


def layout(fields: str, features: int) -> Layout:
    """Of so many features for each token."""
    blocks = features // WIDTH
    outer = (blocks // 4 - 1).bit_length()
    extents = f"b=1 t={TOKENS} g={blocks} d={WIDTH}"
    return Layout.parse(f"[{fields} | g.2:{outer} | {extents}]")


def low_tokens(shape: EngineParameters, inputs: int, outputs: int, level: int) -> Function:
    """The layer as the compiler records it."""
    module = Module("linear", "ckks")
    source, target = layout(LOW_TOKENS, inputs), layout(LOW_TOKENS, outputs)
    about = {"name": "x", "shape": [1, TOKENS, inputs], "layout": source, "level": level}
    x = module.add("ckks.input", [], about)
    plan = choose_plan(source, target, inputs, outputs)
    weight = module.constant("weight", np.zeros((outputs, inputs)))
    attributes = {"weight": weight, "layout": target, **plan._asdict()}
    op = module.add("ckks.linear_transform", [x], attributes).op
    return Functions(module, shape).of(op, [(level,) * source.ciphertexts])


def low_features(
    shape: EngineParameters, inputs: int, outputs: int, level: int, babies: int
) -> Function:
    """The layer by diagonals that repeat. With z = x + i · rotate(x, -PERIOD), slot p of
    rotate(z, k) has its token's feature p + k in the real part, and where that lies beyond the end
    of the token's slots feature p + k - PERIOD in the imaginary one.
    """
    rows = FeatureMap(layout(LOW_FEATURES, outputs), outputs).feature[:, :PERIOD]
    columns = FeatureMap(layout(LOW_FEATURES, inputs), inputs).feature[:, :PERIOD]
    copies = shape.slots // PERIOD
    row_tables, column_tables = (
        [Table(name, lambda one=one: one, copies) for one in found]
        for name, found in (("row", rows * inputs), ("column", columns))
    )
    wraps = [
        Table(f"wraps{k}", lambda k=k: np.where(np.arange(PERIOD) + k < PERIOD, 0, 3), copies)
        for k in range(PERIOD)
    ]

    def diagonal(result: int, operand: int, k: int) -> Slots:
        places = (row_tables[result], 0), (column_tables[operand], k)
        turned = Lookup(Root(4), ((wraps[k], 0),))  # the root's third power is -i
        return Slots((Term(0.5, (Lookup(Argument("weight"), places), turned)),))

    terms = [
        TransformTerm(baby, giant, diagonal(result, operand, giant + baby).rolled(giant),
                      operand, result)
        for result in range(len(rows))
        for giant in range(0, PERIOD, babies)
        for operand in range(len(columns))
        for baby in range(babies)
    ]  # fmt: skip
    recorder = Recorder(shape)
    operands = [recorder.register(level) for _ in columns]
    doubled = [recorder.add(x, recorder.times_i(recorder.rotate(x, -PERIOD))) for x in operands]
    sums = recorder.transform(doubled, terms)
    result = [recorder.add(one, recorder.conjugate(one)) for one in sums]
    return Function(
        "linear_transform",
        shape,
        ((level,) * len(operands),),
        tuple(recorder.code),
        tuple(one.number for one in result),
        tuple(one.level for one in result),
    )


if __name__ == "__main__":
    main()
