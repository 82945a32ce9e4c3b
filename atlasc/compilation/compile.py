"""``compile`` from a model and data to a bundle: runs all stages and writes a report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from atlasc.bundle.folder import ATTENTION_WINDOW, PREFILL, STEP, Bundle, load_bundle
from atlasc.bundle.kept import write_kept
from atlasc.bundle.manifest import PROGRAM_FILE
from atlasc.bundle.sent import sent_by
from atlasc.bundle.writer import write_bundle
from atlasc.calibration.calibrate import Calibration
from atlasc.calibration.measure import blas_threads
from atlasc.calibration.room import with_room
from atlasc.client.program import client_program
from atlasc.compilation.checks import check_compile
from atlasc.compilation.fronts import front_files, journal_place, keeping, load_front
from atlasc.compilation.generation.programs import Decoder, TextPrograms, head_side, text_programs
from atlasc.compilation.lowering import MAGNITUDE_INPUTS, lower_module
from atlasc.compilation.noise_bound import changes
from atlasc.compilation.options import CompileOptions, TargetOptions
from atlasc.compilation.oracle.asking import Asked
from atlasc.compilation.oracle.figures import figures
from atlasc.compilation.prepare import PreparedModel, prepare
from atlasc.compilation.search import SEARCH_INPUTS, search, search_inputs, search_problem
from atlasc.compilation.source import Source
from atlasc.compilation.statement import measure_of, require, require_enough, tried_program
from atlasc.emit.project import write_project
from atlasc.files import new_folder
from atlasc.generation.ends import Ends
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.generation.folder import settings_of
from atlasc.loading.generation.settings import Settings
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.texts.public_prefix import PublicPrefix, prefix_alone, read_public_prefix
from atlasc.passes.approximation.approximate import apply_recipe, apply_settings, depth_of
from atlasc.passes.generation.decode_step import attention_window
from atlasc.passes.generation.public_rows import Prefix
from atlasc.passes.pipeline import Lowered
from atlasc.program.function import EngineParameters
from atlasc.program.key_plan import KeyPlan
from atlasc.progress import Steps, quiet, silent
from atlasc.report.polynomials import polynomials
from atlasc.report.report_page import report_html
from atlasc.report.summary import noise_by_kind, program_facts
from atlasc.search.distance import MOST, Distances, Distant
from atlasc.search.front import Front
from atlasc.search.points import Point
from atlasc.search.strategies import DEFAULT, find_strategy
from atlasc.simulation.agreement import Measure, Promise, promised
from atlasc.simulation.output_errors import simulated_errors
from atlasc.targets import find_target
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import with_embedding
from atlasc.version import __version__

PROJECT = "project"
"""Folder in a bundle for the C++ project of a target without a library for Python."""


class Compiled(NamedTuple):
    """The results of ``compile``: the bundle, and the prepared and the lowered model behind it."""

    bundle: Bundle
    prepared: PreparedModel
    lowered: Lowered


class Chosen(NamedTuple):
    """An nn module with approximations, how they were chosen, and the front of any search."""

    module: Module
    settings: dict[str, Any]
    front: Front | None = None


def compile_model(
    model: Any,
    data: Any,
    output: Path,
    options: CompileOptions | None = None,
    steps: Steps = silent,
    *,
    tokenizer: Any = None,
    processor: Any = None,
    journal: Path | None = None,
    note: Callable[..., None] = quiet,
) -> Compiled:
    """Compile a model into a bundle, which appears whole or not at all.

    During a search its evaluations lie beside the output; the written bundle contains them.

    Args:
        model: see ``model_of``.
        data: see ``inputs_of``.
        output: a folder that does not exist.
        options: the options; None for the defaults.
        steps: progress.
        tokenizer, processor: for a model in memory.
        journal: another file for the evaluations of the search, which stays.
        note: called with a headline and details for whatever a user should know of the data or the
            search.

    Raises:
        AtlasError: any stage fails. The output, the target, the recipe, the strategy and a saved
            front are checked before any work is done.
    """
    options = options or CompileOptions()
    check_compile(output, options)
    public = "" if options.public_prefix is None else read_public_prefix(options.public_prefix)
    saved = None if options.front is None else load_front(options.front)
    if saved is not None:
        options.pick(saved.front)  # refuse before any work
    searched = saved is None and options.recipe is None
    journal = journal_place(output, journal) if searched else None
    prepared = prepare(
        model, data, options, steps, saved,
        batch=options.batch, tokenizer=tokenizer, processor=processor, note=note,
        journal=journal, public_text=public,
    )  # fmt: skip
    with blas_threads(1):
        prefix = _public(prepared.source)
        if options.generate:  # refuses other models before any work
            head = head_side(prepared.module, options.head, prefix)
            _generation(prepared.source.model)
        require_enough(len(prepared.source.validated), options.unsafe_at_most)
        chosen = choose(
            prepared, options, steps, None if saved is None else saved.front,
            journal=journal, note=note,
        )  # fmt: skip
        inputs = prepared.source.few(MAGNITUDE_INPUTS, prepared.calibration.extremes).arrays
        lowered = lower_module(chosen.module, inputs, options, steps)
        # A step inherits no promise of the window: what it adds up from earlier steps is not known.
        window = replace(lowered.poly, attributes=lowered.poly.attributes.copy())
        if prefix is not None:
            chosen.settings["public_tokens"] = prefix.tokens
        measure = measure_of(prepared.source.model, prepared.traced, options.measure)
        measure = measure if chosen.front is None else chosen.front.measure
        _promise(lowered, chosen.settings, measure)
        found = tried_program(prepared, chosen.settings, lowered, steps)
        require(found, options.unsafe_at_most)
        chosen.settings["statements"] = [one.to_dict() for one in found]
        _beside(prepared, chosen, lowered, steps)
        of_text = None
        if options.generate:
            decoder = Decoder.of(chosen.module, window, inputs, head, prefix, options, steps)
            of_text = text_programs(decoder, options.prefill)
        with keeping(journal, output) as kept, steps("writing the bundle"):
            bundle = write_program(
                output, prepared.source, chosen, prepared.calibration, lowered,
                options, kept, of_text,
                prepared.asked if options.keep_answers else None, options.name,
            )  # fmt: skip
    return Compiled(bundle, prepared, lowered)


def _public(source: Source) -> Prefix | None:
    """The public prefix as inputs of the window; None if there is none."""
    if source.prefix is None or source.length is None:
        return None
    arrays = prefix_alone(source.model, source.prefix, source.length)
    return Prefix(arrays, len(source.prefix.ids))


def _generation(model: LoadedModel) -> Settings:
    """How the model's folder says that tokens are chosen; a client can do what it says."""
    found, size = settings_of(model.directory), model.size("vocab_size")
    if size is not None:
        found.require_vocabulary(size, model.source)
    Ends(found, model)
    return found


