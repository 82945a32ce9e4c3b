"""A setting under which some inputs are wrong gets other choices for the ops that are to blame."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.search.error_model import groups_of
from atlasc.search.mending import MOST_WRONG, Mender
from atlasc.search.points import EXPERT_LAYER
from atlasc.search.validation import Validator

GOOD = (EXPERT_LAYER, EXPERT_LAYER)


class Blaming(Validator):
    """Calls an input wrong where an op has an approximation that it knows to be bad for it."""

    def __init__(self, problem, bad, rows) -> None:
        super().__init__(problem.module, problem.arrays, 1)
        self.bad, self.rows = bad, rows

    def only(self, rows):
        chosen = [self.rows[row] for row in rows]
        small = Blaming.__new__(Blaming)
        small.__dict__ = {**self.__dict__, "rows": chosen, "inputs": len(chosen)}
        return small

    def wrong(self, approximations, error=np.inf):
        return np.array(
            [any(approximations.get(op) == one for op, one in self.bad.get(row, ()))
             for row in self.rows]
        )  # fmt: skip


@pytest.fixture(scope="module")
def crude(problem):
    """A setting that has one crude choice."""
    groups = groups_of(problem.module, problem.parametrisation)
    activation = next(g for g in groups if g.block == 1 and g.kind == "activation")
    return activation, activation.put(GOOD, (4,)), activation.put(GOOD, (5,))


def blaming(problem, group, settings, wrong: int, inputs: int) -> Blaming:
    """The first inputs are wrong wherever that choice of the group is taken."""
    chosen = problem.objective().approximations(settings, group.places)
    return Blaming(problem, {row: list(chosen.items()) for row in range(wrong)}, range(inputs))


def test_the_op_that_is_to_blame_gets_the_next_dearer_choice(problem, crude) -> None:
    group, settings, dearer = crude
    objective = problem.objective()
    point = objective.evaluate(settings)
    validator = blaming(problem, group, settings, 1, 40)
    known = [settings, GOOD, dearer]
    found = Mender(problem, objective, known, validator).mended(point)
    assert found is not None and found.settings == dearer
    assert found.error <= point.error
    assert not validator.wrong(objective.approximations(found.settings)).any()


def test_nothing_is_mended_where_nothing_is_wrong_or_too_much_or_nothing_helps(
    problem, crude
) -> None:
    group, settings, dearer = crude
    objective, known = problem.objective(), [settings, GOOD, dearer]
    point = objective.evaluate(settings)
    for wrong in (0, int(2 * MOST_WRONG * 40)):
        validator = blaming(problem, group, settings, wrong, 40)
        assert Mender(problem, objective, known, validator).mended(point) is None
    validator = blaming(problem, group, settings, 1, 40)
    alone = Mender(problem, objective, [settings], validator)
    assert alone.mended(point) is None


def test_a_mended_setting_errs_by_no_more_than_is_allowed(problem, crude) -> None:
    group, settings, dearer = crude
    objective = problem.objective()
    validator = blaming(problem, group, settings, 1, 40)
    strict = replace(objective.evaluate(settings), error=0.0)
    assert Mender(problem, objective, [settings, dearer], validator).mended(strict) is None
    allowed = replace(problem, aim=1.0)
    assert Mender(allowed, objective, [settings, dearer], validator).mended(strict) is not None


def test_wrong_inputs_are_those_that_are_counted(problem) -> None:
    validator = Validator(problem.module, problem.arrays, 1)
    objective = problem.objective()
    for settings in (GOOD, objective.space.decode(objective.space.lower)):
        approximations = objective.approximations(settings)
        wrong = validator.wrong(approximations, 1e-3)
        assert wrong.sum() == validator.measure(approximations, 1e-3).unsafe
        if wrong.any():
            hard = validator.only(np.flatnonzero(wrong))
            assert hard.inputs == wrong.sum() and hard.wrong(approximations, 1e-3).all()
    assert wrong.any()
