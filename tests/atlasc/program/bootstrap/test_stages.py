"""CoeffsToSlots and SlotsToCoeffs: sparse stages against the dense transform."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ckks_ring import Complexes, polynomial_of, powers_of_five, slots_of

from atlasc.program.bootstrap.narrow import narrow
from atlasc.program.bootstrap.stages import (
    Stage,
    baby_giant,
    coeffs_to_slots,
    slots_to_coeffs,
    whole_groups,
)
from atlasc.program.plaintexts import Slots, built
from atlasc.program.transform_work import chain_amounts

SIZES = [
    (log_slots, stages)
    for log_slots in (1, 2, 3, 5, 6, 9)
    for stages in sorted({1, 2, 3, 4, log_slots})
    if stages <= log_slots
]


def embedding(slots: int) -> Complexes:
    """U: complex coefficients c_k = m_k + i m_(k + slots) to slots."""
    exponents = np.outer(powers_of_five(2 * slots), np.arange(slots))
    return np.exp(1j * np.pi * exponents / (2 * slots))


def bit_reversal(slots: int) -> np.ndarray:
    """Where coefficient k is between the transforms."""
    bits = slots.bit_length() - 1
    return np.array([int(f"{k:0{bits}b}"[::-1], 2) for k in range(slots)])


def numbers(plaintext: Slots, slots: int) -> Complexes:
    def no_array(argument: Any) -> Any:
        raise AssertionError(argument)

    return np.asarray(built(plaintext, slots, no_array))


def dense(stage: Stage, slots: int) -> Complexes:
    rows = np.arange(slots)
    matrix = np.zeros((slots, slots), complex)
    for offset, plaintext in stage.diagonals.items():
        matrix[rows, (rows + offset) % slots] += numbers(plaintext, slots)
    return matrix


def product(stages: list[Stage], slots: int) -> Complexes:
    result = np.eye(slots, dtype=complex)
    for stage in stages:
        result = dense(stage, slots) @ result
    return result


def applied(stages: list[Stage], x: Complexes) -> Complexes:
    """By rotations, as an engine does: those of slots that repeat may be other ones."""
    for stage in stages:
        total = np.zeros(x.shape, complex)
        for baby, giant, plaintext, *_ in baby_giant(stage):
            rotated = np.roll(x, -baby, axis=0) * numbers(plaintext, len(x))[:, None]
            total += np.roll(rotated, -giant, axis=0)
        x = total
    return x


def whole_to_slots(slots: int, stages: int, factor: float, babies: int = 0) -> list[Stage]:
    return coeffs_to_slots(slots, whole_groups(slots, stages, babies), factor)


def whole_to_coeffs(slots: int, stages: int, factor: float, babies: int = 0) -> list[Stage]:
    return slots_to_coeffs(slots, whole_groups(slots, stages, babies)[::-1], factor)


def test_embedding_is_the_ring_s() -> None:
    # The oracle itself: U is what evaluates a polynomial at the roots of unity.
    m = np.random.default_rng(1).normal(size=32)
    assert np.allclose(embedding(16) @ (m[:16] + 1j * m[16:]), slots_of(m), atol=1e-12)
    assert np.allclose(polynomial_of(slots_of(m)), m, atol=1e-14)


@pytest.mark.parametrize(
    ("log_slots", "stages"),
    [
        pytest.param(*size, marks=pytest.mark.deep("examples")) if size == (9, 1) else size
        for size in SIZES
    ],
)
def test_product_of_the_stages_is_the_dense_transform(log_slots: int, stages: int) -> None:
    slots = 2**log_slots
    order, u = bit_reversal(slots), embedding(slots)
    to_coeffs = product(whole_to_coeffs(slots, stages, 0.375), slots)
    to_slots = product(whole_to_slots(slots, stages, 0.375), slots)
    assert np.allclose(to_coeffs, 0.375 * u[:, order], atol=1e-12)
    assert np.allclose(to_slots, 0.375 * u.conj().T[order] / slots, atol=1e-12)


@pytest.mark.parametrize("babies", [1, 2, 4, 8])
@pytest.mark.parametrize(("log_slots", "stages"), [size for size in SIZES if size[0] < 9])
def test_chained_stages_are_the_same(log_slots: int, stages: int, babies: int) -> None:
    slots = 2**log_slots
    x = np.eye(slots, dtype=complex)
    for transform in (whole_to_slots, whole_to_coeffs):
        chained = transform(slots, stages, 0.375, babies)
        assert np.allclose(applied(chained, x), product(transform(slots, stages, 0.375), slots))
        for stage in chained:
            giants = [giant for _, giant in stage.steps.values()]
            turns = {*chain_amounts([*dict.fromkeys(giants)], slots)} - {0}
            assert len(turns) <= 2  # the steps of the chain, and its end
            assert len({baby for baby, _ in stage.steps.values()}) <= babies


@pytest.mark.parametrize("babies", [0, 2, 8])
@pytest.mark.parametrize(("log_slots", "stages"), SIZES)
def test_stages_of_slots_that_repeat_are_the_smaller_transform(
    log_slots: int, stages: int, babies: int
) -> None:
    slots = 2**log_slots
    for period in (1 << power for power in range(log_slots)):
        plan = narrow(slots, period, 1, max(stages, 2), max(stages, 2), babies)
        order, u = bit_reversal(period), embedding(period)
        copies = np.tile(np.eye(period), (slots // period, 1))
        to_slots = applied(coeffs_to_slots(slots, plan.into, 0.375), copies)
        expected = 0.375 * u.conj().T[order] / period
        assert np.allclose(to_slots, np.tile(expected, (slots // period, 1)), atol=1e-12)
        to_coeffs = applied(slots_to_coeffs(slots, plan.out, 0.375), copies)
        assert np.allclose(to_coeffs, np.tile(0.375 * u[:, order], (slots // period, 1)))


def test_plaintexts_of_all_stages_are_rounded_alike() -> None:
    """What repeats after k slots has 2k coefficients to round, all of one size."""
    slots = 64
    groups = whole_groups(slots, 3)
    found = []
    for stage, group in zip(coeffs_to_slots(slots, groups, 0.375), groups, strict=True):
        entries = np.abs(dense(stage, slots))
        found.extend(entries[entries > 1e-12] / np.sqrt(group.blocks[0]))
    assert np.allclose(found, found[0])


@pytest.mark.parametrize("babies", [0, 4])
@pytest.mark.parametrize("log_slots", [3, 6, 9])
def test_sums_add_all_copies(log_slots: int, babies: int) -> None:
    slots = 2**log_slots
    for period in (1 << power for power in range(log_slots)):
        x = np.random.default_rng(period).normal(size=slots)
        expected = np.tile(x.reshape(-1, period).sum(0), slots // period)
        for paths in narrow(slots, period, 1, 3, 3, babies).sums:
            x = sum((np.roll(x, -sum(path)) for path in paths), np.zeros(slots))
        assert np.allclose(x, expected)


@pytest.mark.parametrize(("babies", "count", "more"), [(0, 38, set()), (8, 24, {4}), (4, 12, {2})])
def test_a_narrow_bootstrap_has_the_rotations_of_a_whole_one(
    babies: int, count: int, more: set[int]
) -> None:
    """Chained ones have another one. And it has fewer stages the fewer slots there are, down to
    nothing but sums.
    """
    slots = 2**15
    keys = set[int]().union(*(one.amounts(slots) for one in whole_groups(slots, 3, babies)))
    assert len(keys) == count
    stages = []
    for period in (1 << power for power in range(15)):
        plan = narrow(slots, period, 1, 3, 3, babies)
        used = set[int]().union(*(one.amounts(slots) for one in (*plan.into, *plan.out)))
        used |= {amount for paths in plan.sums for path in paths for amount in path}
        assert used <= keys | more | {0}
        stages.append((len(plan.into), len(plan.out)))
    assert stages == sorted(stages)
    assert stages[0] == (1, 1)
    assert stages[6] == (2, 1 if babies else 2)


@pytest.mark.parametrize(("log_slots", "stages"), [(6, 3), (8, 3), (9, 2), (9, 4)])
def test_diagonals_and_rotations_are_as_few_as_predicted(log_slots: int, stages: int) -> None:
    slots = 2**log_slots
    groups = [log_slots // stages + (i < log_slots % stages) for i in range(stages)]
    counts = [2 ** (g + 1) - 1 for g in groups]
    counts[0] = 2 ** groups[0]  # the butterfly over all slots wraps around
    for transform, expected in ((whole_to_slots, counts), (whole_to_coeffs, counts[::-1])):
        found = transform(slots, stages, 1.0)
        assert [len(stage.diagonals) for stage in found] == expected
        for stage, count in zip(found, expected, strict=True):
            terms = baby_giant(stage)
            babies, giants = ({term[part] for term in terms} - {0} for part in (0, 1))
            assert len(babies) + len(giants) <= 2 * np.sqrt(2 * count) - 1


@pytest.mark.parametrize("transform", [whole_to_slots, whole_to_coeffs])
def test_baby_and_giant_steps_are_the_stages(transform: Any) -> None:
    slots = 64
    rows = np.arange(slots)
    for stage in transform(slots, 2, 1.0):
        matrix = np.zeros((slots, slots), complex)
        for baby, giant, plaintext, *_ in baby_giant(stage):
            rotated = np.roll(numbers(plaintext, slots), -giant)
            matrix[rows, (rows + giant + baby) % slots] += rotated
        assert np.allclose(matrix, dense(stage, slots), atol=1e-14)


def test_full_size_is_precise() -> None:
    # N = 2^16: complex coefficients to slots, errors of double precision only.
    slots = 2**15
    rng = np.random.default_rng(2)
    c = rng.normal(size=slots) + 1j * rng.normal(size=slots)
    z = slots_of(np.concatenate([c.real, c.imag]))
    for stage in whole_to_slots(slots, 3, 1.0):
        parts = (
            numbers(plaintext, slots) * np.roll(z, -offset)
            for offset, plaintext in stage.diagonals.items()
        )
        z = sum(parts, np.zeros(slots, complex))
    assert np.abs(z - c[bit_reversal(slots)]).max() < 1e-14
