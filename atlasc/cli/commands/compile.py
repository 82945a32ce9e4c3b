"""``atlasc compile`` and ``atlasc search``: from a model and data to a program, or to a front."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.api.progress import progress
from atlasc.cli.keys import Keyed, declared_of
from atlasc.cli.output import print_json, print_table, say, warn
from atlasc.cli.parameters import DATA, FOLDER, JSON, Model
from atlasc.cli.results import (
    list_held_back,
    list_outliers,
    print_summary,
    say_of_keys,
    say_of_ranges,
    say_of_text,
    text_facts,
    warn_of_costs,
)
from atlasc.compilation.declared import option
from atlasc.compilation.options import CalibrationOptions, CompileOptions, SearchOptions

if TYPE_CHECKING:
    from atlasc.bundle.folder import Bundle
    from atlasc.calibration.calibrate import Calibration
    from atlasc.search.front import Front
    from atlasc.search.points import Point
    from atlasc.simulation.agreement import Measure

SHOWN_POINTS = 8
"""How many points of a front are listed; ``--json`` and the files have all of them."""


def compile(
    model: Model,
    options: CompileOptions,
    data: Path = DATA,
    output: Path = FOLDER,
    as_json: bool = JSON,
) -> None:
    """Compile a model and its data to a program on encrypted inputs.

    Without --recipe and --front, the settings of the polynomials are searched with a modest budget.
    compile takes the cheapest setting within --max-error, --min-accuracy and --agreement. If only
    --max-depth, --max-levels or --max-seconds are given, it takes the most accurate setting within
    them. Without any limit it takes the cheapest setting whose error is at most 0.2% of how the
    outputs vary, or the most accurate one if none is that accurate. --max-depth implies --cost
    depth, and --max-levels implies --cost levels. Settings that change the model's answer on a
    held-back input are avoided.
    """
    from atlasc.compilation.checks import check_compile
    from atlasc.compilation.compile import compile_model
    from atlasc.files import claimed

    check_compile(output, options)
    warn_of_costs(options.target, options.costs)
    with claimed(output):
        bundle, prepared, lowered = compile_model(model, data, output, options, progress, note=warn)
    calibration = prepared.calibration
    _warn(bundle, calibration)
    if as_json:
        shown = {"name", "model", "target", "batch", "settings", "costs"}
        held_back = {"inputs": calibration.held_back, "leaving": calibration.leaving}
        facts = bundle.manifest.model_dump(include=shown)
        place = {"bundle": str(bundle.folder), "identity": bundle.identity}
        text = {"text": text_facts(bundle)} if bundle.has_step else {}
        print_json({**place, **facts, "held_back": held_back, **text})
        return
    if read := prepared.source.inputs.read:
        say(f"data: {read}")
    _show_program(bundle, calibration, data)
    say_of_keys(lowered.program, options)


def _warn(bundle: Bundle, calibration: Calibration) -> None:
    """Warn of gaps in the data, and of anything that would stop a run on this machine."""
    from atlasc.api.admission import what_answers
    from atlasc.ir.errors import AtlasError
    from atlasc.targets import find_target
    from atlasc.targets.machine import available_bytes

    if not calibration.held_back:
        warn("no input was held back", "  why: nobody knows how often a new input leaves a range")
    for violation in calibration.violations[:1]:
        warn(
            "new inputs may leave the ranges",
            f"  why: {violation}\n  what to do: give more --data, or a larger margin of --ranges",
        )
    settings: Any = bundle.manifest.settings
    costs: Any = bundle.manifest.costs
    if settings.get("agrees") is False:
        warn(
            f"only {settings['agreement']:.2%} of the held-back inputs get the same answer as from "
            "the model",
            f"  why: {settings['promise']['words']}; "
            f"{100 * settings['agreement_asked']:g}% of the answers should agree\n"
            "  what to do: give a smaller --max-error, more --max-levels or --max-seconds, or "
            f"--agreement {100 * settings['agreement_asked']:g}%; the manifest of the bundle says "
            "that this program disagrees with the model",
        )
    if settings.get("unsafe"):
        warn(
            f"under these polynomials, {settings['unsafe']} of {settings['held_back']} held-back "
            "inputs are unsafe",
            "  why: no setting within the limits has fewer, or tolerated of --ranges allows it\n"
            "  what to do: " + "; or\n    ".join(["relax the limits", *what_answers(settings)]),
        )
    target, needed, free = find_target(bundle.target), costs["memory_bytes"], available_bytes()
    if not target.encrypted or target.writes_project:
        return
    try:
        target.check()
    except AtlasError as error:
        warn(error.what, f"  what to do: {error.remedy}" if error.remedy else "")
    if free is not None and free < needed:
        warn(
            "this machine has too little free memory to run the program",
            f"  why: it needs about {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free",
        )


def _show_program(bundle: Bundle, calibration: Calibration, data: Path) -> None:
    from atlasc.compilation.compile import PROJECT
    from atlasc.compilation.oracle.figures import far_words
    from atlasc.compilation.statement import Statement
    from atlasc.simulation.agreement import MEAN_ERROR
    from atlasc.targets import find_target

    say_of_ranges(calibration)
    list_held_back(calibration)
    list_outliers(calibration.outliers)
    settings: dict[str, Any] = bundle.manifest.settings
    name = MEAN_ERROR[settings["promise"]["agreement"]]
    how = settings.get("recipe") or f"search ({settings.get('strategy')})"
    say(
        f"settings: {how}, {name} of the polynomials {settings['error']:.3g}, "
        f"{settings['error'] / settings['variation']:.2%} of how answers vary"
    )
    distance = settings.get("distance") or {"room": {}, "price": 0.0}
    if room := distance["room"]:
        furthest = max(room.values())
        say(
            f"ranges of {len(room)} ops reach further than the data asks for, up to {furthest:.0%} "
            f"of their width at each end, for {distance['price']:.1%} more {settings['cost']}; "
            "margin of --ranges chooses otherwise"
        )
    elif distance["price"]:
        say(
            f"a more accurate setting was taken for {distance['price']:.1%} more {settings['cost']}"
        )
    if settings.get("public_tokens"):
        say(f"the first {settings['public_tokens']} tokens of a generated text are public")
    say(f"promised: {settings['promise']['words']}")
    say(f"agreement is judged by {settings['promise']['agreement']}; --measure chooses otherwise")
    if settings.get("agreement") is not None:
        say(f"agreement with the model on held-back inputs: {settings['agreement']:.2%}")
    if (apart := settings.get("from_model")) is not None:
        say(far_words(apart))
    if settings.get("accuracy") is not None:
        say(f"accuracy on labelled inputs: {settings['accuracy']:.2%}")
    if settings.get("unsafe") is not None:
        say(
            f"on {settings['held_back']} held-back inputs: {name} "
            f"{float(settings['held_back_error']):.3g}, {settings['unsafe']} are unsafe"
        )
    for statement in settings.get("statements", ()):
        say(str(Statement(**statement)))
    print_summary(bundle.manifest.costs)
    if bundle.has_step:
        say_of_text(text_facts(bundle))
    say(f"written to {bundle.folder} for {bundle.target}; {bundle.folder / 'report.html'}")
    project, place = bundle.folder / PROJECT, shlex.quote(str(bundle.folder))
    run = f"atlasc run {place} --input {shlex.quote(str(data))} --index 0"
    target = find_target(bundle.target)
    if bundle.has_step and not target.here:
        say(f"text: atlasc generate, where atlasc is installed for {target.name}")
    if not project.is_dir() or target.here:
        say(f"next: {run}")
    elif target.runtime_engine == "phantom":
        place = shlex.quote(str(project))
        say(f"next, where CUDA and Phantom are: see {project / 'README.md'};")
        say(f"  cmake -S {place} -B {place}/build && cmake --build {place}/build")
    else:
        say(f"next, where CUDA is: atlasc emit {place} --build --python -o {place}-built")
        say(f"  {run} --project {place}-built")


def search(
    model: Model,
    options: SearchOptions,
    data: Path = DATA,
    output: Path | None = option(
        "New folder for front.json, front.png, front.html and calibration.json.", "-o"
    ),
    inputs: str = option(
        "Inputs on which settings are compared, beside up to 10 extreme inputs.",
        metavar="N|all",
        default="10",
    ),
    journal: Path | None = option(
        "File for the evaluations, to continue after an interrupt.", unset="beside the output"
    ),
    live: Path | None = option(
        "A page that shows the front while the search runs, an .html file; a browser reads it "
        "again by itself."
    ),
    as_json: bool = JSON,
) -> None:
    """Search settings of the polynomials: a Pareto front of cost against error.

    If you interrupt the search, it shows the front found so far. With -o or --journal the same
    command continues the search, whatever ended it.
    """
    from contextlib import ExitStack

    from atlasc.compilation.checks import check_search
    from atlasc.compilation.fronts import front_files, journal_place, save_front
    from atlasc.compilation.prepare import prepare
    from atlasc.compilation.search import search as run_search
    from atlasc.files import claimed, require_file_place, require_new
    from atlasc.report.front_page import LivePage

    compared = _count(inputs)
    if live is not None:
        require_file_place(live, ".html")
    if output is not None:
        require_new(output)
    check_search(options)
    if options.minimised == "latency":
        warn_of_costs("sim", options.costs)
    place = journal_place(output, journal)
    command = [] if output is None else _command(output, model, data, options)
    with claimed(output, journal), ExitStack() as stack:
        prepared = prepare(model, data, options, progress, note=warn, journal=place)
        page = None if live is None else stack.enter_context(LivePage(live))
        front = run_search(
            prepared, options, progress, inputs=compared, journal=place, note=warn,
            watch=None if page is None else page.show,
        )  # fmt: skip
        if page is not None:
            page.end(front_files(front, command)["front.html"])
        if output is not None and front.complete:
            save_front(output, front, prepared.calibration, place, command)
    if as_json:
        print_json(front.to_dict())
    else:
        _show_front(front)
        if output is not None and front.complete and front.points:
            _say_next(output, front, command)
    if not front.complete:
        raise KeyboardInterrupt(
            "this is the front of the evaluations so far"
            if place is None
            else f"the same command continues from the evaluations in {place}"
        )


def _count(inputs: str) -> int | None:
    """A number of inputs; None for all."""
    from atlasc.ir.errors import AtlasError

    if inputs == "all":
        return None
    if not inputs.isdecimal() or int(inputs) < 1:
        raise AtlasError(
            f"--inputs cannot be {inputs!r}", remedy="give a number of 1 or more, or 'all'"
        )
    return int(inputs)


def accuracy_words(front: Front) -> str:
    """Say on which inputs the accuracy of a front was measured, and how sure it is."""
    from atlasc.simulation.intervals import wilson

    model = front.model_accuracy
    what = "accuracy" if front.measure == "class" else "correlation"
    if model is None:
        return f"{what}: not defined on the {front.labelled} labelled inputs"
    text = f"{what}: on {front.labelled} labelled inputs; the model in the clear has {model:.2%}"
    if front.measure == "class":
        low, high = wilson(model * front.labelled, front.labelled)
        text += f", with 95% confidence {low:.1%} to {high:.1%}"
    return text


def _remark(point: Point, measure: Measure) -> str:
    if not point.agrees(measure):
        return "disagrees with the model"
    return "wrong on some inputs" if point.unsafe else ""


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{share:.2%}"


def _show_front(front: Front) -> None:
    from atlasc.simulation.agreement import DESCRIPTIONS, LEAST_AGREEMENT
    from atlasc.simulation.output_errors import ERRORS

    if not front.points:
        warn("no setting stays finite", "  what to do: more --data, or a larger budget")
        return
    last, shown = len(front.points) - 1, min(SHOWN_POINTS, len(front.points))
    places = sorted({round(last * step / max(shown - 1, 1)) for step in range(shown)})
    named = {str(place + 1): front.points[place] for place in places}
    if front.expert is not None:
        named["is"] = front.expert
    points = list(named.values())
    columns: dict[str, list[Any]] = {
        "point": list(named),
        "depth": [point.depth for point in points],
        "levels by formula": [point.levels for point in points],
        "predicted seconds": [point.seconds for point in points],
        "bootstraps": [point.bootstraps for point in points],
        "error": [point.error for point in points],
        "KL": [point.divergence for point in points],
        "top-1": [_percent(point.top_1) for point in points],
        "held-back error": [point.held_back_error for point in points],
        "unsafe": [point.unsafe for point in points],
        "agreement": [_percent(point.agreement) for point in points],
        "accuracy": [_percent(point.accuracy) for point in points],
        "": [_remark(point, front.measure) for point in points],
    }
    known = {title: cells for title, cells in columns.items() if set(cells) not in ({None}, {""})}
    print_table(list(known), zip(*known.values()))
    print(
        f"{len(places)} of the {len(front.points)} points of the front, from cheap to accurate"
        + ("" if front.expert is None else "; is: the recipe of that name")
    )
    print(f"error: {ERRORS[front.measure]}")
    if front.held_back:
        print(f"unsafe: of {front.held_back} held-back inputs")
        print(
            f"agreement: share of inputs whose answers agree with the model's, by "
            f"{DESCRIPTIONS[front.measure]}; a setting should have "
            f"{100 * LEAST_AGREEMENT[front.measure]:g}% or more"
        )
    if front.labelled:
        print(accuracy_words(front))
    print(
        f"{front.evaluations} evaluations, {front.distinct} of them different, in "
        f"{front.seconds:.1f} s; hypervolume {front.hypervolume:.4f}"
    )


def _command(output: Path, model: str, data: Path, options: SearchOptions) -> list[str]:
    """The words of a command that compiles a point of a saved front: it gives the options of the
    search again that decide what the model and the data are.
    """
    kept = ("margin", "ranges")  # in the front
    given = {
        one.name: getattr(options, one.name)
        for one in fields(CalibrationOptions)
        if one.name not in kept
    }
    words = ["atlasc", "compile", model, "--data", str(data), "--front", str(output)]
    words += Keyed(declared_of(CalibrationOptions)).words(given)
    return words if options.costs is None else [*words, "--costs", str(options.costs)]


def _say_next(output: Path, front: Front, command: list[str]) -> None:
    from atlasc.compilation.options import MAX_ERROR

    point = front.recommended(MAX_ERROR[front.measure] * front.variation)
    number = str(front.points.index(point) + 1)
    say(f"all settings: {output / 'front.html'}")
    say(f"next: {shlex.join([*command, '--point', number, '-o', 'BUNDLE'])}")
