"""One length for all texts: shorter ones are padded, longer ones are cut, divided or refused.
Calibration adds prefixes.

A text is an integer array [2, m]: its token ids, and their mask (1 keep, 0 padding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.loading import LONG
from atlasc.loading.inputs import Inputs

if TYPE_CHECKING:
    from atlasc.loading.models import LoadedModel

MAX_TOKENS = 1 << 29
"""Of all inputs together, padding included: 4 GiB."""
SHOWN_WORDS = 6
"""Of a text that is refused."""


def padded(
    texts: Sequence[np.ndarray],
    names: Sequence[str],
    labels: np.ndarray | None,
    model: LoadedModel,
    sequence_length: int | None,
    long: str,
    words: Sequence[str] | None = None,
) -> Inputs:
    """`input_ids` and `attention_mask` [N, n], padded on the right.

    A text that is too long loses its padding first. What is left over is cut or divided. Every part
    keeps the special tokens that the tokenizer put at the beginning and at the end of the text.

    Args:
        texts: [2, m] each, at least one.
        names, labels: of the texts; a text that is divided gives them to all its parts.
        sequence_length: n; None for the longest text, or for as much as the model takes.
        long: see ``LONG``.
        words: the texts themselves, for messages.

    Raises:
        AtlasError: a text is too long and refused; the model has another length, or too few
            positions; more tokens than fit into memory.
    """
    if long not in LONG:
        raise AtlasError(f"--long cannot be {long!r}", remedy=f"use one of {', '.join(LONG)}")
    longest = max(text.shape[1] for text in texts)
    length = _length(model, sequence_length, longest, bounded=long != "refuse")
    texts = [t if t.shape[1] <= length else t[:, t[1] > 0] for t in texts]
    tokens = np.array([text.shape[1] for text in texts])
    beyond = np.flatnonzero(tokens > length)
    if len(beyond) and long == "refuse":
        row = int(beyond[0])
        start = "" if words is None else f": {' '.join(words[row].split()[:SHOWN_WORDS])} ..."
        raise _too_long(names[row] + start, int(tokens[row]), length, model)
    parts = [[text] for text in texts]
    if len(beyond):
        special = special_tokens(model)
        left = getattr(model.tokenizer, "truncation_side", "right") == "left"
        for row in map(int, beyond):
            parts[row] = _parts(texts[row], length, special, long == "windows", left)
    counts = np.array(list(map(len, parts)))
    _require_memory(int(counts.sum()), length)
    rows = np.repeat(np.arange(len(texts)), counts)
    arrays = _joined([part for each in parts for part in each], length, _padding(model))
    named = (
        name if count == 1 else f"{name} [{number}/{count}]"
        for name, count in zip(names, counts, strict=True)
        for number in range(1, count + 1)
    )
    return Inputs(
        {"input_ids": arrays[0], "attention_mask": arrays[1]},
        tuple(named),
        None if labels is None else labels[rows],
        tokens if long == "truncate" and len(beyond) else None,
    )


def with_prefixes(inputs: Inputs, model: LoadedModel, generator: np.random.Generator) -> Inputs:
    """The texts, and after them a prefix of each: new texts may be shorter than all of them.

    A prefix has one token or more beside the special ones, and lacks one or more of its text. The
    logarithm of the number is uniform: the fewer tokens there are, the more does one change. The
    special tokens at the end of the text are kept, and padding follows as after any short text. A
    text of one token has no prefix.
    """
    special = special_tokens(model)
    ids, keep = inputs.arrays["input_ids"], inputs.arrays["attention_mask"] > 0
    rows, names, parts = [], [], []
    for row, draw in enumerate(generator.random(len(inputs))):
        text = ids[row, keep[row]]
        head, tail = special_ends(text, special)
        least, most = head + tail + 1, len(text) - 1
        if least > most:
            continue
        count = min(int(least * (len(text) / least) ** draw), most)
        part = np.concatenate([text[: count - tail], text[len(text) - tail :]])
        parts.append(np.stack([part, np.ones_like(part)]))
        rows.append(row)
        names.append(f"{inputs.names[row]}, first {count} of {len(text)} tokens")
    short = _joined(parts, ids.shape[1], _padding(model))
    arrays = {"input_ids": short[0], "attention_mask": short[1]}
    return inputs.joined(replace(inputs.take(rows), arrays=arrays, names=tuple(names)))


def special_tokens(model: LoadedModel) -> np.ndarray:
    """The tokens [k] that the tokenizer adds to every text; none without a tokenizer."""
    return np.array([] if model.tokenizer is None else model.tokenize([""])[0], np.int64)


def special_ends(ids: np.ndarray, special: np.ndarray) -> tuple[int, int]:
    """How many of a text's tokens [m], at its beginning and at its end, the tokenizer added.

    The mask of special tokens of a tokenizer does not tell: an unknown word is special there.
    """
    m, k = len(ids), len(special)
    head = max(n for n in range(k + 1) if np.array_equal(ids[:n], special[:n]))
    rest = range(min(k - head, m - head) + 1)
    return head, max(n for n in rest if np.array_equal(ids[m - n :], special[k - n :]))


def _parts(
    text: np.ndarray, length: int, special: np.ndarray, windows: bool, left: bool
) -> list[np.ndarray]:
    """The beginning of a text (``left``: its end), or all its windows one after the other."""
    head, tail = special_ends(text[0], special)
    end, room = text.shape[1] - tail, length - head - tail
    if room < 1:
        raise AtlasError(
            f"a length of {length} leaves no room for a text",
            why=f"the tokenizer adds {head + tail} special tokens to each",
            remedy=f"use --sequence-length {head + tail + 1} or more",
        )
    starts = range(head, end, room) if windows else [end - room if left else head]
    return [
        np.hstack([text[:, :head], text[:, start : min(start + room, end)], text[:, end:]])
        for start in starts
    ]


def _joined(parts: Sequence[np.ndarray], length: int, padding: int) -> np.ndarray:
    """[2, N, n] ids and mask of all parts."""
    joined = np.zeros((2, len(parts), length), np.int64)
    joined[0] = padding
    for row, part in enumerate(parts):
        joined[:, row, : part.shape[1]] = part
    return joined


def _length(model: LoadedModel, wanted: int | None, longest: int, bounded: bool) -> int:
    """Tokens of a padded text: as wanted, as exported, or as the longest text, which is bounded by
    what the model takes if it may be cut.
    """
    exported = model.shapes.get("input_ids")
    fixed = exported[1] if exported is not None and len(exported) == 2 else None
    positions = model.size("max_position_embeddings")
    length = wanted or fixed or longest
    if bounded and not (wanted or fixed) and positions and longest > positions:
        # Of some models a few positions are not for tokens; their tokenizer knows.
        most = getattr(model.tokenizer, "model_max_length", None)
        length = min(most, positions) if type(most) is int and most > 0 else positions
    if fixed is not None and length != fixed:
        raise AtlasError(
            f"sequence length {length} does not fit the archive, which was exported for {fixed}",
            where=str(model.source),
            remedy=f"use --sequence-length {fixed}, or export the model again",
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
    """Id of the padding; 0 where nobody says."""
    known = getattr(model.tokenizer, "pad_token_id", None)
    if known is None:
        known = getattr(model.config, "pad_token_id", None)
    return known if type(known) is int and -(1 << 63) <= known < 1 << 63 else 0


def _too_long(where: str, tokens: int, length: int, model: LoadedModel) -> AtlasError:
    positions = model.size("max_position_embeddings")
    beyond = positions is not None and tokens > positions
    return AtlasError(
        f"a text of {tokens} tokens is longer than the compiled length {length}",
        where=where,
        why=f"the model itself takes at most {positions} tokens" if beyond else "",
        remedy="shorten it"
        + ("" if beyond else f", or compile with --sequence-length {tokens} or more"),
    )
