"""The target ``cpu``: the project's own CKKS engine, on this machine's processors."""

from __future__ import annotations

from pathlib import Path

from atlasc.targets.base import Calibration
from atlasc.targets.ckks.engine import KeyedTarget
from atlasc.targets.cost_table import cost_warning
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.version import __version__


class CpuTarget(KeyedTarget):
    """Real ciphertexts in this process, and in the C++ project of a program."""

    name = "cpu"
    summary = "the project's own CKKS engine, on this machine's processors"
    runtime_engine = "cpu"
    parameters = CpuParameters
    keyed = CpuEngine

    def cost_warning(self, costs: Path | None = None) -> str:
        return cost_warning(self.name, __version__, costs)

    def calibration(self) -> Calibration:
        """See the base class; a bootstrap takes 6 GB and half a minute."""
        from atlasc.targets.cpu.calibration import CpuCalibrator

        self.check()
        return CpuCalibrator()


TARGET = CpuTarget()
