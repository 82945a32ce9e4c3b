"""``atlasc trace``, ``calibrate``, ``lower`` and ``opt``: stages of compile, each on its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from atlasc.api.progress import progress
from atlasc.cli.output import print_json, print_product, print_table, say, warn
from atlasc.cli.parameters import DATA, FOLDER, FOR_TARGET, JSON, Model, required
from atlasc.cli.results import (
    list_held_back,
    list_outliers,
    print_summary,
    say_of_keys,
    say_of_ranges,
    warn_of_costs,
)
from atlasc.compilation.declared import option, switch, without
from atlasc.compilation.options import BatchOptions, CalibrationOptions
from atlasc.compilation.stage_options import LowerOptions

if TYPE_CHECKING:
    from atlasc.ir.module import Module
    from atlasc.passes.framework.pass_base import Pass, Report


def trace(
    model: Model,
    options: BatchOptions,
    output: Path = required("File to write, .air.", "-o"),
    data: Path | None = option("Inputs; a text model is traced for their length."),
    weights: bool = without("Arrays; without them, shapes are traced from a config alone."),
    as_json: bool = JSON,
) -> None:
    """Trace a model to nn IR: FILE.air and, with the weights, FILE.safetensors."""
    from atlasc.files import require_file_place, write_module

    require_file_place(output, ".air")
    from atlasc.compilation.prepare import trace_model
    from atlasc.loading.data import inputs_of
    from atlasc.loading.models import load_model

    with progress("loading the model"):
        loaded = load_model(model, trust_pickle=options.trust_pickle, weights=weights)
    for headline, details in loaded.notes:
        warn(headline, details)
    length = options.sequence_length
    if data is not None:
        ids = inputs_of(data, loaded, length).arrays.get("input_ids")
        length = length if ids is None else ids.shape[1]
    with progress("tracing"):
        module = trace_model(loaded, options.batch, length, outputs=options.outputs, note=warn)
    with progress("writing"):
        write_module(output, module, arrays=weights)
    if as_json:
        print_json({"file": str(output), "ops": len(module.ops), "arrays": len(module.symbols)})
    else:
        say(f"{output}: {len(module.ops)} ops, {len(module.symbols)} arrays")


def calibrate(
    model: Model,
    options: CalibrationOptions,
    data: Path = DATA,
    output: Path | None = option("File to write, .json.", "-o"),
    as_json: bool = JSON,
) -> None:
    """Measure the ranges of nonlinear ops; validate them on held-back inputs."""
    from atlasc.compilation.prepare import prepare
    from atlasc.files import require_file_place, write_text

    if output is not None:
        require_file_place(output, ".json")
    prepared = prepare(model, data, options, progress, note=warn)
    found, own = prepared.calibration, len(prepared.source.inputs)
    if output is not None:
        write_text(output, json.dumps(found.to_dict(), indent=1) + "\n")
    if not found.held_back:
        warn("no input was held back", "  why: nobody knows how often a new input leaves a range")
    if as_json:
        print_json({**found.to_dict(), "leaving": found.leaving})
        return
    keys = ("location", "op", "kind", "low", "high", "seen_low", "seen_high", "basis", "leaving")
    print_table(
        ("module", "op", "range of", "low", "high", "seen low", "seen high", "basis", "left by"),
        [[row[key] for key in keys] for row in found.table()],
    )
    margin = "margins from the data" if found.margin is None else f"margin {found.margin:g}"
    loops = prepared.source.repetitions
    short = found.inputs - own - loops
    made = f" and prefixes of {short} of these texts" if short else ""
    made += f" and repetitions of {loops} of {'them' if short else 'these texts'}" if loops else ""
    print(f"{own} inputs{made}, {margin}")
    say_of_ranges(found)
    list_held_back(found)
    list_outliers(found.outliers)


def lower(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="nn module (.air), or a model.")],
    options: LowerOptions,
    output: Path = FOLDER,
    as_json: bool = JSON,
) -> None:
    """Lower an nn module with approximations to poly.air and program.air."""
    from atlasc.compilation.single_stages import lower_alone

    warn_of_costs(options.target, options.costs)
    lowered, costs = lower_alone(source, output, options, progress, warn)
    if as_json:
        print_json({"folder": str(output), **costs})
        return
    print_summary(costs)
    say_of_keys(lowered.program, options)


def opt(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help=".air file, or - for standard input.")
    ] = None,
    passes: str = option("Passes: pass-a,pass-b{x=1}; without any, only check.", "-p", default=""),
    output: Path | None = option("File to write, .air.", "-o", unset="standard output"),
    print_ir_after_all: bool = switch("Print each pass's result on standard error."),
    verify_each: bool = switch(
        "Check that each result, printed and read back, is the same module."
    ),
    explain: bool = switch("Print what each pass changed and what it left, on standard error."),
    target: str = FOR_TARGET,
    list_passes: bool = switch("List the passes and exit.", "--list"),
) -> None:
    """Run passes on IR text: text in, text out.

    Arrays are read from the .safetensors beside FILE; without it, arrays are zeros. The verifier
    runs on the input and after every pass.
    """
    if list_passes:
        _list()
        return
    if file is None:
        raise typer.BadParameter("give a .air file, - for standard input, or --list")
    from atlasc.compilation.single_stages import optimised, read_ir, require_round_trip
    from atlasc.files import require_file_place, write_module
    from atlasc.ir.text.storage import print_module
    from atlasc.passes.framework.pass_base import parse_pipeline
    from atlasc.passes.registry import passes as registered
    from atlasc.targets import find_target

    if output is not None:
        require_file_place(output, ".air")
    chosen, steps = find_target(target), parse_pipeline(passes, registered())
    module, arrays = read_ir(file, sys.stdin.buffer)

    def after(step: Pass, result: Module, report: Report) -> None:
        if explain:
            for line in report.lines or ["nothing to report"]:
                print(f"{step.name}: {line}", file=sys.stderr)
        if print_ir_after_all:
            print(f"// --- after {step} ---\n{print_module(result)}", file=sys.stderr)
        if verify_each:
            require_round_trip(step, result)

    module = optimised(module, steps, chosen, after)
    if output is None:
        print_product(print_module(module), end="")
    else:
        write_module(output, module, arrays=arrays)


def _list() -> None:
    from atlasc.passes.framework.pass_base import levels_of
    from atlasc.passes.registry import describe
    from atlasc.passes.registry import passes as registered

    for name, kind in registered().items():
        options, text = describe(kind)
        print_product(f"{name}{{{options}}}" if options else name)
        print_product(f"    {' or '.join(levels_of(kind))}: {text}")
