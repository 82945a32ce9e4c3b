"""The engine of the target ``cpu``."""

from __future__ import annotations

from atlasc.program.key_plan import KeyPlan
from atlasc.targets.ckks.engine import KeyedEngine
from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.machine import require_memory


class CpuEngine(KeyedEngine):
    """An engine on real ciphertexts, with this machine's processors."""

    target = "cpu"

    @classmethod
    def require_room(cls, parameters: CkksParameters, plan: KeyPlan) -> None:
        require_memory(sum(parameters.plan_memory(plan).values()), "the evaluation keys")
