"""What the passes share that apply the choices of a calibration."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path

from atlasc.calibration.calibrate import Calibration, read_calibration
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class CalibratedPass(Pass):
    """An exact change of an nn module, which a calibration chose.

    Attributes:
        ranges: JSON file of a calibration; without it the pass does nothing.
    """

    takes = "nn"
    when = "settings"
    ranges: str = ""

    def run(self, module: Module, report: Report) -> Module:
        """Nn module to nn module.

        Raises:
            AtlasError: the ranges cannot be read, or belong to another module.
        """
        if not self.ranges:
            report.say("no calibration is given")
            return module
        return self.changed(module, read_calibration(Path(self.ranges)), report)

    @abstractmethod
    def changed(self, module: Module, calibration: Calibration, report: Report) -> Module:
        """The module with the choices of a calibration."""


def other_model(what: str) -> AtlasError:
    """The error for a calibration that does not belong to a module."""
    return AtlasError(
        what,
        why="the calibration belongs to another model, or to another trace of this model",
        remedy="calibrate this module",
    )
