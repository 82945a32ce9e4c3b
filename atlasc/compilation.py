"""``compile`` from a model and data to a bundle, with a report on every stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

import numpy as np

from atlasc import driver
from atlasc.backends import get_backend
from atlasc.bundle import Bundle
from atlasc.driver import Compiled, Source
from atlasc.files import require_new
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.approximation.assign import apply_recipe, apply_settings, layer_count
from atlasc.passes.approximation.calibration import Calibration, SoftmaxRanges
from atlasc.passes.approximation.depth import depth_of
from atlasc.passes.approximation.measure import nonlinear_ops
from atlasc.passes.approximation.recipes import recipe as find_recipe
from atlasc.passes.approximation.simulate import PolynomialSimulator
from atlasc.passes.search.front import Cost, Front
from atlasc.passes.search.objective import kept_tokens, output_error
from atlasc.passes.search.problem import SearchProblem
from atlasc.passes.search.session import Progress
from atlasc.passes.search.strategies import strategy as find_strategy

SEARCH_INPUTS = 10
"""Inputs on which settings are compared: the paper's surrogate."""
MAX_ERROR = 1e-2
"""Greatest mean absolute error of the outputs, where the user names none."""
MODEST_BUDGET = {
    "population": 24,
    "generations": 10,
    "layer_population": 32,
    "layer_generations": 20,
}
"""Of the search inside ``compile``: 936 evaluations. ``atlasc search`` has the paper's 24,144."""

Steps = Callable[..., AbstractContextManager[Any]]
"""``steps(label, total=None, resume="")``: a context that shows progress."""


