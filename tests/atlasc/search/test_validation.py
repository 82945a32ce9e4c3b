"""Settings on inputs that no search has seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from atlasc.calibration.calibrate import Calibration
from atlasc.ir.interpreter import kept_tokens
from atlasc.passes.approximation.approximate import with_approximations
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.framework.pass_base import Report
from atlasc.polynomials.description import Approximation
from atlasc.polynomials.parametrisation import PAPER, Parametrisation
from atlasc.search.front import Front, Wanted
from atlasc.search.journal import Journal
from atlasc.search.points import Point
from atlasc.search.validation import TRIED, Trials, Validator, validated, validated_pick
from atlasc.simulation import row_programs
from atlasc.simulation.agreement import PROMISE, compared, promised
from atlasc.simulation.output_errors import output_error
from atlasc.simulation.poly_values import interpret_poly
from atlasc.simulation.simulate import PolynomialSimulator, exact_answers
from atlasc.simulation.watch import Watch

GOOD = ((3, 3, 0, 0, 0, 4, 4, 4), (3, 3, 3, 0, 0, 3, 4, 4))


@pytest.fixture(scope="module")
def problem(problem):
    """The paper's ranges of softmax sums do not hold on it: the measured ones do."""
    return replace(problem, parametrisation=Parametrisation(softmax_ranges="measured"))


@pytest.fixture(scope="module")
def validator(problem):
    return Validator(problem.module, problem.arrays)


def test_on_the_search_inputs_it_finds_the_error_of_the_search(problem, validator) -> None:
    objective = problem.objective()
    found = validator.measure(objective.approximations(GOOD))
    assert found.error == pytest.approx(objective.evaluate(GOOD).error, rel=1e-2)
    assert (found.unsafe, found.exploded) == (0, 0)
    assert validator.inputs == len(next(iter(problem.arrays.values())))


def test_the_papers_ranges_are_left(problem, validator) -> None:
    paper = replace(problem, parametrisation=PAPER).objective().approximations(GOOD)
    good = validator.measure(problem.objective().approximations(GOOD)).error
    assert validator.measure(paper, good).unsafe > 0


def test_chunks_change_nothing(problem, validator, monkeypatch) -> None:
    monkeypatch.setattr("atlasc.simulation.simulate.chunk_size", lambda module: 2)
    approximations = problem.objective().approximations(GOOD)
    chunked = Validator(problem.module, problem.arrays).measure(approximations)
    assert chunked.error == pytest.approx(validator.measure(approximations).error, rel=1e-2)


NEIGHBOURS = (
    GOOD,
    (GOOD[0], (3, 3, 3, 0, 0, 3, 4, 5)),
    (GOOD[0], (2, 3, 3, 0, 0, 3, 4, 4)),
    ((3, 2, 0, 0, 0, 4, 4, 4), GOOD[1]),
)


@pytest.mark.parametrize("native", [True, False])
def test_the_simulator_counts_as_op_by_op(problem, monkeypatch, native: bool) -> None:
    """On inputs of which some leave a range, and settings that begin alike in between."""
    if not native:
        monkeypatch.setattr(row_programs, "native_library", lambda: None)
    objective = problem.objective()
    arrays = {name: np.concatenate([array] * 4) for name, array in problem.arrays.items()}
    arrays["x"] *= np.repeat([1.0, 1.5, 2.0, 3.0], len(problem.arrays["x"]))[:, None, None]
    validator = Validator(problem.module, arrays, threads=2)
    counts = []
    for settings in (*NEIGHBOURS, *NEIGHBOURS[::-1]):
        approximations = objective.approximations(settings)
        outputs, exploded = op_by_op(problem, approximations, arrays)
        ((name, exact),) = validator._reference.outputs.items()
        anything = promised("values", np.inf, np.inf)
        beside = compared(anything, problem.module, arrays, outputs, {name: exact})
        errors = beside.errors
        error = 1.001 * float(np.median(errors[~exploded])) / PROMISE
        promise = promised("values", error, validator.variation)
        fast = validator.measure(approximations, error)
        assert fast.unsafe == (exploded | beside.wrong(promise)).sum()
        assert fast.exploded == exploded.sum()
        if not exploded.any():
            error = validator._reference.errors(outputs).error
            assert fast.error == pytest.approx(error, rel=1e-2)
        counts.append((fast.unsafe, fast.exploded))
    assert max(counts)[0] > 0 and min(counts)[0] < validator.inputs
    assert any(0 < exploded < validator.inputs for _, exploded in counts)


