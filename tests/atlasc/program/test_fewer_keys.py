"""Linear transforms with fewer keys: the same results, by fewer amounts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlasc.program.kernels.fewer_keys import with_fewer_keys
from atlasc.program.transform_work import TransformTerm, TransformWork
from atlasc.targets.sim import SimEngine

SLOTS = 64
GIANTS = st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=4, unique=True)
Terms = list[tuple[int, int, int, int]]


@st.composite
def transforms(draw: st.DrawFn) -> Terms:
    """Result, giant step, operand and baby step of each term; some babies in even steps."""
    operands, step = draw(st.integers(1, 2)), draw(st.sampled_from([1, 2, 5]))
    babies = draw(st.sampled_from([range(8), range(3), (0, 1, 2, 3, 32, 33), (7,), (0,), (1, 9)]))
    terms = []
    for result, giants in enumerate(draw(st.lists(GIANTS, min_size=1, max_size=3))):
        for giant in giants:
            for operand in range(operands):
                terms += [(result, giant, operand, step * baby % SLOTS) for baby in babies]
    return terms


@given(transforms())
def test_results_are_the_same(terms: Terms) -> None:
    random, engine = np.random.default_rng(len(terms)), SimEngine(SLOTS, 2)
    values = random.normal(size=(len(terms), SLOTS))
    count = 1 + max(operand for _, _, operand, _ in terms)
    operands = [engine.encrypt(random.normal(size=SLOTS), 2) for _ in range(count)]

    def computed(places: Terms, given: list, chained: bool) -> list[np.ndarray]:
        found = [
            TransformTerm(baby, giant, value, operand, result)
            for (result, giant, operand, baby), value in zip(places, values, strict=True)
        ]
        return [engine.decrypt(one) for one in engine.transform(given, found, chained)]

    fewer = with_fewer_keys(np.array(terms), count, SLOTS)
    more = [engine.rotate(one, fewer.turn) for one in operands] if fewer.turn else []
    found = computed(
        [tuple(place) for place in fewer.places.tolist()], operands + more, fewer.chained
    )
    turned = [np.roll(one, -amount) for one, amount in zip(found, fewer.after, strict=True)]
    np.testing.assert_allclose(turned, computed(terms, operands, False), atol=1e-9)
    assert len(amounts(fewer.places, fewer.chained) | {fewer.turn} - {0}) <= len(
        amounts(np.array(terms), False)
    )


def amounts(places: np.ndarray, chained: bool) -> frozenset[int]:
    return TransformWork.at(2, places, 1, SLOTS, chained=chained).amounts


@pytest.mark.parametrize(
    ("babies", "giants", "expected"),
    [
        (range(8), (0, 8, 16, 24), {1, 2, 3, 4, 8}),
        (range(8), (5,), {1, 2, 3, 4}),
        ((0, 1, 2, 3, 32, 33, 34, 35), (0,), {1, 2, 3, 32}),
        ((0, 3), (0, 9), {3, 9}),
    ],
)
def test_fewer_amounts(babies: list[int], giants: tuple[int, ...], expected: set[int]) -> None:
    terms = np.array([(0, giant, 0, baby) for giant in giants for baby in babies])
    fewer = with_fewer_keys(terms, 1, SLOTS)
    assert amounts(fewer.places, fewer.chained) | ({fewer.turn} - {0}) == expected
