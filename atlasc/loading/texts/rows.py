"""Texts, pairs of texts and token ids, row by row, under the names that data sets use.

An unknown member is always refused, by name, so that nothing that could change an answer is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS, MASK, SEGMENTS
from atlasc.loading.inputs import Inputs
from atlasc.loading.texts.lengths import Texts
from atlasc.loading.texts.memory import WORDS
from atlasc.loading.texts.tokens import require_characters, special_of

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

LABEL_KEYS = ("labels", "label")
TEXTS = (
    ("text", "text_pair"),
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("question", "context"),
    ("question", "passage"),
    ("query", "passage"),
    ("query", "document"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("sentence_A", "sentence_B"),
    ("text",),
    ("sentence",),
)
"""Names of the two texts of a pair, and of a single text, in the order of precedence."""
IGNORED = ("idx", "id", "index", "guid", "uid", "pairID", "label_text", "__index_level_0__")
"""Members of data sets that mean nothing to a model; a note says that they are not read."""
ALL_TEXTS = "give every row its text, or both texts of a pair"
REMEDY = "rename the member, or remove it (a data set of HuggingFace: dataset.remove_columns)"


def texts_of(
    rows: Mapping[str, Mapping[str, Any]], model: LoadedModel, *, partial: bool = False
) -> Texts:
    """Texts, pairs or token ids, all rows of one kind.

    Args:
        rows: row name for messages -> row.
        model: the model that will read the rows.
        partial: a row that cannot be read becomes a fault of this row, if others can be read.

    Raises:
        AtlasError: a row cannot be read, or has an unknown member.
    """
    members = dict.fromkeys(key for row in rows.values() for key in row)
    kind = next((keys for keys in TEXTS if members.keys() >= set(keys)), None)
    if kind is None and IDS not in members:
        raise AtlasError(
            'each line needs either "text" or "input_ids"',
            where=next(iter(rows)),
            why=f"has {sorted(map(str, members))[:10]}",
            remedy="a pair has one of these sets of members: " + "; ".join(map(_both, TEXTS)),
        )
    notes = _require_known(rows, kind, model)
    channels = () if kind else _channels(members, model)
    read: dict[str, Any] = {}
    faults: dict[str, AtlasError] = {}
    for name, row in rows.items():
        try:
            read[name] = _words(row, name, kind) if kind else _tokens(row, name, channels)
        except AtlasError as error:
            faults[name] = error
            if not partial:
                raise
    if not read:
        raise next(iter(faults.values()))
    labels, told = _labels(rows)
    if kind:
        channels, tokens = _tokenized(read, model, len(kind) == 2)
        notes += _padding_note(model)
    else:
        tokens = read
    empty = np.zeros((len(channels), 1), np.int64)
    said = tuple(_said(faults[name]) if name in faults else "" for name in rows)
    inputs = Inputs({}, tuple(rows), labels, None, (*notes, *told), said if faults else ())
    words = [read.get(name, ("",)) for name in rows] if kind else None
    inputs = inputs if words is None else replace(inputs, words=tuple(map(tuple, words)))
    return Texts(channels, [tokens.get(name, empty) for name in rows], inputs, words)


def without_ignored(members: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The members that are read, and a note on those that are not."""
    left = [member for member in members if member in IGNORED]
    note = f"{', '.join(left)} of the data {'is' if len(left) == 1 else 'are'} not read"
    why = "  why: these members number the rows, and mean nothing to a model"
    return [one for one in members if one not in left], [(note, why)] if left else []


def _both(names: Sequence[str]) -> str:
    return " and ".join(names)


def _said(error: AtlasError) -> str:
    return f"{error.what} ({error.why})" if error.why else error.what


def _require_known(
    rows: Mapping[str, Mapping[str, Any]], kind: Sequence[str] | None, model: LoadedModel
) -> list[tuple[str, str]]:
    """Notes on ignored members; raises AtlasError for an unknown member."""
    inputs = list(dict.fromkeys([IDS, MASK, *model.input_names, *model.optional_names]))
    members = dict.fromkeys(key for row in rows.values() for key in row)
    wanted = {*(kind or inputs), *LABEL_KEYS, *IGNORED}
    # If a file mixes texts and ids, a row shows the mistake better than the members do.
    wanted |= {IDS} if kind else set()
    for name, row in rows.items():
        if kind and IDS in row and any(key in row for key in kind):
            raise AtlasError(
                'each line needs either "text" or "input_ids"',
                where=name,
                why=f"has {sorted(map(str, row))[:10]}",
                remedy=f"keep one of the two, for example without {_both(kind)}: {REMEDY}",
            )
        if all(key in row for key in LABEL_KEYS):
            raise AtlasError("a row has two labels", where=name, remedy="keep label or labels")
        for member in row:
            if member not in wanted:
                known = [*(kind or ()), *(() if kind else inputs), *LABEL_KEYS]
                raise AtlasError(
                    f'"{member}" is not read',
                    where=name,
                    why=f"of such data {', '.join(known)} are read"
                    + (f"; {member} belongs to input_ids" if kind and member in inputs else ""),
                    remedy=REMEDY,
                )
    return without_ignored([str(member) for member in members])[1]


def _words(row: Mapping[str, Any], name: str, kind: Sequence[str]) -> tuple[str, ...]:
    """The text of a row, or its two texts."""
    for key in kind:
        value = row.get(key)
        if not (isinstance(value, str) and value.strip()):
            why, remedy = "" if key in row else f'the row has no "{key}"', ALL_TEXTS
            if isinstance(value, list) and all(isinstance(word, str) for word in value):
                why, remedy = "it is a list of strings", WORDS
            what = f'"{key}" must be a string that is not blank'
            raise AtlasError(what, where=name, why=why, remedy=remedy)
        require_characters(value, name)
    return tuple(row[key] for key in kind)


