"""``atlasc trace``, ``calibrate``, ``lower`` and ``opt``: stages of compile, each on its own."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.cli.commands.compile import list_held_back
from atlasc.cli.errors import warn
from atlasc.cli.output import print_json, print_table, say
from atlasc.cli.parameters import DATA, FOLDER, FOR_TARGET, JSON, Model, required
from atlasc.cli.progress import progress
from atlasc.cli.results import print_summary, say_of_keys, warn_of_costs
from atlasc.compilation.declared import option
from atlasc.compilation.options import BatchOptions, CalibrationOptions, LowerOptions

if TYPE_CHECKING:
    from atlasc.ir.module import Module
    from atlasc.passes.framework.pass_base import Pass, Report
    from atlasc.targets.base import Target


def trace(
    model: Model,
    options: BatchOptions,
    output: Path = required("File to write, .air.", "-o"),
    data: Path | None = option(None, "Inputs, whose length a text model is traced for."),
    weights: bool = option(
        True, "Shapes alone, from a config; no arrays.", "--weights/--no-weights"
    ),
) -> None:
    """Trace a model to nn IR: FILE.air and, with the weights, FILE.safetensors."""
    from atlasc.files import require_file_place, write_module

    require_file_place(output, ".air")
    from atlasc.compilation.prepare import trace_model
    from atlasc.loading.data import inputs_of
    from atlasc.loading.models import load_model

    with progress("loading the model"):
        loaded = load_model(model, trust_pickle=options.trust_pickle, weights=weights)
    length = options.sequence_length
    if data is not None:
        ids = inputs_of(data, loaded, length).arrays.get("input_ids")
        length = length if ids is None else ids.shape[1]
    with progress("tracing"):
        module = trace_model(loaded, options.batch, length)
    with progress("writing"):
        write_module(output, module, arrays=weights)
    say(f"{output}: {len(module.ops)} ops, {len(module.symbols)} arrays")


def calibrate(
    model: Model,
    options: CalibrationOptions,
    data: Path = DATA,
    output: Path | None = option(None, "File to write, .json.", "-o"),
    as_json: bool = JSON,
) -> None:
    """Measure the ranges of all nonlinear ops; validate them on held-back inputs."""
    from atlasc.compilation.checks import check_calibration
    from atlasc.compilation.prepare import prepare
    from atlasc.files import require_file_place, write_text

    if output is not None:
        require_file_place(output, ".json")
    check_calibration(options)
    found = prepare(model, data, options, progress).calibration
    if output is not None:
        write_text(output, json.dumps(found.to_dict(), indent=1) + "\n")
    if not found.held_back:
        warn("no input was held back", "  why: nobody knows how often a new input leaves a range")
    if as_json:
        print_json({**found.to_dict(), "leaving": found.leaving})
        return
    keys = ("location", "op", "kind", "low", "high", "seen_low", "seen_high", "leaving")
    print_table(
        ("module", "op", "range of", "low", "high", "seen low", "seen high", "left by"),
        [[row[key] for key in keys] for row in found.table()],
    )
    margin = "margins from the data" if found.margin is None else f"margin {found.margin:g}"
    print(f"{found.inputs} inputs, {margin}")
    list_held_back(found)


def lower(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="nn module (.air), or a model."),
    ],
    options: LowerOptions,
    output: Path = FOLDER,
) -> None:
    """Lower an nn module with approximations to poly.air and program.air."""
    from atlasc.compilation.single_stages import lower_alone

    warn_of_costs(options.target, options.costs)
    lowered, costs = lower_alone(source, output, options, progress, warn)
    print_summary(costs)
    say_of_keys(lowered.program, options.key_memory or options.device_memory)


def opt(
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help=".air file, or - for standard input."),
    ] = None,
    passes: str = option("", "pass-a,pass-b{x=1}; none only checks the text.", "-p"),
    output: Path | None = option(None, "File to write instead, .air.", "-o"),
    print_ir_after_all: bool = option(False, "Print each pass's result on standard error."),
    verify_each: bool = option(
        False, "Also check that the text of each result reads back as the same module."
    ),
    explain: bool = option(False, "Print what each pass did, and did not, on standard error."),
    target: str = FOR_TARGET,
    list_passes: bool = option(False, "List the passes and exit.", "--list"),
) -> None:
    """Run passes on IR text: text in, text out.

    Arrays are read from the .safetensors beside FILE; without it they are zeros. The verifier runs
    on the input and after every pass.
    """
    if list_passes:
        _list()
        return
    if file is None:
        raise typer.BadParameter("give a .air file, - for standard input, or --list")
    from atlasc.files import require_file_place, write_module
    from atlasc.ir.text.printer import print_module
    from atlasc.ir.verifier import verify
    from atlasc.passes.framework.pass_base import parse_pipeline, run_passes
    from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
    from atlasc.passes.pipeline import PASSES, check_level
    from atlasc.targets import find_target
    from atlasc.targets.program import with_matching_parameters

    if output is not None:
        require_file_place(output, ".air")
    chosen = find_target(target)
    steps = parse_pipeline(passes, PASSES)
    module, arrays = _read(file)
    verify(module)

    def after(step: Pass, result: Module, report: Report) -> None:
        if explain:
            for line in report.lines or ["nothing to report"]:
                print(f"{step.name}: {line}", file=sys.stderr)
        if print_ir_after_all:
            print(f"// --- after {step} ---\n{print_module(result)}", file=sys.stderr)
        if verify_each:
            _check_round_trip(step, result)

    for step in steps:
        check_level(step, module)
        module = run_passes(module, [_equipped(step, module, chosen)], after_each=after)
        if isinstance(step, PlaceBootstraps):
            module = with_matching_parameters(module, chosen)
    if output is None:
        print(print_module(module), end="")
    else:
        write_module(output, module, arrays=arrays)


def _equipped(step: Pass, module: Module, target: Target) -> Pass:
    """A pass with what it has to know of the backend: costs of ops, sizes and costs of keys."""
    from atlasc.compilation.lowering import key_model
    from atlasc.passes.lowering.place_bootstraps import PlaceBootstraps
    from atlasc.passes.lowering.rotation_keys import RotationKeys
    from atlasc.targets.costs import costs_of
    from atlasc.targets.program import parameters_of

    if isinstance(step, PlaceBootstraps):
        slots = module.attributes["slots"]
        found = target.parameters.matching(slots, step.levels, step.bootstrap)
        costs = None if found is None else costs_of(found)
        return replace(step, costs=costs, fewest=costs is not None)
    if isinstance(step, RotationKeys):
        found = parameters_of(module)
        return step if found is None else replace(step, model=key_model(found))
    return step


def _read(file: str) -> tuple[Module, bool]:
    """The module, and whether its arrays are there."""
    from atlasc.ir.text.parser import parse
    from atlasc.ir.text.storage import load_module

    if file == "-":
        return parse(_standard_input(), {}, "standard input"), False
    path = Path(file)
    return load_module(path), path.with_suffix(".safetensors").exists()


def _standard_input() -> str:
    from atlasc.ir.errors import AtlasError, explained
    from atlasc.ir.text.storage import MAX_TEXT

    content = sys.stdin.buffer.read(MAX_TEXT + 1)
    if len(content) > MAX_TEXT:
        raise AtlasError("standard input is too large", why=f"a text has at most {MAX_TEXT} bytes")
    with explained("standard input is not UTF-8 text"):
        return content.decode("utf-8-sig")


def _check_round_trip(step: Pass, module: Module) -> None:
    from atlasc.ir.errors import AtlasError
    from atlasc.ir.text.parser import parse
    from atlasc.ir.text.printer import print_module

    text = print_module(module)
    if print_module(parse(text, module.symbols, f"after {step.name}")) != text:
        raise AtlasError(
            f"after {step.name}: the text of the module does not read back as the same module",
            remedy="this is a bug in the pass; please report it with the module's text",
        )


def _list() -> None:
    from atlasc.passes.pipeline import PASSES, describe

    for name, kind in PASSES.items():
        options, text = describe(kind)
        print(f"{name}{{{options}}}" if options else name)
        print(f"    {text}")
