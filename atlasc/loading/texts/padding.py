"""Texts of a model that computes its mask from token ids: one id is padding, and nothing else.

Whoever compiles has the model, so its mask is read off the ids. A client has only what a bundle
says. It masks what stands behind a text, or what its user says, and refuses a text with the id of
padding among its tokens (``atlasc.client.checks``): no bundle learns so where a word stands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.errors import AtlasError, counted
from atlasc.loading import MASK, Padding
from atlasc.loading.texts.tokens import special_of

if TYPE_CHECKING:
    from atlasc.loading.inputs import Inputs
    from atlasc.loading.loaded_model import LoadedModel


def masked(inputs: Inputs, padding: Padding) -> Inputs:
    """The inputs, with an id of padding where the mask is 0, and the mask 0 where the id is that of
    padding.
    """
    ids = inputs.arrays[padding.name]
    ids = np.where(inputs.arrays.get(MASK, np.ones_like(ids)) > 0, ids, padding.token)
    mask = (ids != padding.token).astype(np.int64)
    return replace(inputs, arrays={**inputs.arrays, padding.name: ids, MASK: mask})


def as_compiled(inputs: Inputs, model: LoadedModel) -> Inputs:
    """The inputs as whoever compiles reads them. What a client masks is its own to say, and not the
    bundle's.
    """
    known = model.padding is not None and not model.is_client
    return masked(inputs, model.padding) if known and model.padding is not None else inputs


def with_tokens(inputs: Inputs) -> Inputs:
    """The inputs that have a token."""
    return inputs.take(np.flatnonzero(inputs.arrays[MASK].any(axis=1)))


def tell_padding(
    inputs: Inputs, model: LoadedModel, padding: Padding, note: Callable[[str, str], object]
) -> None:
    """Say how many texts have the id of padding among their tokens: no client answers these.

    Raises:
        AtlasError: the tokenizer itself puts it into every text.
    """
    token, ids = padding.token, inputs.arrays[padding.name]
    if token in special_of(model).single:
        raise AtlasError(
            f"the model takes the id {token} for padding, and its tokenizer puts it into each text",
            where=str(model.directory),
            why="the server may see which places are padding, and no other comparison of ids",
            remedy="let forward take attention_mask, which is 1 for each token, and compute its "
            "mask from that",
        )
    places = np.arange(ids.shape[1])
    last = np.where(ids != token, places, -1).max(axis=1)
    inside = ((ids == token) & (places < last[:, None])).any(axis=1)
    if inside.any():
        note(
            f"{counted(int(inside.sum()), 'input has', 'inputs have')} the id {token} among "
            "their tokens, which the model takes for padding",
            f"  where: {inputs.names[int(inside.argmax())]}\n"
            "  why: the model drops these tokens, and so does the program; a client answers such "
            "an input only if attention_mask is given with it, because the server sees the mask",
        )