def _promise(lowered: Lowered, settings: dict[str, Any], measure: Measure) -> None:
    """Write the promise (by how much an answer may err) into the poly module and the settings."""
    noise = max(op.attributes.get("noise", 0.0) for op in lowered.program.outputs)
    made = promised(measure, settings["error"], settings["variation"], noise)
    lowered.poly.attributes |= made.attributes()
    settings["promise"] = {**made.attributes(), "words": str(Promise.of(lowered.poly))}


def _beside(prepared: PreparedModel, chosen: Chosen, lowered: Lowered, steps: Steps) -> None:
    """Write how far each stage of the program is from the model itself into the settings."""
    if (asked := prepared.asked) is None:
        return
    with steps("comparing the program with the model itself"):
        found = figures(asked, prepared.traced, lowered, searched=chosen.front is not None)
    rounded = {n: far if far is None else float(f"{far:.2g}") for n, far in found.items()}
    chosen.settings["from_model"] = {"inputs": len(asked.inputs), **rounded}


def write_program(
    output: Path,
    source: Source,
    chosen: Chosen,
    calibration: Calibration,
    lowered: Lowered,
    options: TargetOptions,
    texts: Mapping[str, str] | None = None,
    of_text: TextPrograms | None = None,
    asked: Asked | None = None,
    name: str | None = None,
) -> Bundle:
    """Write a bundle with a report into a new folder, which appears whole or not at all.

    ``texts`` are further files: name -> content. For ``phantom`` the bundle contains a C++ project.
    The programs ``of_text`` are bundles of their own in it. What was ``asked`` is kept in the part
    of the owner.
    """
    parameters = cast(ParameterSet, lowered.parameters)
    module, target = chosen.module, find_target(options.target)
    facts: dict[str, Any] = {
        "atlasc": __version__,
        "model": {
            "name": source.model.name,
            "kind": source.model.kind,
            "notes": ["\n".join(note) for note in source.model.notes],
        },
        "target": target.name,
        "batch": module.inputs[0].attributes["shape"][0],
        "sequence_length": source.length,
        "settings": chosen.settings,
        "data": {"inputs": len(source.inputs), "digest": source.inputs.digest()},
        "calibration": calibration.to_dict(),
        **program_facts(lowered.program, parameters, depth_of(module)),
    }
    front = None if chosen.front is None else chosen.front.untimed()
    ops = polynomials(module, lowered.poly)
    shape = EngineParameters.of(parameters)
    noise = noise_by_kind(changes(lowered.program, parameters.noise_model(), shape))
    sent = sent_by(lowered.program, parameters, target.name, facts["costs"]["seconds"])
    files = {"report.html": report_html(facts, front, ops, noise, str(sent or ""))}
    facts |= {"name": name} if name else {}  # bundles without one stay as they were
    files |= {**(texts or {}), **(front_files(front) if front is not None else {})}
    with new_folder(output) as draft:
        for name, text in files.items():
            (draft / name).write_text(text, encoding="utf-8")
        if asked is not None:
            write_kept(draft, asked.inputs.arrays, asked.answers, source.secret())
        if of_text is not None:
            _write_text(draft, of_text, source, facts, module)
        program = _write(draft, lowered, source, facts)
        if target.writes_project:
            # Users build the project in the bundle, so the manifest has no digests of its files.
            file = draft / PROGRAM_FILE
            write_project(draft / PROJECT, program, parameters, target.runtime_engine, file)
    return load_bundle(output)


