"""The shift of an iterative softmax on the paper's ranges keeps everything where the fits hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from small_transformers import SHAPES, Builder, inputs_for

from atlasc.calibration.calibrate import calibrate
from atlasc.calibration.ranges import Range
from atlasc.polynomials.algorithms.chebyshev import (
    EXP_DEGREE,
    EXP_RANGE,
    SUM_RANGES,
)
from atlasc.polynomials.fits.chebyshev import evaluate, fit
from atlasc.polynomials.fitted import BEYOND, PAPER_EXP_RANGE, paper_shift


@pytest.fixture(scope="module")
def known() -> Range:
    module, arrays = Builder(SHAPES["vision"], 1).build(), inputs_for(SHAPES["vision"], 2)
    ranges = calibrate(module, arrays).ranges
    return next(r for r in ranges if r.op == "nn.softmax")


def test_exp_is_right_as_far_as_it_is_used() -> None:
    x = np.linspace(EXP_RANGE[1], EXP_RANGE[1] + BEYOND, 1001)
    ratio = evaluate(x, fit("exp", EXP_DEGREE, EXP_RANGE), EXP_RANGE) / np.exp(x)
    assert np.abs(ratio - 1).max() < 2e-5


@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("keys", [0.0, 1.0, 3.0, 6.0])
def test_nothing_leaves_its_range(known: Range, iterations: int, keys: float) -> None:
    """Rows of e^keys times as many keys: their sums meet the top of the first range."""
    assert known.log_sums is not None
    more = tuple((low + keys, high + keys) for low, high in known.log_sums)
    wide = replace(known, log_sums=more)
    shift = paper_shift(wide, iterations)
    assert (wide.shift(iterations - 1) - shift) / 2**iterations <= BEYOND + 1e-12
    top = np.log(wide.sums(iterations)[0][0][1])
    # `sum_ranges` is relative to the shift at the top of the scores
    assert (
        top + (wide.shift(iterations - 1) - shift) / 2 ** (iterations - 1)
        <= np.log(SUM_RANGES[0][1]) + 1e-9
    )


def test_few_keys_leave_room_that_is_used(known: Range) -> None:
    for iterations in (1, 2, 3):
        assert (
            paper_shift(known, iterations) == known.shift(iterations - 1) - BEYOND * 2**iterations
        )


def test_the_exponential_stays_within_its_domain() -> None:
    """A Chebyshev sum amplifies its own rounding beyond [-1, 1]."""
    assert (EXP_RANGE[0], EXP_RANGE[1] + BEYOND) == PAPER_EXP_RANGE
    x = np.linspace(*PAPER_EXP_RANGE, 1001)
    ratio = evaluate(x, fit("exp", EXP_DEGREE, PAPER_EXP_RANGE), PAPER_EXP_RANGE) / np.exp(x)
    assert np.abs(ratio - 1).max() < 2e-4
    assert np.abs(ratio[x > -4] - 1).max() < 1e-5
