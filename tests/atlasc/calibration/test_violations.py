"""Inputs that leave a range: everything that a range bounds is compared with it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.calibration.measure import Measurement, measure
from atlasc.calibration.ranges import Range, measured_range
from atlasc.calibration.violations import violations

INPUTS = 40


@pytest.fixture(scope="module")
def measured() -> list[Measurement]:
    shape = replace(SHAPES["encoder"], batch=INPUTS)
    return measure(Builder(shape, 1).build(), inputs_for(shape, 2))


def first(measured: list[Measurement], name: str) -> tuple[Measurement, Range]:
    """What the first op of a kind reached, and its range without a margin."""
    one = next(part for part in measured if part.op.name == name)
    return one, measured_range(one, 0.0, 2)


@pytest.mark.parametrize("name", ["nn.softmax", "nn.layer_norm", "nn.gelu"])
def test_inputs_that_ranges_were_measured_on_stay_in_them(
    name: str, measured: list[Measurement]
) -> None:
    one = next(part for part in measured if part.op.name == name)
    assert not list(violations(one, measured_range(one, 0.05, 2), None))


@pytest.mark.parametrize("halvings", [0, 2, 5])
def test_a_sum_outside_its_range_is_found_though_all_scores_are_inside(
    halvings: int, measured: list[Measurement]
) -> None:
    one, known = first(measured, "nn.softmax")
    assert known.log_sums is not None
    low, high = known.log_sums[halvings]
    narrow = list(known.log_sums)
    narrow[halvings] = low, high - 0.2 * (high - low)
    found = list(violations(one, replace(known, log_sums=tuple(narrow)), None))
    assert found and {part.kind for part in found} == {"log sum"}
    assert (found[0].low, found[0].high) == narrow[halvings]
    most = max(found, key=lambda part: part.reached)
    assert most.reached == pytest.approx(high, rel=1e-6) and most.excess == pytest.approx(0.25)
    assert "log sum of nn.softmax reaches" in str(most)


def test_scores_count_with_what_is_added_for_visible_keys(measured: list[Measurement]) -> None:
    one, known = first(measured, "nn.softmax")
    assert known.scores is not None
    low, high = known.scores[3]
    scores = (*known.scores[:3], (low + 0.1 * (high - low), high), *known.scores[4:])
    found = list(violations(one, replace(known, scores=scores), [f"text {i}" for i in range(40)]))
    assert found and {part.kind for part in found} == {"scores"}
    assert all(part.input.startswith("text ") and part.reached < part.low for part in found)


def test_the_channel_that_is_left_furthest_is_named_once(measured: list[Measurement]) -> None:
    one, known = first(measured, "nn.gelu")
    assert known.channels is not None
    tops = np.array(known.channels.high)
    tops[[0, 3]] -= np.array([0.2, 0.4]) * (tops - np.array(known.channels.low))[[0, 3]]
    channels = replace(known.channels, high=tuple(tops.tolist()))
    found = list(violations(one, replace(known, channels=channels), None))
    assert found and {part.kind for part in found} == {"argument of a channel"}
    assert len({part.input for part in found}) == len(found)
    assert max(found, key=lambda part: part.excess).high == pytest.approx(tops[3])


def test_a_value_that_is_no_number_leaves_every_range(measured: list[Measurement]) -> None:
    one, known = first(measured, "nn.layer_norm")
    low = one.argument.low.copy()
    low[7] = np.nan
    found = list(violations(replace(one, argument=one.argument._replace(low=low)), known, None))
    assert [part.input for part in found] == ["input 7"]


def test_calibrate_reports_sums_of_held_back_inputs() -> None:
    """All tokens of a text alike: every key is the greatest one, and the scores stay as small."""
    shape = replace(SHAPES["decoder"], batch=8)
    arrays = inputs_for(shape, 2)
    alike = {**arrays, "x": np.broadcast_to(arrays["x"][:, :1], arrays["x"].shape)}
    found = calibrate(Builder(shape, 1).build(), arrays, held_back=alike, margin=0)
    kinds = {part.kind for part in found.violations}
    assert "log sum" in kinds, kinds