class _Silent:
    def __call__(self, advance: int = 1, note: str = "") -> None:
        """One step is done."""

    def report(self, what: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` steps."""


@contextmanager
def silent(label: str, total: int | None = None, *, resume: str = "") -> Iterator[_Silent]:
    """Steps that show nothing."""
    yield _Silent()


@dataclass(frozen=True)
class Options:
    """What ``compile`` may be told.

    Attributes:
        target: ``sim`` or ``desilo``.
        recipe: a named setting, or None to search.
        strategy: of the search.
        budget: options of the strategy that differ from the modest budget.
        max_error: greatest mean absolute error of the outputs against the cleartext model.
        sequence_length: tokens of a text; longer texts are refused.
        batch: inputs that one run answers.
        cost: what a search minimises beside the error: ``depth`` or ``levels``.
        softmax_ranges: of an iterative softmax that is searched: the paper's, or as measured.
        margin: of the ranges; None chooses it from the tail that calibration saw.
        held_back: fraction of the data that only tries the ranges.
        seed: fixes the split of the data and the search.
        trust_pickle: unpickle a ``.pt`` file.
    """

    target: str = "desilo"
    recipe: str | None = None
    strategy: str = "atlas"
    budget: Mapping[str, int] = field(default_factory=dict)
    max_error: float | None = None
    sequence_length: int | None = None
    batch: int = 1
    cost: Cost = "depth"
    softmax_ranges: SoftmaxRanges = "paper"
    margin: float | None = None
    held_back: float = 0.2
    seed: int = 0
    trust_pickle: bool = False


@dataclass(frozen=True)
class Prepared:
    """A traced model with its data and ranges."""

    source: Source
    module: Module
    calibration: Calibration


@dataclass(frozen=True)
class Chosen:
    """Approximations and how they were found.

    Attributes:
        module: nn module that carries them.
        settings: for the manifest.
        error: mean absolute error of the outputs on the search inputs; infinite where values
            explode.
        front: what a search found.
    """

    module: Module
    settings: dict[str, Any]
    error: float
    front: Front | None = None


def prepare(model: str, data: Path, options: Options, steps: Steps = silent) -> Prepared:
    """Load, trace and calibrate a model.

    Raises:
        AtlasError: of the model, the data or the trace.
    """
    with steps("loading the model and the data"):
        source = driver.load_source(
            model,
            data,
            sequence_length=options.sequence_length,
            held_back=options.held_back,
            seed=options.seed,
            trust_pickle=options.trust_pickle,
        )
    with steps("tracing"):
        module = driver.trace_model(source.model, options.batch, source.length)
    with steps("calibrating") as step:
        calibration = driver.calibrate_source(
            module,
            source,
            margin=options.margin,
            softmax_ranges=options.softmax_ranges,
            progress=lambda done, total: step.report("inputs", done, total),
        )
    return Prepared(source, module, calibration)


def search(
    prepared: Prepared,
    options: Options,
    steps: Steps = silent,
    *,
    inputs: int = SEARCH_INPUTS,
    threads: int | None = None,
    journal: Path | None = None,
) -> Front:
    """The front of a model.

    Args:
        prepared: the model.
        options: strategy, budget and seed.
        steps: shows progress.
        inputs: on how many inputs settings are compared.
        threads: among which the inputs are divided; None for the number of processors.
        journal: keeps evaluations, so that an interrupted search goes on where it stopped.
    """
    chosen = find_strategy(options.strategy)
    problem = SearchProblem(
        prepared.module,
        prepared.calibration,
        search_inputs(prepared.source, options.seed, inputs),
        options.cost,
        threads=threads,
        journal=journal,
    )
    strategy_options = chosen.make_options({**options.budget, "seed": options.seed})
    resume = "" if journal is None else f"the same command goes on with what is in {journal}"
    with steps(f"searching ({chosen.name})", strategy_options.evaluations, resume=resume) as step:

        def report(now: Progress) -> None:
            best = f"best error {now.front[-1].error:.2g}" if now.front else "none finite yet"
            step.report(best, now.done, now.total)

        return chosen.search(problem, strategy_options, report)


def search_inputs(source: Source, seed: int, count: int) -> dict[str, np.ndarray]:
    """A few inputs by name, drawn from those that calibration saw."""
    order = np.random.default_rng([seed, 1]).permutation(len(source.inputs))
    return source.inputs.take(np.sort(order[:count])).arrays


def choose(prepared: Prepared, options: Options, steps: Steps = silent) -> Chosen:
    """Approximations by the recipe, or by a search with a modest budget.

    Raises:
        AtlasError: no setting is within ``max_error``, or the recipe leaves its ranges.
    """
    arrays = search_inputs(prepared.source, options.seed, SEARCH_INPUTS)
    if options.recipe is not None:
        module = apply_recipe(prepared.module, options.recipe, prepared.calibration)
        with steps("simulating the polynomials"):
            error = simulated_error(module, arrays)
        _check_error(error, options)
        return Chosen(module, {"recipe": options.recipe, "error": error}, error)
    if layer_count(prepared.module) == 0:
        raise AtlasError(
            "the model has no blocks with nonlinear ops to search",
            remedy="use --recipe is",
        )
    budget = {**MODEST_BUDGET, **options.budget}
    modest = Options(**{**options.__dict__, "budget": budget})
    front = search(prepared, modest, steps)
    if not front.complete:
        raise KeyboardInterrupt("nothing was written; a smaller budget ends sooner")
    point = front.pick(max_error=MAX_ERROR if options.max_error is None else options.max_error)
    module = apply_settings(prepared.module, point.settings, prepared.calibration)
    settings = {
        "strategy": options.strategy,
        "seed": options.seed,
        "budget": budget,
        "cost": options.cost,
        "softmax_ranges": options.softmax_ranges,
        "error": point.error,
        "layers": [list(layer) for layer in point.settings],
    }
    return Chosen(module, settings, point.error, front)


def simulated_error(module: Module, arrays: Mapping[str, np.ndarray]) -> float:
    """Mean absolute error of a module's polynomials against its cleartext; see ``output_error``."""
    simulator = PolynomialSimulator(module)
    inputs = simulator.prepare(arrays)
    simulated = simulator.run(inputs)
    if not simulated.finite:
        return float("inf")
    reference = simulator.cleartext(inputs)
    weights = {name: kept_tokens(module, arrays, array) for name, array in reference.items()}
    return output_error(simulated.outputs, reference, weights)


def _check_error(error: float, options: Options) -> None:
    if not np.isfinite(error):
        raise AtlasError(
            f"under the recipe {options.recipe} the values explode on this model's own data",
            why="its published settings do not suit the model's ranges",
            remedy="search for settings (leave --recipe out), or try --recipe is",
        )
    if options.max_error is not None and error > options.max_error:
        raise AtlasError(
            f"the recipe {options.recipe} has an error of {error:.3g}",
            why=f"--max-error is {options.max_error:g}",
            remedy="leave --recipe out, to search for settings within it",
        )


def lower(prepared: Prepared, chosen: Chosen, target: str, steps: Steps = silent) -> Compiled:
    """Lower the chosen module for a target."""
    with steps("lowering", 8) as step:
        return driver.finish(
            prepared.source,
            chosen.module,
            prepared.calibration,
            target,
            chosen.settings,
            lambda kind, module, report: step(note=kind.name),
        )


def compile_model(
    model: str, data: Path, output: Path, options: Options | None = None, steps: Steps = silent
) -> tuple[Bundle, Compiled]:
    """Compile a model into a bundle; it appears whole or not at all.

    Args:
        model: see ``load_model``.
        data: see ``load_inputs``.
        output: a folder that does not exist.
        options: see ``Options``.
        steps: shows progress.

    Raises:
        AtlasError: of any stage; the output, the target, the recipe and the strategy are checked
            before any work is done.
    """
    from atlasc.report import report_html

    options = options or Options()
    check_options(output, options)
    prepared = prepare(model, data, options, steps)
    chosen = choose(prepared, options, steps)
    compiled = lower(prepared, chosen, options.target, steps)
    front = None if chosen.front is None else chosen.front.to_dict()
    extra = {"report.html": report_html(compiled.facts, front, polynomials(chosen.module))}
    if front is not None:
        extra["front.json"] = json.dumps(front, indent=1) + "\n"
    with steps("writing the bundle"):
        return driver.save(compiled, output, extra), compiled


def polynomials(module: Module) -> list[dict[str, Any]]:
    """A row for each nonlinear op: location, op, layer, depth, and its settings as a text."""
    attributes = {
        (op.name, op.location): op.attributes["approximation"] for op in nonlinear_ops(module)
    }
    return [
        {
            "location": op.location,
            "op": op.op,
            "layer": op.layer,
            "depth": op.depth,
            "settings": ", ".join(
                f"{name} {_short(value)}" for name, value in attributes[op.op, op.location].items()
            ),
        }
        for op in depth_of(module).ops
    ]


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"({', '.join(_short(item) for item in value)})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def check_options(output: Path | None, options: Options) -> None:
    """All checks that need neither model nor data.

    Raises:
        AtlasError: an output that exists, an unknown name, or a number out of bounds.
    """
    if output is not None:
        require_new(output)
    get_backend(options.target)
    if options.recipe is not None:
        find_recipe(options.recipe)
    find_strategy(options.strategy).make_options(dict(options.budget))
    for name, known in (("cost", get_args(Cost)), ("softmax_ranges", get_args(SoftmaxRanges))):
        if getattr(options, name) not in known:
            raise AtlasError(
                f"{name.replace('_', '-')} cannot be {getattr(options, name)!r}",
                remedy=f"use one of {', '.join(known)}",
            )
    if options.batch < 1:
        raise AtlasError(f"a batch of {options.batch} is impossible", remedy="use 1 or more")
    if options.sequence_length is not None and options.sequence_length < 1:
        raise AtlasError(f"a sequence of {options.sequence_length} tokens is impossible")
    if options.margin is not None and options.margin < 0:
        raise AtlasError(f"a margin cannot be {options.margin}", remedy="give one such as 0.05")
    if not 0 <= options.held_back < 1:
        raise AtlasError(
            f"held-back fraction {options.held_back} is not in [0, 1)",
            remedy="use a fraction such as 0.2",
        )
