"""The security table and its refusals."""

from __future__ import annotations

import itertools

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.passes.lowering.security import MAX_LOG_QP, check_security, max_log_qp, security_bits


def test_standard_limits() -> None:
    assert max_log_qp(2**15) == 881
    assert max_log_qp(2**16) == 1747
    assert max_log_qp(2**16, 256) == 929


def test_limits_grow_with_the_ring_and_fall_with_the_bits() -> None:
    for limits in MAX_LOG_QP.values():
        values = [limits[degree] for degree in sorted(limits)]
        for low, high in itertools.pairwise(values):
            assert 1.9 * low <= high <= 2.1 * low
    for degree in MAX_LOG_QP[128]:
        assert MAX_LOG_QP[128][degree] > MAX_LOG_QP[192][degree] > MAX_LOG_QP[256][degree]


@pytest.mark.parametrize(
    ("log_qp", "bits"), [(1747, 128), (1747.5, 127), (3494, 64), (1199, 192), (929, 256), (60, 256)]
)
def test_bits(log_qp: float, bits: int) -> None:
    assert security_bits(2**16, log_qp) == bits


def test_too_little_is_refused_unless_asked_for() -> None:
    assert check_security(2**16, 1740) == 128
    with pytest.raises(AtlasError, match=r"about 99 bits.*128 are required") as caught:
        check_security(2**15, 1130)
    assert "--insecure-for-tests" in caught.value.remedy
    assert "881" in caught.value.why
    assert check_security(2**15, 1130, insecure_for_tests=True) == 99


def test_unknown_rings_are_refused() -> None:
    for degree in (2**9, 2**18, 3000):
        with pytest.raises(AtlasError, match="no security figure"):
            security_bits(degree, 100)
