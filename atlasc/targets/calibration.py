"""Measures the seconds of a target's primitives on this machine.

Each parameter set is measured at a few levels, in rounds over all primitives. The shortest time of
all rounds counts, so that other work of the machine disturbs all primitives alike. For the levels
in between see :mod:`atlasc.targets.costs`.
"""

from __future__ import annotations

import datetime
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from timeit import repeat, timeit
from typing import Any

import numpy as np

from atlasc.program.key_plan import KeyPlan
from atlasc.runtime.engine import RoleEngine
from atlasc.targets import cost_table
from atlasc.targets.base import Progress
from atlasc.targets.cost_table import Bootstrap, CostTable, Measured
from atlasc.targets.costs import KEY, ratio
from atlasc.targets.machine import OtherWork, this_machine
from atlasc.targets.parameters import NARROWER, ParameterSet

FEW, MANY = 2, 8
"""Numbers of rotations in two hoisted calls; their difference separates the shared part."""
ROUNDS = 3
SHORT, REPEATS = 0.02, 4
"""A call that takes less than ``SHORT`` seconds is repeated ``REPEATS`` times."""
BUSY = 0.05
"""Share of other work above which a table notes that the machine was not quiet."""
FRACTIONS = (1.0, 0.6, 0.25, 0.05)
"""Levels at which a set is measured, as shares of its highest level."""

Actions = Mapping[str, Callable[[], object]]
Seconds = dict[str, dict[int, float]]
"""Action -> level -> seconds."""


class Calibrator(ABC):
    """A target's part in its calibration; call it to measure a table.

    Attributes:
        library: version of the library behind the target.
        bootstrapped: parameter set with a bootstrap.
        bootstrap_keys: number of keys that take as long to make as the keys of a bootstrap, two
            bootstraps included.
    """

    library: str
    bootstrapped: ParameterSet
    bootstrap_keys: int

    @abstractmethod
    def sets(self, quick: bool) -> list[ParameterSet]:
        """The sets to measure: one for each ring degree, and several at the largest."""

    @abstractmethod
    def keyed(self, parameters: ParameterSet, plan: KeyPlan) -> tuple[RoleEngine[Any], float]:
        """An engine with the keys of a plan, and the seconds to make one key at the top level.

        Raises:
            AtlasError: the library is missing, or memory is too small.
        """

    @abstractmethod
    def bootstrapping(self) -> RoleEngine[Any]:
        """An engine for ``bootstrapped`` with the keys of its bootstrap; raises as
        :meth:`keyed`.
        """

    @abstractmethod
    def actions(self, engine: Any, ct: Any, other: Any) -> Actions:
        """Name -> function that runs an action once, on two ciphertexts of one level."""

    def primitives(self, seconds: Seconds) -> Seconds:
        """Seconds of the counting engine's primitives, computed from the seconds of the actions."""
        return seconds

    def plans(self, quick: bool) -> dict[ParameterSet, list[int]]:
        """Set -> levels at which it is measured."""
        fractions = FRACTIONS[quick:]
        return {
            p: sorted({max(1, round(f * p.max_level)) for f in fractions}) for p in self.sets(quick)
        }

    def __call__(
        self, progress: Progress, *, quick: bool = False, bootstrap: bool = False, note: str = ""
    ) -> CostTable:
        """Measure a table on this machine.

        Args:
            progress: called in hundredths of the expected work.
            quick: fewer parameter sets, levels and rounds.
            bootstrap: also measure a bootstrap. Otherwise its time is taken from the table that
                comes with atlasc, scaled by the ratio of the other primitives.
            note: a remark to keep in the table.

        Raises:
            AtlasError: as :meth:`keyed`; or a bootstrap cannot be scaled, because no table comes
                with atlasc.
        """
        family = self.bootstrapped.family
        chosen, rounds = self.plans(quick), ROUNDS - quick
        work = self._bootstrap_work() if bootstrap else 0
        for p, levels in chosen.items():
            work += _key_work(p) + rounds * sum(_work(p, level) for level in levels)
        pace, others = _Pace(progress, work), OtherWork()
        table = CostTable(
            family,
            self.library,
            this_machine(),
            datetime.date.today().isoformat(),
            tuple(self._measure(p, levels, rounds, pace) for p, levels in chosen.items()),
            self._measure_bootstrap(pace) if bootstrap else None,
        )
        share = others.share()
        remarks = [note] if note else []
        if share is not None and share > BUSY:
            remarks.append(
                f"measured while other work took {share:.0%} of the machine: seconds are too high"
            )
        measured = table.bootstrap
        if measured is None:
            shipped = cost_table.load(cost_table.shipped_place(family))
            scaled = shipped.bootstrap
            assert scaled is not None
            factor = ratio(table, shipped, type(self.bootstrapped))
            one = None if scaled.one_seconds is None else scaled.one_seconds * factor
            measured = Bootstrap(scaled.seconds * factor, scaled.key_seconds * factor, False, one)
            remarks.append(
                f"bootstrap not measured: taken as {factor:.3g} times that of {shipped.machine}"
            )
        return replace(table, bootstrap=measured, other_work=share, note="; ".join(remarks))

    def _measure(self, p: ParameterSet, levels: list[int], rounds: int, pace: _Pace) -> Measured:
        """Shortest seconds, by primitive and level."""
        name = f"2^{p.log_ring_degree}, {p.special_primes} special primes"
        name += ", bootstrapping" if p.bootstrap else ""
        pace(f"keys, {name}", _key_work(p))
        plan = KeyPlan(dict.fromkeys(range(1, MANY + 1), p.max_level), p.max_level)
        engine, key_seconds = self.keyed(p, plan)
        vector = np.random.default_rng(1).uniform(-1, 1, engine.slots)
        pairs = {level: [engine.encrypt(vector, level) for _ in range(2)] for level in levels}
        shortest: defaultdict[str, dict[int, float]] = defaultdict(dict)
        for _ in range(rounds):
            for level, pair in pairs.items():
                pace(f"{name}, level {level}", _work(p, level))
                actions: Actions = {
                    **_common(engine, *pair),
                    **self.actions(engine, *pair),
                }
                for primitive, action in actions.items():
                    best = shortest[primitive].get(level, np.inf)
                    shortest[primitive][level] = min(best, _timed(action))
        return Measured(p.to_dict(), {KEY: {p.max_level: key_seconds}, **self.costs(shortest)})

    def costs(self, shortest: Mapping[str, Mapping[int, float]]) -> Seconds:
        """Seconds of the counting engine's primitives, by level.

        Args:
            shortest: shortest seconds of :meth:`actions`, and of those that all engines share.
        """
        found = {name: dict(by_level) for name, by_level in shortest.items()}
        few, many = found.pop("few"), found.pop("many")
        hoisted = {at: _hoisted(few[at], many[at]) for at in few}
        found["rotate_hoisted"] = {at: each for at, (each, _) in hoisted.items()}
        found["hoist"] = {at: shared for at, (_, shared) in hoisted.items()}
        return {name: _monotone(by_level) for name, by_level in self.primitives(found).items()}

    def _bootstrap_work(self) -> int:
        return self.bootstrap_keys * self.bootstrapped.key_bytes(self.bootstrapped.max_level)

    def _measure_bootstrap(self, pace: _Pace) -> Bootstrap:
        """Measure a bootstrap of a full batch of ciphertexts."""
        pace("the bootstrap key and two bootstraps", self._bootstrap_work())
        started = time.perf_counter()
        engine = self.bootstrapping()
        key_seconds = time.perf_counter() - started
        vector = np.random.default_rng(2).uniform(-1, 1, engine.slots)
        batch = [
            engine.encrypt(vector, engine.bootstrap_from) for _ in range(engine.bootstrap_batch)
        ]
        # The first bootstrap also encodes the diagonals. One ciphertext is bootstrapped after it.
        seconds = min(_timed(partial(engine.bootstrap_many, batch)) for _ in range(2))
        one = min(_timed(partial(engine.bootstrap_many, batch[:1])) for _ in range(2))
        narrow = self._narrow_seconds(engine) if self.bootstrapped.narrow else None
        return Bootstrap(seconds, key_seconds, True, min(seconds, one), narrow)

    def _narrow_seconds(self, engine: Any) -> float:
        period = engine.slots >> NARROWER
        vector = np.tile(np.random.default_rng(2).uniform(-1, 1, period), 1 << NARROWER)
        given = [engine.encrypt(vector, engine.bootstrap_from)]
        return min(_timed(partial(engine.bootstrap_many, given, period)) for _ in range(3))


