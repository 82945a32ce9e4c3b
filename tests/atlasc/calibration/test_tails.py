"""Margins from the tail: exponential tails, and a few inputs of another kind."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate, require_coverable
from atlasc.calibration.tails import RISK, tail_bound
from atlasc.ir.errors import AtlasError

INPUTS = 100


def test_few_inputs_of_another_kind_are_a_tail_of_their_own() -> None:
    """Their distance to the others is no measure of how far new inputs reach beyond them."""
    rng = np.random.default_rng(0)
    for few in (2, 4, 8):
        values = rng.exponential(size=INPUTS)
        values[:few] += 100
        assert values.max() < tail_bound(values, ends=10) < 1.3 * values.max()
    values[:few] *= 100  # they differ among themselves, too
    assert tail_bound(values, ends=10) > values.max() + 100


def test_exponential_tails_keep_their_bound() -> None:
    """The mean over samples stays at the quantile that was asked for, for few inputs too."""
    rng = np.random.default_rng(0)
    for inputs in (40, 200):
        bounds = [tail_bound(rng.exponential(size=inputs), ends=50) for _ in range(1000)]
        assert np.mean(bounds) == pytest.approx(math.log(50 / RISK), rel=0.05)


def test_channels_are_judged_one_by_one() -> None:
    values = np.random.default_rng(0).exponential(size=(INPUTS, 5))
    values[:4, 2] += 100
    bounds = tail_bound(values, ends=10)
    assert bounds.shape == (5,) and bounds[2] < 100 + 2 * np.median(bounds)
    for column in (0, 1, 3, 4):
        assert bounds[column] >= tail_bound(values[:, column], ends=10) - 1e-9


def test_a_few_inputs_that_reach_far_do_not_make_a_range_too_wide_for_every_polynomial() -> None:
    shape = replace(SHAPES["vision"], batch=INPUTS)
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    arrays["x"][:6] *= 100
    found = calibrate(module, arrays, margin=None)
    require_coverable(found.ranges)
    first = found.ranges[0]
    seen = math.log(first.seen_high / first.seen_low)
    assert first.kind == "variance" and seen < first.widest_factor < 2 * seen


def test_the_refusal_of_a_range_tells_what_was_seen_from_the_margin() -> None:
    """Inputs that reach further and further, without a gap: their tail has no end."""
    shape = replace(SHAPES["vision"], batch=INPUTS)
    module, arrays = Builder(shape, 1).build(), inputs_for(shape, 2)
    arrays["x"][:10] *= np.geomspace(3, 3000, 10).reshape(-1, *[1] * (arrays["x"].ndim - 1))
    with pytest.raises(AtlasError) as refused:
        require_coverable(calibrate(module, arrays, margin=None).ranges)
    message = str(refused.value)
    assert "with their margin" in message and "margin of --ranges" in message
    require_coverable(calibrate(module, arrays, margin=0.3).ranges)
