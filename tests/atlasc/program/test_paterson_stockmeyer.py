"""Plans take the least number of levels, few products, and evaluate what numpy evaluates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.program.paterson_stockmeyer import (
    depth_of_power,
    evaluate_plan,
    parts,
    plan_chebyshev,
)

TOP = 12


@dataclass(frozen=True)
class Slots:
    values: np.ndarray
    level: int


class LevelEngine:
    """Cleartext slots with levels; counts the products of ciphertexts and refuses level 0."""

    slots = 64
    max_level = TOP
    bootstrap_level = None

    def __init__(self):
        self.products = self.relinearisations = self.scalar_products = 0

    def level(self, a):
        return a.level

    def add(self, a, b):
        return Slots(a.values + b.values, min(a.level, b.level))

    def sub(self, a, b):
        return Slots(a.values - b.values, min(a.level, b.level))

    def add_plain(self, a, c):
        return Slots(a.values + c, a.level)

    def mul(self, a, b):
        return self.dot([a], [b])

    def dot(self, lefts, rights):
        self.products += len(lefts)
        self.relinearisations += 1
        total = sum(a.values * b.values for a, b in zip(lefts, rights, strict=True))
        return self._lower(total, min(c.level for c in (*lefts, *rights)))

    def square(self, a):
        return self.mul(a, a)

    def mul_plain(self, a, c):
        self.scalar_products += 1
        return self._lower(a.values * c, a.level)

    def dot_plain(self, terms, factors):
        return reduce(self.add, map(self.mul_plain, terms, factors))

    def drop_to(self, a, level):
        assert 0 <= level <= a.level
        return Slots(a.values, level)

    @staticmethod
    def _lower(values, level):
        assert level >= 1, "a product at level 0"
        return Slots(values, level - 1)


POINTS = np.cos(np.linspace(0, np.pi, LevelEngine.slots))


def check(coefficients):
    """Evaluates, compares with numpy, checks levels and counts; returns the plan."""
    engine = LevelEngine()
    plan = plan_chebyshev(coefficients)
    result = evaluate_plan(engine, Slots(POINTS, TOP), plan)
    expected = np.polynomial.chebyshev.chebval(POINTS, coefficients)
    tolerance = 1e-14 * len(coefficients) * (1 + np.abs(coefficients).sum())
    np.testing.assert_allclose(result.values, expected, rtol=0, atol=tolerance)
    degree = len(coefficients) - 1
    assert TOP - result.level == plan.levels == int(np.ceil(np.log2(degree + 1)))
    assert engine.products == plan.ciphertext_products
    assert engine.relinearisations == plan.relinearisations
    assert engine.scalar_products == plan.scalar_products
    return plan


def bound(levels):
    """Products of a dense sum of degree 2^levels - 1, for the best number of baby steps."""
    return min(2**b + 2 ** (levels - b) + levels - 4 for b in range(1, levels + 1))


@pytest.mark.parametrize("degree", [*range(1, 128), 255, 511])
def test_levels_and_products_of_every_degree(degree):
    plan = check(np.random.default_rng(degree).standard_normal(degree + 1))
    assert plan.ciphertext_products <= bound(degree.bit_length())
    assert plan.scalar_products <= degree


@pytest.mark.parametrize(
    ("degree", "products", "relinearisations"),
    [(3, 2, 2), (7, 5, 4), (15, 8, 7), (31, 13, 10), (63, 18, 15), (127, 27, 20), (511, 53, 38)],
)
def test_products_of_a_dense_sum(degree, products, relinearisations):
    coefficients = np.random.default_rng(0).standard_normal(degree + 1)
    plan = plan_chebyshev(coefficients)
    assert (plan.ciphertext_products, plan.relinearisations) == (products, relinearisations)


@pytest.mark.parametrize(("degree", "odd", "even"), [(31, 13, 9), (63, 17, 14), (511, 42, 37)])
def test_zero_coefficients_save_products(degree, odd, even):
    coefficients = np.random.default_rng(0).standard_normal(degree + 1)
    only_odd, only_even = coefficients.copy(), coefficients.copy()
    only_odd[::2] = only_even[1::2] = 0.0
    assert check(only_odd).ciphertext_products == odd
    assert check(only_even).ciphertext_products == even


@given(
    degree=st.integers(0, 140),
    density=st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_pattern_of_zeros(degree, density, seed):
    rng = np.random.default_rng(seed)
    coefficients = rng.standard_normal(degree + 1) * (rng.random(degree + 1) < density)
    check(coefficients)


@pytest.mark.parametrize("degree", [1, 2, 7, 15, 22, 31, 63])
def test_every_channel_may_have_its_own_coefficients(degree):
    rng = np.random.default_rng(degree)
    coefficients = rng.standard_normal((LevelEngine.slots // 2, degree + 1))
    coefficients[rng.random(coefficients.shape) < 0.3] = 0.0
    engine, plan = LevelEngine(), plan_chebyshev(coefficients)
    result = evaluate_plan(engine, Slots(POINTS, TOP), plan, lambda vector: np.tile(vector, 2))
    pairs = zip(POINTS, np.tile(coefficients, (2, 1)), strict=True)
    expected = [np.polynomial.chebyshev.chebval(x, row) for x, row in pairs]
    np.testing.assert_allclose(result.values, expected, rtol=0, atol=1e-12 * (degree + 1))
    assert TOP - result.level == plan.levels == int(np.ceil(np.log2(degree + 1)))
    dense = plan_chebyshev(rng.standard_normal(degree + 1))
    assert engine.products == plan.ciphertext_products <= dense.ciphertext_products
    assert engine.scalar_products == plan.scalar_products


@pytest.mark.parametrize("degree", [3, 4, 12, 15, 31, 100, 127, 511])
def test_copies_share_a_sum(degree):
    """Slot i of copy j holds argument i. Every copy evaluates a part, and all parts are the sum."""
    rng = np.random.default_rng(degree)
    coefficients = rng.standard_normal(degree + 1)
    copies = 2
    while copies <= degree:
        arguments = LevelEngine.slots // copies or 1
        x = np.cos(np.linspace(0, np.pi, arguments))
        engine, plan = LevelEngine(), plan_chebyshev(coefficients, copies)
        argument = Slots(np.tile(x, copies), TOP)
        found = evaluate_plan(engine, argument, plan, lambda c, n=arguments: np.repeat(c, n))
        shares = found.values.reshape(copies, arguments)
        expected = np.polynomial.chebyshev.chebval(x, coefficients)
        tolerance = 1e-13 * degree * (1 + np.abs(coefficients).sum())
        np.testing.assert_allclose(shares.sum(axis=0), expected, rtol=0, atol=tolerance)
        assert TOP - found.level == plan.levels == degree.bit_length() + 1
        assert engine.products == plan.ciphertext_products
        assert engine.relinearisations == plan.relinearisations
        assert engine.scalar_products == plan.scalar_products
        copies *= 2


@pytest.mark.parametrize(
    ("degree", "copies", "products", "relinearisations"),
    [(31, 8, 8, 8), (127, 16, 12, 12), (511, 8, 22, 19), (511, 32, 17, 16), (511, 256, 16, 16)],
)
def test_products_of_a_shared_sum(degree, copies, products, relinearisations):
    coefficients = np.random.default_rng(0).standard_normal(degree + 1)
    plan = plan_chebyshev(coefficients, copies)
    assert (plan.ciphertext_products, plan.relinearisations) == (products, relinearisations)


@pytest.mark.parametrize(("shape", "copies"), [((8,), 3), ((8,), 8), ((8,), 0), ((2, 8), 2)])
def test_copies_that_cannot_share_a_sum_are_refused(shape, copies):
    with pytest.raises(ValueError, match="cannot share a sum"):
        parts(np.ones(shape), copies)


@pytest.mark.parametrize("index", [*range(1, 70), 127, 255])
def test_a_single_polynomial_is_built_at_its_depth(index):
    plan = check(np.eye(index + 1)[index])
    made = {1, *plan.powers}
    for of, (left, right) in plan.powers.items():
        assert left + right == of
        assert {left, right, left - right} <= made | {0}
        assert max(depth_of_power(left), depth_of_power(right)) + 1 == depth_of_power(of)


@pytest.mark.parametrize("coefficients", [[], [1.0, float("nan")], [[[1.0]]]])
def test_bad_coefficients_are_refused(coefficients):
    with pytest.raises(ValueError, match="coefficients"):
        plan_chebyshev(coefficients)
