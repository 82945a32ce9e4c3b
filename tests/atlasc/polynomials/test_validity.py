"""Where a polynomial is right."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from atlasc.ir.scalar_functions import function
from atlasc.polynomials.algorithms.chebyshev import EXP_DEGREE, EXP_RANGE
from atlasc.polynomials.fits.chebyshev import fit
from atlasc.polynomials.fits.chebyshev_sum import (
    ABSOLUTE_ERROR,
    FARTHEST,
    RELATIVE_ERROR,
    valid_domain,
)
from atlasc.polynomials.fitted import BEYOND

CASES = [
    ("exp", (-8.0, 0.0), 15),
    ("invsqrt", (0.085, 256.0), 1),
    ("invsqrt", (0.085, 256.0), 31),
    ("invsqrt", (0.003, 1.238), 127),
    ("inverse", (0.1, 10.0), 7),
    ("gelu", (-17.0, 25.0), 7),
    ("gelu", (-17.0, 25.0), 63),
    ("relu", (-3.0, 3.0), 31),
]


def error(name: str, interval: tuple[float, float], degree: int, t: np.ndarray) -> np.ndarray:
    """As the module measures it, of an interpolant."""
    low, high = interval
    known, x = function(name), (low + high) / 2 + (high - low) / 2 * t
    exact = known.numpy(x)
    top = np.abs(known.numpy(np.linspace(low, high, 2001))).max()
    size = np.abs(exact) if known.positive_domain else np.maximum(np.abs(exact), top)
    found = np.polynomial.chebyshev.chebval(t, fit(name, degree, interval))
    return np.abs(found - exact) / size


@pytest.mark.parametrize(("name", "interval", "degree"), CASES)
def test_the_error_inside_is_bounded_and_just_outside_it_is_not(name, interval, degree) -> None:
    low, high = valid_domain(name, interval, fit(name, degree, interval))
    assert low <= -1 and high >= 1
    inside = error(name, interval, degree, np.linspace(-1, 1, 4001)).max()
    bound = RELATIVE_ERROR if function(name).positive_domain else ABSOLUTE_ERROR
    bound = max(bound, inside)
    assert error(name, interval, degree, np.linspace(low, high, 4001)).max() <= 1.01 * bound
    for end in (low, high):
        if abs(end) < 1 + FARTHEST:
            further = np.sign(end) * (1 + 1.1 * (abs(end) - 1) + 1e-5)
            if name in ("invsqrt", "inverse") and end < 0:
                further = max(further, -1 - 1.999 * interval[0] / (interval[1] - interval[0]))
            assert error(name, interval, degree, np.array([further]))[0] > 0.9 * bound


def test_the_exponential_is_right_where_the_shift_uses_it() -> None:
    low, high = EXP_RANGE
    _, above = valid_domain("exp", EXP_RANGE, fit("exp", EXP_DEGREE, EXP_RANGE))
    assert (low + high) / 2 + (high - low) / 2 * above > high + BEYOND


def test_a_higher_degree_is_lost_sooner_above_its_domain() -> None:
    interval = (0.085, 256.0)
    fits = [fit("invsqrt", 2**p - 1, interval) for p in range(2, 9)]
    ends = [valid_domain("invsqrt", interval, found)[1] for found in fits]
    assert ends == sorted(ends, reverse=True)


def test_an_argument_that_the_function_does_not_have_is_never_right() -> None:
    low, high = 0.01, 1.0
    for degree in (1, 31, 511):
        found = fit("invsqrt", degree, (low, high))
        below, _ = valid_domain("invsqrt", (low, high), found)
        assert (low + high) / 2 + (high - low) / 2 * below > 0


def test_an_interval_of_many_magnitudes_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        valid_domain("inverse", (1e-57, 3.0), np.array([1.0, -0.5]))
