"""``atlasc trace``, ``calibrate`` and ``lower``: stages of compile, each on its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from atlasc.cli.commands.compile import list_held_back
from atlasc.cli.costs import say_of_keys, summary_lines, warn_of_costs
from atlasc.cli.errors import warn
from atlasc.cli.output import print_json, print_table, say
from atlasc.cli.parameters import DATA, FOLDER, JSON, Model, required
from atlasc.cli.progress import progress
from atlasc.compilation.declared import option
from atlasc.compilation.options import BatchOptions, CalibrationOptions, LowerOptions


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
    for line in summary_lines(costs):
        print(line)
    say_of_keys(lowered.program, options.key_memory or options.device_memory)
