"""One length for all texts: shorter texts are padded, longer texts are cut, divided or refused.

For calibration, prefixes of texts are added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.errors import AtlasError, counted
from atlasc.loading import IDS, LONG, MASK, POSITIONS, SEGMENTS
from atlasc.loading.inputs import Inputs
from atlasc.loading.texts.padding import as_compiled
from atlasc.loading.texts.tokens import Special, shortened, special_of

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

MAX_TOKENS = 1 << 29
"""Greatest number of tokens of all inputs together, padding included: 4 GiB."""
SHOWN_WORDS = 6
"""Number of words that a message shows of a refused text."""


@dataclass(frozen=True)
class Texts:
    """Texts of any length, as tokens.

    Attributes:
        channels: model inputs with one number per token; first `input_ids` and `attention_mask` (1
            keep, 0 padding).
        tokens: one array [channels, m] for each text; at least one text.
        inputs: names, labels, notes and faults of the texts, without arrays.
        words: each text, or both texts of a pair, as strings; None if ids were given.
    """

    channels: tuple[str, ...]
    tokens: list[np.ndarray]
    inputs: Inputs
    words: Sequence[Sequence[str]] | None = field(default=None, repr=False)


def padded(texts: Texts, model: LoadedModel, sequence_length: int | None, long: str) -> Inputs:
    """The channels [N, n], padded on the right, so that the model's result is that of the text
    alone.

    A text first loses the padding at its end. If it is still too long, it is cut or divided. Every
    part keeps the special tokens that the tokenizer put at the beginning and at the end of the
    text. A pair is cut by its tokenizer, which shortens the longer of the two texts.

    Args:
        texts: a divided text passes its name and label on to all its parts.
        model: the model that will read the texts.
        sequence_length: n; None for the longest text, or for as much as the model takes.
        long: see ``LONG``.

    Raises:
        AtlasError: a text is too long and ``long`` refuses it; the model has another length, or too
            few positions; or there are more tokens than fit into memory.
    """
    if long not in LONG:
        raise AtlasError(f"--long cannot be {long!r}", remedy=f"use one of {', '.join(LONG)}")
    longest = max(text.shape[1] for text in texts.tokens)
    length = _length(model, sequence_length, longest, bounded=long != "refuse")
    given, note = _without_padding(texts, model, length)
    tokens = np.array([text.shape[1] for text in given])
    parts, inputs = [[text] for text in given], texts.inputs
    inputs = replace(inputs, notes=(*inputs.notes, *note))
    beyond = list(map(int, np.flatnonzero(tokens > length)))
    special = special_of(model) if beyond else None
    for row in beyond:
        words = () if texts.words is None else texts.words[row]
        where = inputs.names[row] + (f": {' '.join(words[0].split()[:SHOWN_WORDS])} ..."
                                     if words else "")  # fmt: skip
        if long == "refuse":
            raise _too_long(where, int(tokens[row]), length, model)
        if special is not None:
            text = replace(texts, tokens=given)
            parts[row] = _divided(text, row, where, model, special, length, long == "windows")
    counts = np.array(list(map(len, parts)))
    _require_memory(int(counts.sum()), length)
    arrays = joined([part for each in parts for part in each], length, texts.channels, model)
    named = tuple(
        name if count == 1 else f"{name} [{number}/{count}]"
        for name, count in zip(inputs.names, counts, strict=True)
        for number in range(1, count + 1)
    )
    inputs = inputs.take(np.repeat(np.arange(len(given)), counts))
    cut = tokens if long == "truncate" and beyond else None
    inputs = replace(inputs, arrays=arrays, names=named, tokens=cut)
    return as_compiled(inputs, model)


def common_beginning(inputs: Inputs) -> int:
    """Number of tokens with which all texts begin, such as those of a chat template."""
    keep = inputs.arrays[MASK] > 0
    texts = [ids[kept] for ids, kept in zip(inputs.arrays[IDS], keep, strict=True)]
    least = min(map(len, texts), default=0)
    apart = np.any([text[:least] != texts[0][:least] for text in texts], axis=0)
    return int(apart.argmax()) if apart.any() else least


def with_prefixes(
    inputs: Inputs, model: LoadedModel, generator: np.random.Generator, beginning: int = 0
) -> Inputs:
    """The texts, followed by a prefix of each, because new texts may be shorter than all of these.

    A prefix has at least one token beside the special tokens, and at least one token less than its
    text. The logarithm of its length is uniform, because one token changes a short text more. The
    special tokens at the end of the text are kept, and padding follows as after any short text. A
    text of one token has no prefix. In a pair, both texts become shorter; segments stay with their
    tokens, and given positions with their place.

    What all texts begin with, new texts begin with too. So a prefix keeps it, and at least one
    token after it. Short of it, padding may
    reach values that no text reaches (a decoder's attention sink).

    Args:
        inputs: texts of the model.
        model: the model that reads them.
        generator: draws the lengths.
        beginning: number of tokens that all texts begin with (see `common_beginning`).
    """
    special, channels = special_of(model), tuple(inputs.arrays)
    keep = inputs.arrays[MASK] > 0
    rows, names, parts = [], [], []
    for row, draw in enumerate(generator.random(len(inputs))):
        text = np.stack([inputs.arrays[name][row, keep[row]] for name in channels])
        chosen = shortened(text[channels.index(IDS)], special, draw, beginning)
        if chosen is None:
            continue
        part = text[:, chosen]
        if POSITIONS in channels:
            at = channels.index(POSITIONS)
            part[at] = text[at, : len(chosen)]
        parts.append(part)
        rows.append(row)
        names.append(f"{inputs.names[row]}, first {len(chosen)} of {text.shape[1]} tokens")
    arrays = joined(parts, keep.shape[1], channels, model)
    return inputs.joined(replace(inputs.take(rows), arrays=arrays, names=tuple(names)))


def _without_padding(
    texts: Texts, model: LoadedModel, length: int
) -> tuple[list[np.ndarray], list[tuple[str, str]]]:
    """The texts without the padding at their ends, and a note if it was not the model's own.

    No answer depends on what stands behind a text and is masked, but the values in the program do.
    They leave the ranges of the calibration, which saw the model's own padding, and may then spoil
    the whole ciphertext. A model that does not read the mask sees the given ids.
    """
    if MASK not in model.input_names and model.padding is None:
        return [t if t.shape[1] <= length else _without_end(t) for t in texts.tokens], []
    given, own = list(map(_without_end, texts.tokens)), _padding(model)
    ends = zip(texts.tokens, given, strict=True)
    other = sum(bool((text[0, kept.shape[1] :] != own).any()) for text, kept in ends)
    if not other:
        return given, []
    what = f"{counted(other, 'text has', 'texts have')} other ids than {own} as padding"
    why = f"  why: the model pads with {own}; other ids behind the mask may leave its ranges"
    return given, [(f"{what}, which are replaced by it", why)]


def _without_end(text: np.ndarray) -> np.ndarray:
    """A text without the padding behind its last token. Padding elsewhere occupies positions."""
    kept = np.flatnonzero(text[1])
    return text[:, : kept[-1] + 1] if len(kept) else text[:, :1]


def _divided(
    texts: Texts,
    row: int,
    where: str,
    model: LoadedModel,
    special: Special,
    length: int,
    windows: bool,
) -> list[np.ndarray]:
    """A text that is too long, cut or divided into windows."""
    text, pair = texts.tokens[row], texts.words is not None and len(texts.words[row]) == 2
    fault = ""
    if pair and windows:
        fault = "windows of a pair are not defined"
    elif texts.words is None and text[2:].any():
        fault = f"the text has {' and '.join(texts.channels[2:])}, which a shorter text would lack"
    elif not text[1].all():
        fault = "padding in front of its tokens or among them occupies positions"
    if fault:
        raise AtlasError(
            f"a text of {text.shape[1]} tokens cannot be "
            + (f"divided into windows of {length}" if windows else f"cut to {length}"),
            where=where,
            why=fault,
            remedy=f"use --sequence-length {text.shape[1]} or more, or "
            + ("--long truncate" if pair else "cut it with the tokenizer: truncation=True, "
               f"max_length={length}"),
        )  # fmt: skip
    if not pair:
        left = getattr(model.tokenizer, "truncation_side", "right") == "left"
        return _parts(text, length, special, windows, left)
    if length < len(special.pair) + 2:
        raise _no_room(length, len(special.pair), 2)
    first, second = texts.words[row] if texts.words is not None else ("", "")
    cut = model.encode([first], [second], length)
    ones = [1] * len(cut[IDS][0])
    channels = {name: cut.get(name, [[0] * len(ones)])[0] for name in texts.channels} | {MASK: ones}
    return [np.array([channels[name] for name in texts.channels], np.int64)]


def _parts(
    text: np.ndarray, length: int, special: Special, windows: bool, left: bool
) -> list[np.ndarray]:
    """The beginning of a text (``left``: its end), or all its windows in order."""
    head, tail = special.ends(text[0])
    end, room = text.shape[1] - tail, length - head - tail
    if room < 1:
        raise _no_room(length, head + tail, 1)
    starts = range(head, end, room) if windows else [end - room if left else head]
    return [
        np.hstack([text[:, :head], text[:, start : min(start + room, end)], text[:, end:]])
        for start in starts
    ]


def _no_room(length: int, special: int, least: int) -> AtlasError:
    return AtlasError(
        f"a length of {length} leaves no room for a text",
        why=f"the tokenizer adds {special} special tokens to each",
        remedy=f"use --sequence-length {special + least} or more",
    )


def joined(
    parts: Sequence[np.ndarray], length: int, channels: Sequence[str], model: LoadedModel
) -> dict[str, np.ndarray]:
    """Model input -> [N, n]: all parts, padded on the right."""
    fill: Mapping[str, int] = {IDS: _padding(model), SEGMENTS: _segment_of_padding(model)}
    joined = {}
    for at, name in enumerate(channels):
        joined[name] = np.full((len(parts), length), fill.get(name, 0), np.int64)
        for row, part in enumerate(parts):
            joined[name][row, : part.shape[1]] = part[at]
    return joined


def _length(model: LoadedModel, wanted: int | None, longest: int, bounded: bool) -> int:
    """Number of tokens of a padded text: as wanted, as exported, or as the longest text.

    If texts may be cut (``bounded``), the longest text counts only as far as the model takes it.
    """
    exported = model.shapes.get(IDS)
    fixed = exported[1] if exported is not None and len(exported) == 2 else None
    positions = model.size("max_position_embeddings")
    length, cut = wanted or fixed or longest, model.most_tokens
    if cut is not None and bounded and not (wanted or fixed):
        length = longest = min(longest, cut)
    if bounded and not (wanted or fixed) and positions and longest > positions:
        # Some models reserve a few positions; their tokenizer knows the number for tokens.
        most = getattr(model.tokenizer, "model_max_length", None)
        length = min(most, positions) if type(most) is int and most > 0 else positions
    if fixed is not None and length != fixed:
        raise AtlasError(
            f"sequence length {length} does not fit the archive, which was exported for {fixed}",
            where=str(model.source),
            remedy=f"use --sequence-length {fixed}, or export the model again",
        )
    if cut is not None and length > cut:
        raise AtlasError(
            f"sequence length {length} is more than sentence-transformers reads of a text",
            why=f"the model's folder says that it reads {cut} tokens, and cuts the others",
            remedy=f"use --sequence-length {cut} or less, or change max_seq_length in "
            "sentence_bert_config.json",
        )
    if positions and length > positions:
        raise AtlasError(
            f"sequence length {length} is more than the model has positions for",
            why=f"max_position_embeddings is {positions}",
            remedy=f"use --sequence-length {positions} or less, and shorten longer texts",
        )
    return length


def _require_memory(inputs: int, length: int) -> None:
    if inputs * length > MAX_TOKENS:
        raise AtlasError(
            f"{inputs} inputs of {length} tokens are more than fit into memory",
            remedy="give fewer inputs, or shorten the longest one",
        )


def _padding(model: LoadedModel) -> int:
    """Id of the padding token; 0 if neither model, tokenizer nor config names one."""
    if model.padding is not None:
        return model.padding.token
    known = getattr(model.tokenizer, "pad_token_id", None)
    if known is None:
        known = getattr(model.config, "pad_token_id", None)
    return known if type(known) is int and -(1 << 63) <= known < 1 << 63 else 0


def _segment_of_padding(model: LoadedModel) -> int:
    known = getattr(model.tokenizer, "pad_token_type_id", 0)
    return known if type(known) is int and 0 <= known < 1 << 31 else 0


def _too_long(where: str, tokens: int, length: int, model: LoadedModel) -> AtlasError:
    positions = model.size("max_position_embeddings")
    beyond = positions is not None and tokens > positions
    return AtlasError(
        f"a text of {tokens} tokens is longer than the compiled length {length}",
        where=where,
        why=f"the model itself takes at most {positions} tokens" if beyond else "",
        remedy="shorten the text"
        + ("" if beyond else f", or compile with --sequence-length {tokens} or more"),
    )
