"""The modular reduction: its range, its fit, and its error bound against direct evaluation."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest

from atlasc.program.bootstrap.reduction import (
    Reduction,
    choose_bound,
    log2_failure,
    make_reduction,
)
from atlasc.program.paterson_stockmeyer import plan_chebyshev

DEGREE, BOUND = 65536, 16


@pytest.fixture(scope="module")
def reduction() -> Reduction:
    return make_reduction(127, BOUND)


@pytest.mark.parametrize(("weight", "bound"), [(32, 12), (32, 14), (32, 16), (64, 20), (16, 8)])
def test_probability_of_failure(weight: int, bound: int) -> None:
    # Irwin-Hall by its integral, not by its alternating sum: the characteristic function of one
    # uniform number is a sinc.
    mpmath.mp.dps = 60
    count, points = weight + 1, 400
    # P(|sum| <= K) by the periodic Poisson summation, exact where the period covers the range.
    period = mpmath.mpf(2 * count)
    inside = mpmath.mpf(2 * bound) / period
    for k in range(1, 40 * points):
        turn = 2 * mpmath.pi * k / period
        term = (mpmath.sin(turn / 2) / (turn / 2)) ** count
        inside += 4 * term * mpmath.sin(turn * bound) / turn / period
    expected = mpmath.log(2 * DEGREE * (1 - inside) / 2, 2)
    assert log2_failure(DEGREE, weight, bound) == pytest.approx(float(expected), abs=1e-3)


def test_bound_of_the_encapsulated_secret() -> None:
    # Weight 32 and K = 16 fail with 2^-138.7, the figure of Bossuat et al. 2022 at N = 2^16.
    assert log2_failure(DEGREE, 32, 16) == pytest.approx(-138.7, abs=0.05)
    assert choose_bound(DEGREE, 32, -128) == 16
    assert choose_bound(DEGREE, 32, -60) == 14
    assert log2_failure(DEGREE, 32, 17) == -np.inf


def test_probability_against_random_secrets() -> None:
    rng = np.random.default_rng(3)
    sums = np.zeros(2**20)
    for _ in range(33):
        sums += rng.uniform(-0.5, 0.5, sums.size)
    share = np.mean(np.abs(sums) > 5)
    assert np.log2(share) == pytest.approx(log2_failure(1, 32, 5), abs=0.1)


def test_it_is_the_sum_of_its_coefficients(reduction: Reduction) -> None:
    x = np.array([-16.0, -7.001, 0.0, 0.02, 3.0, 15.99, 16.03])
    for at, value in zip(x, reduction(x), strict=True):
        angle = mpmath.acos(mpmath.mpf(at) / reduction.domain)
        total = mpmath.fsum(c * mpmath.cos(k * angle) for k, c in enumerate(reduction.coefficients))
        assert float(total / (2 * mpmath.pi)) == pytest.approx(value, abs=2e-12)
    assert not reduction.coefficients[::2].any()


def test_products_of_the_sum(reduction: Reduction) -> None:
    plan = plan_chebyshev(reduction.coefficients)
    assert (plan.levels, plan.ciphertext_products, plan.relinearisations) == (7, 26, 19)


@pytest.mark.parametrize(("log_ratio", "amplitude"), [(6, 1.0), (10, 1.0), (10, 8.0), (12, 1.0)])
def test_error_bound_holds_for_every_message(
    reduction: Reduction, log_ratio: int, amplitude: float
) -> None:
    ratio, rng = 2.0**log_ratio, np.random.default_rng(4)
    bound = reduction.error_bound(ratio, amplitude)
    for m in (amplitude * rng.uniform(-1, 1, 2048), amplitude * rng.choice((-1.0, 1.0), 2048)):
        for integers in (rng.integers(-BOUND, BOUND + 1, 2048), np.full(2048, BOUND)):
            error = np.abs(ratio * reduction(integers + m / ratio) - m).max()
            assert error <= bound * (1 + 1e-9)
    assert error > 0.9 * bound  # the sine's worst message is the largest one


@pytest.mark.parametrize(
    ("log_ratio", "bits"), [(5, 7.3), (6, 9.3), (8, 13.3), (10, 17.3), (11.75, 20.8), (12, 21.3)]
)
def test_bits_of_the_documented_table(reduction: Reduction, log_ratio: float, bits: float) -> None:
    bound = reduction.error_bound(2.0**log_ratio)
    assert -np.log2(bound) == pytest.approx(bits, abs=0.15)


def test_values_and_slopes_at_the_integers_are_exact(reduction: Reduction) -> None:
    # Without that correction the error of this fit is 2^-22, everywhere.
    integers = np.arange(-BOUND, BOUND + 1.0)
    assert np.abs(reduction(integers)).max() < 1e-14
    step = 1e-4
    slopes = reduction(integers + step) - reduction(integers - step)
    assert np.abs(slopes / (2 * step) - 1).max() < 1e-6
    between = np.linspace(-BOUND, BOUND, 10001)
    sine = np.sin(2 * np.pi * between) / (2 * np.pi)
    assert np.abs(reduction(between) - sine).max() < 2.0**-19


def test_a_degree_that_is_too_low_is_refused() -> None:
    with pytest.raises(ValueError, match="higher degree than 63"):
        make_reduction(63, BOUND)
    with pytest.raises(ValueError, match="higher degree than 53"):
        make_reduction(53, BOUND, 2)


def test_double_angles_yield_a_sine() -> None:
    reduction = make_reduction(56, BOUND, 2)
    plan = plan_chebyshev(reduction.coefficients)
    # With the square that begins the sum and the two double angles, eleven relinearisations.
    assert (plan.levels, plan.ciphertext_products, plan.relinearisations) == (5, 11, 8)
    x = np.linspace(-BOUND - 0.25, BOUND + 0.25, 10001)
    sine = np.sin(2 * np.pi * x) / (2 * np.pi)
    assert np.abs(reduction(x) - sine).max() < 2.0**-42
    for amplitude in (1.0, 8.0):
        direct = make_reduction(127, BOUND).error_bound(2.0**10, amplitude)
        assert reduction.error_bound(2.0**10, amplitude) < 1.05 * direct
