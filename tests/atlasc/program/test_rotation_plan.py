"""Rotations by a plan: the same slots, and exactly the key switches that the plan says."""

from __future__ import annotations

import numpy as np
import pytest

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.program.counting_engine import CountingEngine
from atlasc.program.function import EngineParameters
from atlasc.program.kernels.context import Context
from atlasc.program.rotation_plan import PlannedEngine, RotationPlan
from atlasc.targets.sim import SimEngine

SLOTS = 32
PLAN = RotationPlan({1: 3, 2: 3, 4: 1, 8: 0}, frozenset({31}), {3: (2, 1), 7: (8, 31), 5: (3, 2)})


def test_a_plan_is_part_of_the_program() -> None:
    module = Module("m", "ckks", attributes={"slots": SLOTS, **PLAN.attributes()})
    assert RotationPlan.of(module) == PLAN
    assert RotationPlan.of(Module("m", "ckks")) is None
    assert RotationPlan({2: 1}).attributes() == {"rotations": [[2, 1]]}
    context = Context(EngineParameters(SLOTS, 3), Module("m", "ckks"))
    assert context.engine is context.recorder


def test_paths_depend_on_the_level() -> None:
    both = RotationPlan({1: 3, 2: 3, 3: 1}, frozenset({30}), {3: (2, 1), 4: (3, 1)})
    assert both.path(3, 1) == (3,)
    assert both.path(3, 2) == (2, 1)
    assert both.path(4, 0) == (3, 1)
    assert both.path(4, 3) == (2, 1, 1)
    assert both.path(30, 3) == (30,)
    assert both.path(9, 0) == (9,)
    assert both.used({3: 2, 30: 3, 1: 0}) == {3: 1, 1: 0}


def test_common_beginnings_are_turned_once() -> None:
    counting = CountingEngine(SLOTS, 3)
    plan = RotationPlan({1: 3, 2: 3, 4: 3}, frozenset(), {3: (2, 1), 7: (3, 4)})
    PlannedEngine(counting, plan).rotate_many(counting.encrypt(None), [3, 2, 7, 1])
    groups = {(1, 2): 1, (1,): 1, (4,): 1}  # of the ciphertext, of that rotated by 2, and by 3
    assert counting.total().rotation_groups == {(3, both): n for both, n in groups.items()}


@pytest.mark.parametrize("level", [0, 3])
def test_slots_are_those_of_the_amounts(level: int) -> None:
    """The simulator refuses every amount for which there is no key at that level."""
    keys = {1: 3, 2: 3, 4: 1, 8: 3, 31: 3}
    engine = PlannedEngine(SimEngine(SLOTS, 3, rotation_keys=keys), PLAN)
    x = engine.encrypt(np.arange(SLOTS, dtype=float), level)
    amounts = [3, 0, 1, 5, 7, 2, 31, 3 + SLOTS]
    for amount, turned in zip(amounts, engine.rotate_many(x, amounts), strict=True):
        np.testing.assert_array_equal(engine.decrypt(turned), np.roll(np.arange(SLOTS), -amount))
    np.testing.assert_array_equal(
        engine.decrypt(engine.rotate(x, 5)), engine.decrypt(engine.rotate_many(x, [5])[0])
    )


def test_key_switches_are_counted_once_and_hoisted_where_keys_reach() -> None:
    counting = CountingEngine(SLOTS, 3)
    engine = PlannedEngine(counting, PLAN)
    engine.rotate_many(engine.encrypt(None), [1, 2, 3, 5, 31])
    counts = counting.total()
    # 1 and 2 hoisted, 31 by the bootstrap key, 3 = 2 + 1 and 5 = 3 + 2 one more switch each.
    assert counts.count("rotate_hoisted") == 2
    assert counts.count("hoist") == 1
    assert counts.count("rotate") == 3
    assert counts.rotation_groups == {(3, both): 1 for both in [(1, 2), (31,), (1,), (2,)]}


def test_an_amount_that_was_not_planned_is_refused_by_the_engine() -> None:
    engine = PlannedEngine(SimEngine(SLOTS, 3, rotation_keys=PLAN.keys), PLAN)
    with pytest.raises(AtlasError, match="rotate is impossible") as caught:
        engine.rotate(engine.encrypt(np.zeros(SLOTS)), 9)
    assert "there is no key" in caught.value.why
