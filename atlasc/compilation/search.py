"""The search of a prepared model: its inputs, its front, and the front's validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from atlasc.calibration.measure import blas_threads, nonlinear_ops
from atlasc.compilation.fronts import calibration_digest, model_digest, with_predictions
from atlasc.compilation.options import CompileOptions, SearchOptions, TargetOptions
from atlasc.compilation.prepare import PreparedModel
from atlasc.compilation.statement import measure_of
from atlasc.ir.errors import AtlasError, counted
from atlasc.latency.model import LatencyTarget
from atlasc.loading import MASK
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.labels import labels_of
from atlasc.passes.approximation.approximate import layer_count, settings_approximations
from atlasc.polynomials.description import Approximation
from atlasc.progress import Note, Step, Steps, quiet, silent
from atlasc.search.front import Front
from atlasc.search.journal import Journal
from atlasc.search.mending import Mender
from atlasc.search.points import Cost, Point, Settings, expert_layer
from atlasc.search.search_problem import Objective, SearchProblem
from atlasc.search.strategies import DEFAULT, find_strategy
from atlasc.search.strategy import EVALUATING, Progress
from atlasc.search.validation import Trials, Validator, validated, validated_pick
from atlasc.simulation.agreement import Measure
from atlasc.targets import find_target
from atlasc.version import __version__

SEARCH_INPUTS = 10
"""Number of inputs on which settings are compared, as in the paper."""
EXTREME_INPUTS = 10
"""Number of extreme inputs (those that reach the ends of calibrated ranges) on which settings are
compared as well, because settings fail there first. Each has the weight of one calibration input.
"""
MENDED_ON = 400
"""Number of calibration inputs, prefixes and repetitions included, on which the setting that would
be taken is checked before the held-back inputs are evaluated."""
MENDED_BYTES = 1 << 30
"""Greatest size of the model's answers to these inputs, which are kept twice: scores of a large
vocabulary at each token are many."""
LONG, FEWEST_LONG = 0.75, 5
"""Share of a program's tokens that a long text has, and the number of long texts below which a
search of scores of tokens says that it has few."""
MOST_POINTS = 40
"""Number of points of a front that are validated on held-back inputs; 40 show its shape."""


def search(
    prepared: PreparedModel,
    options: SearchOptions,
    steps: Steps = silent,
    *,
    inputs: int | None = SEARCH_INPUTS,
    pick: Callable[[Front], Point] | None = None,
    budget: Mapping[str, int] | None = None,
    watch: Callable[[Front], None] | None = None,
    **others: Any,
) -> Front:
    """Search the Pareto front of a model, and validate its points on the held-back inputs.

    An interrupt from the keyboard ends the search and returns the front so far.

    Args:
        prepared: the traced model with its data and ranges.
        options: options of the search.
        steps: progress.
        inputs: number of inputs on which settings are compared; None for all calibration inputs.
        pick: chooses one point of a front; then only the points that it would choose are validated.
            It must accept points without a validation. None validates all points.
        budget: budget of the strategy, instead of the one in the options.
        watch: called with the front so far, after every evaluation.
        others: attributes of `SearchProblem`: journal, note, ...

    Raises:
        AtlasError: there is nothing to search, the budget is too small, or `pick` fails.
    """
    require_searchable(prepared)
    given = options.budget if budget is None else budget
    tried = _tried_inputs(prepared, options, others.get("note", quiet))
    chosen = find_strategy(options.strategy or DEFAULT).of({**given, "seed": options.seed})
    problem = search_problem(prepared, options, inputs, **others)
    note_short_texts(prepared, tried.measure, others.get("note", quiet))
    journal = problem.journal
    resume = f"the same command continues from the evaluations in {journal}" if journal else ""
    with blas_threads(1), ExitStack() as shown:
        step = shown.enter_context(steps("preparing the search", resume=resume))
        if pick is not None and isinstance(options, CompileOptions):
            varying = problem.objective().variation
            problem = replace(problem, aim=options.aim(tried.measure, varying))
        strategy = chosen.filled(problem)
        compared = len(next(iter(problem.arrays.values())))
        facts = _facts(prepared, compared, asdict(strategy))

        def report(now: Progress) -> None:
            nonlocal step
            label = f"searching ({strategy.name})" if now.work == EVALUATING else now.work
            if step.label != label:
                shown.close()
                step = shown.enter_context(steps(label, now.total, resume=resume))
            step.report(now.note, now.done, now.total)
            if watch is not None:
                watch(replace(now.front, facts=facts, strategy=strategy.name))

        front = strategy.search(problem, report)
        front = replace(front, facts=facts)
        if not front.complete:
            return front
        objective = problem.objective()
        layer = expert_layer(problem.parametrisation)
        front = replace(front, expert=objective.evaluate((layer,) * objective.space.layers))
    labelled = int(np.isfinite(tried.labels).sum())
    front = replace(front, measure=tried.measure, held_back=len(tried.inputs), labelled=labelled)
    if pick is None:  # each point will be validated on all held-back inputs
        own = TargetOptions(target="sim", costs=options.costs)
        thin, note = front.thinned(MOST_POINTS), others.get("note", quiet)
        front = with_predictions(thin, problem, own, steps, note)
    if not len(tried.inputs):
        return front
    if pick is not None:
        front = _mended(front, problem, objective, prepared, options.seed, pick, steps)
    label = "validating the front on held-back inputs"
    with (
        strategy.journal(problem) as kept,
        steps(label, None if pick else len(front.points) + 1, resume=resume) as step,
        blas_threads(1),
    ):
        trials = _trials(front, prepared, tried, kept, problem.threads, step)
        return validated_pick(front, trials, pick) if pick else validated(front, trials)


def _mended(
    front: Front,
    problem: SearchProblem,
    objective: Objective,
    prepared: PreparedModel,
    seed: int,
    pick: Callable[[Front], Point],
    steps: Steps,
) -> Front:
    """The front with the setting that `pick` would choose, mended by `Mender` if it can be."""
    some = _mended_on(prepared, seed)
    with steps("checking the setting on inputs of the calibration") as step, blas_threads(1):

        def report(note: str) -> None:
            step.report(note, 0, None)

        validator = Validator(
            problem.module, some.arrays, problem.threads,
            progress=lambda done: report(f"exact outputs of {done} of {len(some)} inputs"),
            measure=front.measure, varying=front.variation,
        )  # fmt: skip
        known = [point.settings for point in front.points]
        found = Mender(problem, objective, known, validator, report).mended(pick(front))
    if found is None:
        return front
    points = sorted([*front.points, found], key=lambda one: (one.cost(front.cost), -one.error))
    return replace(front, points=tuple(points))


def _mended_on(prepared: PreparedModel, seed: int) -> Inputs:
    """Random inputs of the calibration: `MENDED_ON`, or as many as `MENDED_BYTES` allow."""
    measured, outputs = prepared.source.measured, prepared.traced.outputs
    values = sum(math.prod(op.operands[0].tensor.shape[1:]) for op in outputs)
    most = max(1, MENDED_BYTES // (values * np.dtype(np.float32).itemsize))
    order = np.random.default_rng([seed, 5]).permutation(len(measured))
    return measured.take(np.sort(order[: min(MENDED_ON, most)]))


def note_short_texts(prepared: PreparedModel, measure: Measure, note: Note) -> None:
    """Say so if the data have few texts that fill the program, under the measure of tokens.

    The errors of a decoder grow from token to token until it collapses. A search sees this only on
    texts that are as long as those of the program.
    """
    mask, length = prepared.source.inputs.arrays.get(MASK), prepared.source.length
    if measure != "tokens" or mask is None or not length:
        return
    long = int((mask.sum(axis=1) >= LONG * length).sum())
    if long < FEWEST_LONG:
        note(
            f"only {counted(long, 'text fills', 'texts fill')} the program's {length} tokens to "
            f"{LONG:.0%}: the search hardly sees errors at late tokens",
            "  why: errors may grow from token to token, until a text collapses\n"
            "  what to do: give longer texts, or compile with a smaller --sequence-length",
        )


def require_searchable(prepared: PreparedModel) -> None:
    """Raise AtlasError for a model without any op to approximate."""
    if not nonlinear_ops(prepared.module):
        raise AtlasError(
            "the model has no nonlinear op on encrypted data: there is nothing to search",
            why="only softmax, norms and activations become polynomials",
            remedy="compile the model with --recipe is, which then approximates nothing",
        )
    if layer_count(prepared.module) == 0:
        raise AtlasError(
            "the model has no blocks with nonlinear ops to search",
            why="the nonlinear ops of the model lie outside its repeated layers",
            remedy="compile the model with --recipe is",
        )


def search_problem(
    prepared: PreparedModel,
    options: SearchOptions,
    inputs: int | None = SEARCH_INPUTS,
    extremes: int = EXTREME_INPUTS,
    **others: Any,
) -> SearchProblem:
    """The search problem: settings, compared on the inputs that `search_inputs` chooses.

    ``others`` are attributes of `SearchProblem`: journal, note, ...
    """
    arrays, shares = search_inputs(prepared, options.seed, inputs, extremes)
    cost = cast(Cost, options.minimised)
    target = options.target if isinstance(options, CompileOptions) else "sim"
    return SearchProblem(
        prepared.module,
        prepared.calibration,
        arrays,
        cost,
        parametrisation=options.parametrisation,
        shares=shares,
        target=LatencyTarget.of(find_target(target), options.costs) if cost == "latency" else None,
        threads=options.threads,
        workers=options.evaluators(),
        sharing=options.share_settings,
        measure=measure_of(prepared.source.model, prepared.traced, options.measure),
        **others,
    )


def search_inputs(
    prepared: PreparedModel, seed: int, count: int | None, extremes: int = EXTREME_INPUTS
) -> tuple[dict[str, np.ndarray], tuple[float, ...] | None]:
    """Choose the inputs of a search: a stratified sample of the calibration inputs.

    Each extreme input has the weight of one input. A few random inputs represent all others of
    their kind, which is either the user's own inputs or those made of them: prefixes and
    repetitions. Prefixes are needed, because polynomials err more on short texts; a search without
    them takes settings under which short texts are unsafe.

    Args:
        prepared: the traced model with its data and ranges.
        seed: seed for the random inputs.
        count: number of random inputs; half as many of those made of them are added. None for all
            inputs, with equal weights.
        extremes: number of extreme inputs; 0 for random inputs alone.

    Returns:
        inputs by name ``[N, ...]``, and their weights in the error (None if they are equal).
    """
    own, every = len(prepared.source.inputs), len(prepared.source.measured)
    few = count is None or own <= count + extremes  # then all have the same weight
    extreme = [i for i in prepared.calibration.extremes[:extremes] if i >= own or not few]
    # Extreme inputs come first: a setting that explodes does so there, and is dropped at once.
    chosen, weights = list(extreme), [1.0] * len(extreme)
    generator = np.random.default_rng([seed, 1])
    made = None if count is None else max(1, count // 2)
    for kind, most in ((range(own), count), (range(own, every), made)):
        others = [i for i in generator.permutation(kind) if i not in extreme]
        taken = sorted(others[:most])
        chosen += taken
        weights += [len(others) / len(taken)] * len(taken) if taken else []
    arrays = prepared.source.measured.take(chosen).arrays
    return arrays, tuple(weights) if len(set(weights)) > 1 else None


def _facts(prepared: PreparedModel, compared: int, options: Mapping[str, Any]) -> dict[str, Any]:
    source = prepared.source
    return {
        "atlasc": __version__,
        "model": source.model.name,
        "model_digest": model_digest(prepared.traced),
        "sequence_length": source.length,
        "calibration_inputs": len(source.measured),
        "calibration_digest": calibration_digest(prepared.calibration),
        "data_digest": source.inputs.digest(),
        "search_inputs": compared,
        "seed": options["seed"],
        "options": dict(options),
    }


@dataclass(frozen=True)
class TriedInputs:
    """The inputs on which the points of a front are validated.

    Attributes:
        inputs: held-back inputs, with prefixes and repetitions of them, and the user's labelled
            inputs.
        shares: weight of each input in the error; None for equal weights. Labelled inputs have
            weight zero.
        labels: [N] label of each input; NaN if it has none.
        measure: how answers are compared with the model's.
    """

    inputs: Inputs
    shares: list[float] | None
    labels: np.ndarray
    measure: Measure


def _tried_inputs(
    prepared: PreparedModel, options: SearchOptions, note: Callable[..., None]
) -> TriedInputs:
    """Held-back and labelled inputs for the validation.

    Raises:
        AtlasError: the labelled inputs cannot be read; or an accuracy is wanted without labels.
    """
    source, module = prepared.source, prepared.traced
    measure = measure_of(source.model, module, options.measure)
    size = module.outputs[0].operands[0].tensor.shape[-1]

    def labels(inputs: Inputs, name: str) -> np.ndarray:
        found = labels_of(inputs, source.model.config, measure, size)
        if found.faults:
            row, why = next(iter(found.faults.items()))
            note(
                f"{len(found.faults)} of {len(inputs)} labels of {name} cannot be used",
                f"  why: {inputs.names[row]}: {why}\n  what to do: use the names or the numbers of "
                "the model's classes",
            )
        return found.values

    inputs, shares = source.validated, None
    known = labels(source.held_back, "the data")
    known = np.concatenate([known, np.full(len(inputs) - len(known), np.nan)])
    if options.labelled is not None:
        more = inputs_of(options.labelled, source.model, source.length, options.long, partial=True)
        more = more.tell(note).readable(note).require_finite()
        named = isinstance(options.labelled, str | Path)
        name = str(options.labelled) if named else "the labelled inputs"
        found = labels(more, name)
        if not np.isfinite(found).any():
            raise AtlasError(
                f"no label in {name} can be used",
                why="accuracy is measured on inputs with labels",
                remedy='give each input a label, such as {"text": ..., "label": 1} a line',
            )
        shares = [*[1.0] * len(inputs), *[0.0] * len(more)] if len(inputs) else None
        inputs, known = inputs.joined(more), np.concatenate([known, found])
    if getattr(options, "min_accuracy", None) is not None and not np.isfinite(known).any():
        raise AtlasError(
            "--min-accuracy needs labels",
            why="no held-back input of the data has a label that can be used",
            remedy="give labels in --data, or labelled inputs with --labelled",
        )
    if getattr(options, "agreement", None) is not None and not len(inputs):
        raise AtlasError(
            "--agreement needs held-back inputs",
            why="agreement with the model is measured on held-back inputs",
            remedy="give a share above 0 as held-back of --ranges",
        )
    return TriedInputs(inputs, shares, known, measure)


def _trials(
    front: Front,
    prepared: PreparedModel,
    tried: TriedInputs,
    journal: Journal | None,
    threads: int | None,
    step: Step,
) -> Trials:
    """The validation of a front on held-back and labelled inputs."""
    count = len(tried.inputs)

    def exact(done: int) -> None:
        step.report(f"exact outputs of {done} of {count} inputs", 0, step.total)

    def approximations(settings: Settings) -> dict[str, Approximation]:
        space = front.parametrisation
        return settings_approximations(prepared.module, settings, prepared.calibration, space)

    known = prepared.validated_answers(exact) if tried.inputs is prepared.source.validated else None
    validator = Validator(
        prepared.module, tried.inputs.arrays, threads, tried.shares, exact,
        measure=tried.measure, varying=front.variation, labels=tried.labels, exact=known,
    )  # fmt: skip
    return Trials(validator, approximations, journal, step.report)
