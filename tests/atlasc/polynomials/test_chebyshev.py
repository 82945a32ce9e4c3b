"""Fits are right to double precision; the fused kernel equals Clenshaw's recurrence in numpy."""

from __future__ import annotations

import importlib

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import FUNCTIONS
from atlasc.polynomials.fits import chebyshev


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ATLASC_CACHE", str(tmp_path))
    chebyshev._fit_named.cache_clear()


def clenshaw(x, coefficients, low, high):
    """The sum at one point in the current mpmath precision."""
    t = (2 * mpmath.mpf(x) - low - high) / (mpmath.mpf(high) - low)
    b1 = b2 = mpmath.mpf(0)
    for c in coefficients[:0:-1]:
        b1, b2 = 2 * t * b1 - b2 + mpmath.mpf(float(c)), b1
    return t * b1 - b2 + mpmath.mpf(float(coefficients[0]))


# name, interval, bound on the error of the fit relative to the greatest value of the function.
# Where the polynomial converges to double precision the bound is a few roundings (2.2e-16);
# 1/sqrt on (0.085, 256) is limited by its degree.
FITS = [
    ("invsqrt", (0.003, 1.238), 4e-15),
    ("invsqrt", (0.085, 256.0), 5e-9),
    ("exp", (-8.0, 0.0), 1e-15),
    ("gelu", (-60.0, 30.0), 4e-15),
    ("gelu_tanh", (-60.0, 30.0), 4e-15),
    ("silu", (-60.0, 30.0), 4e-15),
    ("tanh", (-20.0, 20.0), 4e-15),
    ("inverse", (0.02, 4.0), 1e-12),
]


@pytest.mark.parametrize(("name", "interval", "bound"), FITS)
def test_degree_511_against_mpmath(name, interval, bound):
    coefficients = chebyshev.fit(name, 511, interval)
    points = np.linspace(*interval, 37)
    greatest = np.abs(FUNCTIONS[name].numpy(points)).max()
    with mpmath.workdps(40):
        for x in points:
            exact = FUNCTIONS[name].precise(mpmath.mp, mpmath.mpf(float(x)))
            assert abs(clenshaw(x, coefficients, *interval) - exact) <= bound * greatest


def test_coefficients_of_exp_are_bessel_functions_to_one_rounding():
    # exp(4t - 4) = e^-4 (I_0(4) + 2 sum I_k(4) T_k(t)); at degree 63 aliasing is below 1e-60.
    coefficients = chebyshev.fit("exp", 63, (-8.0, 0.0))
    with mpmath.workdps(50):
        for k, c in enumerate(coefficients):
            exact = mpmath.exp(-4) * mpmath.besseli(k, 4) * (1 if k == 0 else 2)
            assert (
                abs(mpmath.mpf(float(c)) - exact) <= 2.0**-53 * abs(exact) + mpmath.mpf(2) ** -120
            )


def test_a_polynomial_is_its_own_interpolant():
    coefficients = chebyshev._interpolate(lambda mp, x: 4 * x**3 - 3 * x, 511, -1.0, 1.0)
    expected = np.zeros(512)
    expected[3] = 1.0
    np.testing.assert_array_equal(np.round(coefficients, 30), expected)


def test_even_coefficients_of_an_odd_function_are_exactly_zero():
    coefficients = chebyshev.fit("tanh", 63, (-5.0, 5.0))
    assert not coefficients[::2].any()
    assert coefficients[1::2].all()


@pytest.mark.parametrize(
    ("name", "degree", "interval", "text"),
    [
        ("invsqrt", 7, (-1.0, 1.0), "not defined"),
        ("exp", 7, (1.0, 1.0), "cannot fit"),
        ("exp", -1, (0.0, 1.0), "cannot fit"),
        ("exp", 7, (0.0, float("inf")), "cannot fit"),
        ("sine", 7, (0.0, 1.0), "no scalar function"),
    ],
)
def test_impossible_fits_are_refused(name, degree, interval, text):
    with pytest.raises(AtlasError, match=text):
        chebyshev.fit(name, degree, interval)


