"""Measures what the primitives of desilofhe cost on this machine.

Each parameter set is measured at a few levels, in rounds over all primitives, of which the shortest
time counts: what else the machine does then falls on all of them alike. The costs between are
those of :mod:`atlasc.targets.costs.fitted`.
"""

from __future__ import annotations

import datetime
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from atlasc.passes.execution.counting_engine import PRIMITIVES
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.base import Progress
from atlasc.targets.costs.fitted import KEY, FittedCosts
from atlasc.targets.costs.table import Bootstrap, CostTable, Measured, load, shipped_place
from atlasc.targets.desilo.engine import DesiloCiphertext, DesiloEngine
from atlasc.targets.desilo.keys import ClientKeys, EvaluationKeys, KeySet
from atlasc.targets.desilo.library import REQUIRED_VERSION, library_engine, load_library
from atlasc.targets.desilo.parameters import BOOTSTRAPPED, DesiloParameters
from atlasc.targets.machine import OtherWork, require_memory, this_machine

FEW, MANY = 2, 8
"""Rotations of the two hoisted calls that tell the shared part from the rest."""
ROUNDS = 3
SHORT, REPEATS = 0.02, 5
"""A call that takes less than ``SHORT`` seconds is repeated up to ``REPEATS`` times."""
BUSY = 0.05
"""Share of other work above which a table says that it was not taken on a quiet machine."""
REFERENCE = ("rotate", "mul", "mul_plain", "rotate_hoisted")
"""Primitives whose ratio to another table scales a bootstrap."""


@dataclass(frozen=True)
class Plan:
    """A parameter set and the levels at which it is measured."""

    parameters: DesiloParameters
    levels: tuple[int, ...]


def plans(quick: bool = False) -> list[Plan]:
    """What is measured: each ring degree, and several numbers of special primes at the largest."""
    sets, fractions = (_QUICK_SETS, _QUICK_FRACTIONS) if quick else (_SETS, _FRACTIONS)
    return [
        Plan(p, tuple(sorted({max(1, round(f * p.max_level)) for f in fractions}, reverse=True)))
        for p in sets
    ]


_SETS: tuple[DesiloParameters, ...] = (
    *(DesiloParameters(*key) for key in ((14, 1), (14, 3), (15, 2), (15, 5), (16, 8), (16, 4))),
    BOOTSTRAPPED,
)
_FRACTIONS: tuple[float, ...] = (1.0, 0.6, 0.25, 0.05)
"""Levels that are measured, as fractions of the highest one."""
_QUICK_SETS = tuple(DesiloParameters(*key) for key in ((14, 1), (15, 2), (16, 4)))
_QUICK_FRACTIONS = (0.6, 0.25, 0.05)


def calibrate(
    progress: Progress, *, quick: bool = False, bootstrap: bool = False, note: str = ""
) -> CostTable:
    """Measure a table on this machine.

    Args:
        progress: called in hundredths of the predicted time.
        quick: fewer parameter sets, levels and rounds.
        bootstrap: measure a bootstrap too: 16 GB and minutes. Else it is scaled from the table
            that comes with atlasc, by the ratio of the other primitives.
        note: a remark to keep in the table.

    Raises:
        AtlasError: desilofhe is missing, or the memory does not suffice.
    """
    load_library()
    known = _costs(load(shipped_place(DesiloParameters.family)))
    chosen = plans(quick)
    rounds = ROUNDS - 1 if quick else ROUNDS
    pace = _Pace(progress, sum(_predicted(known, plan, rounds) for plan in chosen))
    if bootstrap:
        assert known.table.bootstrap is not None
        pace.total += known.table.bootstrap.key_seconds + 2 * known.table.bootstrap.seconds
    others = OtherWork()
    sets = [
        Measured(plan.parameters.to_dict(), _measure(plan, rounds, pace, known)) for plan in chosen
    ]
    measured = _measure_bootstrap(pace) if bootstrap else None
    share = others.share()
    remarks = [note] if note else []
    if share is not None and share > BUSY:
        remarks.append(f"taken beside other work on {share:.0%} of the machine: too high")
    table = CostTable(
        DesiloParameters.family,
        REQUIRED_VERSION,
        this_machine(),
        datetime.date.today().isoformat(),
        tuple(sets),
        measured,
        share,
        "; ".join(remarks),
    )
    return table if measured is not None else _with_scaled_bootstrap(table, known)


def ratio(table: CostTable, other: CostTable) -> float:
    """How many times as long the key switches and products of one table take as those of another:
    the geometric mean at what the first measured with the largest ring degree.
    """
    mine, theirs = _costs(table), _costs(other)
    logs = []
    largest = max(one.parameters["log_ring_degree"] for one in table.sets)
    for one in table.sets:
        parameters = DesiloParameters.from_dict(one.parameters)
        if parameters.log_ring_degree == largest:
            for primitive in REFERENCE:
                for level in one.seconds[primitive]:
                    costs = (c.cost(parameters, primitive, level) for c in (mine, theirs))
                    logs.append(np.subtract(*np.log(list(costs))))
    return float(np.exp(np.mean(logs)))


def _costs(table: CostTable) -> FittedCosts:
    return FittedCosts(table, DesiloParameters.from_dict)


def _with_scaled_bootstrap(table: CostTable, known: FittedCosts) -> CostTable:
    shipped = known.table.bootstrap
    assert shipped is not None
    factor = ratio(table, known.table)
    remark = f"bootstrap not measured: {factor:.3g} times that of {known.table.machine}"
    return replace(
        table,
        bootstrap=Bootstrap(shipped.seconds * factor, shipped.key_seconds * factor, False),
        note="; ".join(part for part in (table.note, remark) if part),
    )


