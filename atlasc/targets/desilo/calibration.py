"""Measures what the primitives of desilofhe cost on this machine.

Each parameter set is measured at a few levels, in rounds over all primitives, of which the shortest
time counts: what else the machine does then falls on all of them alike. The costs between are
those of :mod:`atlasc.targets.costs`.
"""

from __future__ import annotations

import datetime
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from timeit import repeat, timeit

import numpy as np

from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets import cost_table
from atlasc.targets.base import Progress
from atlasc.targets.cost_table import Bootstrap, CostTable, Measured
from atlasc.targets.costs import KEY, ratio
from atlasc.targets.desilo.engine import DesiloCiphertext, DesiloEngine
from atlasc.targets.desilo.keys import KeySet
from atlasc.targets.desilo.library import REQUIRED_VERSION, library_engine
from atlasc.targets.desilo.parameters import BOOTSTRAPPED, DesiloParameters
from atlasc.targets.machine import OtherWork, require_memory, this_machine

FEW, MANY = 2, 8
"""Rotations of the two hoisted calls that tell the shared part from the rest."""
ROUNDS = 3
SHORT, REPEATS = 0.02, 4
"""A call that takes less than ``SHORT`` seconds is repeated ``REPEATS`` times."""
BOOTSTRAP_WORK = 140 * BOOTSTRAPPED.key_bytes(BOOTSTRAPPED.max_level)
"""A bootstrap's key and two bootstraps take as long as the making of 140 other keys."""
BUSY = 0.05
"""Share of other work above which a table says that it was not taken on a quiet machine."""


def plans(quick: bool = False) -> dict[DesiloParameters, list[int]]:
    """What is measured, and at which levels: each ring degree, and several numbers of special
    primes at the largest."""
    keys = ((14, 1), (14, 3), (15, 2), (15, 5), (16, 8), (16, 4))
    sets = [*(DesiloParameters(*key) for key in keys), BOOTSTRAPPED]
    fractions = [1.0, 0.6, 0.25, 0.05]  # of the highest level
    if quick:
        sets = [DesiloParameters(*key) for key in ((14, 1), (15, 2), (16, 4))]
        fractions = fractions[1:]
    return {p: sorted({max(1, round(f * p.max_level)) for f in fractions}) for p in sets}


def calibrate(
    progress: Progress, *, quick: bool = False, bootstrap: bool = False, note: str = ""
) -> CostTable:
    """Measure a table on this machine.

    Args:
        progress: called in hundredths of the expected work.
        quick: fewer parameter sets, levels and rounds.
        bootstrap: measure a bootstrap too: 16 GB and minutes. Else it is scaled from the table
            that comes with atlasc, by the ratio of the other primitives.
        note: a remark to keep in the table.

    Raises:
        AtlasError: desilofhe is missing, or the memory does not suffice.
    """
    shipped = cost_table.load(cost_table.shipped_place(DesiloParameters.family))
    scaled = shipped.bootstrap
    assert scaled is not None
    chosen, rounds = plans(quick), ROUNDS - quick
    work = BOOTSTRAP_WORK if bootstrap else 0
    for p, levels in chosen.items():
        work += _key_work(p) + rounds * sum(_work(p, level) for level in levels)
    pace, others = _Pace(progress, work), OtherWork()
    table = CostTable(
        DesiloParameters.family,
        REQUIRED_VERSION,
        this_machine(),
        datetime.date.today().isoformat(),
        tuple(_measure(p, levels, rounds, pace) for p, levels in chosen.items()),
        _measure_bootstrap(pace) if bootstrap else None,
    )
    share = others.share()
    remarks = [note] if note else []
    if share is not None and share > BUSY:
        remarks.append(f"taken beside other work on {share:.0%} of the machine: too high")
    measured = table.bootstrap
    if measured is None:
        factor = ratio(table, shipped, DesiloParameters)
        measured = Bootstrap(scaled.seconds * factor, scaled.key_seconds * factor, False)
        remarks.append(f"bootstrap not measured: {factor:.3g} times that of {shipped.machine}")
    return replace(table, bootstrap=measured, other_work=share, note="; ".join(remarks))


