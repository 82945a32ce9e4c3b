"""Inputs that stand out."""

from __future__ import annotations

import numpy as np

from atlasc.calibration.calibrate import standing_out
from atlasc.calibration.measure import Reached


def test_the_inputs_at_the_ends_come_furthest_first() -> None:
    low, high = np.linspace(-1, -0.9, 21), np.linspace(0.9, 1, 21)
    low[4], high[7], high[9] = -8.0, 3.0, 2.0
    assert standing_out([Reached(low, high, None)]) == (4, 7)


def test_every_quantity_has_two_ends() -> None:
    flat = np.tile([0.0, 0.0, 0.0, 0.1], 5)
    sums = np.zeros((20, 6)), np.zeros((20, 6))
    sums[0][:, 2], sums[1][:, 5] = -flat, flat
    sums[0][11, 2], sums[1][13, 5] = -5.0, 7.0
    quantities = [Reached(flat * 0, flat * 0, None), Reached(*sums, None)]
    assert standing_out(quantities) == (13, 11)


def test_inputs_that_are_all_alike_do_not_stand_out() -> None:
    assert standing_out([Reached(np.zeros(9), np.ones(9), None)]) == ()
