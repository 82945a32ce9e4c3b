"""The target ``desilo``: real encryption with desilofhe on the CPU."""

from __future__ import annotations

from pathlib import Path

from atlasc.ir.module import Module
from atlasc.passes.lowering.rotation_keys import KeyPlan, key_plan
from atlasc.targets.base import Progress, Target, no_progress
from atlasc.targets.costs import CostTable, cost_warning
from atlasc.targets.desilo.engine import DesiloEngine
from atlasc.targets.desilo.keys import ClientKeys, EvaluationKeys, KeySet, generate_to
from atlasc.targets.desilo.library import installed_build, load_library
from atlasc.targets.desilo.parameters import DesiloParameters, require_desilo
from atlasc.targets.key_folders import Role, check_keys
from atlasc.targets.parameters import ParameterSet


class DesiloTarget(Target):
    """Real ciphertexts in this process; the keys lie in folders of client and server."""

    name = "desilo"
    summary = "desilofhe on the CPU"
    parameters = DesiloParameters

    def cost_warning(self, costs: Path | None = None) -> str:
        """See the base class."""
        return cost_warning(self.name, installed_build()[1], costs)

    def check_calibration(self) -> None:
        """It needs the library."""
        self.check()

    def calibrate(
        self, progress: Progress, *, quick: bool = False, bootstrap: bool = False, note: str = ""
    ) -> CostTable:
        """See the base class; ``bootstrap`` takes 16 GB and minutes."""
        from atlasc.targets.desilo.calibration import calibrate

        return calibrate(progress, quick=quick, bootstrap=bootstrap, note=note)

    def cost_ratio(self, table: CostTable, other: CostTable) -> float:
        """See the base class."""
        from atlasc.targets.desilo.calibration import ratio

        return ratio(table, other)

    def check(self) -> None:
        """Raise AtlasError unless desilofhe is here, in the required version."""
        load_library()

    def make_engine(
        self,
        program: Module,
        parameters: ParameterSet,
        progress: Progress = no_progress,
        *,
        noise: bool = False,
    ) -> DesiloEngine:
        """See the base class."""
        self.check()
        keys = KeySet.generate(require_desilo(parameters), key_plan(program), progress)
        return DesiloEngine.from_key_set(keys)

    def generate_keys(
        self,
        parameters: ParameterSet,
        plan: KeyPlan,
        client: Path,
        server: Path,
        progress: Progress = no_progress,
    ) -> None:
        """See the base class; keys are made one after another, in little memory."""
        generate_to(require_desilo(parameters), plan, client, server, progress)

    def role_engine(
        self, role: Role, folder: Path, parameters: ParameterSet, plan: KeyPlan | None = None
    ) -> DesiloEngine:
        """See the base class."""
        check_keys(folder, role, self.name, parameters, plan)
        if role == "client":
            return DesiloEngine(client=ClientKeys.load(folder))
        return DesiloEngine(EvaluationKeys.load(folder))


TARGET = DesiloTarget()
