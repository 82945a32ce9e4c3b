"""Ranges that reach further than calibration asks for."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import Calibration, calibrate
from atlasc.calibration.ranges import Range
from atlasc.calibration.room import wider, with_room


@pytest.fixture(scope="module")
def calibration() -> Calibration:
    shape = replace(SHAPES["encoder"], batch=40)
    return calibrate(Builder(shape, 1).build(), inputs_for(shape, 2), margin=None)


def intervals(known: Range) -> list[tuple[float, float]]:
    """All intervals of a range, variances as logarithms."""
    if known.kind in ("variance", "mean square"):
        return [(math.log(known.low), math.log(known.high))]
    found = [(known.low, known.high), *(known.scores or ()), *(known.log_sums or ())]
    if known.channels is not None:
        found += zip(known.channels.low, known.channels.high, strict=True)
    return found


@pytest.mark.parametrize("share", [0.1, 0.4, 1.6])
def test_every_interval_reaches_further_by_a_share_of_its_width(
    calibration: Calibration, share: float
) -> None:
    assert {known.kind for known in calibration.ranges} == {"scores", "variance", "argument"}
    assert any(known.channels is not None for known in calibration.ranges)
    for known in calibration.ranges:
        for old, new in zip(intervals(known), intervals(wider(known, share)), strict=True):
            width = old[1] - old[0]
            assert new == pytest.approx((old[0] - share * width, old[1] + share * width))


def test_the_ops_that_are_named_get_room(calibration: Calibration) -> None:
    first, *others = calibration.ranges
    found = with_room(calibration, {first.value: 0.2})
    assert found.ranges[0] == wider(first, 0.2) != first
    assert found.ranges[1:] == tuple(others)
    assert with_room(calibration, {}) == calibration


def test_an_input_that_only_left_the_narrow_range_leaves_none(calibration: Calibration) -> None:
    module = Builder(replace(SHAPES["encoder"], batch=40), 1).build()
    shape = replace(SHAPES["encoder"], batch=8)
    arrays = {name: 1.3 * np.asarray(x) if np.asarray(x).dtype.kind == "f" else x
              for name, x in inputs_for(shape, 5).items()}  # fmt: skip
    tight = calibrate(module, inputs_for(replace(shape, batch=40), 2), held_back=arrays, margin=0.0)
    assert tight.violations
    room = {known.value: 1.6 for known in tight.ranges}
    wide = with_room(tight, room)
    assert len(wide.violations) < len(tight.violations)
    for left in wide.violations:
        assert left.reached < left.low or left.reached > left.high
