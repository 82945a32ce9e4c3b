"""``forget-calibration``: a text that tells nothing of the data that a model was calibrated on."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.facts import KEY_PLAN, observed
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class ForgetCalibration(Pass):
    """Remove what calibration saw of values: magnitudes, means and noise gains.

    Ranges of polynomials stay, as a program needs them. A client of the result cannot tell inputs
    and answers that are far too large.
    """

    name = "forget-calibration"
    takes = ("poly", "ckks")
    keeps = (KEY_PLAN,)

    def run(self, module: Module, report: Report) -> Module:
        """The module: what a pass does not keep is removed behind it."""
        report.say(f"{sum(bool(observed(op)) for op in module.ops)} ops lose what was seen of them")
        return module
