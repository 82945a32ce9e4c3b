"""Nominal ranges, for a model without data: they give costs, and nothing that may be run."""

from __future__ import annotations

from atlasc.ir.module import Module
from atlasc.passes.approximation.description import family_of
from atlasc.passes.calibration.calibrate import Calibration
from atlasc.passes.calibration.measure import nonlinear_ops
from atlasc.passes.calibration.ranges import EXP_RANGE, Range

VARIANCES = (1e-2, 1e1)
ARGUMENTS = (-8.0, 8.0)


def nominal_calibration(module: Module) -> Calibration:
    """The same plausible ranges for every op, as if no input had been measured.

    What a polynomial costs depends on its degree and hardly on its range, so that the lowered
    program of a bare configuration shows the levels, products and key switches of a real one.
    """
    ranges = {}
    for op in nonlinear_ops(module):
        family = family_of(op.name)
        low, high = {"softmax": EXP_RANGE, "norm": VARIANCES, "activation": ARGUMENTS}[family]
        width = sums = None
        if family == "softmax":
            width = int(op.operands[0].tensor.shape[-1])
            sums = (width * 1e-2, float(width))
        name = op.value.name
        ranges[name] = Range(name, op.name, op.location, low, high, low, high, sums, width)
    return Calibration(ranges, inputs=0, margin=None)
