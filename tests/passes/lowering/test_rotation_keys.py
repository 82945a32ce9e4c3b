"""Keys of a program under a budget: the plan, what it costs, and that the answers stay the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from short_text import poly

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.storage import print_module
from atlasc.passes.framework.pass_base import Report, run_passes
from atlasc.passes.lowering.keys.choose_rotations import KeyModel
from atlasc.passes.lowering.keys.sizes import parse_size
from atlasc.passes.lowering.pack import Pack
from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
from atlasc.passes.lowering.rotation_keys import RotationKeys
from atlasc.program.costs import live_ciphertexts, program_costs
from atlasc.program.execute import execute
from atlasc.program.key_plan import key_plan
from atlasc.program.rotation_plan import RotationPlan, rotation_reach
from atlasc.targets.sim import SimEngine

LEVELS = 4
FEATURES, SLOTS = 61, 128
BODY = """%l = poly.linear %x {weight = @w}
    %q = poly.square %l
    %s = poly.row_sum %q
    %y = poly.mul %l, %s
    poly.output %y {name = "y"}"""
MODEL = KeyModel(
    tuple(2**20 * (level + 1) for level in range(LEVELS + 1)),
    {
        (primitive, level): seconds * (level + 1)
        for level in range(LEVELS + 1)
        for primitive, seconds in (("rotate", 1.0), ("rotate_hoisted", 0.5), ("hoist", 0.5))
    },  # type: ignore[arg-type]
)


def placed(body: str = BODY, features: int = FEATURES, slots: int = SLOTS) -> Module:
    weight = np.random.default_rng(1).standard_normal((features, features))
    module = poly(body, {"w": weight}, (1, 2, features))
    return run_passes(module, [Pack(slots), PlaceBootstraps(levels=LEVELS, bootstrap=False)])


def run(module: Module, rotation_keys: dict[int, int] | None) -> np.ndarray:
    engine = SimEngine(SLOTS, LEVELS, rotation_keys=rotation_keys)
    (source,) = (op for op in module.ops if op.name == "ckks.input")
    x = np.random.default_rng(0).standard_normal(SLOTS)
    inputs = {source.attributes["name"]: [engine.encrypt(x, source.attributes["level"])]}
    (result,) = execute(engine, module, inputs)["y"]
    return engine.decrypt(result)


def test_under_a_budget_the_answers_are_the_same_with_the_planned_keys_alone() -> None:
    module = placed()
    full = run_passes(module, [RotationKeys(model=MODEL)])
    size = MODEL.size(key_plan(full).rotations)
    small = run_passes(module, [RotationKeys(size // 2, MODEL)])
    assert MODEL.size(key_plan(small).rotations) <= size // 2
    assert small.attributes["key_memory"] == size // 2
    assert len(RotationPlan.of(small).composed) > 0  # type: ignore[union-attr]
    expected = run(module, None)
    np.testing.assert_allclose(run(full, rotation_reach(full, LEVELS)), expected)
    np.testing.assert_allclose(run(small, rotation_reach(small, LEVELS)), expected)


def test_costs_follow_the_plan() -> None:
    full = run_passes(placed(), [RotationKeys(model=MODEL)])
    small = run_passes(full, [RotationKeys(20 << 20, MODEL)])
    counts = [program_costs(module).total for module in (full, small)]
    assert counts[0].key_switches < counts[1].key_switches
    assert set(counts[1].rotation_levels) == set(key_plan(small).rotations)
    report = Report()
    RotationKeys(20 << 20, MODEL).run(full, report)
    seconds = [
        sum(n * MODEL.costs.get(key, 0.0) for key, n in total.primitives.items())
        for total in counts
    ]
    assert f"{seconds[1] - seconds[0]:.1f} s less" in report.lines[0]


def test_a_plan_replaces_an_earlier_one_and_survives_the_text() -> None:
    small = run_passes(placed(), [RotationKeys(20 << 20, MODEL)])
    assert RotationPlan.of(parse(print_module(small), small.symbols, "x")) == RotationPlan.of(small)
    again = run_passes(small, [RotationKeys(model=MODEL)])
    assert again.attributes == run_passes(placed(), [RotationKeys(model=MODEL)]).attributes


def test_keys_of_the_bootstrap_key_are_left_out() -> None:
    model = replace(MODEL, bootstrap=frozenset(SLOTS - (1 << power) for power in range(6)))
    module = run_passes(placed(), [RotationKeys(model=model)])
    plan = RotationPlan.of(module)
    assert plan is not None
    assert plan.bootstrap <= model.bootstrap
    assert rotation_reach(module, LEVELS).keys() == plan.keys.keys() | plan.bootstrap


def test_a_budget_too_small_says_the_least_that_works() -> None:
    with pytest.raises(AtlasError, match="do not fit into 0K") as caught:
        run_passes(placed(), [RotationKeys(0, MODEL)])
    least = caught.value.remedy.removeprefix("use at least ").partition(" ")[0]
    fits = run_passes(placed(), [RotationKeys(parse_size(least), MODEL)])
    assert MODEL.size(key_plan(fits).rotations) > 0


def test_a_budget_needs_the_sizes_of_keys() -> None:
    with pytest.raises(AtlasError, match="sizes of keys are not known"):
        run_passes(placed(), [RotationKeys(1 << 30)])


def test_uses_and_live_values_of_a_program() -> None:
    """16 slots in two copies: the sum turns by 2 and 4, one after the other."""
    body = """%q = poly.square %x
        %s = poly.row_sum %q
        %y = poly.mul %x, %s
        poly.output %y {name = "y"}"""
    module = placed(body, features=3, slots=16)
    (level,) = {at for at, _ in program_costs(module).total.rotation_groups}
    assert program_costs(module).total.rotation_groups == {(level, (2,)): 1, (level, (4,)): 1}
    # At the end of the sum: the input and the square in two forms, a sum and its rotation, and the
    # sum of both.
    assert live_ciphertexts(module) == {None: {level + 1: 2, level: 2 + 3}}