@dataclass
class _Pace:
    """Progress in predicted time."""

    progress: Progress
    total: float
    done: float = field(default=0.0)

    def __call__(self, what: str, predicted: float) -> None:
        self.progress(what, min(int(100 * self.done / max(self.total, 1e-9)), 99), 100)
        self.done += predicted


def _predicted(known: FittedCosts, plan: Plan, rounds: int) -> float:
    """Seconds that a plan takes by another table."""
    p = plan.parameters
    keys = (MANY + 1) * known.cost(p, KEY, p.max_level)
    return keys + rounds * sum(_round(known, p, level) for level in plan.levels)


def _round(known: FittedCosts, parameters: DesiloParameters, level: int) -> float:
    return sum(
        known.cost(parameters, primitive, level) * (MANY + FEW if "hoisted" in primitive else 1)
        for primitive in (*_SIMPLE, "rotate_hoisted", "hoist", "hoist")
    )


_SIMPLE = tuple(name for name in PRIMITIVES if name not in ("rotate_hoisted", "hoist", "bootstrap"))
"""Primitives that one call measures."""


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


def _measure(
    plan: Plan, rounds: int, pace: _Pace, known: FittedCosts
) -> dict[str, dict[int, float]]:
    """Shortest seconds by primitive and level."""
    p = plan.parameters
    name = f"2^{p.log_ring_degree}, {p.special_primes} special primes"
    name += ", bootstrapping" if p.bootstrap else ""
    pace(f"keys, {name}", (MANY + 1) * known.cost(p, KEY, p.max_level))
    keys, key_seconds = _keys(p)
    engine = DesiloEngine.from_key_set(keys)
    vector = np.random.default_rng(1).uniform(-1, 1, engine.slots)
    pairs = {level: [engine.encrypt(vector, level) for _ in range(2)] for level in plan.levels}
    for pair in pairs.values():
        engine.mul(*pair)  # which rescales and transforms both, once
        engine.mul_plain(pair[0], 0.5)
    shortest: dict[tuple[str, int], float] = {}
    for _ in range(rounds):
        for level, pair in pairs.items():
            pace(f"{name}, level {level}", _round(known, p, level))
            for primitive, seconds in _timed(_actions(engine, *pair)):
                best = shortest.get((primitive, level), np.inf)
                shortest[primitive, level] = min(best, seconds)
    del keys, engine, pairs
    gc.collect()
    table: dict[str, dict[int, float]] = {KEY: {p.max_level: key_seconds}}
    for primitive in _SIMPLE:
        table[primitive] = {level: shortest[primitive, level] for level in sorted(plan.levels)}
    for level in sorted(plan.levels):
        each, shared = _hoisted(shortest["few", level], shortest["many", level])
        table.setdefault("rotate_hoisted", {})[level] = each
        table.setdefault("hoist", {})[level] = shared
    return table


def _timed(actions: Mapping[str, Callable[[], object]]) -> Iterator[tuple[str, float]]:
    """Shortest of a few calls; of one where it takes long."""
    for name, action in actions.items():
        times: list[float] = []
        while not times or (sum(times) < SHORT and len(times) < REPEATS):
            started = time.perf_counter()
            action()
            times.append(time.perf_counter() - started)
        yield name, min(times)


def _hoisted(few: float, many: float) -> tuple[float, float]:
    """Seconds of one rotation and of the shared part, both positive whatever the noise."""
    each = (many - few) / (MANY - FEW)
    each = min(max(each, many / (2 * MANY)), 0.98 * many / MANY)
    return each, many - MANY * each


def _keys(parameters: DesiloParameters) -> tuple[KeySet, float]:
    """Keys for the primitives, without those of a bootstrap, and the seconds that one took."""
    top = parameters.max_level
    require_memory(
        (MANY + 4) * parameters.key_bytes(top) + parameters.ring_degree * 2**14,
        "the keys that are measured",
    )
    library = library_engine(parameters)
    secret = library.create_secret_key()
    started = time.perf_counter()
    rotations = {
        f"rotation_{amount}": library.create_fixed_rotation_key(
            secret, parameters.slots - amount, top
        )
        for amount in range(1, MANY + 1)
    }
    seconds = (time.perf_counter() - started) / MANY
    full = () if parameters.bootstrap else (top,)
    keys = {"relinearization": library.create_relinearization_key(secret, *full), **rotations}
    plan = KeyPlan(dict.fromkeys(range(1, MANY + 1), top), top)
    evaluation = EvaluationKeys(parameters, "", plan, keys)
    return KeySet(ClientKeys(parameters, "", secret), evaluation), seconds


def _measure_bootstrap(pace: _Pace) -> Bootstrap:
    """A bootstrap of as many ciphertexts as one refreshes."""
    pace("the bootstrap key and two bootstraps", pace.total - pace.done)
    started = time.perf_counter()
    keys = KeySet.generate(BOOTSTRAPPED, KeyPlan({}))
    key_seconds = time.perf_counter() - started
    engine = DesiloEngine.from_key_set(keys)
    vector = np.random.default_rng(2).uniform(-1, 1, engine.slots)
    batch = [engine.encrypt(vector, 0) for _ in range(engine.bootstrap_batch)]
    action = {"bootstrap": lambda: engine.bootstrap_many(batch)}
    seconds = min(seconds for _ in range(2) for _, seconds in _timed(action))
    return Bootstrap(seconds, key_seconds, True)
