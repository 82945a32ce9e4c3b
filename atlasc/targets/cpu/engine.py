"""The engine of the target ``cpu``."""

from __future__ import annotations

from pathlib import Path

from atlasc.program.key_plan import KeyPlan
from atlasc.targets.base import Progress
from atlasc.targets.ckks.engine import KeyedEngine, generation_bytes
from atlasc.targets.ckks.parameters import CkksParameters
from atlasc.targets.machine import require_memory


class CpuEngine(KeyedEngine):
    """An engine on real ciphertexts, with this machine's processors."""

    target = "cpu"

    @classmethod
    def require_room(cls, parameters: CkksParameters, plan: KeyPlan) -> None:
        require_memory(sum(parameters.plan_memory(plan).values()), "the evaluation keys")

    @classmethod
    def generate_to(
        cls, parameters: CkksParameters, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        require_memory(generation_bytes(parameters, plan), "generating the keys")
        super().generate_to(parameters, plan, folder, progress)
