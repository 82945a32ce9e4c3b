"""From a model and data to a traced module with ranges, from which every stage starts."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from atlasc.calibration.calibrate import Calibration, Outlier, Padding, calibrate, require_coverable
from atlasc.calibration.measure import Measurement
from atlasc.calibration.streams import measured_streams, rescaled
from atlasc.calibration.tails import effective_margin
from atlasc.compilation.fronts import SavedFront, keep_ranges, kept_ranges, model_digest
from atlasc.compilation.options import CalibrationOptions
from atlasc.compilation.oracle.asking import Asked, ask
from atlasc.compilation.source import (
    Source,
    as_traced,
    load_source,
    require_different,
    require_keys,
)
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading import IDS, MASK
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.shapes import spectrogram_shape
from atlasc.passes.calibration.adjusted import adjusted
from atlasc.passes.calibration.centre_keys import FEWEST_INPUTS as FEWEST_FOR_KEYS
from atlasc.passes.calibration.centre_keys import Shifts, key_shifts, with_centred_keys
from atlasc.passes.calibration.fill_padding import padding_to_fill, with_filled_padding
from atlasc.passes.calibration.outliers import outliers
from atlasc.passes.calibration.scale_tokens import token_factors, with_scaled_tokens
from atlasc.passes.frontend.trace import ShapeSpec, trace
from atlasc.progress import Note, Steps, quiet, silent
from atlasc.simulation.simulate import exact_answers
from atlasc.version import __version__

DEFAULT_LENGTH = 128
"""Tokens of a text where neither options nor data say a number, if there are so many positions."""


@dataclass(frozen=True)
class PreparedModel:
    """A traced model with its data and ranges.

    Attributes:
        source: the model and the data.
        traced: nn module of the model.
        module: `traced`, with centred keys if the options ask for them.
        calibration: ranges of `module`.
        asked: answers of the user's own module to some inputs; None if it cannot be run.
    """

    source: Source
    traced: Module
    module: Module
    calibration: Calibration
    asked: Asked | None = None
    _answers: dict[str, np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def validated_answers(
        self, progress: Callable[[int], None] | None = None
    ) -> Mapping[str, np.ndarray]:
        """Output name -> the model's answers to `source.validated`, computed once, because several
        stages compare with them; `progress` is called with the number of inputs that are done.
        """
        if not self._answers:
            arrays = self.source.validated.arrays
            self._answers.update(exact_answers(self.module, arrays, progress=progress))
        return self._answers


def prepare(
    model: Any,
    data: Any,
    options: CalibrationOptions,
    steps: Steps = silent,
    saved: SavedFront | None = None,
    *,
    batch: int = 1,
    tokenizer: Any = None,
    processor: Any = None,
    note: Note = quiet,
    journal: Path | None = None,
    public_text: str = "",
) -> PreparedModel:
    """Load and trace a model, centre its keys and calibrate it on data.

    The calibration of a saved search, if given, replaces a new measurement.

    Args:
        model: see ``model_of``.
        data: see ``inputs_of``.
        options: options of the calibration.
        steps: progress.
        saved: a saved front of the same model.
        batch: number of inputs that one run answers.
        tokenizer, processor: for a model in memory.
        note: called with a headline and details for each warning.
        journal: journal of the search that follows. The ranges are kept beside it, and read from
            there if an interrupted command left them.
        public_text: the public prefix, which is put before each text; empty if there is none.

    Raises:
        AtlasError: the model, the data or the trace fails; the traced graph answers otherwise than
            the model itself; `saved` belongs to another model.
    """
    with steps("loading the model and the data"):
        source = load_source(model, data, options, tokenizer, note, processor, public_text)
    require_different(source, data)
    with steps("tracing"):
        traced = trace_model(
            source.model, batch, source.length, source.inputs, outputs=options.outputs, note=note
        )
    source = as_traced(source, traced, note)
    for part in (source.inputs, source.held_back):
        require_keys(traced, part)
    with steps("asking the model itself"):
        asked = ask(source.model, traced, source.inputs, note)
    if saved is not None:
        with steps("checking the front"):
            saved.require(traced)
        module = adjusted(traced, saved.calibration)
        return PreparedModel(source, traced, module, saved.calibration, asked)
    digest = "" if journal is None else _digest(traced, source, options)
    kept = kept_ranges(journal, digest, note)
    if kept is not None:
        with steps("reusing the ranges that an earlier command measured"):
            return PreparedModel(source, traced, adjusted(traced, kept), kept, asked)
    certified, plain = options.ranges == "certified", traced
    margin = effective_margin(options.margin, len(source.inputs))
    padding: Padding = ""
    if options.fill_padding and not certified:
        with steps("choosing what padding holds") as step:
            padding = padding_to_fill(
                traced,
                source.measured.arrays,
                scale_tokens=options.scale_tokens,
                margin=margin,
                progress=partial(step.report, "inputs"),
            )
        plain = with_filled_padding(traced, padding)
    shifts: Shifts = {}
    if options.centre_keys:
        with steps("centring keys") as step:
            # Prefixes do not count as texts here: with too few texts, keys stay as they are.
            few = len(source.inputs) < FEWEST_FOR_KEYS
            some = source.inputs if few else source.measured
            shifts = key_shifts(plain, some.arrays, progress=partial(step.report, "inputs"))
    module, factors = with_centred_keys(plain, shifts), {}
    found: tuple[Outlier, ...] = ()
    measured: list[Measurement] | None = None
    if not certified:
        with steps("measuring ranges, and tokens and channels that stand out") as step:
            report = partial(step.report, "inputs")
            streams, measured = measured_streams(module, source.measured.arrays, report)
            if options.scale_tokens:
                factors = token_factors(module, streams, note, margin=margin)
            found = outliers(module, streams, factors)
            module = with_scaled_tokens(module, factors)
            measured = rescaled(measured, module, streams, factors)
    calibration = calibrate_source(
        module, source, options.margin, steps, certified=certified, known=measured
    )
    keys = {name: tuple(map(float, shift)) for name, shift in shifts.items()}
    tokens = {name: tuple(map(float, one)) for name, one in factors.items()}
    calibration = replace(calibration, keys=keys, tokens=tokens, padding=padding, outliers=found)
    keep_ranges(journal, digest, calibration)
    return PreparedModel(source, traced, module, calibration, asked)


def _digest(traced: Module, source: Source, options: CalibrationOptions) -> str:
    """SHA-256 (hex) of everything that the ranges depend on."""
    parts = (
        __version__,
        model_digest(traced),
        source.measured.digest(),
        source.validated.digest(),
        *(options.margin, options.ranges, options.centre_keys, options.scale_tokens),
        options.fill_padding,
        len(source.inputs),
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def trace_model(
    model: LoadedModel,
    batch: int = 1,
    sequence_length: int | None = None,
    inputs: Inputs | None = None,
    *,
    outputs: str | None = None,
    note: Note = quiet,
) -> Module:
    """Trace the nn module of a model for a batch of inputs.

    Args:
        model: the loaded model.
        batch: number of inputs that one run answers.
        sequence_length: tokens of a text; None for the length of ``inputs``.
        inputs: examples that give the shapes and types that neither the config nor an archive
            tells. Arrays beyond the model's own inputs, such as positions, become inputs too.
        outputs: names of the outputs to compute (see ``trace``).
        note: called with a note on further outputs.

    Raises:
        AtlasError: the shapes of the inputs are not known, or the model cannot be traced.
    """
    program: Any = model.exported if model.exported is not None else model.module
    name = re.sub(r"[\W_]+", "_", model.name[:64], flags=re.ASCII).strip("_") or "model"
    name = f"m{name}" if name[0].isdigit() else name
    specs = input_specs(model, batch, sequence_length, inputs.arrays if inputs else None)
    with _evaluation_mode(model.module):
        return trace(program, specs, name=name, outputs=outputs, note=note)


@contextmanager
def _evaluation_mode(module: Any) -> Iterator[None]:
    """Put a caller's module into evaluation mode for the block, and restore its mode afterwards."""
    training = [part for part in module.modules() if part.training]
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def input_specs(
    model: LoadedModel,
    batch: int = 1,
    sequence_length: int | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> dict[str, ShapeSpec]:
    """Shapes of a model's inputs, with the batch first.

    Raises:
        AtlasError: neither the config nor the arguments give the shapes.
    """
    specs: dict[str, ShapeSpec] = {}
    more = [name for name in arrays or {} if name in model.optional_names]
    for name in [*model.input_names, *more]:
        known, example = model.shapes.get(name), (arrays or {}).get(name)
        dtype: Literal["i64", "f32"] = "f32" if name == "pixel_values" else "i64"
        shape: Sequence[int | None]
        if known is not None and None not in known:
            shape = known[1:]
        elif example is not None and (name not in (IDS, MASK) or IDS not in model.input_names):
            dtype = "f32" if example.dtype.kind == "f" else "i64"
            shape = example.shape[1:]
        elif name == "pixel_values":
            channels, *extents = model.image_shape
            if None in extents:
                raise AtlasError("the model's config does not give the image size")
            shape = (channels or 3, *extents)
        elif name.startswith("input_") and name != IDS:
            dtype, shape = "f32", spectrogram_shape(model, name)
        else:
            limit = model.size("max_position_embeddings")
            length = sequence_length or min(DEFAULT_LENGTH, _room(model, limit))
            if limit is not None and length > limit:
                raise AtlasError(
                    f"--sequence-length {length} is longer than the model allows",
                    why=f"the model has {limit} positions",
                )
            shape = (length,)
        specs[name] = ShapeSpec((batch, *cast("Sequence[int]", shape)), dtype)
    return specs


def _room(model: LoadedModel, limit: int | None) -> int:
    """Tokens for which a model has positions. RoBERTa's begin behind the one of padding."""
    if limit is None:
        return DEFAULT_LENGTH
    parts = dict(model.module.named_modules())
    tables = [one for name, one in parts.items() if name.endswith("position_embeddings")]
    skipped = [getattr(one, "padding_idx", None) for one in tables]
    return limit - max((at + 1 for at in skipped if at is not None), default=0)


def calibrate_source(
    module: Module,
    source: Source,
    margin: float | None = None,
    steps: Steps = silent,
    *,
    certified: bool = False,
    known: Sequence[Measurement] | None = None,
) -> Calibration:
    """Measure the ranges of all nonlinear ops, and validate them on the held-back inputs.

    With ``certified``, compute ranges that hold for every input (see `calibrate`). ``known`` is
    what the ops reach on the source's measured inputs, if it was measured before.

    Raises:
        AtlasError: as `calibrate`; or a range is too wide for any polynomial.
    """
    held = source.validated
    if not certified:  # prefixes do not show the tail of a distribution
        margin = effective_margin(margin, len(source.inputs))
    with steps("calibrating") as step:
        found = calibrate(
            module,
            source.measured.arrays,
            held_back=held.arrays if len(held) else None,
            margin=margin,
            names=held.names,
            progress=partial(step.report, "inputs"),
            certified=certified,
            known=known,
        )
    require_coverable(found.ranges)
    return found
