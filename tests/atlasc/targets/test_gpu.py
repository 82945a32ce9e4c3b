"""The engine on a GPU in this process, where atlasc was installed for one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np
import pytest
from conformance import EngineConformance, rotations

from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.program.engine import Engine
from atlasc.runtime.native import load_library
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.ckks.engine import KeyedEngine, KeyedTarget
from atlasc.targets.ckks.parameters import CkksParameters

ENGINE = load_library().engines[0]
if ENGINE not in ("cuda", "phantom"):
    pytest.skip(f"atlasc was installed with the engine {ENGINE}", allow_module_level=True)
TARGET = cast(KeyedTarget, find_target(ENGINE))
PARAMETERS = cast("type[CkksParameters]", TARGET.parameters)


def fresh(parameters: CkksParameters) -> KeyedEngine:
    """With all keys of the conformance suite."""
    top = parameters.max_level
    plan = KeyPlan(dict.fromkeys(rotations(parameters.slots), top), top, top)
    return TARGET.keyed.fresh(parameters, plan, no_progress)


class TestLeveled(EngineConformance):
    """As on ``cpu`` (``test_cpu.py``)."""

    tolerance = 2e-7
    exact = 2e-7

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(PARAMETERS.choose(8, 2**13))


@pytest.mark.large
class TestBootstrapped(EngineConformance):
    """Two real ciphertexts share a bootstrap."""

    tolerance = 1e-6
    exact = 1e-6
    refreshed = 2e-5

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(PARAMETERS.bootstrapped())


def test_threads_compute_on_one_engine() -> None:
    engine = fresh(PARAMETERS.choose(3, 2**12))

    def squared(number: float) -> float:
        x = engine.encrypt(np.full(engine.slots, number))
        return float(np.abs(engine.decrypt(engine.square(x)) - number**2).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(squared, np.linspace(-1, 1, 12))) < 1e-6
