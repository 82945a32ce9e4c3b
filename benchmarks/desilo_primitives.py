"""Measured and predicted seconds of the primitives of desilofhe, level by level.

python benchmarks/desilo_primitives.py            N = 2^14 and 2^15, under a minute
python benchmarks/desilo_primitives.py 16 4       one parameter set; 2^16 needs 3 GB
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from atlasc.backends.desilo import DesiloEngine, DesiloParameters, KeySet
from atlasc.backends.desilo_costs import price
from atlasc.passes.lowering.counting_engine import Primitive

REPEATS = 3
HOISTED = 8


def best_of(action: Callable[[], object]) -> float:
    """The shortest of a few runs: the others met the rest of the machine."""
    action()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(parameters: DesiloParameters) -> None:
    """Print one line for each primitive and level."""
    top = parameters.max_level
    start = time.perf_counter()
    keys = KeySet.generate(
        parameters,
        dict.fromkeys(range(1, HOISTED + 1), top // 2) | {1: top},
        relinearization_level=top,
    )
    engine = DesiloEngine.from_key_set(keys)
    print(
        f"\nN = 2^{parameters.log_ring_degree}, {parameters.special_primes} special primes, "
        f"{top} levels, log2(QP) = {parameters.log_qp:.0f}; {HOISTED + 1} keys in "
        f"{time.perf_counter() - start:.1f} s"
    )
    vector = np.random.default_rng(0).uniform(-1, 1, engine.slots)
    for level in sorted({top, top // 2, top // 4, 1}, reverse=True):
        ct = engine.encrypt(vector, level)
        actions: dict[Primitive, Callable[[], object]] = {
            "rotate": lambda ct=ct: engine.rotate(ct, 1),
            "mul": lambda ct=ct: engine.mul(ct, ct),
            "mul_plain": lambda ct=ct: engine.mul_plain(ct, vector),
            "mul_scalar": lambda ct=ct: engine.mul_plain(ct, 0.3),
            "add": lambda ct=ct: engine.add(ct, ct),
            "add_plain": lambda ct=ct: engine.add_plain(ct, vector),
            "encrypt": lambda level=level: engine.encrypt(vector, level),
            "decrypt": lambda ct=ct: engine.decrypt(ct),
        }
        for name, action in actions.items():
            report(name, level, best_of(action), price(parameters, name, level))
        if level <= top // 2:
            amounts = list(range(1, HOISTED + 1))
            seconds = best_of(lambda ct=ct, amounts=amounts: engine.rotate_many(ct, amounts))
            predicted = price(parameters, "hoist", level) + HOISTED * price(
                parameters, "rotate_hoisted", level
            )
            report(f"rotate_many x{HOISTED}", level, seconds, predicted)


def report(name: str, level: int, measured: float, predicted: float) -> None:
    """One line of the table."""
    figures = f"{measured:8.4f} s  predicted {predicted:8.4f}  x{measured / predicted:.2f}"
    print(f"  level {level:2d}  {name:15s} {figures}")


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(DesiloParameters(int(sys.argv[1]), int(sys.argv[2])))
    else:
        for key in ((14, 1), (15, 2), (15, 5)):
            measure(DesiloParameters(*key))
