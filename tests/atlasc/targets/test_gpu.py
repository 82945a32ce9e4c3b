"""The engine on a GPU in this process, where atlasc was installed for one."""

from __future__ import annotations

from typing import Any, cast

import pytest
from conformance import every_key

from atlasc.program.engine import Engine
from atlasc.runtime.native import load_library
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.ckks.engine import KeyedEngine, KeyedTarget
from atlasc.targets.ckks.parameters import CkksParameters
from tests.atlasc.targets.test_cpu import Bootstrapped, Leveled, require_threads

ENGINES = {"cuda", "phantom"} & {*load_library().engines}
if not ENGINES:
    pytest.skip("atlasc was installed without an engine for GPUs", allow_module_level=True)
TARGET = cast(KeyedTarget, find_target(ENGINES.pop()))
if not TARGET.here:
    pytest.skip("there is no GPU", allow_module_level=True)
PARAMETERS = cast("type[CkksParameters]", TARGET.parameters)


def fresh(parameters: CkksParameters) -> KeyedEngine:
    """With all keys of the conformance suite."""
    return TARGET.keyed.fresh(parameters, every_key(parameters), no_progress)


class TestLeveled(Leveled):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(PARAMETERS.choose(8, 2**13))


@pytest.mark.large
class TestBootstrapped(Bootstrapped):
    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls) -> Engine[Any]:
        return fresh(PARAMETERS.bootstrapped())


def test_threads_compute_on_one_engine() -> None:
    require_threads(fresh(PARAMETERS.choose(3, 2**12)))
