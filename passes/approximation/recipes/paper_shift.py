"""What an iterative softmax on the paper's ranges subtracts from its scores.

The paper fits exp on (-8, 0) and 1/sqrt on fixed ranges. A softmax does not depend on the constant
that is subtracted, but its polynomials do: 1/sqrt of a low degree is worst at the low end of its
range, so the rows' sums should be large, and the constant small.
"""

from __future__ import annotations

import math

from atlasc.passes.approximation.algorithms.iterative_softmax import SUM_RANGES
from atlasc.passes.calibration.ranges import Range

BEYOND = 1.5
"""How far an exponential of degree 15 may be used above (-8, 0): there it is off by 1.6e-5 of its
value, and only for a score at the very end of its calibrated range."""


def paper_shift(known: Range, iterations: int) -> float:
    """The least constant for which no score of the range leaves where exp is right, nor a first row
    sum the top of its range.

    Args:
        known: the calibrated range; its margins are kept.
        iterations: k; exp gets (score - shift) / 2^k.
    """
    shift = known.high - BEYOND * 2**iterations
    if known.log_sums is None:
        return shift
    halvings = iterations - 1
    greatest = known.log_sums[halvings][1]
    return max(shift, 2**halvings * (greatest - math.log(SUM_RANGES[0][1])))
