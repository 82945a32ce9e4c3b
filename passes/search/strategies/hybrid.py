"""Measure, solve, refine: the default search.

1. For each op, choices are compared on captured activations of the cleartext model; the locally
   non-dominated ones are its candidates (`local`).
2. A few candidates of each op are probed: the error of the model's output when they alone are
   approximated. Interpolation gives that error for all others (`surrogate.interpolated`).
3. Cost is a sum over ops and the error close to one, so a dynamic program gives the least predicted
   error for every cost at once (`surrogate.solve`). Seconds are no such sum: there the program
   places the bootstraps too (`seconds_solver`).
4. Settings of that front are evaluated; the predictions are corrected by what they turned out to
   be, and the program is solved again, until that brings nothing.
5. NSGA-II refines the front, and the program is solved again with all that is known, from
   choices that were seen not to explode; what is left of the budget fills the front.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.passes.approximation.description import Approximation
from atlasc.passes.approximation.parametrisation import EXACT, LayerSetting
from atlasc.passes.latency.outline import outline
from atlasc.passes.search.dynamic_programs.seconds_solver import SecondsSolver
from atlasc.passes.search.error_model.captured import capture
from atlasc.passes.search.error_model.groups import Choice, Group, groups_of, starts
from atlasc.passes.search.error_model.local import Candidate, LocalErrors, candidates
from atlasc.passes.search.error_model.surrogate import (
    LARGEST,
    ErrorModel,
    Solver,
    interpolated,
    solve,
)
from atlasc.passes.search.nsga2 import check_population, minimise
from atlasc.passes.search.point import Point
from atlasc.passes.search.search_problem import SearchProblem
from atlasc.passes.search.search_run import SearchRun
from atlasc.passes.search.space import Settings, is_partial
from atlasc.passes.search.strategy import EXTENDS, Strategy

PROBED_ERRORS = (1e-2, 1e-1, 1e-3)
"""Output errors near which candidates are probed, in this order."""
AFTER_PROBES = 328
"""Evaluations after the probes: of predicted fronts, and of NSGA-II."""
LAST_ROUNDS = 4
"""How often the program is solved after NSGA-II."""
WANTED_ERRORS = (0.3, 1e-6)
"""Predicted errors between which settings are worth an evaluation."""


@dataclass(frozen=True)
class Hybrid(Strategy):
    """Measure, solve, refine.

    Attributes:
        evaluations: in all at most; None for the probes of single choices and `AFTER_PROBES` more.
        rounds: how often the predicted front is solved and evaluated at most, before NSGA-II.
        batch: settings of a predicted front that are evaluated in a round.
        population: of NSGA-II, which spends half of the rest.
    """

    name = "hybrid"
    evaluations: int | None = field(default=None, metadata=EXTENDS)
    rounds: int = 8
    batch: int = 12
    population: int = 16

    def __post_init__(self) -> None:
        if self.evaluations is not None and self.evaluations < 1:
            raise AtlasError("a search needs at least 1 evaluation")
        if self.rounds < 1 or self.batch < 1:
            raise AtlasError("a search needs at least 1 round and a batch of at least 1")
        check_population(self.population)

    def filled(self, problem: SearchProblem) -> Hybrid:
        """With the evaluations that this problem gets, where none are named.

        Raises:
            AtlasError: the budget does not even suffice for a probe of each op.
        """
        groups = len(groups_of(problem.module, problem.parametrisation))
        if self.evaluations is None:
            return replace(self, evaluations=default_evaluations(groups))
        if self.evaluations <= groups:
            raise AtlasError(
                f"{self.evaluations} evaluations are too few for the strategy hybrid",
                why=f"it probes {groups} groups of ops before it can predict anything",
                remedy=f"use --evaluations {groups + 1} or more",
            )
        return self

    def run(self, run: SearchRun) -> None:
        """Run all steps."""
        _Hybrid(run, self).run()


def default_evaluations(groups: int) -> int:
    """Evaluations for so many groups of ops, of which each is probed: 400 for six layers."""
    return len(PROBED_ERRORS) * groups + AFTER_PROBES


def spearman(estimates: Sequence[float], errors: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None where one side is constant, or empty."""
    from scipy.stats import spearmanr

    if min(len(set(estimates)), len(set(errors))) < 2:
        return None
    return float(spearmanr(estimates, errors).statistic)


