"""``approximate``: attach a recipe's approximations to the nonlinear ops of an nn module."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atlasc.ir.module import Module
from atlasc.passes.approximation.assign import apply_recipe
from atlasc.passes.calibration.calibrate import nominal_calibration, read_calibration
from atlasc.passes.calibration.centre_keys import with_centred_keys
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class Approximate(Pass):
    """Attach the approximations of a recipe to the nonlinear ops on encrypted data.

    Attributes:
        recipe: its name.
        ranges: JSON file of a calibration; without it the ranges are nominal, which is right for
            costs alone.
    """

    name = "approximate"
    takes = "nn"
    when = "settings"
    recipe: str = "is"
    ranges: str = ""

    def run(self, module: Module, report: Report) -> Module:
        """Nn module to nn module.

        Raises:
            AtlasError: no such recipe, or ranges that cannot be read or are of another module.
        """
        if self.ranges:
            calibration = read_calibration(Path(self.ranges))
            module = with_centred_keys(module, calibration.keys)
        else:
            calibration = nominal_calibration(module)
            report.say("nominal ranges: the result has costs, but must not be run")
        return apply_recipe(module, self.recipe, calibration)
