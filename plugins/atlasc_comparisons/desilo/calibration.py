"""The calibration of desilofhe."""

from __future__ import annotations

import time

import numpy as np

from atlasc.program.key_plan import KeyPlan
from atlasc.targets.calibration import Actions, Calibrator
from atlasc.targets.machine import require_memory
from atlasc.targets.parameters import ParameterSet, require_set
from atlasc_comparisons.desilo.engine import DesiloCiphertext, DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet
from atlasc_comparisons.desilo.library import REQUIRED_VERSION, library_engine
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED, DesiloParameters


class DesiloCalibrator(Calibrator):
    """See the base class; the key of a bootstrap takes 16 GB."""

    library = REQUIRED_VERSION
    bootstrapped = BOOTSTRAPPED
    bootstrap_keys = 140

    def sets(self, quick: bool) -> list[ParameterSet]:
        if quick:
            return [DesiloParameters(*key) for key in ((14, 1), (15, 2), (16, 4))]
        keys = ((14, 1), (14, 3), (15, 2), (15, 5), (16, 8), (16, 4))
        return [*(DesiloParameters(*key) for key in keys), BOOTSTRAPPED]

    def keyed(self, parameters: ParameterSet, plan: KeyPlan) -> tuple[DesiloEngine, float]:
        chosen = require_set(parameters, DesiloParameters)
        keys, seconds = _keys(chosen, plan)
        return DesiloEngine(keys), seconds

    def bootstrapping(self) -> DesiloEngine:
        return DesiloEngine(KeySet.generate(BOOTSTRAPPED, KeyPlan({})))

    def actions(
        self, engine: DesiloEngine, ct: DesiloCiphertext, other: DesiloCiphertext
    ) -> Actions:
        vector = np.random.default_rng(0).uniform(-1, 1, engine.slots)
        library = library_engine(engine.parameters)
        engine.mul(ct, other)  # rescales and transforms both, once
        engine.mul_plain(ct, 0.5)
        transformed = library.ntt(ct.raw)  # as for the result of a product
        return {
            "rescale": lambda: library.ntt(library.rescale(transformed)),
            "mul": lambda: engine.mul(ct, other),
            "mul_lazy": lambda: library.multiply(ct.factor, other.factor),
            "square": lambda: engine.square(ct),
            "mul_plain": lambda: engine.mul_plain(ct, vector),
            "add_plain": lambda: engine.add_plain(ct, vector),
        }


def _keys(parameters: DesiloParameters, plan: KeyPlan) -> tuple[KeySet, float]:
    """Keys for the primitives, without those of a bootstrap, and the seconds to make one key."""
    top, slots, amounts = parameters.max_level, parameters.slots, tuple(plan.rotations)
    needed = (len(amounts) + 4) * parameters.key_bytes(top) + parameters.ring_degree * 2**14
    require_memory(needed, "the keys that are measured")
    library = library_engine(parameters)
    secret = library.create_secret_key()
    started = time.perf_counter()
    keys = {
        f"rotation_{amount}": library.create_fixed_rotation_key(secret, slots - amount, top)
        for amount in amounts
    }
    seconds = (time.perf_counter() - started) / len(amounts)
    full = () if parameters.bootstrap else (top,)
    keys["relinearization"] = library.create_relinearization_key(secret, *full)
    return KeySet(parameters, "", secret, plan, keys), seconds
