"""From a model and data to a traced module with its ranges: what every command starts from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from atlasc.compilation import stages
from atlasc.compilation.options import Options
from atlasc.compilation.saved import Saved
from atlasc.compilation.stages import Source
from atlasc.compilation.steps import Steps, silent
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.passes.calibration.calibrate import Calibration
from atlasc.passes.calibration.centre_keys import Shifts, key_shifts, with_centred_keys

FEWEST_INPUTS = 2


@dataclass(frozen=True)
class Prepared:
    """A traced model with its data and ranges.

    Attributes:
        source: model and data.
        traced: the model.
        module: the same with centred keys, if they are to be.
        calibration: of `module`.
    """

    source: Source
    traced: Module
    module: Module
    calibration: Calibration


def prepare(
    model: str, data: Path, options: Options, steps: Steps = silent, saved: Saved | None = None
) -> Prepared:
    """Load and trace a model, centre its keys and calibrate it.

    Args:
        model: see ``load_model``.
        data: see ``load_inputs``.
        options: length, batch, margin, what is held back, whether keys are centred.
        steps: shows progress.
        saved: a search whose calibration is taken instead of measuring one.

    Raises:
        AtlasError: of the model, the data or the trace; `saved` is of another model.
    """
    with steps("loading the model and the data"):
        source = stages.load_source(
            model,
            data,
            sequence_length=options.sequence_length,
            held_back=options.held_back,
            seed=options.seed,
            trust_pickle=options.trust_pickle,
        )
    _require_different(source, data)
    with steps("tracing"):
        traced = stages.trace_model(source.model, options.batch, source.length)
    if saved is not None:
        with steps("checking the front"):
            saved.require(traced)
        module = with_centred_keys(traced, saved.calibration.keys)
        return Prepared(source, traced, module, saved.calibration)
    shifts: Shifts = {}
    if options.centre_keys:
        with steps("centring keys") as step:
            shifts = key_shifts(
                traced,
                source.inputs.arrays,
                progress=lambda done, total: step.report("inputs", done, total),
            )
    module = with_centred_keys(traced, shifts)
    with steps("calibrating") as step:
        calibration = stages.calibrate_source(
            module,
            source,
            margin=options.margin,
            progress=lambda done, total: step.report("inputs", done, total),
        )
    keys = {name: tuple(map(float, shift)) for name, shift in shifts.items()}
    return Prepared(source, traced, module, replace(calibration, keys=keys))


def _require_different(source: Source, data: Path) -> None:
    """Raise AtlasError for data from which no range can be learnt."""
    count = len(source.inputs) + len(source.held_back)
    remedy = "give some dozens of real inputs; the ranges hold for inputs like them alone"
    if count < FEWEST_INPUTS:
        raise AtlasError(
            f"{data} has {count} input, at least {FEWEST_INPUTS} are needed",
            why="ranges are measured on some inputs and tried on others",
            remedy=remedy,
        )
    first = {name: array[:1] for name, array in source.inputs.arrays.items()}
    if all(
        (array == first[name]).all()
        for part in (source.inputs, source.held_back)
        for name, array in part.arrays.items()
    ):
        raise AtlasError(
            f"all {count} inputs of {data} are identical",
            why="ranges that one input reaches say nothing of another one",
            remedy=remedy,
        )
