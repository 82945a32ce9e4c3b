"""The count of derived keys: what is derived can be, and a root is a key of the other chain."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.targets.cpu import CpuParameters
from atlasc.targets.security import max_log_qp
from benchmarks.engine.derived_keys import HOPS, derived, root_of

SLOTS = 64


@given(
    st.dictionaries(st.integers(1, SLOTS - 1), st.integers(1, 4), max_size=20), st.integers(1, 4)
)
def test_derived_amounts_are_sums_of_roots(rotations: dict[int, int], level: int) -> None:
    sizes = dict.fromkeys(rotations, 1.0)
    roots, found = derived(rotations, level, SLOTS, 1.5, sizes)
    assert not found or sum(sizes[one] for one in found) > 1.5 * len(roots)
    sent = {0, *(amount for amount, at in rotations.items() if at > level)}
    ways = {
        (start + sum(n * root for n, root in zip(counts, roots, strict=True))) % SLOTS
        for start in sent
        for counts in product(range(HOPS + 1), repeat=len(roots))
        if len(roots) <= 3 and sum(counts) <= HOPS
    }
    for amount, hops in found.items():
        assert rotations[amount] <= level and 1 <= hops <= HOPS
        assert len(roots) > 3 or amount in ways


@pytest.mark.parametrize("level", [5, 17])
def test_a_root_stays_within_the_limit_of_security(level: int) -> None:
    parameters = CpuParameters.bootstrapped()
    root = root_of(parameters, level)
    assert root is not None
    digits = root.bytes * 8 / parameters.ring_degree
    assert any(digits / count <= max_log_qp(parameters.ring_degree) for count in range(1, 40))
    # A key at the same level has a smaller modulus, but a digit is as large as its special primes.
    assert root.bytes > parameters.key_bytes(level) / 2
    assert 5 < root.error < 8, "rounding, where a digit is no larger than what divides it"


def test_a_full_modulus_has_no_room() -> None:
    parameters = CpuParameters.bootstrapped()
    assert root_of(parameters, len(parameters.moduli.primes) - 1) is None
