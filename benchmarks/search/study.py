"""How well cheap surrogates rank settings: the paper's Figure 5 for any model.

A search compares settings, so what counts of a surrogate is the order in which it puts them: the
Spearman correlation of its errors with the true ones.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.cli.output import print_table
from atlasc.ir.errors import AtlasError
from atlasc.search.front import chart
from atlasc.search.nsga2 import step_mutation
from atlasc.search.points import Point, SearchSpace, Settings, expert_layer, non_dominated
from atlasc.search.search_problem import Objective, SearchProblem
from atlasc.search.strategies.hybrid import spearman

FEWEST = 3
"""Settings below which a rank correlation says nothing."""
SCREENED_ON = 10
DRAWS = 200
"""Draws for each setting that is wanted, after which the study goes on with those that it has."""

StudyProgress = Callable[[str, int, int], None]
"""Called with (what is being done, done, total)."""


@dataclass(frozen=True)
class StudyOptions:
    """Which settings are compared.

    Attributes:
        seed: fixes the settings and the order of the inputs.
        settings: how many, all finite on all inputs.
    """

    seed: int = 0
    settings: int = 60

    def __post_init__(self) -> None:
        if self.settings < FEWEST:
            raise AtlasError(f"a study needs at least {FEWEST} settings")


@dataclass(frozen=True)
class Surrogate:
    """A cheaper error and how well it stands for the true one.

    Attributes:
        inputs, layers: that it looks at.
        correlation: Spearman's, with the error of all layers on all inputs; None where it gives all
            settings one error.
        seconds: of a processor for one evaluation, on average.
        speed_up: the true error's seconds over these.
    """

    inputs: int
    layers: int
    correlation: float | None
    seconds: float
    speed_up: float


@dataclass(frozen=True)
class Study:
    """What the surrogates are worth.

    Attributes:
        inputs, layers: all that the true error looks at.
        drawn: settings that were evaluated until enough were finite.
        errors: true errors of the settings.
        subsets: the first so many inputs, all layers; the last one is the true error itself.
        early_layers: all inputs, the first so many layers; likewise.
    """

    inputs: int
    layers: int
    drawn: int
    errors: tuple[float, ...]
    subsets: tuple[Surrogate, ...]
    early_layers: tuple[Surrogate, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def plot(self, path: Path) -> None:
        """Write a PNG: correlation and speed-up by inputs, and by layers."""
        panels = (("inputs", self.subsets), ("layers", self.early_layers))
        with chart(path, len(panels)) as axes:
            for left, (name, surrogates) in zip(axes, panels, strict=True):
                sizes = [getattr(s, name) for s in surrogates]
                correlations = [s.correlation for s in surrogates]
                left.plot(sizes, correlations, "o-", color="tab:blue")
                left.set_ylim(min(0, *(c for c in correlations if c is not None)), 1.05)
                left.set_ylabel("Spearman correlation with the true error", color="tab:blue")
                if name == "inputs":
                    left.set_xscale("log")
                left.set(xlabel=name)
                left.set_xticks(sizes, [str(size) for size in sizes], minor=False)
                left.set_xticks([], minor=True)
                right = left.twinx()
                right.plot(sizes, [s.speed_up for s in surrogates], "s--", color="tab:orange")
                right.set_ylim(bottom=0)
                right.set_ylabel("speed-up", color="tab:orange")


def study(
    problem: SearchProblem,
    options: StudyOptions | None = None,
    progress: StudyProgress | None = None,
) -> Study:
    """Compare surrogates with the error of the whole model on all inputs of the problem.

    Drawn are uniformly random settings, which a search meets first, and in turn neighbours of the
    non-dominated ones so far, which it meets later. Seconds are those of a processor, on one
    thread and from the start: nothing is kept for settings that begin alike. So they hold on a busy
    machine too.

    Args:
        problem: its inputs are those of the true error; its journal and workers are not used.
        options: which settings.
        progress: called after every evaluation.

    Raises:
        AtlasError: hardly any setting is finite.
    """
    options = options or StudyOptions()
    count = len(next(iter(problem.arrays.values())))
    order = np.random.default_rng([options.seed, 2]).permutation(count)
    problem = replace(problem, threads=1, memory=0)

    def on(inputs: int, layers: int | None = None) -> Objective:
        chosen = order[:inputs]
        arrays = {name: array[chosen] for name, array in problem.arrays.items()}
        shares = None if problem.shares is None else tuple(problem.shares[i] for i in chosen)
        return replace(problem, arrays=arrays, shares=shares).objective(layers)

    whole = on(count)
    layers, sizes = whole.space.layers, subset_sizes(count)
    cheaper = [(size, None) for size in sizes[:-1]] + [(count, n) for n in range(1, layers)]
    total = options.settings * (1 + len(cheaper))
    report = progress or (lambda what, done, total: None)
    true, drawn = _finite(
        whole,
        on(min(SCREENED_ON, count)),
        options,
        problem,
        lambda found: report("true errors", found, total),
    )
    chosen, errors = [point.settings for point, _ in true], [point.error for point, _ in true]
    exact = Surrogate(count, layers, 1.0, float(np.mean([each for _, each in true])), 1.0)
    done, total = len(chosen), len(chosen) * (1 + len(cheaper))
    found = []
    for inputs, early in cheaper:
        objective, estimates, seconds = on(inputs, early), [], 0.0
        for settings in chosen:
            point, each = _timed(objective, settings)
            estimates.append(point.error)
            seconds += each / len(chosen)
            done += 1
            what = f"{inputs} of {count} inputs" if early is None else f"{early} of {layers} layers"
            report(what, done, total)
        correlation = spearman(estimates, errors)
        speed_up = exact.seconds / seconds
        found.append(Surrogate(inputs, early or layers, correlation, seconds, speed_up))
    subsets, early_layers = found[: len(sizes) - 1], found[len(sizes) - 1 :]
    return Study(count, layers, drawn, tuple(errors), (*subsets, exact), (*early_layers, exact))


def subset_sizes(count: int) -> list[int]:
    """1, 2, 5, 10, 20, 50, ... and at last all inputs."""
    sizes = [step * 10**power for power in range(len(str(count))) for step in (1, 2, 5)]
    return [size for size in sizes if size < count] + [count]


def _timed(objective: Objective, settings: Settings) -> tuple[Point, float]:
    started = time.thread_time()
    return objective.evaluate(settings), time.thread_time() - started


def _finite(
    whole: Objective,
    screen: Objective,
    options: StudyOptions,
    problem: SearchProblem,
    report: Callable[[int], None],
) -> tuple[list[tuple[Point, float]], int]:
    """Points that are finite on the whole model with the seconds of each, and how many were drawn.

    Settings are evaluated on the few inputs of `screen` first: most explode there already, and the
    polynomials are fitted, so that no time that is measured later is that of a fit.
    """
    found: list[tuple[Point, float]] = []
    points: list[Point] = []
    drawn = 0
    candidates = _candidates(whole.space, points, problem, options.seed)
    for settings in itertools.islice(candidates, DRAWS * options.settings):
        drawn += 1
        if not screen.evaluate(settings).valid:
            continue
        point, seconds = _timed(whole, settings)
        if point.valid:
            found.append((point, seconds))
            points.append(point)
            report(len(found))
        if len(found) == options.settings:
            break
    if len(found) < FEWEST:
        raise AtlasError(
            f"only {len(found)} of {drawn} settings are finite on all inputs",
            remedy="calibrate on more inputs, or with a larger margin of --ranges",
        )
    return found, drawn


def _candidates(
    space: SearchSpace, points: list[Point], problem: SearchProblem, seed: int
) -> Iterator[Settings]:
    """Different settings without end: random ones, and in turn neighbours of the best points."""
    generator = np.random.default_rng([seed, 3])
    expert = space.shared(expert_layer(problem.parametrisation))
    seen: set[Settings] = set()
    while True:
        vector = space.random(1, generator)
        if len(seen) % 2:
            best = [space.encode(p.settings) for p in non_dominated(points, problem.cost)]
            parents = [expert, *best]
            vector = parents[generator.integers(len(parents))][np.newaxis]
            for _ in range(generator.integers(1, max(2, space.variables // 2))):
                vector = step_mutation(vector, space.lower, space.upper, generator)
        settings = space.decode(vector[0])
        if settings not in seen:
            seen.add(settings)
            yield settings


def show(study: Study) -> None:
    """Print two tables: surrogates by inputs, and by layers."""
    for size, title, surrogates in (
        ("inputs", "the first inputs, all layers", study.subsets),
        ("layers", "the first layers, all inputs", study.early_layers),
    ):
        print_table(
            (size, "Spearman", "seconds an evaluation", "speed-up"),
            [(getattr(s, size), s.correlation, s.seconds, s.speed_up) for s in surrogates],
            title=title,
        )
    print(
        f"{len(study.errors)} settings with errors from {min(study.errors):.2g} to "
        f"{max(study.errors):.2g}: the finite ones of {study.drawn} that were drawn"
    )
