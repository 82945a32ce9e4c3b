"""Costs: complete, true to what was measured, of the right shape between."""

from __future__ import annotations

import pytest
from cost_tables import law, table_of

from atlasc.ir.errors import AtlasError
from atlasc.program.counting_engine import COST_KINDS, CountingEngine
from atlasc.targets.cost_table import CostTable
from atlasc.targets.costs import (
    KEY,
    SUBSTITUTES,
    FittedCosts,
    fitted_costs,
    measured_costs,
    relative_costs,
)
from atlasc.targets.cpu.parameters import CpuParameters
from atlasc.targets.phantom import PhantomParameters
from atlasc_comparisons.desilo.parameters import BOOTSTRAPPED, LEVELED, DesiloParameters

DEEP = DesiloParameters(16, 4)
SWITCHES = [name for name in COST_KINDS if not name.startswith("bootstrap")]


@pytest.mark.parametrize("parameters", [DesiloParameters(14, 1), DEEP, BOOTSTRAPPED])
def test_the_table_has_every_primitive_at_every_level(parameters: DesiloParameters) -> None:
    table = measured_costs(parameters)
    expected = {
        (primitive, level)
        for primitive in COST_KINDS
        for level in range(parameters.max_level + 1)
        if parameters.bootstrap or not primitive.startswith("bootstrap")
    }
    assert set(table) == expected
    assert min(table.values()) > 0


def test_costs_of_a_counted_program() -> None:
    engine = CountingEngine(DEEP.slots, DEEP.max_level)
    ct = engine.encrypt(None, 20)
    engine.rotate(engine.mul(ct, ct), 1)
    table = measured_costs(DEEP)
    counted = engine.total().primitives
    assert counted["mul", 20] == counted["rotate", 19] == 1
    parts = sum(calls * table[key] for key, calls in counted.items())
    assert engine.total().seconds(table) == pytest.approx(parts)


def test_measured_seconds_are_costs() -> None:
    def odd(parameters: DesiloParameters, primitive: str, level: int) -> float:
        return law(parameters, primitive, level) * (1 + 0.3 * ((level * 7 + len(primitive)) % 3))

    costs = FittedCosts(table_of([DEEP, DesiloParameters(16, 8)], odd), DEEP)
    for primitive in (*SWITCHES, KEY):
        for level in (1, DEEP.max_level // 2, DEEP.max_level):
            assert costs.cost(primitive, level) == pytest.approx(odd(DEEP, primitive, level))


def test_the_shape_is_found_between_levels_and_at_other_parameters() -> None:
    measured = [DEEP, DesiloParameters(16, 8), DesiloParameters(15, 2), DesiloParameters(14, 1)]
    table = table_of(measured)
    for parameters in LEVELED:
        costs = FittedCosts(table, parameters)
        for primitive in ("rotate", "mul", "mul_plain", "encrypt", KEY):
            for level in range(parameters.max_level + 1):
                expected = law(parameters, primitive, level)
                assert costs.cost(primitive, level) == pytest.approx(expected, rel=0.2)
    between = DesiloParameters(16, 5)  # two sets of a ring degree tell its constants
    for level in range(between.max_level + 1):
        found = FittedCosts(table, between).cost("rotate", level)
        assert found == pytest.approx(law(between, "rotate", level), rel=1e-6)


def test_the_set_with_bootstraps_is_as_fast_as_the_leveled_one() -> None:
    table = table_of([DEEP], lambda p, n, at: 2.0 + at)
    costs = FittedCosts(table, BOOTSTRAPPED)
    assert costs.cost("rotate", 1) == FittedCosts(table, DEEP).cost("rotate", 1)
    assert costs.costs()["bootstrap", 14] == 30.0


def test_a_table_without_a_primitive() -> None:
    table = table_of([DEEP])
    for one in table.sets:
        one.seconds.pop("mul")  # type: ignore[attr-defined]
    with pytest.raises(AtlasError, match="no seconds of mul"):
        FittedCosts(table, DEEP).costs()


def test_without_seconds_of_its_kinds_a_transform_costs_what_it_consists_of() -> None:
    table = table_of([DEEP])
    for one in table.sets:
        for name in SUBSTITUTES:
            one.seconds.pop(name)  # type: ignore[attr-defined]
    phantom = relative_costs(PhantomParameters.bootstrapped())
    for costs, level in ((FittedCosts(table, DEEP).costs(), 20), (phantom, 9)):
        assert costs["transform_baby", level] == costs["rotate_hoisted", level]
        assert costs["transform_giant", level] == costs["rotate", level]
        product = pytest.approx(costs["mul_plain", level] + costs["add", level])
        assert costs["transform_product", level] == costs["transform_dense", level] == product
        assert costs["transform_result", level] == costs["rescale", level]


def test_on_cpu_a_transform_is_much_cheaper_than_its_parts() -> None:
    cost = fitted_costs(CpuParameters.bootstrapped()).cost
    for level in (1, 8, 14):
        assert cost("transform_baby", level) < 0.5 * cost("rotate_hoisted", level)
        assert cost("transform_product", level) < 0.2 * cost("mul_plain", level)
        assert cost("transform_dense", level) > cost("mul_plain", level)


def test_a_table_without_a_bootstrap() -> None:
    table: CostTable = table_of([DEEP], bootstrap=None)
    with pytest.raises(AtlasError, match="has no seconds of a bootstrap"):
        FittedCosts(table, BOOTSTRAPPED).costs()


def test_higher_levels_cost_more_and_hoisting_less() -> None:
    cost = fitted_costs(DEEP).cost
    for primitive in SWITCHES:
        assert cost(primitive, 30) > cost(primitive, 5)
    for level in (5, 14, 35):
        assert cost("hoist", level) + 8 * cost("rotate_hoisted", level) < 8 * cost("rotate", level)


def test_keys() -> None:
    refreshing, costs = fitted_costs(BOOTSTRAPPED), fitted_costs(DEEP)
    assert refreshing.key_seconds({}) > refreshing.cost("bootstrap", 14)
    shallow = costs.key_seconds({1: 5, 2: 5}, 5)
    assert 0 < shallow < costs.key_seconds({1: 35}, 35)
