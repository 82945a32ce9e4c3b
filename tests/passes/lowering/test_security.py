"""The security table and its refusals."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.targets.security import MAX_LOG_QP, Secret, check_security, max_log_qp, security_bits

RINGS = sorted(MAX_LOG_QP[128])
GUIDELINES = [26, 53, 106, 214, 430, 868, 1747, 3523]
"""Eprint 2024/463, table 5.2, ternary secret, classical, 128 bits, from 2^10 on."""


def test_limits_are_those_of_the_guidelines_at_every_ring() -> None:
    assert [max_log_qp(degree) for degree in RINGS] == GUIDELINES
    assert [max_log_qp(2**n, 192) for n in range(11, 18)] == [36, 73, 147, 297, 597, 1199, 2411]
    assert [max_log_qp(2**n, 256) for n in range(11, 18)] == [27, 56, 114, 230, 462, 929, 1866]


def test_limits_grow_with_the_ring_and_fall_with_the_bits() -> None:
    for limits in MAX_LOG_QP.values():
        values = [limits[degree] for degree in sorted(limits)]
        for low, high in itertools.pairwise(values):
            assert 1.9 * low <= high <= 2.1 * low
    for degree in MAX_LOG_QP[256]:
        assert MAX_LOG_QP[128][degree] > MAX_LOG_QP[192][degree] > MAX_LOG_QP[256][degree]


@pytest.mark.parametrize(
    ("log_qp", "bits"), [(1747, 128), (1747.5, 127), (3494, 64), (1199, 192), (929, 256), (60, 256)]
)
def test_bits(log_qp: float, bits: int) -> None:
    assert security_bits(2**16, log_qp) == bits


@given(st.sampled_from(RINGS), st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_128_bits_are_told_below_the_limit_and_never_above(degree: int, log_qp: float) -> None:
    assert (security_bits(degree, log_qp) >= 128) == (log_qp <= max_log_qp(degree))


@pytest.mark.parametrize("degree", RINGS)
def test_the_smallest_step_over_a_limit_costs_its_level(degree: int) -> None:
    for bits, limits in MAX_LOG_QP.items():
        if degree in limits:
            assert security_bits(degree, limits[degree]) == bits
            assert security_bits(degree, math.nextafter(limits[degree], math.inf)) < bits


@given(
    st.sampled_from(RINGS),
    st.lists(st.floats(min_value=1, max_value=1e6), min_size=2, max_size=2).map(sorted),
)
def test_a_larger_modulus_never_has_more_bits(degree: int, sizes: list[float]) -> None:
    assert security_bits(degree, sizes[0]) >= security_bits(degree, sizes[1])


@pytest.mark.parametrize("log_qp", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_size_of_moduli_is_refused(log_qp: float) -> None:
    with pytest.raises(AtlasError, match="no size of moduli"):
        security_bits(2**16, log_qp)


def test_too_little_is_refused() -> None:
    check_security([Secret("keys", 2**16, 1740)])
    with pytest.raises(AtlasError, match=r"about 98 bits.*128 are required") as caught:
        check_security([Secret("keys", 2**15, 1130)])
    assert "868" in caught.value.why


def test_unknown_rings_are_refused() -> None:
    for degree in (2**9, 2**18, 3000):
        with pytest.raises(AtlasError, match="no security figure"):
            security_bits(degree, 100)
    with pytest.raises(AtlasError, match="no security figure"):
        max_log_qp(2**10, 192)
