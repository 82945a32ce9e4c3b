"""Settings on inputs that no search has seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlasc.passes.approximation.approximate import with_approximations
from atlasc.passes.approximation.expand import Expand
from atlasc.passes.approximation.parametrisation import PAPER, Parametrisation
from atlasc.passes.calibration.calibrate import Calibration
from atlasc.passes.calibration.measure import kept_tokens
from atlasc.passes.framework.pass_base import Report
from atlasc.passes.search.front import Front, Wanted
from atlasc.passes.search.search_problem import output_error
from atlasc.passes.search.validation import Validator, validated, validated_pick
from atlasc.passes.simulation import row_programs
from atlasc.passes.simulation.poly_values import DomainWatch, interpret_poly
from atlasc.passes.simulation.simulate import PolynomialSimulator

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
    assert (found.out_of_range, found.exploded) == (0, 0)
    assert validator.inputs == len(next(iter(problem.arrays.values())))


def test_the_papers_ranges_are_left(problem, validator) -> None:
    paper = replace(problem, parametrisation=PAPER).objective().approximations(GOOD)
    assert validator.measure(paper).out_of_range > 0


def test_chunks_change_nothing(problem, validator, monkeypatch) -> None:
    monkeypatch.setattr("atlasc.passes.simulation.simulate.chunk_size", lambda module: 2)
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
        fast = validator.measure(approximations)
        outputs, left, exploded = op_by_op(problem, approximations, arrays)
        assert (fast.out_of_range, fast.exploded) == (left.sum(), exploded.sum())
        if not exploded.any():
            error = output_error(outputs, validator._reference, validator._weights)
            assert fast.error == pytest.approx(error, rel=1e-2)
        counts.append((fast.out_of_range, fast.exploded))
    assert max(counts)[0] > 0 and min(counts)[0] < validator.inputs
    assert any(0 < exploded < validator.inputs for _, exploded in counts)


def op_by_op(problem, approximations, arrays):
    """Outputs, which inputs leave a range or explode, and which explode: as `expand` writes it."""
    poly = Expand().run(with_approximations(problem.module, approximations), Report())
    public = {op.value: op.attributes["name"] for op in problem.module.inputs}
    values = PolynomialSimulator(problem.module).server_inputs(arrays)
    inputs = {public.get(value, value.name): array for value, array in values.items()}
    names = [str(row) for row in range(len(arrays["x"]))]
    watch = DomainWatch(poly, names)
    with np.errstate(all="ignore"):
        outputs = interpret_poly(poly, inputs, np.float32, observe=watch)
    exploded = np.array(watch.exploded)
    left = {excess.input for _, excess in watch.found}
    return outputs, exploded | [name in left for name in names], exploded


def test_values_that_are_kept_change_nothing(problem, monkeypatch) -> None:
    objective = replace(problem, parametrisation=PAPER).objective()
    chosen = [objective.approximations(settings) for settings in NEIGHBOURS]
    kept = Validator(problem.module, problem.arrays)
    monkeypatch.setattr("atlasc.passes.search.validation.MEMORY", 0)
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
    found = validator.measure(approximations)
    assert found.out_of_range > 0
    simulator = PolynomialSimulator(problem.module)
    simulated = simulator.run(problem.arrays, approximations)
    assert np.isinf(found.error) == (found.exploded > 0) == (not simulated.finite)
    assert found.exploded <= found.out_of_range
    if simulated.finite:
        exact = simulator.cleartext(problem.arrays)
        weights = {n: kept_tokens(problem.module, problem.arrays, a) for n, a in exact.items()}
        expected = output_error(simulated.outputs, exact, weights)
        assert found.error == pytest.approx(expected, rel=1e-2)


def test_one_input_alone_is_blamed(problem) -> None:
    """Inputs do not disturb each other: the first one here is far louder than all calibrated."""
    arrays = {name: array.copy() for name, array in problem.arrays.items()}
    arrays["x"][0] *= 40
    approximations = problem.objective().approximations(GOOD)
    found = Validator(problem.module, arrays).measure(approximations)
    assert found.out_of_range == 1


def test_a_front_gets_its_columns(problem, validator) -> None:
    objective = problem.objective()
    points = tuple(map(objective.evaluate, (GOOD,)))
    done = []
    front = Front(points, "depth", (100.0, 0.2))
    found = validated(
        front, validator, objective.approximations, lambda now, total: done.append((now, total))
    )
    assert done == [(1, 1)]
    assert found.held_back == validator.inputs
    assert found.points[0].out_of_range == 0
    assert found.points[0].held_back_error == pytest.approx(points[0].error, rel=1e-2)
    assert replace(found.points[0], out_of_range=None, held_back_error=None) == points[0]


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

    found, point = validated_pick(front, validator, approximations, lambda f: f.pick(Wanted(1.0)))
    assert point == found.points[1] and point.depth == good.depth
    assert len(asked) == 2 and found.held_back == validator.inputs
    assert [p.out_of_range is None for p in found.points] == [False, False, True]
    assert found.points[0].out_of_range > point.out_of_range == 0


def test_an_interrupt_leaves_the_rest_as_it_was(problem, validator) -> None:
    objective = problem.objective()
    point = objective.evaluate(GOOD)

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    front = Front((point, point), "depth", (100.0, 0.2), expert=point)
    found = validated(front, validator, objective.approximations, interrupt)
    assert not found.complete
    assert [p.out_of_range for p in (found.expert, *found.points)] == [0, 0, None]
