"""A setting gets ranges that reach further, within its error, for at most a small price."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from atlasc.calibration.measure import measure
from atlasc.calibration.room import with_room
from atlasc.ir.module import Module
from atlasc.search.distance import (
    FURTHER,
    NOISY,
    PRICE,
    ROOMS,
    Distances,
    Distant,
    Stress,
    other_kinds,
)
from atlasc.search.front import Front, Wanted
from atlasc.search.points import EXPERT_LAYER
from atlasc.search.validation import Validator

COARSE = (4, 4, 4, 4, 5, 6, 6, 5)
FINE = (5, 5, 5, 5, 6, 7, 7, 6)


@pytest.fixture(scope="module")
def front(problem):
    objective = problem.objective()
    points = tuple(objective.evaluate((layer,) * 2) for layer in (COARSE, FINE, EXPERT_LAYER))
    return Front(points, "depth", (1e4, 0.2), variation=objective.variation)


def distances(problem, front, error) -> Distances:
    return Distances(problem, front, Wanted(error))


def nothing(problem) -> dict[str, np.ndarray]:
    return {name: array[:0] for name, array in problem.arrays.items()}


def test_room_is_bought_with_accuracy_and_the_error_still_holds(problem, front) -> None:
    picked = front.points[1]
    allowed = 50 * picked.error
    found = distances(problem, front, allowed).best(picked, nothing(problem))
    assert found.room and set(found.room.values()) <= set(ROOMS)
    assert found.point.error <= allowed
    assert found.price <= PRICE
    # The costs are those of the program on these ranges.
    own = replace(problem, calibration=with_room(problem.calibration, found.room)).objective()
    again = own.evaluate(found.point.settings)
    assert (again.error, again.depth) == (pytest.approx(found.point.error), found.point.depth)


def test_more_room_needs_more_error(problem, front) -> None:
    picked = front.points[1]
    rooms = []
    for factor in (1.0, 10.0, 1000.0):
        found = distances(problem, front, factor * picked.error).widened(picked, math.inf)
        assert found.point.error <= factor * picked.error
        rooms.append(sum(found.room.values()))
    assert rooms == sorted(rooms) and rooms[0] < rooms[-1]


def test_a_price_beyond_the_limit_is_not_paid(problem, front) -> None:
    picked, dearer = front.points[0], front.points[1]
    assert dearer.depth > (1 + PRICE) * picked.depth
    found = distances(problem, front, 2 * picked.error).best(picked, nothing(problem))
    assert found.point.depth <= (1 + PRICE) * picked.depth
    assert found.price == pytest.approx(found.point.depth / picked.depth - 1)
    near = replace(front, points=(picked, replace(dearer, depth=picked.depth)))
    found = next(distances(problem, near, 2 * picked.error)._candidates(picked))
    assert found.point.settings == dearer.settings


def test_held_back_inputs_may_fare_no_worse(problem, front, monkeypatch) -> None:
    """Whatever has room is wrong on them."""
    picked, measure = front.points[1], Validator.measure
    plain = problem.objective().approximations(picked.settings)

    def wrong(self, approximations, *others):
        found = measure(self, approximations, *others)
        return found if approximations == plain else replace(found, unsafe=found.unsafe + 1)

    monkeypatch.setattr(Validator, "measure", wrong)
    only = replace(front, points=(picked,))
    found = distances(problem, only, 50 * picked.error).best(picked, problem.arrays)
    assert found.point.settings == picked.settings and not found.room


def test_inputs_of_another_kind_are_safer(problem, front) -> None:
    """Inputs that reach further than those of calibration."""
    picked = front.points[1]
    found = distances(problem, front, 200 * picked.error).best(picked, nothing(problem))
    further = {
        name: 2.5 * array if array.dtype.kind == "f" else array
        for name, array in problem.arrays.items()
    }
    objective = problem.objective()
    validator = Validator(problem.module, further, 1)
    before = validator.measure(objective.approximations(picked.settings), picked.error)
    wide = objective.with_room(found.room).approximations(found.point.settings)
    after = validator.measure(wide, picked.error)
    assert after.unsafe < before.unsafe


def test_the_op_that_other_inputs_leave_first_gets_a_higher_degree(problem, front) -> None:
    """Where room alone does not help, as its polynomial would be too coarse."""
    picked = front.points[0]
    of = distances(problem, front, 50 * picked.error)
    others = other_kinds(problem.module, problem.arrays)
    stress = Stress(of._validator(others), measure(problem.module, others))
    first = of._left_first(stress, Distant(picked))
    assert first, "no input leaves a range"
    cheap = replace(picked, depth=2 * picked.depth)  # any of them is within the price
    moves = of._moves(Distant(picked), first[0], cheap)
    raised = [one for (by, _), one in moves.items() if by]
    assert raised
    for one in raised:
        changed = [
            (block, at)
            for block, layer in enumerate(one.point.settings)
            for at, integer in enumerate(layer)
            if integer != picked.settings[block][at]
        ]
        assert changed and {block for block, _ in changed} == {first[0].block}
    found = of._improved(Distant(picked), cheap, stress)
    assert of._unsafe(stress, found) < of._unsafe(stress, Distant(picked))


def test_inputs_of_other_kinds_are_made_of_the_known_ones() -> None:
    module = Module("m", "nn")
    for name, shape, side, dtype in (
        ("ids", [1, 3], "client", "i64"),
        ("x", [1, 3, 2], "client", "f64"),
        ("mask", [1, 3], "public", "i64"),
    ):
        module.add("nn.input", [], {"name": name, "shape": shape, "side": side, "dtype": dtype})
    random = np.random.default_rng(1)
    ids = np.arange(15).reshape(5, 3)
    mask = np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 0, 0], [1, 1, 1]])
    given = {"ids": ids, "x": random.normal(size=(5, 3, 2)).astype(np.float32), "mask": mask}
    found = other_kinds(module, given)
    kinds = 1 + len(FURTHER) + len(NOISY)
    assert {name: len(array) for name, array in found.items()} == dict.fromkeys(given, 5 * kinds)
    assert {name: array.dtype for name, array in found.items()} == {
        name: array.dtype for name, array in given.items()
    }
    np.testing.assert_array_equal(found["mask"], np.tile(mask, (kinds, 1)))
    mixed = found["ids"][:5]
    assert (mixed[mask == 0] == ids[mask == 0]).all() and (mixed != ids).any()
    for place in range(3):  # tokens stay at their place, and padding is no token
        real = mask[:, place] == 1
        assert sorted(mixed[real, place]) == sorted(ids[real, place])
    np.testing.assert_array_equal(found["ids"][5:], np.tile(ids, (kinds - 1, 1)))
    x, centre = given["x"], given["x"].mean(axis=0)
    for number, further in enumerate(FURTHER, 1):
        of = found["x"][5 * number : 5 * number + 5]
        np.testing.assert_allclose(of - centre, further * (x - centre), atol=1e-5)
    alone = other_kinds(module, {"ids": ids, "mask": mask, "of no op": ids})
    assert alone.keys() == {"ids", "mask"}
    assert len(alone["ids"]) == 5


def test_what_the_search_measured_of_the_held_back_inputs_is_known(
    problem, front, monkeypatch
) -> None:
    picked, asked = replace(front.points[1], unsafe=0, agreement=1.0), []
    only = replace(front, points=(picked,), held_back=len(next(iter(problem.arrays.values()))))
    of = distances(problem, only, picked.error / 2)  # nothing can be spent
    monkeypatch.setattr(Distances, "_unsafe", lambda *others: 0)
    measure = Validator.measure
    monkeypatch.setattr(
        Validator, "measure", lambda self, *given: asked.append(1) or measure(self, *given)
    )
    of.best(picked, problem.arrays)
    assert len(asked) == 1, "only what is taken is measured"
    distances(problem, replace(only, held_back=0), picked.error / 2).best(picked, problem.arrays)
    assert len(asked) == 3