class _Pace:
    """Reports progress in expected work."""

    def __init__(self, progress: Progress, total: int) -> None:
        self.progress, self.total, self.done = progress, total, 0

    def __call__(self, what: str, work: int) -> None:
        self.progress(what, min(100 * self.done // self.total, 99), 100)
        self.done += work


def _work(parameters: ParameterSet, level: int) -> int:
    """Expected work of a round in bytes of keys: it takes as long as making four keys."""
    return 4 * parameters.key_bytes(level)


def _key_work(parameters: ParameterSet) -> int:
    return (MANY + 1) * parameters.key_bytes(parameters.max_level)


def _common(engine: Any, ct: Any, other: Any) -> Actions:
    """The actions that are measured alike on all engines."""
    vector = np.random.default_rng(0).uniform(-1, 1, engine.slots)
    level = engine.level(ct)
    return {
        "encrypt": lambda: engine.encrypt(vector, level),
        "decrypt": lambda: engine.decrypt(ct),
        "rotate": lambda: engine.rotate(ct, 1),
        "mul_scalar": lambda: engine.mul_plain(ct, 0.3),
        "add_scalar": lambda: engine.add_plain(ct, 0.3),
        "add": lambda: engine.add(ct, other),
        "negate": lambda: engine.negate(ct),
        "times_i": lambda: engine.times_i(ct),
        "few": lambda: engine.rotate_many(ct, range(1, FEW + 1)),
        "many": lambda: engine.rotate_many(ct, range(1, MANY + 1)),
    }


def _monotone(by_level: dict[int, float]) -> dict[int, float]:
    """Seconds that never fall as the level rises; smaller values at higher levels are noise."""
    levels = sorted(by_level)
    from_top = np.minimum.accumulate([by_level[level] for level in reversed(levels)])
    return dict(zip(levels, from_top[::-1].tolist(), strict=True))


def _timed(action: Callable[[], object]) -> float:
    """Shortest seconds of a few calls; of a single call if it takes long."""
    first = timeit(action, number=1)
    return min([first, *repeat(action, number=1, repeat=0 if first > SHORT else REPEATS)])


def _hoisted(few: float, many: float) -> tuple[float, float]:
    """Seconds of one rotation and of the shared part; both are positive despite noise."""
    each = (many - few) / (MANY - FEW)
    each = min(max(each, many / (2 * MANY)), 0.98 * many / MANY)
    return each, many - MANY * each