class _Pace:
    """Progress in expected work."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, what: str, work: int) -> None:
        self.progress(what, min(100 * self.done // self.total, 99), 100)
        self.done += work


def _work(parameters: DesiloParameters, level: int) -> int:
    """Of a round, which takes as long as the making of four keys; its unit is a byte of a key."""
    return 4 * parameters.key_bytes(level)


def _key_work(parameters: DesiloParameters) -> int:
    return (MANY + 1) * parameters.key_bytes(parameters.max_level)


def _actions(
    engine: DesiloEngine, ct: DesiloCiphertext, other: DesiloCiphertext
) -> dict[str, Callable[[], object]]:
    """One call each, on two ciphertexts of one level whose rescaled forms are known."""
    vector = np.random.default_rng(0).uniform(-1, 1, engine.slots)
    library, level = library_engine(engine.parameters), ct.level
    transformed = library.ntt(ct.raw)  # as the result of a product is
    return {
        "encrypt": lambda: engine.encrypt(vector, level),
        "decrypt": lambda: engine.decrypt(ct),
        "rotate": lambda: engine.rotate(ct, 1),
        "rescale": lambda: library.ntt(library.rescale(transformed)),
        "mul": lambda: engine.mul(ct, other),
        "mul_lazy": lambda: library.multiply(ct.factor, other.factor),
        "square": lambda: engine.square(ct),
        "mul_plain": lambda: engine.mul_plain(ct, vector),
        "mul_scalar": lambda: engine.mul_plain(ct, 0.3),
        "add": lambda: engine.add(ct, other),
        "add_plain": lambda: engine.add_plain(ct, vector),
        "negate": lambda: engine.negate(ct),
        "times_i": lambda: engine.times_i(ct),
        "few": lambda: engine.rotate_many(ct, range(1, FEW + 1)),
        "many": lambda: engine.rotate_many(ct, range(1, MANY + 1)),
    }


def _measure(p: DesiloParameters, levels: list[int], rounds: int, pace: _Pace) -> Measured:
    """Shortest seconds by primitive and level."""
    name = f"2^{p.log_ring_degree}, {p.special_primes} special primes"
    name += ", bootstrapping" if p.bootstrap else ""
    pace(f"keys, {name}", _key_work(p))
    keys, key_seconds = _keys(p)
    engine = DesiloEngine(keys)
    vector = np.random.default_rng(1).uniform(-1, 1, engine.slots)
    pairs = {level: [engine.encrypt(vector, level) for _ in range(2)] for level in levels}
    for pair in pairs.values():
        engine.mul(*pair)  # which rescales and transforms both, once
        engine.mul_plain(pair[0], 0.5)
    shortest: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for _ in range(rounds):
        for level, pair in pairs.items():
            pace(f"{name}, level {level}", _work(p, level))
            for primitive, action in _actions(engine, *pair).items():
                best = shortest[primitive].get(level, np.inf)
                shortest[primitive][level] = min(best, _timed(action))
    few, many = shortest.pop("few"), shortest.pop("many")
    hoisted = {at: _hoisted(few[at], many[at]) for at in levels}
    shortest["rotate_hoisted"] = {at: each for at, (each, _) in hoisted.items()}
    shortest["hoist"] = {at: shared for at, (_, shared) in hoisted.items()}
    return Measured(p.to_dict(), {KEY: {p.max_level: key_seconds}, **shortest})


def _timed(action: Callable[[], object]) -> float:
    """Shortest of a few calls; of one where it takes long."""
    first = timeit(action, number=1)
    return min([first, *repeat(action, number=1, repeat=0 if first > SHORT else REPEATS)])


def _hoisted(few: float, many: float) -> tuple[float, float]:
    """Seconds of one rotation and of the shared part, both positive whatever the noise."""
    each = (many - few) / (MANY - FEW)
    each = min(max(each, many / (2 * MANY)), 0.98 * many / MANY)
    return each, many - MANY * each


def _keys(parameters: DesiloParameters) -> tuple[KeySet, float]:
    """Keys for the primitives, without those of a bootstrap, and the seconds that one took."""
    top, slots, amounts = parameters.max_level, parameters.slots, range(1, MANY + 1)
    needed = (MANY + 4) * parameters.key_bytes(top) + parameters.ring_degree * 2**14
    require_memory(needed, "the keys that are measured")
    library = library_engine(parameters)
    secret = library.create_secret_key()
    started = time.perf_counter()
    keys = {
        f"rotation_{amount}": library.create_fixed_rotation_key(secret, slots - amount, top)
        for amount in amounts
    }
    seconds = (time.perf_counter() - started) / MANY
    full = () if parameters.bootstrap else (top,)
    keys["relinearization"] = library.create_relinearization_key(secret, *full)
    plan = KeyPlan(dict.fromkeys(amounts, top), top)
    return KeySet(parameters, "", secret, plan, keys), seconds


def _measure_bootstrap(pace: _Pace) -> Bootstrap:
    """A bootstrap of as many ciphertexts as one refreshes."""
    pace("the bootstrap key and two bootstraps", BOOTSTRAP_WORK)
    started = time.perf_counter()
    keys = KeySet.generate(BOOTSTRAPPED, KeyPlan({}))
    key_seconds = time.perf_counter() - started
    engine = DesiloEngine(keys)
    vector = np.random.default_rng(2).uniform(-1, 1, engine.slots)
    batch = [engine.encrypt(vector, 0) for _ in range(engine.bootstrap_batch)]
    seconds = min(_timed(lambda: engine.bootstrap_many(batch)) for _ in range(2))
    return Bootstrap(seconds, key_seconds, True)
