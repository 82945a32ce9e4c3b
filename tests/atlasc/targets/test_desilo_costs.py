"""Costs: complete, true to what was measured, of the right shape between."""

from __future__ import annotations

import pytest
from cost_tables import law, table_of

from atlasc.ir.errors import AtlasError
from atlasc.passes.execution.counting_engine import PRIMITIVES, CountingEngine
from atlasc.targets.costs import KEY, CostTable, FittedCosts
from atlasc.targets.desilo.parameters import BOOTSTRAPPED, LEVELED, DesiloParameters

DEEP = DesiloParameters(16, 4)
SWITCHES = [name for name in PRIMITIVES if name != "bootstrap"]


@pytest.mark.parametrize("parameters", [DesiloParameters(14, 1), DEEP, BOOTSTRAPPED])
def test_the_table_has_every_primitive_at_every_level(parameters: DesiloParameters) -> None:
    table = parameters.measured_costs()
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


def test_costs_of_a_counted_program() -> None:
    engine = CountingEngine(DEEP.slots, DEEP.max_level)
    ct = engine.encrypt(None, 20)
    engine.rotate(engine.mul(ct, ct), 1)
    table = DEEP.measured_costs()
    counted = engine.total().primitives
    assert counted["mul", 20] == counted["rotate", 19] == 1
    parts = sum(calls * table[key] for key, calls in counted.items())
    assert engine.total().seconds(table) == pytest.approx(parts)


def test_measured_seconds_are_costs() -> None:
    def odd(parameters: DesiloParameters, primitive: str, level: int) -> float:
        return law(parameters, primitive, level) * (1 + 0.3 * ((level * 7 + len(primitive)) % 3))

    costs = FittedCosts(table_of([DEEP, DesiloParameters(16, 8)], odd), DesiloParameters.from_dict)
    for primitive in (*SWITCHES, KEY):
        for level in (1, DEEP.max_level // 2, DEEP.max_level):
            assert costs.cost(DEEP, primitive, level) == pytest.approx(odd(DEEP, primitive, level))


def test_the_shape_is_found_between_levels_and_at_other_parameters() -> None:
    measured = [DEEP, DesiloParameters(16, 8), DesiloParameters(15, 2), DesiloParameters(14, 1)]
    costs = FittedCosts(table_of(measured), DesiloParameters.from_dict)
    for parameters in LEVELED:
        for primitive in ("rotate", "mul", "mul_plain", "encrypt", KEY):
            for level in range(parameters.max_level + 1):
                expected = law(parameters, primitive, level)
                assert costs.cost(parameters, primitive, level) == pytest.approx(expected, rel=0.2)
    for level in range(DEEP.max_level + 1):  # two sets of a ring degree tell its constants
        expected = law(DesiloParameters(16, 5), "rotate", min(level, 33))
        found = costs.cost(DesiloParameters(16, 5), "rotate", min(level, 33))
        assert found == pytest.approx(expected, rel=1e-6)


def test_the_set_with_bootstraps_is_as_fast_as_the_leveled_one() -> None:
    costs = FittedCosts(table_of([DEEP], lambda p, n, at: 2.0 + at), DesiloParameters.from_dict)
    assert costs.cost(BOOTSTRAPPED, "rotate", 1) == costs.cost(DEEP, "rotate", 1)
    assert costs.costs(BOOTSTRAPPED)["bootstrap", 14] == 30.0


def test_a_table_without_a_primitive() -> None:
    table = table_of([DEEP])
    for one in table.sets:
        one.seconds.pop("mul")  # type: ignore[attr-defined]
    with pytest.raises(AtlasError, match="no seconds of mul"):
        FittedCosts(table, DesiloParameters.from_dict).costs(DEEP)


def test_a_table_without_a_bootstrap() -> None:
    table: CostTable = table_of([DEEP], bootstrap=None)
    with pytest.raises(AtlasError, match="does not tell what a bootstrap costs"):
        FittedCosts(table, DesiloParameters.from_dict).costs(BOOTSTRAPPED)


def test_higher_levels_cost_more_and_hoisting_less() -> None:
    cost = DesiloParameters(16, 4).fitted_costs().cost
    for primitive in SWITCHES:
        assert cost(DEEP, primitive, 30) > cost(DEEP, primitive, 5)
    for level in (5, 14, 35):
        hoisted = cost(DEEP, "hoist", level) + 8 * cost(DEEP, "rotate_hoisted", level)
        assert hoisted < 8 * cost(DEEP, "rotate", level)


def test_keys() -> None:
    costs = DesiloParameters(16, 4).fitted_costs()
    assert costs.key_seconds(BOOTSTRAPPED, {}) > costs.cost(BOOTSTRAPPED, "bootstrap", 14)
    shallow = costs.key_seconds(DEEP, {1: 5, 2: 5}, 5)
    assert 0 < shallow < costs.key_seconds(DEEP, {1: 35}, 35)
