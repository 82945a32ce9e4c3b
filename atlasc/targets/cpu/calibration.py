"""The calibration of the engine ``cpu``.

The engine relinearizes and rescales late, and does both at once when the result is needed in
another form. A product is therefore measured together with the work that it postpones (``settle``).
The counting engine's ``rescale`` is the division that a product with a number postpones.
"""

from __future__ import annotations

import time
from itertools import count
from typing import Any

import numpy as np

from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.base import no_progress
from atlasc.targets.calibration import Actions, Calibrator, Seconds
from atlasc.targets.cpu.engine import CpuEngine, key_bytes
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.parameters import ParameterSet, require_set
from atlasc.version import __version__

TOGETHER = 8
"""Number of plaintexts in a measured sum: an engine encodes several at once."""
LEVELED = ((3, 2**12), (6, 2**13), (14, 2**14), (20, 2**15), (34, 2**15))
"""Levels and slots of the leveled sets."""


class CpuCalibrator(Calibrator):
    """See the base class; the keys of a bootstrap take 6 GB."""

    library = __version__
    bootstrapped = CpuParameters.bootstrapped()
    bootstrap_keys = 60

    def __init__(self) -> None:
        self._made = count()

    def sets(self, quick: bool) -> list[ParameterSet]:
        sets: list[ParameterSet] = [CpuParameters.choose(*need) for need in LEVELED]
        return sets[1:-1] if quick else [*sets, self.bootstrapped]

    def keyed(self, parameters: ParameterSet, plan: KeyPlan) -> tuple[CpuEngine, float]:
        chosen = require_set(parameters, CpuParameters)
        started = time.perf_counter()
        engine = CpuEngine.fresh(chosen, plan, no_progress)
        spent = time.perf_counter() - started
        return engine, spent * chosen.key_bytes(chosen.max_level) / key_bytes(chosen, plan)

    def bootstrapping(self) -> CpuEngine:
        return CpuEngine.fresh(self.bootstrapped, KeyPlan({}), no_progress)

    def actions(self, engine: CpuEngine, ct: Any, other: Any) -> Actions:
        vector = np.random.default_rng(0).uniform(-1, 1, engine.slots)

        def vectors(times: int) -> list[np.ndarray]:
            """New vectors for each call, because the engine keeps plaintexts that it has seen."""
            return [np.roll(vector, next(self._made)) for _ in range(times)]

        return {
            "scalar": lambda: engine.settle(engine.mul_plain(ct, 0.3)),
            "mul": lambda: engine.settle(engine.mul(ct, other)),
            "mul_lazy": lambda: engine.mul(ct, other),
            "square": lambda: engine.settle(engine.square(ct)),
            "vectors": lambda: vectors(TOGETHER),
            "mul_plain": lambda: engine.dot_plain([ct] * TOGETHER, vectors(TOGETHER)),
            "add_plain": lambda: engine.add_plain(ct, vectors(1)[0]),
        }

    def primitives(self, seconds: Seconds) -> Seconds:
        made, settled = seconds.pop("vectors"), seconds.pop("scalar")
        seconds["rescale"] = rescale = {}
        for level, scalar in settled.items():
            # Keeps differences of noisy times positive.
            rescale[level] = max(scalar - seconds["mul_scalar"][level], scalar / 4)
            for product in ("mul", "square"):
                whole = seconds[product][level]
                seconds[product][level] = max(whole - rescale[level], whole / 4)
            for name, times in (("mul_plain", TOGETHER), ("add_plain", 1)):
                whole = seconds[name][level]
                encoded = whole - made[level] * times / TOGETHER
                seconds[name][level] = max(encoded, whole / 4) / times
        return seconds
