"""Texts that repeat themselves, as a decoder's own texts do: calibration covers them too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from atlasc.loading import IDS, MASK
from atlasc.loading.inputs import Inputs
from atlasc.loading.texts.tokens import special_of

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel


def writes_text(model: LoadedModel) -> bool:
    """Whether the model writes text: a decoder with a head over its vocabulary, by its class."""
    known = getattr(model.module, "can_generate", None)
    whole = getattr(model.config, "is_encoder_decoder", False)
    return callable(known) and bool(known()) and not whole


def repetitions(
    inputs: Inputs, model: LoadedModel, generator: np.random.Generator, beginning: int = 0
) -> Inputs:
    """A repetition of each text: its first tokens, of which the last ones repeat until the text is
    as long as the program.

    A decoder that takes the likeliest token often ends in such a loop. Then most keys of a row are
    alike, and its softmax sums more than in any real text. The logarithms of both numbers are
    uniform: of the tokens before the loop (one at least, beside the special tokens and what all
    texts begin with), and of those that repeat. The special tokens at the end of the text are left
    out, and a text that has no token of its own has no repetition.

    Args:
        inputs: texts of the model. If it reads more than their tokens, there are none.
        model: the model that reads them.
        generator: draws both numbers.
        beginning: number of tokens that all texts begin with (see `common_beginning`).
    """
    if set(inputs.arrays) != {IDS, MASK}:
        return inputs.take([])
    special, length = special_of(model), inputs.arrays[IDS].shape[1]
    rows, names, texts = [], [], []
    for row, draws in enumerate(generator.random((len(inputs), 2))):
        ids = inputs.arrays[IDS][row, inputs.arrays[MASK][row] > 0]
        head, tail = special.ends(ids)
        first = max(head, beginning)
        most = min(len(ids) - tail, length - 1) - first
        if most < 1:
            continue
        own = min(int((most + 1) ** draws[0]), most)
        repeated, end = min(int((own + 1) ** draws[1]), own), first + own
        loop = np.resize(ids[end - repeated : end], length - end)
        texts.append(np.concatenate([ids[:end], loop]))
        rows.append(row)
        names.append(f"{inputs.names[row]}, first {end} tokens, the last {repeated} repeated")
    tokens = np.array(texts, np.int64).reshape(len(rows), length)
    arrays = {IDS: tokens, MASK: np.ones_like(tokens)}
    arrays = {name: arrays[name] for name in inputs.arrays}
    return replace(inputs.take(rows), arrays=arrays, names=tuple(names))