def test_fits_cannot_be_changed_by_a_caller():
    with pytest.raises(ValueError, match="read-only"):
        chebyshev.fit("exp", 7, (-1.0, 0.0))[0] = 1.0


@given(
    degree=st.integers(0, 130),
    shape=st.sampled_from([(0,), (1,), (7,), (8,), (33,), (3, 5), (2, 1, 9), (), (257,)]),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 2**32 - 1),
    threads=st.integers(1, 3),
)
def test_evaluate_equals_numpy(degree, shape, dtype, seed, threads):
    rng = np.random.default_rng(seed)
    low, high = np.sort(rng.uniform(-50, 50, 2)) + (0, 1)
    coefficients = rng.standard_normal(degree + 1)
    x = np.asarray(rng.uniform(low, high, shape), dtype=dtype)
    result = chebyshev.evaluate(x, coefficients, (low, high), threads)
    t = (2 * x.astype(np.float64) - low - high) / (high - low)
    expected = np.polynomial.chebyshev.chebval(t, coefficients)
    assert (result.dtype, result.shape) == (dtype, x.shape)
    # The map to [-1, 1] is rounded differently; a sum of degree d has slope up to d^2.
    precision = np.finfo(dtype).eps + 1e-15 * (degree + 1) ** 2 * 100 / (high - low)
    np.testing.assert_allclose(
        result, expected, rtol=0, atol=precision * np.abs(coefficients).sum()
    )


def test_threads_do_not_change_a_bit():
    x = np.random.default_rng(0).uniform(-8, 0, 300_001)
    coefficients = chebyshev.fit("exp", 127, (-8.0, 0.0))
    one = chebyshev.evaluate(x, coefficients, (-8.0, 0.0), threads=1)
    three = chebyshev.evaluate(x, coefficients, (-8.0, 0.0), threads=3)
    np.testing.assert_array_equal(one, three)


def test_strided_and_integer_input():
    x = np.arange(24).reshape(4, 6).T[::2]
    result = chebyshev.evaluate(x, np.array([1.0, 2.0]), (0.0, 24.0))
    np.testing.assert_allclose(result, 1 + 2 * (x / 12 - 1))


def test_values_outside_the_domain_grow_and_nan_stays():
    coefficients = chebyshev.fit("exp", 31, (-8.0, 0.0))
    result = chebyshev.evaluate(np.array([30.0, np.nan, -1.0]), coefficients, (-8.0, 0.0))
    assert abs(result[0]) > 1e6
    assert np.isnan(result[1])
    assert abs(result[2] - np.exp(-1)) < 1e-14


def test_without_the_extension_numpy_computes_the_same_and_says_so_once(monkeypatch):
    def refuse(name):
        raise ImportError(name)

    chebyshev.native_library.cache_clear()
    monkeypatch.setattr(importlib, "import_module", refuse)
    x = np.linspace(-8, 0, 10_001, dtype=np.float32).reshape(73, 137)
    coefficients = chebyshev.fit("exp", 15, (-8.0, 0.0))
    try:
        with pytest.warns(RuntimeWarning, match="native Chebyshev kernel") as caught:
            results = [chebyshev.evaluate(x, coefficients, (-8.0, 0.0)) for _ in range(2)]
        assert len(caught) == 1
    finally:
        chebyshev.native_library.cache_clear()
    assert results[1].dtype == np.float32
    np.testing.assert_allclose(results[1], np.exp(x), atol=1e-7)


@pytest.mark.parametrize(("degree", "levels"), [(0, 0), (1, 1), (2, 2), (3, 2), (15, 4), (511, 9)])
def test_levels_of_a_degree(degree, levels):
    assert chebyshev.levels_of_degree(degree) == levels
