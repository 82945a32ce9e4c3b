"""The public prefix of generated texts: the same beginning of all of them, such as a system prompt.

The server knows it. So a program computes its keys and values once, in the clear.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import FailFast, Field

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, Schema, read_json, read_text
from atlasc.loading import IDS, MASK
from atlasc.loading.inputs import Inputs
from atlasc.loading.texts.lengths import joined
from atlasc.loading.texts.tokens import special_of

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

MAX_PREFIX = 16 * MIB
"""Greatest size in bytes of the file of a public prefix."""
MAX_IDS = 200_000
"""Greatest number of values in a bundle's file of it, one a token."""
_BORDER = "end it where a token ends whatever follows, such as after a line break"


class PublicPrefix(Schema):
    """A public prefix.

    Attributes:
        text: the text.
        ids: its tokens, with those that the tokenizer puts at the beginning of every text.
    """

    text: Annotated[str, Field(min_length=1)]
    ids: Annotated[
        tuple[Annotated[int, Field(ge=0, lt=2**31)], ...], Field(min_length=1), FailFast()
    ]

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of its tokens."""
        return hashlib.sha256(np.array(self.ids, "<i8").tobytes()).hexdigest()


def read_prefix(path: Path) -> PublicPrefix:
    """The public prefix in the client's part of a bundle; raises AtlasError for a damaged file."""
    return read_json(
        path, PublicPrefix, "the public prefix", 16 * MAX_PREFIX, values=MAX_IDS,
        remedy="compile the model again", links=False,
    )  # fmt: skip


def read_public_prefix(path: Path) -> str:
    """The text of a file as it is, with the line break at its end.

    Raises:
        AtlasError: the file cannot be read, or is blank.
    """
    text = read_text(path, MAX_PREFIX)
    if not text.strip():
        raise AtlasError(
            f"the public prefix {path} is empty",
            remedy="write the beginning of all texts into the file, or leave --public-prefix out",
        )
    return text


def prefix_of(text: str, model: LoadedModel) -> PublicPrefix:
    """The tokens of a public prefix, without those that a tokenizer puts at the end of a text.

    Raises:
        AtlasError: the model reads no texts or has no tokenizer, or this finds no token in the
            text.
    """
    if IDS not in model.input_names:
        raise AtlasError(
            "--public-prefix is for texts",
            why=f"the model reads {', '.join(model.input_names)}",
            remedy="leave --public-prefix out",
        )
    ids = np.array(model.tokenize([text])[0], np.int64)
    head, tail = special_of(model).ends(ids)
    if len(ids) - head - tail < 1:
        raise AtlasError("the public prefix is empty", why="the tokenizer finds no token in it")
    return PublicPrefix(text=text, ids=tuple(ids[: len(ids) - tail].tolist()))


def ids_after(prefix: PublicPrefix, text: str, model: LoadedModel) -> list[int]:
    """The tokens of a text after a public prefix.

    Raises:
        AtlasError: together with this text, the prefix has other tokens.
    """
    if not text:
        return []
    ids, known = model.tokenize([prefix.text + text])[0], len(prefix.ids)
    if tuple(ids[:known]) != prefix.ids:
        same = next(n for n, one in enumerate(prefix.ids) if ids[n : n + 1] != [one])
        raise AtlasError(
            "the tokenizer joins the prompt and the end of the public prefix into one token",
            why=f"of the {known} tokens of the prefix, the last {known - same} would change, but "
            "the server keeps the keys and values of these",
            remedy="begin the prompt with a space, a line break or another word; or compile with a "
            f"public prefix that ends otherwise: {_BORDER}",
        )
    return list(ids[known:])


def room_after(prefix: PublicPrefix | None, model: LoadedModel, length: int | None) -> int | None:
    """The most tokens of a text alone, if it may have ``length`` tokens with the prefix. What the
    tokenizer puts at its beginning, the prefix has already.

    Raises:
        AtlasError: the prefix leaves no room.
    """
    if length is None or prefix is None:
        return length
    known = len(prefix.ids)
    if known >= length:
        raise AtlasError(
            f"the public prefix has {known} tokens",
            why=f"with --sequence-length {length}, at least one token must be left for the prompt",
            remedy=f"use --sequence-length {known + 1} or more, or shorten the prefix",
        )
    return length - known + special_of(model).ends(np.array(prefix.ids))[0]


def put_before(
    parts: Mapping[str, Inputs], model: LoadedModel, prefix: PublicPrefix, length: int | None
) -> dict[str, Inputs]:
    """The texts of the parts of some data after the prefix, padded on the right.

    Args:
        parts: texts alone, at most `room_after` tokens each. What the tokenizer puts at their
            beginning is left out, since the prefix has it.
        model: the model that reads them.
        prefix: the prefix.
        length: tokens of a text with the prefix; None for the longest one.

    Raises:
        AtlasError: the texts have other inputs than ids and a mask; a text is too long.
    """
    texts = {name: _after(prefix, inputs, model) for name, inputs in parts.items()}
    width = length or max(len(text) for some in texts.values() for text in some)
    found = {}
    for part, inputs in parts.items():
        for name, text in zip(inputs.names, texts[part], strict=True):
            if len(text) > width:
                raise AtlasError(
                    f"a text of {len(text)} tokens with the public prefix is too long",
                    where=name,
                    why="it lacks the tokens that the tokenizer puts at the beginning of a text",
                    remedy=f"shorten it to {width - len(prefix.ids)} tokens, or give texts",
                )
        rows = [np.stack([text, np.ones_like(text)]) for text in texts[part]]
        found[part] = replace(inputs, arrays=joined(rows, width, (IDS, MASK), model))
    return found


def _after(prefix: PublicPrefix, inputs: Inputs, model: LoadedModel) -> list[np.ndarray]:
    """The tokens of each text with the prefix, without padding."""
    arrays, special = inputs.arrays, special_of(model)
    if set(arrays) != {IDS, MASK}:
        raise AtlasError(
            "a public prefix is for decoders, which read token ids alone",
            why=f"the model or its data has {', '.join(arrays)}",
            remedy="leave the others out of the data, or leave --public-prefix out",
        )
    rows = zip(arrays[IDS], arrays[MASK], strict=True)
    texts, front = [ids[mask > 0] for ids, mask in rows], np.array(prefix.ids, np.int64)
    return [np.concatenate([front, text[special.ends(text)[0] :]]) for text in texts]


def prefix_alone(model: LoadedModel, prefix: PublicPrefix, length: int) -> dict[str, np.ndarray]:
    """The prefix as an input of a window of so many tokens, [1, length] each."""
    ids = np.array(prefix.ids, np.int64)
    return joined([np.stack([ids, np.ones_like(ids)])], length, (IDS, MASK), model)
