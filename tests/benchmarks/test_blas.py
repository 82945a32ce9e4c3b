"""Products of masks and bodies through BLAS, beside integers of Python and plain matrices."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.engine.blas import DIGITS, LOG_Q, LOG_Q0, LOG_SPECIAL, WAYS
from benchmarks.engine.blas_core import (
    Format,
    Toy,
    Way,
    convolved,
    dense,
    joined,
    quantised,
    rows,
    split,
)

FORM = Format(2**8, 2**6, 8, LOG_Q)
EXACT = 36


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_parts_make_the_whole(random: np.random.Generator) -> None:
    values = random.integers(0, 1 << LOG_Q, (5, 7), dtype=np.uint64)
    for low in (EXACT, 30, 20):
        parts = split(values, LOG_Q, low)
        assert len(parts) == 2 and np.abs(parts[0]).max() <= 2 ** (low - 1)
        assert np.array_equal(joined(parts, LOG_Q, low), values)


def test_products_are_exact_where_sums_stay_below_the_mantissa(random: np.random.Generator) -> None:
    masks = random.integers(0, 1 << LOG_Q, (2 * FORM.pieces, FORM.small), dtype=np.uint64)
    weight = random.integers(-512, 513, (9, len(masks) * FORM.rank)).astype(float)
    parts = split(masks, LOG_Q, EXACT)
    low, high = (rows(part, FORM).astype(np.int64).astype(object) for part in parts)
    wanted = weight.astype(np.int64).astype(object) @ (low + (high << EXACT)) % (1 << LOG_Q)
    assert np.array_equal(joined(dense(weight, parts, FORM), LOG_Q, EXACT), wanted)
    assert np.array_equal(joined(convolved(weight, parts, FORM), LOG_Q, EXACT), wanted)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_ciphertexts_hold_the_product(way: Way, random: np.random.Generator) -> None:
    x = random.uniform(-1, 1, (2 * FORM.features, FORM.tokens))
    weight = random.normal(0, 1, (FORM.features, 2 * FORM.features))
    small = Toy(FORM, LOG_Q0, LOG_SPECIAL, DIGITS, random)
    found, wanted = small.product(x, weight, way), weight @ x
    integers, scale = quantised(weight, way.weight_bits)
    of_bits = (integers @ x / scale - wanted).std()
    assert (found - wanted).std() < 2 * of_bits < 2.0 ** (4 - way.weight_bits) * wanted.std()