def op_by_op(problem, approximations, arrays):
    """Outputs, and which inputs explode: as `expand` writes it."""
    poly = Expand().run(with_approximations(problem.module, approximations), Report())
    public = {op.value: op.attributes["name"] for op in problem.module.inputs}
    values = PolynomialSimulator(problem.module).server_inputs(arrays)
    inputs = {public.get(value, value.name): array for value, array in values.items()}
    watch = Watch(poly, len(arrays["x"]))
    with np.errstate(all="ignore"):
        outputs = interpret_poly(poly, inputs, np.float32, observe=watch)
    exploded = np.array(watch.exploded)
    return outputs, exploded


def test_values_that_are_kept_change_nothing(problem, monkeypatch) -> None:
    objective = replace(problem, parametrisation=PAPER).objective()
    chosen = [objective.approximations(settings) for settings in NEIGHBOURS]
    kept = Validator(problem.module, problem.arrays)
    monkeypatch.setattr("atlasc.search.validation.MEMORY", 0)
    fresh = Validator(problem.module, problem.arrays)
    assert [kept.measure(c) for c in chosen] == [fresh.measure(c) for c in chosen]


def narrowed(calibration: Calibration, name: str) -> Calibration:
    """A calibration whose first range of that op is far too narrow at its top."""
    ranges = list(calibration.ranges)
    first = next(i for i, known in enumerate(ranges) if known.op == name)
    known = ranges[first]
    ranges[first] = replace(known, high=known.low + (known.high - known.low) / 8)
    return replace(calibration, ranges=tuple(ranges))


@pytest.mark.parametrize("name", ["nn.gelu", "nn.layer_norm"])
def test_inputs_that_leave_a_domain_are_counted(problem, validator, name: str) -> None:
    calibration = narrowed(problem.calibration, name)
    approximations = replace(problem, calibration=calibration).objective().approximations(GOOD)
    good = problem.objective().evaluate(GOOD).error
    found = validator.measure(approximations, good)
    assert found.unsafe > 0
    simulator = PolynomialSimulator(problem.module)
    simulated = simulator.run(problem.arrays, approximations)
    assert np.isinf(found.error) == (found.exploded > 0) == (not simulated.finite)
    assert found.exploded <= found.unsafe
    if simulated.finite:
        exact = simulator.cleartext(problem.arrays)
        weights = {n: kept_tokens(problem.module, problem.arrays, a) for n, a in exact.items()}
        expected = output_error(simulated.outputs, exact, weights)
        assert found.error == pytest.approx(expected, rel=1e-2)


def test_one_input_alone_is_blamed(problem) -> None:
    """Inputs do not disturb each other: the first one here is far louder than all calibrated."""
    arrays = {name: array.copy() for name, array in problem.arrays.items()}
    arrays["x"][0] *= 40
    good = problem.objective().evaluate(GOOD).error
    approximations = problem.objective().approximations(GOOD)
    found = Validator(problem.module, arrays).measure(approximations, good)
    assert found.unsafe == 1


def test_a_front_gets_its_columns(problem, validator) -> None:
    objective = problem.objective()
    point = objective.evaluate(GOOD)
    told = []
    front = Front((point,), "depth", (100.0, 0.2), expert=objective.evaluate(NEIGHBOURS[2]))
    trials = Trials(validator, objective.approximations, progress=lambda *now: told.append(now))
    found = validated(front, trials)
    all_inputs = f"{validator.inputs} of {validator.inputs} inputs"
    assert (
        told[-1] == ("settings", 2, 2) and (all_inputs, 0, 2) in told and (all_inputs, 1, 2) in told
    )
    assert found.held_back == validator.inputs
    assert found.points[0].unsafe == found.expert.unsafe == 0
    assert found.points[0].held_back_error == pytest.approx(point.error, rel=1e-2)
    assert found.points[0].agreement == 1.0
    assert replace(found.points[0], **dict.fromkeys(TRIED)) == point


def test_a_trial_says_how_many_inputs_are_done(problem, monkeypatch) -> None:
    monkeypatch.setattr("atlasc.simulation.simulate.WATCHED", 1)
    exact, done = [], []
    validator = Validator(problem.module, problem.arrays, threads=1, progress=exact.append)
    validator.measure(problem.objective().approximations(GOOD), progress=done.append)
    assert exact == done == list(range(1, validator.inputs + 1))


def test_only_what_would_be_picked_is_validated(problem, validator) -> None:
    """The cheaper point is left by inputs: the next one is validated, and no further one."""
    paper = replace(problem, parametrisation=PAPER).objective()
    good = problem.objective().evaluate(GOOD)
    cheap, spare = replace(good, depth=1), replace(good, depth=10_000)
    front = Front((cheap, good, spare), "depth", (100.0, 0.2))
    asked = []

    def approximations(settings):
        asked.append(settings)
        return (paper if len(asked) == 1 else problem.objective()).approximations(settings)

    def pick(of: Front) -> Point:
        return of.pick(Wanted(1.0))

    found = validated_pick(front, Trials(validator, approximations), pick)
    point = pick(found)
    assert point == found.points[1] and point.depth == good.depth
    assert len(asked) == 2 and found.held_back == validator.inputs and found.complete
    assert [p.unsafe is None for p in found.points] == [False, False, True]
    assert found.points[0].unsafe > point.unsafe == 0


