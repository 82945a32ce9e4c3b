"""The security table and its refusals; archived estimates, which cover every secret in use."""

from __future__ import annotations

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.ir.errors import AtlasError
from atlasc.program.bootstrap.sets import SETS, most_keys
from atlasc.targets.ckks import parameters as ckks_parameters
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.cuda import CudaParameters
from atlasc.targets.phantom import PhantomParameters
from atlasc.targets.security import (
    MAX_LOG_QP,
    Secret,
    archive,
    check_security,
    estimates_of,
    max_log_qp,
    security_bits,
)
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED, LEVELED, DesiloParameters

RUNTIME = Path(__file__).parents[3] / "runtime_cuda/ckks/ring"
DOCS = Path(__file__).parents[3] / "docs"
ON_PHANTOM = PhantomParameters.bootstrapped("fourteen_levels")
OURS = (CpuParameters, CudaParameters, PhantomParameters)
IN_USE = [
    *LEVELED, BOOTSTRAPPED, *(family.bootstrapped(name) for family in OURS for name in SETS),
    *(family.choose(levels) for family in OURS for levels in range(40)),
]  # fmt: skip
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
    with pytest.raises(AtlasError, match="not a size of moduli"):
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


@pytest.mark.parametrize("parameters", IN_USE, ids=str)
def test_every_secret_in_use_has_an_estimate_of_128_bits(
    parameters: DesiloParameters | ckks_parameters.CkksParameters,
) -> None:
    found = estimates_of(parameters.secrets)
    assert found["bits"] == parameters.security_bits >= 128
    assert len(found["secrets"]) == (2 if parameters.bootstrap else 1)
    for fact in found["secrets"]:
        assert fact["estimate_bits"] >= 128
        assert fact["estimated_log_qp"] >= fact["log_qp"]
    assert found["estimate_bits"] == min(fact["estimate_bits"] for fact in found["secrets"])
    assert found["secrets"][0]["secret"] == "dense ternary"
    assert found["secrets"][0]["log_qp"] == parameters.log_qp <= max_log_qp(parameters.ring_degree)


def test_every_set_has_its_row_in_the_documents() -> None:
    """The largest modulus of a row, its estimate, and which sets it is of."""
    page = (DOCS / "security.md").read_text()
    table = page.partition("| Secret | log₂ of its modulus | Estimate |")[2].partition("\n\n")[0]
    rows = {
        tuple(re.findall(r"\d+(?:,\d{3})*(?:\.\d)?", cell.replace(",", "")))
        for line in table.splitlines()[2:]
        for cell in [line.split("|", 2)[2]]
    }
    every = [p for family in OURS for levels in range(64) for p in family._secure(levels)]
    dense = [p.secrets[0] for p in [*every, *LEVELED]]
    largest = [
        max((one for one in dense if one.ring_degree == degree), key=lambda one: one.log_q)
        for degree in sorted({one.ring_degree for one in dense})
    ]
    wanted = {told(largest), told([BOOTSTRAPPED.secrets[0]]), told([BOOTSTRAPPED.secrets[1]])}
    # Sets with fewer keys have the same moduli.
    ours = [CpuParameters.bootstrapped(name).secrets for name in SETS if most_keys(name) == name]
    for secrets in zip(*ours, strict=True):  # all of a row have the estimate of the largest
        ordered = sorted(secrets, key=lambda one: -one.log_q)
        assert {one.estimate["log_q"] for one in ordered} == {ordered[0].log_q}
        moduli = [f"{one.log_q:.0f}" for one in ordered]
        wanted.add((*moduli, f"{ordered[0].estimate['bits']:.1f}", moduli[0]))
    assert rows == wanted
    text = (DOCS / "bootstrapping.md").read_text()
    of_ring = re.findall(r"\| 2[¹²³⁰⁴-⁹]+ \| (\d+) \| ([\d.]+) \| (\d+) \| [\d.]+ \|", text)
    assert of_ring == [
        (f"{one.log_q:.0f}", f"{one.estimate['bits']:.1f}", str(max_log_qp(one.ring_degree)))
        for one in largest
    ]


