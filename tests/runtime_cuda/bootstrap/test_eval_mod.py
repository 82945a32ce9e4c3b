"""The modular reduction: its range, its fit, and its error bound against direct evaluation."""

from __future__ import annotations

from fractions import Fraction
from math import comb, factorial, floor, log2

import mpmath
import numpy as np
import pytest
from bootstrap_core import Core
from ckks_ring import polynomial_of, slots_of

from atlasc.passes.execution.paterson_stockmeyer import plan_chebyshev

DEGREE, BOUND = 65536, 16
FITS = [(127, 0, 1), (127, 0, 3), (127, 0, 5), (63, 2, 1), (63, 2, 3), (63, 3, 5), (127, 1, 1)]


def exact_failure(weight: int, bound: int) -> float:
    """log2 of N P(|sum of weight + 1 uniform numbers in [-1/2, 1/2]| > bound), in fractions."""
    n = weight + 1
    x = Fraction(n, 2) - bound
    terms = ((-1) ** k * comb(n, k) * (x - k) ** n for k in range(floor(x) + 1))
    tail = 2 * DEGREE * sum(terms, Fraction(0)) / factorial(n)
    return log2(tail.numerator) - log2(tail.denominator)


@pytest.mark.parametrize(("weight", "bound"), [(32, 12), (32, 14), (32, 16), (64, 20), (16, 8)])
def test_probability_of_failure_is_exact(core: Core, weight: int, bound: int) -> None:
    [[found]] = core.numbers("failure", DEGREE, weight, bound)
    assert found == pytest.approx(exact_failure(weight, bound), abs=1e-3)


def test_bound_of_the_encapsulated_secret(core: Core) -> None:
    # Weight 32 and K = 16 fail with 2^-138.7, the figure of Bossuat et al. 2022 at N = 2^16.
    assert core.numbers("failure", DEGREE, 32, 16)[0][0] == pytest.approx(-138.7, abs=0.05)
    assert core.numbers("bound", DEGREE, 32, -128) == [[16]]
    assert core.numbers("bound", DEGREE, 32, -60) == [[14]]
    assert core.numbers("failure", DEGREE, 32, 17) == [[-np.inf]]
    assert b"weight" in core.run("bound", DEGREE, 0, -60, fails=True)


def test_probability_against_random_secrets(core: Core) -> None:
    rng = np.random.default_rng(3)
    sums = np.zeros(2**20)
    for _ in range(33):
        sums += rng.uniform(-0.5, 0.5, sums.size)
    share = np.mean(np.abs(sums) > 5)
    [[found]] = core.numbers("failure", 1, 32, 5)
    assert np.log2(share) == pytest.approx(found, abs=0.1)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("log_ratio", [5, 8, 12])
def test_reduction_is_what_the_facts_say(
    core: Core, fit: tuple[int, int, int], log_ratio: int
) -> None:
    # The program's reduction against its printed coefficients, evaluated by mpmath.
    arguments = (DEGREE, BOUND, 2.0**log_ratio, 1.0, *fit)
    facts = core.facts("reduction", *arguments)
    shift, domain = facts["argument"]
    _, square, constant = facts["arcsine"]
    x = np.array([-16.0, -7.001, 0.0, 0.02, 3.0, 15.99, 16.03])
    found = core.reduce(x, *arguments)
    for at, value in zip(x, found):
        t = (mpmath.mpf(at) - shift) / domain
        angle = mpmath.acos(t)
        v = mpmath.fsum(c * mpmath.cos(k * angle) for k, c in enumerate(facts["chebyshev"]))
        for c in facts["double_angles"]:
            v = 2 * v * v - c
        if fit[2] == 3:
            v *= v * v + 1
        elif fit[2] == 5:
            v *= (v * v + square) ** 2 + constant
        assert float(facts["gain"][0] * v) == pytest.approx(value, abs=2e-12)
    unused = facts["chebyshev"][1::2] if fit[1] else facts["chebyshev"][0::2]
    assert not any(unused)


@pytest.mark.parametrize(("fit", "levels"), list(zip(FITS, (7, 9, 10, 8, 10, 12, 8))))
def test_levels(core: Core, fit: tuple[int, int, int], levels: int) -> None:
    assert core.facts("reduction", DEGREE, BOUND, 4096, 1, *fit)["levels"] == [levels]


