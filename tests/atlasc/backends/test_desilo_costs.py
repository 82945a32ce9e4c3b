"""The cost model: complete, ordered as the physics says, and not far from measurements."""

from __future__ import annotations

import pytest

from atlasc.backends.desilo_costs import cost_table, key_generation_seconds, price
from atlasc.backends.desilo_parameters import BOOTSTRAPPED, DesiloParameters
from atlasc.passes.lowering.counting_engine import PRIMITIVES, CountingEngine

DEEP = DesiloParameters(16, 4)


@pytest.mark.parametrize("parameters", [DesiloParameters(14, 1), DEEP, BOOTSTRAPPED])
def test_the_table_prices_every_primitive_at_every_level(parameters: DesiloParameters) -> None:
    table = cost_table(parameters)
    expected = {
        (primitive, level)
        for primitive in PRIMITIVES
        for level in range(parameters.max_level + 1)
        if primitive != "bootstrap"
    }
    if parameters.bootstrap:
        expected.add(("bootstrap", 14))
    assert set(table) == expected
    assert min(table.values()) > 0


def test_prices_a_counted_program() -> None:
    engine = CountingEngine(DEEP.slots, DEEP.max_level)
    ct = engine.encrypt(None, 20)
    engine.rotate(engine.mul(ct, ct), 1)
    seconds = engine.total().seconds(cost_table(DEEP))
    parts = price(DEEP, "encrypt", 20) + price(DEEP, "mul", 20) + price(DEEP, "rotate", 19)
    assert seconds == pytest.approx(parts)
    assert engine.total().seconds(cost_table(DEEP, factor=2.0)) == pytest.approx(2 * parts)


def test_higher_levels_cost_more_and_hoisting_less() -> None:
    for primitive in PRIMITIVES:
        if primitive != "bootstrap":
            assert price(DEEP, primitive, 30) > price(DEEP, primitive, 5)
    for level in (5, 14, 35):
        hoisted = price(DEEP, "hoist", level) + 8 * price(DEEP, "rotate_hoisted", level)
        assert hoisted < 8 * price(DEEP, "rotate", level)


@pytest.mark.parametrize(
    ("parameters", "level", "seconds"),
    [
        (DEEP, 14, 0.187),
        (DesiloParameters(16, 8), 14, 0.224),
        (DesiloParameters(15, 2), 14, 0.117),
        (DesiloParameters(15, 5), 11, 0.072),
        (DesiloParameters(14, 2), 5, 0.019),
    ],
)
def test_rotation_is_within_a_factor_of_the_measurement(
    parameters: DesiloParameters, level: int, seconds: float
) -> None:
    assert 0.6 <= price(parameters, "rotate", level) / seconds <= 1.6


def test_key_generation() -> None:
    assert key_generation_seconds(BOOTSTRAPPED, {}) >= 90
    shallow = key_generation_seconds(DEEP, {1: 5, 2: 5}, 5)
    assert 0 < shallow < key_generation_seconds(DEEP, {1: 35}, 35)
