"""CoeffsToSlots and SlotsToCoeffs: sparse stages against the dense transform."""

from __future__ import annotations

import numpy as np
import pytest
from bootstrap_core import Core
from ckks_ring import Complexes, polynomial_of, powers_of_five, slots_of

SIZES = [
    (log_slots, stages) for log_slots in (1, 2, 3, 5, 6, 9) for stages in (1, 2, 3, 4, log_slots)
]


def embedding(slots: int) -> Complexes:
    """U: complex coefficients c_k = m_k + i m_(k + slots) to slots."""
    exponents = np.outer(powers_of_five(2 * slots), np.arange(slots))
    return np.exp(1j * np.pi * exponents / (2 * slots))


def bit_reversal(slots: int) -> np.ndarray:
    """Where coefficient k is between the transforms."""
    bits = slots.bit_length() - 1
    return np.array([int(f"{k:0{bits}b}"[::-1], 2) for k in range(slots)])


def dense_stages(lines: list[list[float]], slots: int, labels: int = 2) -> dict[int, Complexes]:
    """Stage -> dense matrix, from lines of a stage, offsets and a diagonal."""
    rows = np.arange(slots)
    matrices: dict[int, Complexes] = {}
    for line in lines:
        diagonal = np.array(line[labels:]).view(complex)
        matrix = matrices.setdefault(int(line[0]), np.zeros((slots, slots), complex))
        if labels == 2:
            matrix[rows, (rows + int(line[1])) % slots] += diagonal
        else:  # the rotation by the giant step of diagonal * (rotation by the baby step)
            giant, baby = int(line[1]), int(line[2])
            matrix[rows, (rows + giant + baby) % slots] += np.roll(diagonal, -giant)
    return matrices


def product(matrices: dict[int, Complexes]) -> Complexes:
    result = np.eye(len(matrices[0]), dtype=complex)
    for stage in range(len(matrices)):
        result = matrices[stage] @ result
    return result


def test_embedding_is_the_ring_s() -> None:
    # The oracle itself: U is what evaluates a polynomial at the roots of unity.
    m = np.random.default_rng(1).normal(size=32)
    assert np.allclose(embedding(16) @ (m[:16] + 1j * m[16:]), slots_of(m), atol=1e-12)
    assert np.allclose(polynomial_of(slots_of(m)), m, atol=1e-14)


@pytest.mark.parametrize(("log_slots", "stages"), [s for s in SIZES if s[1] <= s[0]])
def test_product_of_the_stages_is_the_dense_transform(
    core: Core, log_slots: int, stages: int
) -> None:
    slots = 2**log_slots
    order = bit_reversal(slots)
    arguments = (slots, stages, 0.375)
    to_coeffs = product(dense_stages(core.numbers("diagonals", "stc", *arguments), slots))
    to_slots = product(dense_stages(core.numbers("diagonals", "cts", *arguments), slots))
    u = embedding(slots)
    assert np.allclose(to_coeffs, 0.375 * u[:, order], atol=1e-12)
    assert np.allclose(to_slots, 0.375 * u.conj().T[order] / slots, atol=1e-12)
    assert np.allclose(to_coeffs @ to_slots, 0.375**2 * np.eye(slots), atol=1e-12)


@pytest.mark.parametrize(("log_slots", "stages"), [(6, 3), (8, 3), (9, 2), (9, 4)])
def test_diagonals_and_rotations_are_as_few_as_predicted(
    core: Core, log_slots: int, stages: int
) -> None:
    slots = 2**log_slots
    groups = [log_slots // stages + (i < log_slots % stages) for i in range(stages)]
    counts = [2 ** (g + 1) - 1 for g in groups]
    counts[0] = 2 ** groups[0]  # the butterfly over all slots wraps around
    for transform, expected in (("cts", counts), ("stc", counts[::-1])):
        lines = core.numbers("diagonals", transform, slots, stages, 1)
        assert [sum(line[0] == stage for line in lines) for stage in range(stages)] == expected
        babies = core.numbers("babies", transform, slots, stages, 1)
        for stage, count in enumerate(expected):
            rotations = {("giant", g) for s, g, _, *_ in babies if s == stage and g}
            rotations |= {("baby", b) for s, _, b, *_ in babies if s == stage and b}
            assert len(rotations) <= 2 * np.sqrt(2 * count) - 1


@pytest.mark.parametrize("transform", ["cts", "stc"])
def test_baby_and_giant_steps_are_the_stages(core: Core, transform: str) -> None:
    arguments = (transform, 64, 2, 1)
    stages = dense_stages(core.numbers("diagonals", *arguments), 64)
    steps = dense_stages(core.numbers("babies", *arguments), 64, labels=3)
    assert all(np.allclose(stages[stage], steps[stage], atol=1e-14) for stage in stages)


def test_full_size_is_precise(core: Core) -> None:
    # N = 2^16: complex coefficients to slots and back, errors of double precision only.
    rng = np.random.default_rng(2)
    c = rng.normal(size=2**15) + 1j * rng.normal(size=2**15)
    slots = slots_of(np.concatenate([c.real, c.imag]))
    found = core.transform(slots, "cts", 2**15, 3, 1)
    assert np.abs(found - c[bit_reversal(2**15)]).max() < 1e-14
    assert np.abs(core.transform(found, "stc", 2**15, 4, 1) - slots).max() < 1e-11


@pytest.mark.parametrize("arguments", [(24, 2), (16, 0), (16, 5), (1, 1)])
def test_impossible_sizes_are_refused(core: Core, arguments: tuple[int, int]) -> None:
    assert b"must be" in core.run("diagonals", "cts", *arguments, 1, fails=True)