@pytest.mark.parametrize(("fit", "products"), [(FITS[0], (26, 19)), (FITS[3], (14, 11))])
def test_products_of_the_sum(
    core: Core, fit: tuple[int, int, int], products: tuple[int, int]
) -> None:
    facts = core.facts("reduction", DEGREE, BOUND, 4096, 1, *fit)
    plan = plan_chebyshev(facts["chebyshev"])
    assert (plan.ciphertext_products, plan.relinearisations) == products


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("log_ratio", "amplitude"), [(6, 1.0), (10, 1.0), (10, 8.0), (12, 1.0)])
def test_error_bound_holds_for_every_message(
    core: Core, fit: tuple[int, int, int], log_ratio: int, amplitude: float
) -> None:
    degree, ratio = 2048, 2.0**log_ratio
    arguments = (degree, BOUND, ratio, amplitude, *fit)
    bound = core.facts("reduction", *arguments)["error_bound"][0]
    rng = np.random.default_rng(4)
    slots = degree // 2
    messages = {
        "constant": np.full(slots, amplitude),
        "one coefficient": slots_of(amplitude * np.eye(1, degree, 5)[0]),
        "four coefficients": slots_of(amplitude / 4 * np.isin(np.arange(degree), (0, 1, 7, 1030))),
        "random signs": amplitude * rng.choice((-1.0, 1.0), slots),
        "random phases": amplitude * np.exp(2j * np.pi * rng.uniform(size=slots)),
    }
    for name, message in messages.items():
        m = polynomial_of(message.astype(complex))
        for integers in (rng.integers(-BOUND, BOUND + 1, degree), np.full(degree, BOUND)):
            found = ratio * core.reduce(integers + m / ratio, *arguments)
            error = np.abs(slots_of(found) - message).max()
            assert error <= bound, (name, error, bound)
            if name == "constant" and fit[2] == 1 and log_ratio < 12:
                assert error > 0.9 * bound  # so the bound is tight: the sine's worst message


@pytest.mark.parametrize(
    ("log_ratio", "expected"),
    [(5, (7.3, 13.1, 18.0)), (6, (9.3, 17.0, 20.6)), (8, (13.3, 22.1, 22.3)), (11, (19.0,))],
)
def test_bits_of_the_documented_table(
    core: Core, log_ratio: int, expected: tuple[float, ...]
) -> None:
    # Plain sine at q0/scale = 2^5 leaves 7 bits; docs/bootstrapping.md has the others.
    for arcsine, bits in zip((1, 3, 5), expected):
        facts = core.facts("reduction", DEGREE, BOUND, 2**log_ratio, 1, 127, 0, arcsine)
        assert -np.log2(facts["error_bound"][0]) == pytest.approx(bits, abs=0.15)


def test_values_and_slopes_at_the_integers_are_exact(core: Core) -> None:
    # Without that correction the error of this fit is 2^-22, everywhere.
    integers = np.arange(-BOUND, BOUND + 1.0)
    arguments = (DEGREE, BOUND, 1024, 1, 127, 0, 1)
    assert np.abs(core.reduce(integers, *arguments)).max() < 1e-14
    step = 1e-4
    slopes = core.reduce(integers + step, *arguments) - core.reduce(integers - step, *arguments)
    assert np.abs(slopes / (2 * step) - 1).max() < 1e-6
    between = np.linspace(-BOUND, BOUND, 10001)
    sine = np.sin(2 * np.pi * between) / (2 * np.pi)
    assert np.abs(core.reduce(between, *arguments) - sine).max() < 2.0**-19


@pytest.mark.parametrize(
    ("log_ratio", "error", "levels", "arcsine"),
    [(12, 2.0**-16, 7, 1), (10, 2.0**-16, 7, 1), (6, 2.0**-16, 9, 3), (5, 2.0**-16, 10, 5)],
)
def test_the_fewest_levels_are_chosen(
    core: Core, log_ratio: int, error: float, levels: int, arcsine: int
) -> None:
    facts = core.facts("choose", DEGREE, BOUND, 2**log_ratio, 1, error)
    assert facts["levels"] == [levels]
    assert facts["arcsine"][0] == arcsine
    assert facts["error_bound"][0] <= error


def test_what_cannot_be_reduced_is_refused(core: Core) -> None:
    assert b"at least" in core.run("reduction", DEGREE, 16, 3, 1, 127, 0, 1, fails=True)
    assert b"precise" in core.run("choose", DEGREE, 16, 4096, 1, 1e-12, fails=True)
    assert b"arcsine" in core.run("reduction", DEGREE, 16, 32, 1, 127, 0, 2, fails=True)
