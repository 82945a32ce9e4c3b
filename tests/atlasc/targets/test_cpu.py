"""The engine ``cpu`` in this process: conformance, leveled and with bootstraps."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from conformance import EngineConformance, rotations

from atlasc.passes.execution.engine import Engine
from atlasc.passes.lowering.rotation_keys import KeyPlan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters


def fresh(parameters: CpuParameters) -> CpuEngine:
    """With all keys of the conformance suite."""
    top = parameters.max_level
    plan = KeyPlan(dict.fromkeys(rotations(parameters.slots), top), top, top)
    return CpuEngine.fresh(parameters, plan, no_progress)


class TestLeveled(EngineConformance):
    """The error of a rotation has a standard deviation of 2e-8 in a slot."""

    tolerance = 2e-7
    exact = 2e-7

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(CpuParameters.choose(3, 2**12))


class TestMoreDigits(EngineConformance):
    """A key switch of several digits, at another ring."""

    tolerance = 2e-7
    exact = 2e-7

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        parameters = CpuParameters.choose(8, 2**13)
        assert parameters.digits(parameters.max_level) > 1
        return fresh(parameters)


@pytest.mark.large
class TestBootstrapped(EngineConformance):
    """Two real ciphertexts share a bootstrap."""

    tolerance = 1e-6
    exact = 1e-6
    refreshed = 2e-5

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(CpuParameters.bootstrapped())


def test_a_fork_has_threads_of_its_own() -> None:
    """Threads of the parent are gone in a child, which must not wait for them."""
    engine = fresh(CpuParameters.choose(3, 2**12))
    x = engine.encrypt(np.ones(engine.slots))
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        found = engine.decrypt(engine.square(x))
        os._exit(0 if np.abs(found - 1).max() < 1e-6 else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_threads_compute_on_one_engine() -> None:
    engine = fresh(CpuParameters.choose(3, 2**12))

    def squared(number: float) -> float:
        x = engine.encrypt(np.full(engine.slots, number))
        return float(np.abs(engine.decrypt(engine.square(x)) - number**2).max())

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(squared, np.linspace(-1, 1, 12))) < 1e-6