class _Hybrid:
    """One run."""

    def __init__(self, search_run: SearchRun, options: Hybrid) -> None:
        problem, space = search_run.problem, search_run.objective.space
        self.search_run, self.options = search_run, options
        self.groups = groups_of(problem.module, problem.parametrisation)
        self.exact: Settings = ((EXACT,) * problem.parametrisation.variables,) * space.layers
        self.template = space.decode(space.lower)
        self.solver: Solver = solve
        if problem.cost == "latency":
            assert problem.latency_model is not None
            fixed = search_run.objective.approximations(self.template)
            self.solver = SecondsSolver(problem.latency_model, self._approximations, fixed)

    def run(self) -> None:
        """All steps."""
        problem = self.search_run.problem
        captured = capture(
            problem.module,
            problem.calibration,
            problem.arrays,
            problem.shares,
            problem.dtype,
            self.options.seed,
        )
        local = LocalErrors(captured, self._approximations, problem.dtype)
        self.candidates = [self._candidates(group, local) for group in self.groups]
        probed = self._probe()

        def alone(index: int, choice: Choice) -> float:
            return interpolated(probed[index], local.error(self.groups[index], choice))

        model = ErrorModel(self.groups, alone)
        for _ in range(self.options.rounds):
            before = self.search_run.points
            self._solve(model, self.options.batch)
            if self.search_run.points == before:
                break
        self._refine()
        for rounds in range(LAST_ROUNDS, 0, -1):
            self.candidates = self._proven(local)
            self._solve(model, self._left() // rounds)

    def _left(self) -> int:
        return int(self.search_run.total) - self.search_run.done

    def _whole(self) -> list[Point]:
        """All points so far that are no probes."""
        return [p for p in self.search_run.asked.values() if not is_partial(p.settings)]

    def _setting(self, group: Group, choice: Choice) -> LayerSetting:
        """The layer in which only this group is approximated."""
        layer = group.put(self.exact, choice)[group.block]
        return LayerSetting.of(layer, self.search_run.problem.parametrisation)

    def _approximations(self, group: Group, choice: Choice) -> dict[str, Approximation]:
        return self.search_run.objective.approximations(group.put(self.exact, choice), group.places)

    def _candidate(self, group: Group, choice: Choice, local: LocalErrors) -> Candidate:
        approximations, kind = self._approximations(group, choice), self.search_run.problem.cost
        depth, levels = self.search_run.objective.costs(approximations)
        cost, degrees = depth if kind == "depth" else levels, 0
        if kind == "latency":
            ops = {place.op.value.name: place.op for place in group.places}
            degrees = sum(outline(ops[n], chosen).degrees for n, chosen in approximations.items())
        return Candidate(cost, local.error(group, choice), choice, degrees)

    def _candidates(self, group: Group, local: LocalErrors) -> list[Candidate]:
        parametrisation = self.search_run.problem.parametrisation
        lower, upper = group.pick(parametrisation.lower), group.pick(parametrisation.upper)
        found = candidates(
            starts(group, lower, upper),
            lower,
            upper,
            canonical=lambda choice: group.pick(self._setting(group, choice).integers),
            look=lambda choice: self._candidate(group, choice, local),
        )
        if not found:
            place = group.places[0]
            raise AtlasError(
                f"no polynomial for {place.op.name} stays finite",
                where=place.op.location,
                why="its calibrated range is too wide for every setting of the space",
                remedy="search the wider space (--space wide), or calibrate on other inputs",
            )
        return found

    def _proven(self, local: LocalErrors) -> list[list[Candidate]]:
        """Candidates that settings without an explosion contain."""
        finite = [point.settings for point in self._whole() if point.valid]
        found = []
        for group, known in zip(self.groups, self.candidates):
            choices = {group.of(settings) for settings in finite}
            found.append(
                [self._candidate(group, choice, local) for choice in sorted(choices)] or known
            )
        return found

    def _probe(self) -> list[dict[float, float]]:
        """For each group the output errors of a few candidates by their local errors."""
        probed: list[dict[float, float]] = [{} for _ in self.groups]
        for wanted in PROBED_ERRORS:
            chosen = [
                _nearest(found, known, wanted) for found, known in zip(self.candidates, probed)
            ]
            batch = {
                index: group.put(self.exact, candidate.choice)
                for index, (group, candidate) in enumerate(zip(self.groups, chosen))
                if candidate.local not in probed[index]
            }
            self._evaluate(list(batch.values()))
            for index, settings in batch.items():
                point = self.search_run.asked.get((None, settings))
                if point is not None:
                    probed[index][chosen[index].local] = point.error
        return probed

    def _solve(self, model: ErrorModel, count: int) -> None:
        """Evaluate settings of the front that the model predicts from all points so far.

        Args:
            count: how many at most, evenly along what is not known of it.
        """
        asked, (high, low) = self.search_run.asked, WANTED_ERRORS
        model.fit(self._whole())
        front = self.solver(model, self.candidates, self.template)
        front = [p for p in front if low <= p.error <= high] or front
        unknown = [p.settings for p in front if (None, p.settings) not in asked]
        places = np.linspace(0, len(unknown) - 1, min(count, len(unknown)))
        fresh = {unknown[i] for i in places.round().astype(int)}
        self._evaluate(sorted(fresh))
        # Settings that were known to explode say nothing of the prediction.
        tried = [p for p in front if (k := (None, p.settings)) in asked
                 and (asked[k].valid or p.settings in fresh)]  # fmt: skip
        true = [min(asked[None, p.settings].error, LARGEST) for p in tried]
        self.search_run.rank_correlation = spearman([p.error for p in tried], true)

    def _evaluate(self, batch: Sequence[Settings]) -> None:
        batch = batch[: max(0, self._left())]
        if batch:
            self.search_run.points_of(batch)

    def _refine(self) -> None:
        """NSGA-II from the front so far, with half of what is left."""
        size = self.options.population
        generations = self._left() // 2 // size - 1
        front, space = self.search_run.points, self.search_run.objective.space
        if generations < 0 or not front:
            return
        seeds = [front[i] for i in np.linspace(0, len(front) - 1, size).round().astype(int)]
        vectors = np.unique([space.encode(p.settings) for p in seeds], axis=0)
        generator = np.random.default_rng([self.options.seed, 3])
        minimise(
            self.search_run.evaluate,
            np.concatenate([vectors, space.random(size - len(vectors), generator)]),
            space.lower,
            space.upper,
            generations=generations,
            seed=self.options.seed,
        )


def _nearest(found: Sequence[Candidate], known: Mapping[float, float], wanted: float) -> Candidate:
    """The candidate whose output error is expected to be nearest to one that is wanted."""
    if not known:
        return found[len(found) // 2]
    return min(found, key=lambda c: abs(np.log(interpolated(known, c.local) / wanted)))