def interrupt_after(points: int):
    """Progress of a user who loses patience once so many points are done."""

    def progress(what: str, done: int, total: int | None) -> None:
        if done >= points:
            raise KeyboardInterrupt

    return progress


def test_an_interrupt_leaves_the_rest_as_it_was(problem, validator) -> None:
    objective = problem.objective()
    points = tuple(map(objective.evaluate, NEIGHBOURS))
    front = Front(points[:3], "depth", (100.0, 0.2), expert=points[3])
    found = validated(front, Trials(validator, objective.approximations, None, interrupt_after(2)))
    assert not found.complete
    assert [p.unsafe for p in (*found.points, found.expert)].count(None) == 2
    picked = validated_pick(
        front,
        Trials(validator, objective.approximations, None, interrupt_after(0)),
        lambda of: of.points[1],
    )
    assert not picked.complete and picked.points == front.points


@pytest.fixture
def measured(monkeypatch) -> list[Mapping[str, Approximation]]:
    """The trials that are really made, and not taken from a journal."""
    seen: list[Mapping[str, Approximation]] = []
    measure = Validator.measure

    def spy(self, approximations, error, progress=None):
        found = measure(self, approximations, error, progress)
        seen.append(approximations)
        return found

    monkeypatch.setattr(Validator, "measure", spy)
    return seen


def test_interrupted_trials_go_on_with_what_the_journal_has(
    problem, validator, measured, tmp_path
) -> None:
    objective, path = problem.objective(), tmp_path / "journal.jsonl"
    points = tuple(map(objective.evaluate, NEIGHBOURS))
    front = Front(points[:3], "depth", (100.0, 0.2), expert=points[3])
    whole = validated(front, Trials(validator, objective.approximations))
    identity = problem.identity()

    def tried(progress=None, on=validator) -> Front:
        measured.clear()
        with Journal.open(path, identity) as journal:
            if not journal.points:
                journal.add(points[0])
            return validated(front, Trials(on, objective.approximations, journal, progress))

    assert not tried(interrupt_after(1)).complete and len(measured) == 1
    assert not tried(interrupt_after(3)).complete and len(measured) == 2
    assert tried() == whole and len(measured) == 1
    assert tried() == whole and not measured, "nothing is tried again"
    with Journal.open(path, identity) as journal:
        pick = validated_pick(
            front, Trials(validator, objective.approximations, journal), lambda of: of.points[1]
        )
    assert pick.points == (front.points[0], whole.points[1], front.points[2]) and not measured
    fewer = Validator(problem.module, {n: array[:2] for n, array in problem.arrays.items()})
    assert tried(on=fewer).held_back == 2 and len(measured) == 4, "these are other inputs"


def test_unsafe_inputs_are_counted_as_far_as_they_matter(problem, monkeypatch) -> None:
    monkeypatch.setattr("atlasc.simulation.simulate.WATCHED", 1)
    validator = Validator(problem.module, problem.arrays)
    paper = replace(problem, parametrisation=PAPER).objective().approximations(GOOD)
    error = validator.measure(problem.objective().approximations(GOOD)).error
    count = validator.measure(paper, error).unsafe
    assert validator.inputs >= count > 1
    assert validator.unsafe(paper, error) == validator.unsafe(paper, error, count) == count
    rounds, run = [], PolynomialSimulator.run

    def counted(self, inputs, *others, **named):
        rounds.append(len(inputs))
        return run(self, inputs, *others, **named)

    monkeypatch.setattr(PolynomialSimulator, "run", counted)
    wrong = validator.wrong(paper, error)
    rounds.clear()
    assert validator.only(np.argsort(~wrong, kind="stable")).unsafe(paper, error, 0) > 0
    assert rounds == [1], "the first input decides"


def test_answers_that_are_known_are_not_computed_again(problem, validator, monkeypatch) -> None:
    exact = exact_answers(problem.module, problem.arrays)
    approximations = problem.objective().approximations(GOOD)
    expected = validator.measure(approximations)

    def cleartext(self, inputs, chosen, **others):
        assert chosen, "a second exact evaluation"
        return run(self, inputs, chosen, **others)

    run = PolynomialSimulator.run
    monkeypatch.setattr(PolynomialSimulator, "run", cleartext)
    known = Validator(problem.module, problem.arrays, exact=exact)
    assert known.measure(approximations) == expected
