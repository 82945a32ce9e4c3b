"""A product of a matrix with 128 encrypted tokens through BLAS, beside diagonals: a study.

    python -m benchmarks.engine.blas [--features 4096]      two minutes, 7 GB

1. Whether it is right: ciphertexts of a small ring go the whole way (``blas_core.py``).
2. The product itself at full size, in NumPy on one thread, and how far off it is.
3. What surrounds it, on the engine ``cpu`` at N = 2^16: key switches, and StC at two places.
4. A part of the layer by diagonals, in both packings of ``linear.py``.

Core seconds. The last table adds them up (docs/blas.md).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from atlasc.cli.output import print_table
from atlasc.program.bootstrap.sets import SETS
from atlasc.program.bootstrap.stages import baby_giant, slots_to_coeffs, whole_groups
from atlasc.program.counting_engine import counts_of
from atlasc.program.function import EngineParameters, Function
from atlasc.program.kernels.context import blocked
from atlasc.program.key_plan import KeyPlan
from atlasc.program.record import Recorder
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from benchmarks.engine import linear
from benchmarks.engine.blas_core import (
    RATIO,
    Format,
    Toy,
    Way,
    convolved,
    dense,
    quantised,
    rows,
    split,
)

LOG_Q, LOG_Q0, LOG_SPECIAL, DIGITS, LOW = 60, 50, 46, 2, 40
"""The small secret's modulus 2^60 and factor 2^46 are what degree 4096 allows at 128 bits.
The sums of 4096 products of 20 high bits and 22 bits of W stay below 2^53."""
WAYS = (
    Way("dense, 2 parts", dense, LOW, 22),
    Way("convolutions, 2 parts", convolved, LOW, 22),
    Way("dense, rounded", dense, LOG_Q, 18),
    Way("convolutions, rounded", convolved, LOG_Q, 18),
)
CHOSEN = WAYS[:2]
"""The ways that the last table adds up."""
PART = 1024
"""Features of a part of the layer that is measured by diagonals."""
LEVELS = (8, 1)
SAMPLES = 64
LEVEL_0, LEVEL_1 = "a rotation at level 0", "a rotation at level 1, two digits"
"""Key switches with one special prime, which are all that the product needs."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--features", type=int, default=4096, help="inputs, and outputs; of 1024")
    features = parser.parse_args().features
    random = np.random.default_rng(1)
    with threadpool_limits(1):
        toy(random)
        products = core(features, random)
    switches = key_switches()
    engine, shape = wide_engine(features)
    early, late = (stc(engine, shape, level) for level in (17, 4))
    print_table(
        ["", "core ms"],
        [(name, f"{1e3 * seconds:.2f}") for name, seconds in switches.items()]
        + [("StC from level 17", f"{1e3 * early:.0f}"), ("StC from level 4", f"{1e3 * late:.0f}")],
        title="on the engine",
    )
    by_diagonals = {
        (name, level): diagonals(engine, shape, name, features, level)
        for level in LEVELS
        for name in ("tokens low", "features low")
    }
    form = Format(2**16, 2**12, linear.TOKENS, LOG_Q)
    ciphertexts = features // form.features
    into, back = 2 * ciphertexts, ciphertexts * form.rank
    totals = []
    for way in CHOSEN:
        parts = into * switches[LEVEL_1], products[way], back * switches[LEVEL_0]
        totals.append((way.name, *parts, sum(parts)))
    columns = ["", f"{into} key switches", "product", f"{back} key switches", "core s"]
    print_table(columns, totals, title=f"{features} x {features} x {linear.TOKENS} through BLAS")
    print_table(
        ["", "level", "core s", *(f"times {way.name}" for way in CHOSEN)],
        [(*which, by, *(by / total[-1] for total in totals)) for which, by in by_diagonals.items()],
        title="by diagonals, and how many times as long that takes",
    )


def log2(x: float) -> str:
    """A number as a power of two."""
    return f"2^{np.log2(x):.1f}" if x else "0"


