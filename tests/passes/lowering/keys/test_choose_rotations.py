"""The choice of keys under a budget, against all choices on small programs."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from atlasc.passes.lowering.keys.choose_rotations import (
    MAX_SWITCHES,
    KeyModel,
    Uses,
    choose_rotations,
    rotation_seconds,
)
from atlasc.program.counting_engine import CostKind, CountingEngine
from atlasc.program.rotation_plan import PlannedEngine, RotationPlan

SLOTS, LEVELS = 32, 4
SIZES = tuple((level + 1) * (level + 2) * 10 for level in range(LEVELS))
COSTS: dict[tuple[CostKind, int], float] = {}
for _level in range(LEVELS):
    COSTS["rotate", _level] = 1.0 * (_level + 1)
    COSTS["rotate_hoisted", _level] = 0.4 * (_level + 1)
    COSTS["hoist", _level] = 0.5 * (_level + 1)
TURNS = frozenset({31, 30, 28})


def highest(uses: Uses) -> dict[int, int]:
    """Amount -> highest level of use: a key for each."""
    top: dict[int, int] = {}
    for level, amounts in uses:
        for amount in amounts:
            top[amount] = max(level, top.get(amount, -1))
    return top


def works(plan: RotationPlan, uses: Uses) -> bool:
    """Whether every rotation ends in key switches that there are keys for, in few of them."""
    try:
        paths = [(plan.path(a, level), a, level) for level, amounts in uses for a in amounts]
    except RecursionError:
        return False
    return all(
        len(path) <= MAX_SWITCHES
        and sum(path) % SLOTS == amount
        and all(plan.hoists(part, level) or part in plan.bootstrap for part in path)
        for path, amount, level in paths
    )


def least_seconds(uses: Uses, model: KeyModel, budget: int) -> float | None:
    """The least seconds of all plans: all levels of all keys, all compositions."""
    top, turns = highest(uses), sorted(model.bootstrap)
    amounts = sorted(top)
    ways = {
        (a + b) % SLOTS: (a, b)
        for a, b in itertools.combinations_with_replacement(turns, 2)
        if (a + b) % SLOTS not in {0, *amounts, *turns}
    }
    levels = [[-1, *sorted({lv for lv, group in uses if a in group})] for a in amounts]
    best: float | None = None
    for reach in itertools.product(*levels):
        keys = {a: level for a, level in zip(amounts, reach, strict=True) if level >= 0}
        if model.size(keys) > budget:
            continue
        needed = [a for a in amounts if keys.get(a, -1) < top[a] and a not in turns]
        lasts = {*keys, *turns}
        choices = [[((a - b) % SLOTS, b) for b in lasts if a != b] for a in needed]
        for chosen in itertools.product(*choices):
            composed = {**ways, **dict(zip(needed, chosen, strict=True))}
            plan = RotationPlan(keys, model.bootstrap, composed)
            if works(plan, uses):
                seconds = rotation_seconds(uses, plan, COSTS)
                best = seconds if best is None else min(best, seconds)
    return best


def random_uses(rng: random.Random) -> Uses:
    amounts = rng.sample([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 30, 31], rng.choice([3, 4]))
    uses: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for _ in range(rng.choice([3, 4, 5])):
        group = tuple(sorted(rng.sample(amounts, rng.randint(1, len(amounts)))))
        uses[rng.choice([0, 2, 3]), group] += rng.randint(1, 9)
    return uses


def test_close_to_the_best_of_all_plans() -> None:
    """Greedy is no proof: nearly always the best plan, and within a fifth of it."""
    rng, ratios = random.Random(0), []
    for _ in range(80):
        uses = random_uses(rng)
        model = KeyModel(SIZES, COSTS, rng.choice([frozenset(), TURNS]))
        budget = int(model.size(highest(uses)) * rng.choice([0.3, 0.5, 0.7, 0.9]))
        plan = choose_rotations(uses, model, SLOTS, budget)
        assert works(plan, uses)
        best = least_seconds(uses, model, budget)
        if model.size(plan.keys) <= budget:
            assert best is not None
            ratios.append(rotation_seconds(uses, plan, COSTS) / best)
    assert len(ratios) >= 20
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) >= 0.8 * len(ratios)
    assert sum(ratios) / len(ratios) < 1.03
    assert min(ratios) > 1 - 1e-9
    assert max(ratios) < 1.2


def test_the_smallest_plan_is_what_a_larger_budget_may_ask_for() -> None:
    rng = random.Random(1)
    for _ in range(40):
        uses, model = random_uses(rng), KeyModel(SIZES, COSTS, rng.choice([frozenset(), TURNS]))
        least = choose_rotations(uses, model, SLOTS, 0)
        size = model.size(least.keys)
        assert model.size(choose_rotations(uses, model, SLOTS, size).keys) <= size


def test_more_memory_costs_hardly_ever_more_time() -> None:
    """Baby steps at high levels, sums by powers of two below. Greedy: not quite monotone."""
    baby = tuple(range(1, 8))
    uses = {(3, baby): 4, (2, baby): 2} | {
        (level, (1 << k,)): 30 for level in (0, 1) for k in (3, 4)
    }
    model = KeyModel(SIZES, COSTS)
    full = model.size(highest(uses))
    plans = [choose_rotations(uses, model, SLOTS, full * part // 10) for part in range(3, 11)]
    seconds = [rotation_seconds(uses, plan, COSTS) for plan in plans]
    assert all(works(plan, uses) for plan in plans)
    assert all(more < 1.03 * less for less, more in itertools.pairwise(seconds))
    assert seconds[0] > 1.2 * seconds[-1]
    assert seconds[-1] == rotation_seconds(uses, RotationPlan(highest(uses)), COSTS)


def test_without_a_budget_only_keys_that_save_nothing_are_left_out() -> None:
    uses = {(2, (31,)): 5, (2, (1, 2, 30)): 5}
    plan = choose_rotations(uses, KeyModel(SIZES, COSTS, TURNS), SLOTS)
    assert plan == RotationPlan({1: 2, 2: 2, 30: 2}, frozenset({31}))  # 30 is hoisted with a key
    every = choose_rotations(uses, KeyModel(SIZES, COSTS), SLOTS)
    assert every == RotationPlan({1: 2, 2: 2, 30: 2, 31: 2})


def random_required(rng: random.Random) -> dict[int, int]:
    """Steps of a transform: some amounts of `random_uses`, and others."""
    amounts = rng.sample([1, 2, 3, 4, 8, 9, 10, 30, 31], rng.randint(1, 4))
    return {amount: rng.randrange(LEVELS) for amount in amounts}


def test_keys_of_transforms_are_never_dropped_or_lowered() -> None:
    """Whatever the budget: also by a bootstrap key, and where no ordinary rotation uses them."""
    rng, lowered, served = random.Random(4), 0, 0
    for _ in range(200):
        uses, required = random_uses(rng), random_required(rng)
        model = KeyModel(SIZES, COSTS, rng.choice([frozenset(), TURNS]))
        full = model.size({**highest(uses), **required})
        budget = rng.choice([None, 0, full // 2, full])
        plan = choose_rotations(uses, model, SLOTS, budget, required)
        assert all(plan.hoists(amount, level) for amount, level in required.items())
        assert works(plan, uses)
        free = choose_rotations(uses, model, SLOTS, budget)
        if budget is None:
            assert plan.keys == {**free.keys, **{
                a: max(level, free.keys.get(a, -1)) for a, level in required.items()
            }}  # fmt: skip
        tops = highest(uses)
        lowered += any(plan.keys.get(a, -1) == at < tops.get(a, -1) for a, at in required.items())
        served += any(required.keys() & set(parts) for parts in plan.composed.values())
    assert lowered >= 10  # to the required level, and no further
    assert served >= 10  # they serve compositions, too


def test_the_smallest_plan_with_transforms_is_what_a_larger_budget_may_ask_for() -> None:
    rng = random.Random(5)
    for _ in range(40):
        uses, model = random_uses(rng), KeyModel(SIZES, COSTS, rng.choice([frozenset(), TURNS]))
        required = random_required(rng)
        size = model.size(choose_rotations(uses, model, SLOTS, 0, required).keys)
        assert size >= model.size(required)
        assert model.size(choose_rotations(uses, model, SLOTS, size, required).keys) <= size


def test_a_key_that_the_bootstrap_shares_takes_no_memory() -> None:
    model = KeyModel(SIZES, COSTS, frozenset({31}), free=frozenset({31}))
    plan = choose_rotations({(0, (1,)): 5}, model, SLOTS, SIZES[0], {31: 2})
    assert plan == RotationPlan({1: 0, 31: 2})


def test_a_key_may_serve_the_low_levels_only() -> None:
    """Once at level 3, a hundred times at level 0: a small key is nearly as good."""
    uses = {(3, (3,)): 1, (0, (3,)): 100, (3, (1,)): 50, (3, (2,)): 50}
    plan = choose_rotations(uses, KeyModel(SIZES, COSTS), SLOTS, 2 * SIZES[3] + SIZES[0])
    assert plan.keys == {1: 3, 2: 3, 3: 0}
    assert sorted(plan.composed[3]) == [1, 2]


@pytest.mark.parametrize("budget", [None, 150, 400])
def test_predicted_seconds_are_those_of_the_engine_that_runs_the_plan(budget: int | None) -> None:
    rng = random.Random(2)
    for _ in range(20):
        uses, model = random_uses(rng), KeyModel(SIZES, COSTS, TURNS)
        plan = choose_rotations(uses, model, SLOTS, budget)
        counting = CountingEngine(SLOTS, LEVELS)
        engine = PlannedEngine(counting, plan)
        for (level, amounts), calls in uses.items():
            for _ in range(calls):
                engine.rotate_many(engine.encrypt(None, level), list(amounts))
        free = {("encrypt", level): 0.0 for level in range(LEVELS)}
        assert counting.total().seconds({**COSTS, **free}) == pytest.approx(  # type: ignore[dict-item]
            rotation_seconds(uses, plan, COSTS)
        )