def told(secrets: list[Secret]) -> tuple[str, ...]:
    """Moduli and estimates, as a row has them; each modulus was estimated itself."""
    assert all(one.log_q == one.estimate["log_q"] for one in secrets)
    bits = [f"{one.estimate['bits']:.1f}" for one in secrets]
    return (*(f"{one.log_q:.0f}" for one in secrets), *bits)


def test_a_sparse_secret_is_told_with_its_own_modulus() -> None:
    (_, phantom), (_, desilo) = (
        estimates_of(p.secrets)["secrets"] for p in (ON_PHANTOM, BOOTSTRAPPED)
    )
    assert (phantom["secret"], phantom["log_qp"]) == ("sparse h=32, encapsulated", 57 + 60)
    assert (desilo["secret"], desilo["log_qp"]) == ("sparse h=128, encapsulated", 40 + 5 * 60)


def test_every_key_has_at_most_the_modulus_that_is_judged() -> None:
    dense = ON_PHANTOM.secrets[0].log_q
    special = sum(ON_PHANTOM.moduli.special)
    for level in range(len(ON_PHANTOM.moduli.primes)):
        assert sum(ON_PHANTOM.moduli.primes[: level + 1]) + special <= dense
    # Under the sparse secret there is the ciphertext with q0 left, and the key that leads to it.
    assert ON_PHANTOM.secrets[1].log_q > ON_PHANTOM.moduli.primes[0]


def test_the_archive_says_where_it_comes_from() -> None:
    source = archive()["estimator"]
    assert len(source["commit"]) == 40 and source["sage"] and source["date"] >= "2025"
    assert estimates_of(LEVELED[0].secrets)["estimator"] == source
    for entry in archive()["estimates"]:
        counted = [found.values() for model, found in entry["all"].items() if model != "ADPS16"]
        assert 0 <= min(min(bits) for bits in counted) - entry["bits"] < 0.11
        assert entry["all"][entry["cost_model"]][entry["attack"]] == min(map(min, counted))


def test_the_estimator_confirms_the_table_at_every_ring_in_use() -> None:
    found = {
        (entry["ring_degree"], entry["log_q"]): entry["bits"]
        for entry in archive()["estimates"]
        if entry["weight"] is None
    }
    for degree in {parameters.ring_degree for parameters in IN_USE}:
        assert 127.5 <= found[degree, max_log_qp(degree)] <= 132


def test_a_sparse_secret_without_an_estimate_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert PhantomParameters.choose(60) == ON_PHANTOM
    thin = {"fourteen_levels": replace(SETS["fourteen_levels"], secret_weight=16)}
    monkeypatch.setattr(ckks_parameters, "SETS", thin)
    assert ON_PHANTOM.security_bits == 0
    assert estimates_of(ON_PHANTOM.secrets)["estimate_bits"] is None
    with pytest.raises(AtlasError, match="about 0 bits of security; 128 are required"):
        PhantomParameters.choose(60)


def test_a_modulus_above_all_that_was_estimated_has_no_estimate() -> None:
    above = PhantomParameters(15, 30, 1)
    assert above.log_qp > max_log_qp(2**15)
    assert estimates_of(above.secrets)["estimate_bits"] is None
    assert estimates_of(above.secrets)["bits"] < 128
    with pytest.raises(AtlasError, match="128 are required"):
        check_security(above.secrets)


def test_the_runtime_has_the_same_limits() -> None:
    source = (RUNTIME / "chain.cpp").read_text()
    dense, sparse = (
        {
            2 ** int(power): int(limit)
            for power, limit in re.findall(r"\{std::size_t\{1\} << (\d+), (\d+)\}", part)
        }
        for part in source.split("> max_log_q_of_sparse =")
    )
    assert dense == MAX_LOG_QP[128]
    weight = int(re.findall(r"sparse_weight = (\d+);", (RUNTIME / "chain.hpp").read_text())[0])
    assert sparse == {
        entry["ring_degree"]: entry["log_q"]
        for entry in archive()["estimates"]
        if entry["weight"] == weight and entry["bits"] >= 128
    }