def toy(random: np.random.Generator) -> None:
    """All steps on ciphertexts of degree 2^11: the error of each way, relative to W x."""
    form = Format(2**11, 2**8, 16, LOG_Q)
    x = random.uniform(-1, 1, (2 * form.features, form.tokens))
    weight = random.normal(0, 1, (2 * form.features, 2 * form.features))
    wanted, table = weight @ x, []
    small = Toy(form, LOG_Q0, LOG_SPECIAL, DIGITS, random)
    for way in WAYS:
        found = small.product(x, weight, way)
        integers, scale = quantised(weight, way.weight_bits)
        errors = found - wanted, integers @ x / scale - wanted
        table.append((way.name, way.weight_bits, *(log2(e.std() / wanted.std()) for e in errors)))
    columns = ["", "bits of W", "error", "of that, of W's bits"]
    print_table(columns, table, title=f"ciphertexts of degree {form.degree}, relative errors")


def core(features: int, random: np.random.Generator) -> dict[Way, float]:
    """The product at full size: core seconds of each way, and its errors, where W's rows have the
    norm 1 and the inputs a standard deviation of 1.
    """
    form = Format(2**16, 2**12, linear.TOKENS, LOG_Q)
    weight = random.normal(0, features**-0.5, (features, features))
    pieces = features // form.rank
    masks = random.integers(0, 1 << LOG_Q, (pieces, form.small), dtype=np.uint64)
    bodies = random.integers(0, 1 << LOG_Q, (features, form.tokens), dtype=np.uint64)
    chosen = random.integers(0, features, SAMPLES), random.integers(0, form.small, SAMPLES)
    columns = [rows(part, form).T[chosen[1]] for part in split(masks, LOG_Q, LOW)]
    unit = 2.0 ** (LOG_Q - RATIO)  # the scale of a message after the product
    seconds, table = {}, []
    for way in WAYS:
        integers, scale = quantised(weight, way.weight_bits)
        started = time.process_time()
        found = way.product(integers, masks, bodies, form)
        seconds[way] = time.process_time() - started
        lost = [
            exact(integers[row], low, high) - int(found.masks[row, column])
            for row, column, low, high in zip(*chosen, *columns, strict=True)
        ]
        wrapped = [(one + (1 << LOG_Q - 1)) % (1 << LOG_Q) - (1 << LOG_Q - 1) for one in lost]
        # A mask is multiplied by a ternary secret. What its key switch rounds, W amplifies.
        secret = (form.small * 2 / 3) ** 0.5
        arithmetic = np.std(np.array(wrapped, float)) * secret / unit
        rounding = secret / 12**0.5 * np.linalg.norm(integers, axis=1).mean() / unit
        bits = np.linalg.norm(integers / scale - weight, axis=1).mean()
        total = (arithmetic**2 + rounding**2 + bits**2) ** 0.5
        errors = map(log2, (bits, arithmetic, rounding, total))
        table.append((way.name, way.weight_bits, seconds[way], *errors))
        del found
    print_table(
        ["", "bits of W", "core s", "error of W's bits", "of sums", "of key switches", "all"],
        table,
        title=f"W [{features}, {features}] times masks of {form.small} and bodies of "
        f"{form.tokens} numbers",
    )
    return seconds


def exact(weights: Any, low: Any, high: Any) -> int:
    """One number of the product, by integers of Python."""
    numbers = zip(weights, low, high, strict=True)
    return sum(int(w) * (int(one) + (int(other) << LOW)) for w, one, other in numbers)


def clocked(call: Callable[[], object], times: int = 1) -> float:
    """Core seconds of a call, once everything is encoded and in memory."""
    call()
    started = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - started) / times


def key_switches() -> dict[str, float]:
    """Core seconds of a rotation with one special prime."""
    parameters = CpuParameters(16, 1, 1)
    engine = CpuEngine.fresh(parameters, KeyPlan({1: 1}), no_progress)
    x = [engine.encrypt(np.linspace(-1, 1, engine.slots), level) for level in (0, 1)]
    return {
        name: clocked(partial(engine.rotate, one, 1), 20)
        for name, one in zip((LEVEL_0, LEVEL_1), x, strict=True)
    }


