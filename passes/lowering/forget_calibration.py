"""``forget-calibration``: removes what a text reveals about the calibration data."""

from __future__ import annotations

from dataclasses import dataclass

from atlasc.ir.facts import KEY_PLAN, observed
from atlasc.ir.module import Module
from atlasc.passes.framework.pass_base import Pass, Report


@dataclass(frozen=True)
class ForgetCalibration(Pass):
    """Remove statistics of calibration: magnitudes, means and noise gains.

    Ranges of polynomials stay, because a program needs them. A client of the result cannot
    recognise inputs and answers that are far too large.
    """

    name = "forget-calibration"
    takes = ("poly", "ckks")
    keeps = (KEY_PLAN,)

    def run(self, module: Module, report: Report) -> Module:
        """The module itself: attributes that a pass does not keep are removed after it."""
        report.say(f"{sum(bool(observed(op)) for op in module.ops)} ops lose their statistics")
        return module
