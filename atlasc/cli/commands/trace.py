"""``atlasc trace``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atlasc.cli import options
from atlasc.cli.output import say
from atlasc.cli.progress import progress


def trace(
    model: options.Model,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write, .air.", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="Inputs, whose length a text model is traced for.", show_default=False
        ),
    ] = None,
    sequence_length: options.SequenceLength = None,
    batch: options.Batch = 1,
    weights: Annotated[
        bool,
        typer.Option("--weights/--no-weights", help="Shapes alone, from a config; no arrays."),
    ] = True,
    trust_pickle: options.TrustPickle = False,
) -> None:
    """Trace a model to nn IR: FILE.air and, with the weights, FILE.safetensors."""
    from atlasc.files import require_file_place, write_module

    require_file_place(output, ".air")
    from atlasc.compilation import stages
    from atlasc.loading.models import load_model

    with progress("loading the model"):
        loaded = load_model(model, trust_pickle=trust_pickle, weights=weights)
    if data is not None:
        from atlasc.loading.data import load_inputs

        ids = load_inputs(data, loaded, sequence_length).arrays.get("input_ids")
        sequence_length = sequence_length if ids is None else ids.shape[1]
    with progress("tracing"):
        module = stages.trace_model(loaded, batch, sequence_length)
    with progress("writing"):
        write_module(output, module, arrays=weights)
    say(f"{output}: {len(module.ops)} ops, {len(module.symbols)} arrays")