def wide_engine(features: int) -> tuple[CpuEngine, EngineParameters]:
    """An engine with the primes of ``fifteen_levels_40`` below EvalMod, and keys for all below."""
    chosen = SETS["fifteen_levels_40"]
    parameters = CpuParameters(16, chosen.levels, chosen.special_primes)
    shape = EngineParameters.of(parameters)
    levels: dict[int, int] = {}
    needs = [(stc_function(shape, 4), 17), (stc_function(shape, 17), 17)]
    needs += [(layer(shape, name, PART, outputs, 8), 8) for name, outputs in parts(features)]
    for function, level in needs:
        for amount in counts_of(function).rotation_levels:
            levels[amount] = max(level, levels.get(amount, 0))
    plan = KeyPlan(levels, conjugation_level=max(LEVELS))
    return CpuEngine.fresh(parameters, plan, no_progress), shape


def stc_function(shape: EngineParameters, level: int) -> Function:
    """SlotsToCoeffs of one ciphertext, in three stages from this level."""
    engine = Recorder(shape)
    x = engine.register(level)
    for stage in slots_to_coeffs(shape.slots, whole_groups(shape.slots, 3), 1.0):
        assert not isinstance(stage, float)
        [x] = engine.transform([x], baby_giant(stage))
    return Function("stc", shape, ((level,),), tuple(engine.code), (x.number,), (x.level,))


def stc(engine: CpuEngine, shape: EngineParameters, level: int) -> float:
    """Core seconds of StC from this level."""
    function = stc_function(shape, level)
    x = engine.encrypt(np.linspace(-1, 1, shape.slots), level)
    return clocked(lambda: engine.settle(engine.play(function, [[x]])[0]))


def parts(features: int) -> list[tuple[str, int]]:
    """Packing and number of outputs of the parts that are measured."""
    return [("tokens low", PART), ("features low", features)]


def layer(shape: EngineParameters, name: str, inputs: int, outputs: int, level: int) -> Function:
    """A linear layer by diagonals, of one packing."""
    if name == "tokens low":
        return linear.layer(shape, linear.LOW_TOKENS, inputs, outputs, level)
    return linear.layer(shape, linear.LOW_FEATURES, inputs, outputs, level, 64)


def diagonals(
    engine: CpuEngine, shape: EngineParameters, name: str, features: int, level: int
) -> float:
    """Core seconds of the whole layer, from those of a part. The part has more key switches for a
    product than the whole. What that is too much is taken off at the price of a rotation, which is
    the highest there is.
    """
    outputs = dict(parts(features))[name]
    function = layer(shape, name, PART, outputs, level)
    whole = counts_of(layer(shape, name, features, features, level))
    part = counts_of(function)
    fields = linear.LOW_TOKENS if name == "tokens low" else linear.LOW_FEATURES
    random = np.random.default_rng(2)
    weight = random.uniform(-1, 1, (outputs, PART)) / PART**0.5
    x = random.uniform(-1, 1, (1, linear.TOKENS, PART))
    source, target = linear.layout(fields, PART), linear.layout(fields, outputs)
    operands = [engine.encrypt(one, level) for one in source.pack(blocked(x, source))]
    results: list[Any] = []

    def run() -> None:
        results[:] = engine.play(function, [operands], [weight])
        for one in results:
            engine.settle(one)

    seconds = clocked(run)
    slots = np.stack([engine.decrypt(one) for one in results])
    error = np.abs(slots - target.pack(blocked(x @ weight.T, target))).max()
    amount = min(part.rotation_levels)
    rotation = clocked(lambda: engine.rotate(operands[0], amount), 10)
    times = whole.plaintext_products / part.plaintext_products
    spare = times * part.key_switches - whole.key_switches
    print(
        f"{name}, level {level}: {PART} -> {outputs} takes {seconds:.2f} core s, greatest error "
        f"{error:.1e}; {part.plaintext_products} of {whole.plaintext_products} products, "
        f"{spare:.0f} key switches of {1e3 * rotation:.1f} ms too many",
        flush=True,
    )
    return times * seconds - spare * rotation


if __name__ == "__main__":
    main()
