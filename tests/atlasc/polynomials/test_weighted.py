"""Weighted fits: better where arguments were seen, bounded everywhere, converging."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.ir.scalar_functions import function
from atlasc.polynomials.fits.chebyshev import evaluate, fit
from atlasc.polynomials.fits.weighted import ABSOLUTE, RELATIVE, weighted_fit

ACTIVATION = ("gelu", (-20.0, 28.0))
INVERSES = (("invsqrt", (0.3, 140.0)), ("inverse", (0.3, 140.0)))


def quantiles(sample: np.ndarray) -> tuple[float, ...]:
    return tuple(np.quantile(sample, np.linspace(0, 1, 129)).tolist())


def mostly_near_zero(seed: int) -> tuple[float, ...]:
    rng = np.random.default_rng(seed)
    return quantiles(np.concatenate([rng.normal(-0.5, 1, 5000), rng.uniform(-17, 25, 50)]))


def two_clusters(seed: int) -> tuple[float, ...]:
    rng = np.random.default_rng(seed)
    sample = np.concatenate([rng.lognormal(0, 0.1, 5000), rng.lognormal(4, 0.3, 100)])
    return quantiles(np.clip(sample, 0.35, 131))


def errors(name: str, interval: tuple[float, float], x: np.ndarray, c: np.ndarray) -> np.ndarray:
    exact = function(name).numpy(x)
    scale = exact if function(name).positive_domain else np.abs(function(name).numpy(
        np.linspace(*interval, 10_001))).max()  # fmt: skip
    return np.abs((evaluate(x, c, interval) - exact) / scale)


@given(st.integers(0, 99), st.integers(2, 80), st.sampled_from([ACTIVATION, *INVERSES]))
def test_never_worse_than_the_interpolant_on_what_was_seen_and_bounded(
    seed: int, degree: int, case: tuple[str, tuple[float, float]]
) -> None:
    name, interval = case
    seen = mostly_near_zero(seed) if case is ACTIVATION else two_clusters(seed)
    found = weighted_fit(name, degree, interval, seen)
    sample = np.interp(np.linspace(0, 1, 5000), np.linspace(0, 1, 129), seen)
    interpolant = fit(name, degree, interval)
    # The sample is spread a little differently between two quantiles than the fit's own points.
    one, other = (
        np.sqrt(np.mean(np.square(errors(name, interval, sample, c))))
        for c in (found.coefficients, interpolant)
    )
    assert one <= 1.25 * other + 1e-12
    x = np.linspace(*interval, 20_001)
    worst = errors(name, interval, x, found.coefficients).max()
    # The fit looks at 4 Chebyshev points a degree: between them a polynomial is at most 1/cos(pi/8)
    # times as large (Ehlich and Zeller 1964).
    assert worst <= found.worst_error / np.cos(np.pi / 8) + 1e-12
    if found.bounded:
        bound = ABSOLUTE if case is ACTIVATION else RELATIVE
        allowed = bound.times * errors(name, interval, x, interpolant).max()
        assert worst <= 1.05 * min(bound.error, allowed) + 1e-12


@pytest.mark.parametrize("case", [ACTIVATION, *INVERSES])
def test_the_error_vanishes_as_the_degree_grows(case: tuple[str, tuple[float, float]]) -> None:
    name, interval = case
    seen = mostly_near_zero(1) if case is ACTIVATION else two_clusters(1)
    found = [weighted_fit(name, degree, interval, seen) for degree in (15, 31, 63, 127, 255, 511)]
    for worse, better in itertools.pairwise(found[:4]):
        assert better.seen_error < worse.seen_error
    assert found[3].seen_error < 1e-5
    assert found[-1].worst_error < 1e-11
    assert found[-1].floor is None


def test_what_it_buys() -> None:
    """Where arguments lie in a small part of the interval, the error falls at equal degree."""
    for (name, interval), seen, gain in (
        (ACTIVATION, mostly_near_zero(2), 1.5),
        (INVERSES[0], two_clusters(2), 3),
    ):
        x = np.asarray(seen)
        one = errors(name, interval, x, weighted_fit(name, 31, interval, seen).coefficients)
        other = errors(name, interval, x, fit(name, 31, interval))
        assert gain * np.sqrt(np.mean(one**2)) < np.sqrt(np.mean(other**2))


def test_a_degree_too_low_for_the_bound_says_so() -> None:
    found = weighted_fit("invsqrt", 2, (1e-4, 100.0), two_clusters(3))
    assert not found.bounded
    assert found.worst_error > RELATIVE.error


def test_the_same_every_time_cached_and_read_only() -> None:
    seen = two_clusters(4)
    first = weighted_fit("invsqrt", 31, (0.3, 140.0), seen)
    assert weighted_fit("invsqrt", 31, (0.3, 140.0), seen) is first
    weighted_fit.cache_clear()
    again = weighted_fit("invsqrt", 31, (0.3, 140.0), seen)
    assert again.coefficients.tobytes() == first.coefficients.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        first.coefficients[0] = 1


def test_constant_arguments_and_mistakes() -> None:
    found = weighted_fit("gelu", 7, (-1.0, 1.0), (0.5,) * 129)
    assert errors("gelu", (-1.0, 1.0), np.array([0.5]), found.coefficients) < 1e-3
    with pytest.raises(AtlasError, match="no scalar function"):
        weighted_fit("sine", 7, (-1.0, 1.0), (0.5,) * 129)
    with pytest.raises(AtlasError, match="not defined on all of"):
        weighted_fit("invsqrt", 7, (-1.0, 1.0), (0.5,) * 129)
