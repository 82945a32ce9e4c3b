"""Core seconds of a bootstrap of few slots, beside one of two whole ciphertexts, and what its
stages take: the engine ``cpu`` at N = 2^16, all kinds by turns in one process.

    python -m benchmarks.engine.narrow [--set fifteen_levels_40] [--periods 64] [--rounds 3]

A cell is the least of all rounds. For the stages, the instructions of a bootstrap are executed one
by one and settled, so that each pays for what the engine puts off: their sum is more than the
bootstrap takes. Errors are those of slots that are uniform in [-1, 1]: the standard deviation over
all slots, and the greatest. Memory: 8 GB.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from atlasc.cli.output import print_table
from atlasc.program.function import Function
from atlasc.program.key_plan import KeyPlan
from atlasc.program.transform_work import TRANSFORMS
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters

STAGES = ("SlotsToCoeffs", "raise", "CoeffsToSlots", "copies", "conjugation", "EvalMod")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--set", default="fifteen_levels_40")
    parser.add_argument("--periods", default="64", help="numbers of slots, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    parameters = CpuParameters.bootstrapped(options.set)
    engine = CpuEngine.fresh(parameters, KeyPlan({1: parameters.max_level}), no_progress)
    periods = [int(one) for one in options.periods.split(",")]
    kinds = [(parameters.slots, 2), (parameters.slots, 1), *[(period, 1) for period in periods]]
    runs = [Run(engine, *kind) for kind in kinds]
    for run in runs:  # encodes the diagonals
        run.bootstrap()
    for measured in (Run.bootstrap, Run.stages):
        for run in runs:
            run.seconds.clear()
        for _ in range(options.rounds):
            for run in runs:
                measured(run)
        for run in runs:
            run.keep_least()
    show(runs)


class Step(NamedTuple):
    """An instruction of a bootstrap as a function.

    Attributes:
        stage: one of ``STAGES``.
        function: the instruction alone.
        read, written, released: registers of the bootstrap; no later step reads those released.
    """

    stage: str
    function: Function
    read: tuple[int, ...]
    written: tuple[int, ...]
    released: tuple[int, ...]


class Run:
    """A bootstrap, measured.

    Attributes:
        title: what is refreshed.
        seconds: of each round, core seconds by stage, or those of "all".
        least: the least of all rounds.
        deviation, greatest: of the last bootstrap's errors.
    """

    def __init__(self, engine: CpuEngine, period: int, count: int) -> None:
        self.engine, self.period = engine, period
        few = "" if period == engine.slots else f", {period} slots"
        self.title = f"{('one', 'two')[count - 1]}{few}"
        function = list(engine.parameters.circuit(period))[count - 1]
        self.steps, self.results = steps_of(function), function.results
        values = np.random.default_rng(1).uniform(-1, 1, period)
        self.slots = np.tile(values, engine.slots // period)
        self.operands = [engine.encrypt(self.slots, engine.bootstrap_from) for _ in range(count)]
        self.seconds: list[Counter[str]] = []
        self.least: dict[str, float] = {}

    def bootstrap(self) -> None:
        """Measure all steps together, and the errors."""
        begin = time.process_time()
        made = self.engine.bootstrap_many(self.operands, self.period)
        for one in made:
            self.engine.settle(one)
        self.seconds.append(Counter({"all": time.process_time() - begin}))
        errors = [self.engine.decrypt(one) - self.slots for one in made]
        self.deviation, self.greatest = float(np.std(errors)), float(np.abs(errors).max())

    def stages(self) -> None:
        """Measure each step alone."""
        registers: dict[int, Any] = dict(enumerate(self.operands))
        found: Counter[str] = Counter()
        for step in self.steps:
            begin = time.process_time()
            made = self.engine.play(step.function, [[registers[number]] for number in step.read])
            for one in made:
                self.engine.settle(one)
            found[step.stage] += time.process_time() - begin
            registers |= zip(step.written, made, strict=True)
            for number in step.released:
                del registers[number]
        self.seconds.append(found)

    def keep_least(self) -> None:
        """Forget all rounds but the fastest of each stage."""
        for stage in {name for one in self.seconds for name in one}:
            self.least[stage] = min(one[stage] for one in self.seconds)


def steps_of(function: Function) -> list[Step]:
    """The instructions of a bootstrap, one by one."""
    levels = dict(enumerate(level for some in function.levels for level in some))
    stage, steps = "SlotsToCoeffs", []
    for one, released in zip(function.code, function.released, strict=True):
        if one.primitive == "raise_modulus":
            stage = "CoeffsToSlots"
        own = {"raise_modulus": "raise", "rotate_sum": "copies", "conjugate": "conjugation"}
        named = own.get(one.primitive, stage)
        if one.primitive == "conjugate":
            stage = "EvalMod"
        products = ("mul", "square", "dot", "mul_plain", "dot_plain", *TRANSFORMS)
        below = one.primitive in products
        level = min(levels[number] for number in one.operands) - below
        if one.primitive in ("drop_to", "raise_modulus"):
            level = one.numbers[0]
        levels |= dict.fromkeys(one.results, level)
        count = len(one.operands)
        results = tuple(range(count, count + len(one.results)))
        alone = Function(
            one.primitive,
            function.shape,
            tuple((levels[number],) for number in one.operands),
            (one._replace(operands=tuple(range(count)), results=results),),
            results,
            (level,) * len(results),
        )
        steps.append(Step(named, alone, one.operands, one.results, released))
    return steps


def show(runs: list[Run]) -> None:
    """The table."""
    rows = [
        ["core seconds", *[f"{run.least['all']:.2f}" for run in runs]],
        ["of two whole ones", *[f"{run.least['all'] / runs[0].least['all']:.3f}" for run in runs]],
        *[[stage, *[f"{run.least.get(stage, 0.0):.2f}" for run in runs]] for stage in STAGES],
        ["deviation, log2", *[f"{np.log2(run.deviation):.2f}" for run in runs]],
        ["greatest error, log2", *[f"{np.log2(run.greatest):.2f}" for run in runs]],
    ]
    print_table(["", *[run.title for run in runs]], rows)


if __name__ == "__main__":
    main()