def _channels(members: Mapping[str, Any], model: LoadedModel) -> tuple[str, ...]:
    """The model inputs that rows of ids supply: given members, and inputs that the model needs."""
    given = [name for name in model.optional_names if name in members]
    return tuple(dict.fromkeys([IDS, MASK, *model.input_names, *given]))


def _tokens(row: Mapping[str, Any], name: str, channels: Sequence[str]) -> np.ndarray:
    """The channels [k, m] of a row of token ids."""
    ids = row.get(IDS)
    if not is_integers(ids) or not ids:
        nested = isinstance(ids, list) and any(isinstance(one, list) for one in ids)
        raise AtlasError(
            '"input_ids" must be a non-empty list of 64-bit integers',
            where=name,
            why="it holds lists, and an input is one text" if nested else "",
            remedy="of a model that reads several texts at once, such as the choices of an answer, "
            "compile the part that reads one"
            if nested
            else "",
        )
    found = [ids]
    for channel in channels[1:]:
        values = row.get(channel, [int(channel == MASK)] * len(ids))
        if channel not in row and channel not in (MASK, SEGMENTS):
            raise AtlasError(
                f'the row has no "{channel}"',
                where=name,
                why="other rows have this member, or the model reads it",
                remedy="give it in every row",
            )
        if not is_integers(values) or len(values) != len(ids):
            raise AtlasError(
                f'"{channel}" must be a list of as many integers as "input_ids"', where=name
            )
        if channel == MASK and not set(values) <= {0, 1}:
            raise AtlasError('"attention_mask" must hold 1 (keep) and 0 (padding)', where=name)
        found.append(values)
    return np.array(found, np.int64)


def _tokenized(
    words: Mapping[str, tuple[str, ...]], model: LoadedModel, pairs: bool
) -> tuple[tuple[str, ...], dict[str, np.ndarray]]:
    """The channels of texts or pairs, and row name -> tokens [k, m]."""
    if pairs and model.tokenizer is not None and not len(special_of(model).pair):
        raise AtlasError(
            "the model reads no pairs of texts",
            where=str(model.directory),
            why="its tokenizer puts no token between two texts",
            remedy="join the two texts in one, as the model was trained, and give it as text",
        )
    firsts, *seconds = (list(column) for column in zip(*words.values(), strict=True))
    encoded = model.encode(firsts, seconds[0] if seconds else None)
    if [] in encoded[IDS]:
        where = list(words)[encoded[IDS].index([])]
        raise AtlasError("the tokenizer finds no token in a text", where=where)
    made = [SEGMENTS] if SEGMENTS in encoded and SEGMENTS in model.optional_names else []
    plain = getattr(model.config, "type_vocab_size", 0) == 1  # there is only one segment
    channels = tuple(dict.fromkeys([IDS, MASK, *model.input_names, *([] if plain else made)]))
    missing = [name for name in channels if name not in (IDS, MASK, SEGMENTS)]
    if missing:
        raise AtlasError(
            f"the model reads {', '.join(missing)}, which a text does not give",
            remedy=f"give token ids: input_ids, {', '.join(missing)}",
        )
    tokens = {}
    for row, name in enumerate(words):
        ids = encoded[IDS][row]
        segments = encoded[SEGMENTS][row] if SEGMENTS in encoded else [0] * len(ids)
        known = {IDS: ids, MASK: [1] * len(ids), SEGMENTS: segments}
        tokens[name] = np.array([known[channel] for channel in channels], np.int64)
    return channels, tokens


def _padding_note(model: LoadedModel) -> list[tuple[str, str]]:
    if getattr(model.tokenizer, "padding_side", "right") != "left":
        return []
    return [
        (
            "the tokenizer pads on the left, texts are padded on the right",
            "  why: with padding on the right, the model's result is that of the text alone\n"
            "  what to do: nothing, or give input_ids and attention_mask that are padded as you "
            "want",
        )
    ]


def _labels(
    rows: Mapping[str, Mapping[str, Any]],
) -> tuple[np.ndarray | None, list[tuple[str, str]]]:
    """The labels [N], and a note if labels are not read."""
    values: dict[str, Any] = {
        name: next((row[key] for key in LABEL_KEYS if key in row), None)
        for name, row in rows.items()
    }
    for name, value in values.items():
        if type(value) is int and not is_integer(value):
            raise AtlasError("the label has more than 64 bits", where=name)
    kinds = {type(value) for value in values.values()}
    if kinds == {type(None)}:
        return None, []
    if kinds <= {int, bool}:
        return np.array([int(value) for value in values.values()], np.int64), []
    if kinds <= {int, bool, float}:
        return np.array([float(value) for value in values.values()]), []
    if kinds == {str}:
        return np.array(list(values.values())), []
    first = next(type(value) for value in values.values())
    other = next((n for n, v in values.items() if type(v) is not first), next(iter(values)))
    why = f"the label of {other} is {values[other]!r}"[:200]
    return None, [
        ("labels are not read: they must all be integers, or names, or numbers", f"  why: {why}")
    ]


def is_integer(value: Any) -> bool:
    """Whether a value is a 64-bit integer."""
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def is_integers(value: Any) -> bool:
    """Whether a value is a list of 64-bit integers."""
    return isinstance(value, list) and all(map(is_integer, value))
