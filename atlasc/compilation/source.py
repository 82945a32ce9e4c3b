"""A model and its data: loaded, a part held back, and texts added that are shorter or repeat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from atlasc.compilation.options import CalibrationOptions
from atlasc.compilation.oracle.masks import with_its_mask
from atlasc.ir.errors import AtlasError, counted
from atlasc.ir.module import Module
from atlasc.loading import IDS, MASK, padding_of
from atlasc.loading.checks import require_finite_weights, tell_tokenizer, tell_unknown
from atlasc.loading.data import require_data
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import model_of
from atlasc.loading.texts import public_prefix
from atlasc.loading.texts.lengths import common_beginning, with_prefixes
from atlasc.loading.texts.padding import masked, tell_padding, with_tokens
from atlasc.loading.texts.repetition import repetitions, writes_text
from atlasc.loading.texts.tokens import special_of
from atlasc.progress import Note, quiet

FEWEST_INPUTS = 2


@dataclass(frozen=True)
class Source:
    """A model and the data that it is compiled with.

    Attributes:
        model: the loaded model.
        inputs: the user's own inputs without the held-back ones; errors are measured on them.
        held_back: inputs that neither calibration nor the search sees.
        measured: `inputs`, followed by prefixes of their texts, and for a model that writes text by
            repetitions of them; ranges are measured on them.
        validated: `held_back`, followed by prefixes and repetitions of their texts; all should stay
            in all ranges.
        length: tokens of a text; None for images.
        repetitions: how many of `measured` are repetitions; they are the last ones.
        prefix: the public prefix, which all texts begin with; None if there is none.
    """

    model: LoadedModel
    inputs: Inputs
    held_back: Inputs
    measured: Inputs
    validated: Inputs
    length: int | None
    prefix: public_prefix.PublicPrefix | None = None
    repetitions: int = 0

    def few(self, count: int, extremes: Sequence[int] = ()) -> Inputs:
        """The first `count` of `measured`; if there are prefixes, up to half of them are prefixes.

        After them come the inputs at the positions `extremes`, at most `count` of them.
        """
        own = len(self.inputs)
        prefixes = min(len(self.measured) - own, count // 2)
        first = [*range(min(own, count - prefixes)), *range(own, own + prefixes)]
        # A saved calibration may know more inputs than there are here.
        known = [position for position in extremes if position < len(self.measured)]
        return self.measured.take(list(dict.fromkeys([*first, *known[:count]])))

    def secret(self) -> str:
        """A text that only somebody knows who has all of the data; no file names it."""
        everything = self.inputs.joined(self.held_back)
        return everything.take(range(len(everything) - 1, -1, -1)).digest()


def load_source(
    model: Any,
    data: Any,
    options: CalibrationOptions | None = None,
    tokenizer: Any = None,
    note: Note = quiet,
    processor: Any = None,
    public_text: str = "",
) -> Source:
    """Load a model and its data, and hold back a part of the data.

    Notes say which texts were cut, and which of the model's files are not read.
    A ``public_text`` is put before each text.

    Raises:
        AtlasError: the model or the data cannot be read.
    """
    options = options or CalibrationOptions()
    require_data(data)
    loaded = model_of(
        model, tokenizer, processor=processor, trust_pickle=options.trust_pickle, note=note
    )
    for headline, details in loaded.notes:
        note(headline, details)
    require_finite_weights(loaded)
    if options.sequence_length is not None and IDS not in loaded.input_names:
        raise AtlasError(
            "--sequence-length is for texts",
            why=f"the model reads {', '.join(loaded.input_names)}",
            remedy="leave --sequence-length out",
        )
    prefix = public_prefix.prefix_of(public_text, loaded) if public_text else None
    room = public_prefix.room_after(prefix, loaded, options.sequence_length)
    loaded, everything = with_its_mask(loaded, data, room, options.long, note)
    everything = everything.tell(note).readable(note).require_finite()
    tell_tokenizer(everything, loaded, note)
    tell_unknown(everything, loaded, note)
    used, kept = everything.split(options.held_back, options.seed)
    ids = everything.arrays.get(IDS)
    if ids is None:
        return Source(loaded, used, kept, used, kept, None)
    measured, validated, repeated = used, kept, 0
    # After the split: what is made of a held-back text is held back.
    beginning = common_beginning(everything)
    if options.prefixes:
        generator = np.random.default_rng([options.seed, 2])
        if beginning > special_of(loaded).ends(ids[0])[0]:
            note(
                f"all texts begin with the same {counted(beginning, 'token', 'tokens')}, and so do "
                "the shorter ones that calibration adds",
                "texts that begin otherwise, or are shorter, may leave ranges: give some of them",
            )
        measured, validated = (
            with_prefixes(part, loaded, generator, beginning) for part in (used, kept)
        )
    if options.repetitions and writes_text(loaded):
        generator = np.random.default_rng([options.seed, 6])
        loops, held = (repetitions(part, loaded, generator, beginning) for part in (used, kept))
        measured, validated = measured.joined(loops), validated.joined(held)
        repeated = len(loops)
        if repeated:
            note(
                f"calibration adds {counted(repeated, 'text', 'texts')} with repeated ends",
                "  why: a model that writes text may repeat itself, and then reaches values that "
                "no other text reaches\n"
                "  what to do: use --without repetitions if the model will only read texts",
            )
    parts = {"inputs": used, "held_back": kept, "measured": measured, "validated": validated}
    if prefix is not None:
        parts = public_prefix.put_before(parts, loaded, prefix, options.sequence_length)
    length = parts["inputs"].arrays[IDS].shape[1]
    return Source(loaded, length=length, prefix=prefix, repetitions=repeated, **parts)


def as_traced(source: Source, traced: Module, note: Note = quiet) -> Source:
    """The source for a model that computes its mask from token ids, as its trace shows: with the
    masks that the model sees, and its own id of padding.

    Raises:
        AtlasError: an input has no token; or every text has the id of padding.
    """
    padding = padding_of(traced.inputs)
    if padding is None or source.model.padding == padding:
        return source
    both = source.inputs.joined(source.held_back)
    tell_padding(both, source.model, padding, note)
    own = {"inputs": source.inputs, "held_back": source.held_back}
    parts: dict[str, Any] = {
        name: masked(part, padding).require_finite() for name, part in own.items()
    }
    made = {"measured": source.measured, "validated": source.validated}
    parts |= {name: with_tokens(masked(part, padding)) for name, part in made.items()}
    return replace(source, model=replace(source.model, padding=padding), **parts)


def require_different(source: Source, data: Any) -> None:
    """Raise AtlasError for data too few or too uniform to measure ranges on."""
    count = len(source.inputs) + len(source.held_back)
    name = data if isinstance(data, str | Path) else "the data"
    remedy = "give some dozens of real inputs; the ranges hold only for inputs like the data"
    if count < FEWEST_INPUTS:
        raise AtlasError(
            f"{name} has {count} input, but at least {FEWEST_INPUTS} are needed",
            why="ranges are measured on some inputs and validated on others",
            remedy=remedy,
        )
    first = {name: array[:1] for name, array in source.inputs.arrays.items()}
    if all(
        (array == first[name]).all()
        for part in (source.inputs, source.held_back)
        for name, array in part.arrays.items()
    ):
        raise AtlasError(
            f"all {count} inputs of {name} are identical",
            why="the ranges of one input say nothing about another input",
            remedy=remedy,
        )


def require_keys(module: Module, inputs: Inputs) -> None:
    """Raise AtlasError if a text of a decoder has padding in front.

    Its first queries would see no key, and the sum of their softmax would be zero.
    """
    masked = [op for op in module.ops if op.name == "nn.softmax" and len(op.operands) > 1]
    if not any(op.attributes.get("causal", False) for op in masked):
        return
    for row in np.flatnonzero(inputs.arrays[MASK][:, 0] == 0):
        raise AtlasError(
            "a text of a decoder has padding in front",
            where=inputs.names[row],
            why="a query of a decoder sees no later key, so the first queries see only padding",
            remedy="pad on the right: tokenizer.padding_side = 'right', or give texts",
        )
