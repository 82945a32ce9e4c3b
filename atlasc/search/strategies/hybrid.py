"""Measure, solve, refine: the default search.

1. For each op, choices are compared on captured activations of the cleartext model. The locally
   non-dominated choices are its candidates (`local_errors`).
2. A few candidates of each op are probed: the error of the model's output is measured with only
   this op approximated. Interpolation gives this error for all other candidates (`interpolated`).
3. The cost is a sum over ops, and the error close to one, so a dynamic program gives the least
   predicted error for every cost at once (`solve_sums`). Seconds are no such sum: for them the
   program also places the bootstraps (`latency_front`).
4. Settings of this front are evaluated. The predictions are corrected by the measured errors, and
   the program is solved again, until a round improves nothing.
5. NSGA-II refines the front. The program is solved again with all points so far, from choices that
   were seen not to explode. The rest of the budget fills the front.

If the error of the setting that will be taken is known, choices are probed near it, settings near
it are evaluated, and the search ends when rounds in turn gain next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from atlasc.ir.bounds import shown_location
from atlasc.ir.errors import AtlasError
from atlasc.latency.outline import outline
from atlasc.polynomials.description import Approximation
from atlasc.polynomials.parametrisation import EXACT
from atlasc.search.dynamic_programs import solve_sums
from atlasc.search.error_model import (
    LARGEST,
    Choice,
    ErrorModel,
    Group,
    interpolated,
    starts,
)
from atlasc.search.latency_front import Alternative, evenly, latency_front
from atlasc.search.local_errors import Candidate, LocalErrors, candidates
from atlasc.search.nsga2 import check_population, minimise
from atlasc.search.points import Point, Settings, is_partial
from atlasc.search.search_problem import SearchProblem
from atlasc.search.strategy import EXTENDS, SearchRun, Strategy

CAPTURING, COMPARING = "capturing arguments", "comparing polynomials"
"""Names of the work before the first evaluation."""
REPORT_SECONDS = 0.5
"""Seconds between two reports of how many choices were compared."""
PROBED_ERRORS = (1e-2, 1e-1, 1e-3)
"""Output errors near which candidates are probed, in this order."""
AFTER_PROBES = 328
"""Number of evaluations after the probes, for predicted fronts and NSGA-II."""
AFTER_PROBES_AIMED = 144
"""The same number, at most, if the wanted error is known."""
LAST_ROUNDS = 4
"""Number of times that the program is solved after NSGA-II."""
WANTED_ERRORS = (0.3, 1e-6)
"""Range of predicted errors in which settings are worth an evaluation."""
NEAR = 1 / 4, 1.5
"""The same range if the wanted error is known, as multiples of it."""
AIMED_PROBES, SHARED = 2, 10
"""Probes of each group if the wanted error is known, and the part of it that they seek: one in so
many."""
GAIN, STALE = 0.005, 2
"""A search that aims at an error ends after so many rounds in turn with a smaller relative gain."""


@dataclass(frozen=True)
class Hybrid(Strategy):
    """Measure, solve, refine.

    Attributes:
        evaluations: greatest number of evaluations; None for the probes of single choices and
            `AFTER_PROBES` more.
        rounds: greatest number of rounds, before NSGA-II, that solve and evaluate a front. It does
            not count where the wanted error is known.
        batch: number of settings of a predicted front that are evaluated in a round.
        population: population of NSGA-II, which spends half of the rest. It does not count where
            the wanted error is known.
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
        """The strategy with the default number of evaluations for this problem, if none is given.

        Raises:
            AtlasError: the budget is too small even for one probe of each op.
        """
        groups = len(problem.groups)
        if self.evaluations is None:
            aimed = problem.aim is not None
            return replace(self, evaluations=default_evaluations(groups, aimed=aimed))
        if self.evaluations <= groups:
            raise AtlasError(
                f"{self.evaluations} evaluations are too few for the strategy hybrid",
                why=f"it probes {groups} groups of ops before it can predict anything",
                remedy=f"use at least --strategy 'hybrid{{evaluations={groups + 1}}}'",
            )
        return self

    def run(self, run: SearchRun) -> None:
        """Run all steps."""
        HybridSteps(run, self).take()


def default_evaluations(groups: int, *, aimed: bool = False) -> int:
    """Number of evaluations for ``groups`` groups of ops, each of which is probed: 400 for six
    layers, and at most 192 if the wanted error is known (``aimed``).
    """
    if aimed:
        return AIMED_PROBES * groups + AFTER_PROBES_AIMED
    return len(PROBED_ERRORS) * groups + AFTER_PROBES


def spearman(estimates: Sequence[float], errors: Sequence[float]) -> float | None:
    """Spearman's rank correlation; None if one side is constant or empty."""
    from scipy.stats import spearmanr

    if min(len(set(estimates)), len(set(errors))) < 2:
        return None
    return float(spearmanr(estimates, errors).statistic)