def _write_text(
    draft: Path, text: TextPrograms, source: Source, facts: dict[str, Any], module: Module
) -> None:
    """Write the bundles of the step and of the prefill into the bundle of the window.

    The client's part of the step has the plan of the keys of both, which are made for the step.
    """
    side = "server" if text.step.head is None else "client"
    settings = facts["settings"] | {"head": side, "no_prefill": text.why}
    for name, one in ((STEP, text.step), (PREFILL, text.prefill)):
        if one is not None:
            (draft / name).mkdir()
            own = program_facts(one.program, cast(ParameterSet, one.parameters), depth_of(module))
            if name == STEP and (back := attention_window(module)) is not None:
                own["settings"] = settings | {ATTENTION_WINDOW: back}
            more = (source.prefix, text.keys, _generation(source.model)) if name == STEP else ()
            _write(draft / name, one, source, facts | {"settings": settings} | own, *more)


def _write(
    draft: Path,
    lowered: Lowered,
    source: Source,
    facts: dict[str, Any],
    prefix: PublicPrefix | None = None,
    keys: KeyPlan | None = None,
    generation: Settings | None = None,
) -> Module:
    """Fill the folder of a bundle; returns its program."""
    program = with_embedding(lowered.program, lowered.client)
    client = client_program(lowered.client, program, lowered.head, keys)
    parameters = cast(ParameterSet, lowered.parameters)
    of_text = (prefix, generation)
    write_bundle(draft, client, program, parameters, lowered.poly, source.model, facts, *of_text)
    return program


