"""The target ``desilo``: real encryption with desilofhe on the CPU."""

from __future__ import annotations

from pathlib import Path

from atlasc.ir.module import Module
from atlasc.program.key_plan import KeyPlan, key_plan
from atlasc.targets.base import Calibration, Progress, Target
from atlasc.targets.cost_table import cost_warning
from atlasc.targets.key_folders import Role, read_index
from atlasc.targets.parameters import ParameterSet, require_set
from atlasc_comparisons.desilo.engine import DesiloEngine
from atlasc_comparisons.desilo.keys import KeySet, generate_to
from atlasc_comparisons.desilo.library import installed_build, load_library
from atlasc_comparisons.desilo.parameters import DesiloParameters


class DesiloTarget(Target):
    """Real ciphertexts in this process; the keys lie in folders of client and server."""

    name = "desilo"
    summary = "desilofhe on the CPU"
    parameters = DesiloParameters

    def cost_warning(self, costs: Path | None = None) -> str:
        return cost_warning(self.name, installed_build()[1], costs)

    def calibration(self) -> Calibration:
        """See the base class; a bootstrap takes 16 GB and minutes."""
        from atlasc_comparisons.desilo.calibration import DesiloCalibrator

        self.check()
        return DesiloCalibrator()

    def check(self) -> None:
        load_library()

    def make_engine(
        self, program: Module, parameters: ParameterSet, progress: Progress, *, noise: bool = False
    ) -> DesiloEngine:
        self.check()
        keys = KeySet.generate(
            require_set(parameters, DesiloParameters), key_plan(program), progress
        )
        return DesiloEngine(keys)

    def generate_keys(
        self, parameters: ParameterSet, plan: KeyPlan, folder: Path, progress: Progress
    ) -> None:
        """See the base class; keys are made one after another, which takes little memory."""
        generate_to(require_set(parameters, DesiloParameters), plan, folder, progress)

    def role_engine(
        self, role: Role, folder: Path, parameters: ParameterSet, plan: KeyPlan | None = None
    ) -> DesiloEngine:
        index = read_index(folder, role, self.name, parameters, plan)
        return DesiloEngine(KeySet.load(folder, index))


TARGET = DesiloTarget()