class HybridSteps:
    """The steps of one search."""

    def __init__(self, run: SearchRun, options: Hybrid) -> None:
        problem, space = run.problem, run.objective.space
        self.run, self.options = run, options
        self.groups = problem.groups
        self.exact: Settings = ((EXACT,) * problem.parametrisation.variables,) * space.layers
        self.template = space.decode(space.lower)
        self.noted = False
        capturing = partial(run.report, CAPTURING)
        self.local = LocalErrors(problem, self._approximations, options.seed, capturing)

    def take(self) -> None:
        """Take all steps."""
        self.candidates = self._all_candidates()
        self.run.stage = "probing single polynomials"
        probed = self._probe()

        def alone(index: int, choice: Choice) -> float:
            return interpolated(probed[index], self.local.error(self.groups[index], choice))

        model, aim = ErrorModel(self.groups, alone), self.run.problem.aim
        if aim is None:
            self._follow(model)
        else:
            self._approach(model, aim)

    def _follow(self, model: ErrorModel) -> None:
        """Evaluate settings along the whole front, until the budget is spent."""
        for number in range(1, self.options.rounds + 1):
            self.run.stage = f"predicted front, round {number}"
            before = self.run.front.points
            self._solve(model, self.options.batch)
            if self.run.front.points == before:
                break
        self.run.stage = "refining"
        self._refine()
        self.run.stage = "filling the front"
        for rounds in range(LAST_ROUNDS, 0, -1):
            self.candidates = self._proven()
            self._solve(model, self.run.left // rounds)

    def _approach(self, model: ErrorModel, aim: float) -> None:
        """Evaluate settings near the wanted error, until rounds in turn gain next to nothing."""
        stale = number = 0
        while self.run.left > 0 and stale < STALE:
            number += 1
            self.run.stage = f"near the wanted error, round {number}"
            if stale:
                self.candidates = self._proven()
            before = self._least_cost(aim)
            self._solve(model, self.options.batch, (NEAR[1] * aim, NEAR[0] * aim))
            stale = 0 if self._least_cost(aim) < (1 - GAIN) * before else stale + 1

    def _least_cost(self, aim: float) -> float:
        """Of the settings so far whose error is at most this; infinite if there is none."""
        front = self.run.front
        return min((p.cost(front.cost) for p in front.points if p.error <= aim), default=math.inf)

    def _whole(self) -> list[Point]:
        """All points so far, except probes."""
        return [p for p in self.run.asked.values() if not is_partial(p.settings)]

    def _approximations(self, group: Group, choice: Choice) -> dict[str, Approximation]:
        return self.run.objective.approximations(group.put(self.exact, choice), group.places)

    def _candidate(
        self,
        group: Group,
        choice: Choice,
        error: Callable[[Group, Choice], float] | None = None,
    ) -> Candidate:
        approximations, kind = self._approximations(group, choice), self.run.problem.cost
        depth, levels = self.run.objective.costs(approximations)
        degrees = 0
        if kind == "latency":
            ops = {place.op.value.name: place.op for place in group.places}
            degrees = sum(outline(ops[n], chosen).degrees for n, chosen in approximations.items())
        cost = depth if kind == "depth" else levels
        return Candidate(cost, (error or self.local.error)(group, choice), choice, degrees)

    def _all_candidates(self) -> list[list[Candidate]]:
        """Candidates of all groups; the processors share the work."""
        with ThreadPoolExecutor(self.run.problem.processors) as pool:
            found = [pool.submit(self._candidates, group) for group in self.groups]
            try:
                running = set(found)
                while running:
                    ended, running = wait(running, REPORT_SECONDS, FIRST_EXCEPTION)
                    for one in ended:
                        one.result()  # raises its exception
                    compared = f"{self.local.compared:,} choices"
                    self.run.report(COMPARING, len(found) - len(running), len(found), compared)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            return [one.result() for one in found]

    def _candidates(self, group: Group) -> list[Candidate]:
        parametrisation = self.run.problem.parametrisation
        lower, upper = group.pick(parametrisation.lower), group.pick(parametrisation.upper)

        def canonical(choice: Choice) -> Choice:
            layer = group.put(self.exact, choice)[group.block]
            return group.pick(parametrisation.canonical(layer))

        found = candidates(
            starts(group, lower, upper), lower, upper, canonical,
            partial(self._candidate, group, error=self.local.seen_error),
            partial(self._candidate, group),
        )  # fmt: skip
        if not found:
            ends = [group.places[end].op for end in (0, -1)]
            raise AtlasError(
                f"no polynomial for {ends[0].name} stays finite",
                where=" to ".join(dict.fromkeys(shown_location(op.location) for op in ends)),
                why="its calibrated range is too wide for every setting of the space",
                remedy="search the wider space (--space wide), "
                + ("let fewer blocks share settings, " if group.blocks > 1 else "")
                + "or calibrate on other inputs",
            )
        return found

    def _proven(self) -> list[list[Candidate]]:
        """Candidates that appear in settings without an explosion."""
        finite = [point.settings for point in self._whole() if point.valid]
        return [
            [self._candidate(group, choice) for choice in sorted(set(map(group.of, finite)))]
            or known
            for group, known in zip(self.groups, self.candidates)
        ]

    def _probe(self) -> list[dict[float, float]]:
        """For each group, local error -> output error of a few candidates."""
        probed: list[dict[float, float]] = [{} for _ in self.groups]
        aim = self.run.problem.aim
        for error in PROBED_ERRORS if aim is None else (aim / SHARED,) * AIMED_PROBES:
            chosen = [
                _nearest(found, known, error) for found, known in zip(self.candidates, probed)
            ]
            batch = {
                index: group.put(self.exact, candidate.choice)
                for index, (group, candidate) in enumerate(zip(self.groups, chosen))
                if candidate.local not in probed[index]
            }
            self._evaluate(list(batch.values()))
            for index, settings in batch.items():
                point = self.run.asked.get((None, settings))
                if point is not None:
                    probed[index][chosen[index].local] = point.error
        return probed

    def _solve(
        self, model: ErrorModel, count: int, wanted: tuple[float, float] = WANTED_ERRORS
    ) -> None:
        """Evaluate settings of the front that the model predicts from all points so far.

        Args:
            model: the error model.
            count: greatest number of settings, evenly spread over the unknown part of the front.
            wanted: range of predicted errors in which settings are sought, if there are any.
        """
        asked = self.run.asked
        model.fit(self._whole())
        front = self.predicted(model, wanted)
        unknown = [settings for _, settings in front if (None, settings) not in asked]
        places = np.linspace(0, len(unknown) - 1, min(count, len(unknown)))
        fresh = {unknown[i] for i in places.round().astype(int)}
        self._evaluate(sorted(fresh))
        # Settings that were known to explode say nothing about the prediction.
        known = [
            (error, min(point.error, LARGEST))
            for error, settings in front
            if (point := asked.get((None, settings))) and (point.valid or settings in fresh)
        ]
        rank_correlation = spearman([e for e, _ in known], [true for _, true in known])
        self.run.front = replace(self.run.front, rank_correlation=rank_correlation)

    def predicted(
        self, model: ErrorModel, wanted: tuple[float, float] = (math.inf, 0.0)
    ) -> list[tuple[float, Settings]]:
        """Errors and settings of the front that the model predicts, from cheap to accurate.

        Args:
            wanted: the greatest and the least error; all settings if none lies between them.
        """
        # The powers e^q of the errors add up.
        powers = [
            [math.exp(model.exponent * model.log_error(index, c.choice)) for c in found]
            for index, found in enumerate(self.candidates)
        ]
        choices = list(zip(self.groups, self.candidates, powers, strict=True))
        if self.run.problem.cost == "latency":
            latency = self.run.problem.latency_model
            assert latency is not None
            ways = [
                [
                    Alternative(self._approximations(group, c.choice), e)
                    for c, e in zip(found, errors)
                ]
                for group, found, errors in choices
            ]
            fixed = self.run.objective.approximations(self.template)
            paths = latency_front(latency, ways, fixed, self._note_once)
        else:
            paths = solve_sums(
                [[(c.cost, e) for c, e in zip(found, errors)] for _, found, errors in choices]
            )
        high, low = wanted
        paths = [replace(path, error=path.error ** (1 / model.exponent)) for path in paths]
        paths = [path for path in paths if low <= path.error <= high] or paths
        front = []
        for path in evenly(paths) if self.run.problem.cost == "latency" else paths:
            settings = self.template
            for group, found, index in zip(self.groups, self.candidates, path.choices):
                settings = group.put(settings, found[index].choice)
            front.append((path.error, settings))
        return front

    def _note_once(self, text: str) -> None:
        if not self.noted:
            self.run.problem.note(text)
        self.noted = True

    def _evaluate(self, batch: Sequence[Settings]) -> None:
        batch = batch[: max(0, self.run.left)]
        if batch:
            self.run.points_of(batch)

    def _refine(self) -> None:
        """Run NSGA-II from the front so far, with half of the remaining budget."""
        size = self.options.population
        generations = self.run.left // 2 // size - 1
        front, space = self.run.front.points, self.run.objective.space
        if generations < 0 or not front:
            return
        seeds = [front[i] for i in np.linspace(0, len(front) - 1, size).round().astype(int)]
        vectors = np.unique([space.encode(p.settings) for p in seeds], axis=0)
        generator = np.random.default_rng([self.options.seed, 3])
        minimise(
            self.run.evaluate,
            np.concatenate([vectors, space.random(size - len(vectors), generator)]),
            space.lower,
            space.upper,
            generations=generations,
            seed=self.options.seed,
        )


def _nearest(found: Sequence[Candidate], known: Mapping[float, float], error: float) -> Candidate:
    """The candidate whose expected output error is nearest to a wanted one."""
    if not known:
        return found[len(found) // 2]
    return min(found, key=lambda c: abs(np.log(interpolated(known, c.local) / error)))