def choose(
    prepared: PreparedModel,
    options: CompileOptions,
    steps: Steps = silent,
    front: Front | None = None,
    **searching: Any,
) -> Chosen:
    """Choose approximations: by the recipe, from a front, or by a search with a modest budget.

    Args:
        prepared: the traced model with its data and ranges.
        options: the options of ``compile``.
        steps: progress.
        front: a saved front to pick from; None searches.
        searching: attributes of `SearchProblem`: journal, note, ...

    Raises:
        AtlasError: no setting is within the limits, or values explode under the recipe.
    """
    if options.recipe is not None:
        return _by_recipe(prepared, options, options.recipe, steps)
    if front is not None:
        kept = Distant(options.pick(front))
    else:
        modest = find_strategy(options.strategy or DEFAULT).modest(options.budget)
        front = search(prepared, options, steps, pick=options.pick, budget=modest, **searching)
        if not front.complete:
            place = searching["journal"]
            raise KeyboardInterrupt(f"the same command continues from the evaluations in {place}")
        kept = distant(prepared, options, front, options.pick(front), steps)
        front = front.with_point(kept.point)
    point, ranges = kept.point, with_room(prepared.calibration, kept.room)
    space, found = front.parametrisation, point.to_dict()
    module = apply_settings(prepared.module, point.settings, ranges, space)
    settings = {
        "strategy": front.strategy,
        "seed": front.facts.get("seed"),
        "budget": front.facts.get("options"),
        "cost": front.cost,
        "parametrisation": space.to_dict(),
        "layers": found.pop("settings"),
        **found,
        "variation": front.variation,
        "held_back": front.held_back,
        "distance": {"room": kept.room, "price": kept.price},
        "is_cost": front.expert.cost(front.cost) if front.expert and front.expert.valid else None,
    }
    return Chosen(module, settings, front)


def distant(
    prepared: PreparedModel, options: CompileOptions, front: Front, picked: Point, steps: Steps
) -> Distant:
    """The setting that was picked, or one a little dearer, with ranges that reach further.

    A margin that the user names is taken as it is, and so are ranges that hold for every input.
    Without a greatest error there is nothing to spend.
    """
    wanted = options.wanted(front)
    taken = options.margin, wanted.accuracy, wanted.agreement
    named = any(one is not None for one in taken) or options.ranges == "certified"
    if named or wanted.error is None or picked.error > wanted.error:
        return Distant(picked)
    problem = replace(
        search_problem(prepared, options),
        parametrisation=front.parametrisation, cost=front.cost, measure=front.measure,
    )  # fmt: skip
    with steps("widening the ranges", MOST) as step, blas_threads(1):
        of = Distances(problem, front, wanted, lambda done: step.report("", done, MOST))
        return of.best(picked, prepared.source.validated.arrays, prepared.validated_answers())


def _by_recipe(
    prepared: PreparedModel, options: CompileOptions, recipe: str, steps: Steps
) -> Chosen:
    arrays, shares = search_inputs(prepared, options.seed, SEARCH_INPUTS)
    module = apply_recipe(prepared.module, recipe, prepared.calibration)
    with steps("simulating the polynomials"):
        measure = measure_of(prepared.source.model, prepared.traced, options.measure)
        found, varying, exploded_at = simulated_errors(module, arrays, shares, measure)
        error = found.error
    if not np.isfinite(error):
        source = prepared.source
        loops = source.repetitions
        short = len(source.measured) > len(source.inputs) + loops
        raise AtlasError(
            f"under the recipe {recipe} values explode on this model's own data"
            + (", or on prefixes of its texts" if short else "")
            + (", or on repetitions of them" if loops else ""),
            where=exploded_at or "",
            why="the published settings of this recipe do not suit the model's ranges",
            remedy="search for settings (leave --recipe out)"
            + (", or try --recipe is" if recipe != "is" else "")
            + (", or --without prefixes if you will give no shorter texts" if short else "")
            + (", or --without repetitions if the model will write none" if loops else ""),
        )
    depth = depth_of(module)
    point = Point(depth.blocks, depth.levels, error, ())
    if not options.limits.allows(point):
        raise AtlasError(
            f"the recipe {recipe} has {point}",
            why=f"the limits: {options.limits}",
            remedy="leave --recipe out, to search for settings within the limits",
        )
    figures = {name: figure for name, figure in found._asdict().items() if figure is not None}
    if measure != "tokens":
        del figures["mean_error"]  # it is the error
    return Chosen(module, {"recipe": recipe, **figures, "variation": varying})
