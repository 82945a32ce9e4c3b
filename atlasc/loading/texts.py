"""Texts and token ids to `input_ids` and `attention_mask`, padded on the right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.json_text import parse_json
from atlasc.ir.files.plain import MIB, read_text
from atlasc.loading.configs import size
from atlasc.loading.inputs import Inputs, checked
from atlasc.loading.tokenizers import tokenizer_errors

if TYPE_CHECKING:
    from atlasc.loading.models import LoadedModel

LABEL_KEYS = ("labels", "label")
MAX_TEXTS = 256 * MIB
"""Bytes of a file of texts; a tokenizer needs about fifty times as many."""
MAX_LINE = MIB
"""Characters of one input."""
MAX_TOKENS = 1 << 29
"""Of all inputs together, padding included: 4 GiB."""


def inputs_from_texts(
    texts: Sequence[str],
    model: LoadedModel,
    sequence_length: int | None = None,
    *,
    names: Sequence[str] | None = None,
    labels: np.ndarray | None = None,
) -> Inputs:
    """Tokenize texts with the model's tokenizer and pad them on the right.

    Raises:
        AtlasError: the model has no tokenizer, or a text has more tokens than fit.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise AtlasError(
            "the model has no tokenizer",
            where=str(model.directory),
            remedy="put tokenizer.json beside config.json, give a module with its tokenizer, or "
            'give ids: {"input_ids": [...]}',
        )
    names = tuple(names) if names is not None else tuple(f"text {i}" for i in range(len(texts)))
    with tokenizer_errors(model.directory):
        ids = tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
    arrays = pad(ids, model, sequence_length, names, texts)
    return Inputs(checked(arrays, names, model), names, tuple(texts), labels)


def pad(
    ids: Sequence[Sequence[int]],
    model: LoadedModel,
    sequence_length: int | None,
    names: Sequence[str],
    texts: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """`input_ids` and `attention_mask` [N, n], padded on the right.

    Raises:
        AtlasError: a row, or the length itself, is longer than the model accepts.
    """
    exported = model.exported_shape("input_ids")
    fixed = exported[1] if exported is not None and len(exported) == 2 else None
    length = sequence_length or fixed or max(len(row) for row in ids)
    if fixed is not None and length != fixed:
        raise AtlasError(
            f"sequence length {length} does not fit the archive, which was exported for {fixed}",
            where=str(model.source),
            remedy=f"use --sequence-length {fixed}, or export the model again",
        )
    positions = size(model.config, "max_position_embeddings")
    if positions and length > positions:
        raise AtlasError(
            f"sequence length {length} is more than the model has positions for",
            why=f"max_position_embeddings is {positions}",
            remedy=f"use --sequence-length {positions} or less, and shorten longer texts",
        )
    if len(ids) * length > MAX_TOKENS:
        raise AtlasError(
            f"{len(ids)} inputs of {length} tokens are more than fit into memory",
            remedy="give fewer inputs, or shorten the longest one",
        )
    padding = getattr(model.config, "pad_token_id", None)
    if model.tokenizer is not None and model.tokenizer.pad_token_id is not None:
        padding = model.tokenizer.pad_token_id
    padding = padding if _is_integer(padding) else 0
    padded = np.full((len(ids), length), padding, dtype=np.int64)
    mask = np.zeros_like(padded)
    for row, tokens in enumerate(ids):
        if len(tokens) > length:
            start = "" if texts is None else f": {' '.join(texts[row].split()[:6])} ..."
            beyond = positions is not None and len(tokens) > positions
            raise AtlasError(
                f"a text of {len(tokens)} tokens is longer than the compiled length {length}",
                where=names[row] + start,
                why=f"the model itself takes at most {positions} tokens" if beyond else "",
                remedy="shorten it"
                + ("" if beyond else f", or compile with --sequence-length {len(tokens)} or more"),
            )
        padded[row, : len(tokens)] = tokens
        mask[row, : len(tokens)] = 1
    return {"input_ids": padded, "attention_mask": mask}


def read_lines(source: Path) -> list[tuple[int, str]]:
    """(line number, text) of every line that is not blank.

    Raises:
        AtlasError: the file cannot be read, is too large, or is empty; a line is too long.
    """
    content = read_text(source, MAX_TEXTS)
    lines = [(n, line.strip()) for n, line in enumerate(content.split("\n"), 1) if line.strip()]
    if not lines:
        raise AtlasError(f"data {source} is empty", remedy="write one input a line")
    number, longest = max(lines, key=lambda line: len(line[1]))
    if len(longest) > MAX_LINE:
        raise AtlasError(
            f"a line of {len(longest)} characters is longer than any input",
            where=f"{source.name}:{number}",
            why=f"it may have {MAX_LINE} at most",
            remedy="write one input a line",
        )
    return lines


def from_json_lines(source: Path, model: LoadedModel, length: int | None) -> Inputs:
    """Texts or token ids, a JSON object a line; see `atlasc.loading.data.load_inputs`."""
    names, rows = [], []
    for number, line in read_lines(source):
        names.append(f"{source.name}:{number}")
        try:
            row = parse_json(line, dict[str, Any])
        except ValueError as error:
            raise AtlasError("not a JSON object", where=names[-1], why=str(error)) from None
        rows.append(row)
    return inputs_from_rows(rows, names, model, length)


def inputs_from_rows(
    rows: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    model: LoadedModel,
    length: int | None = None,
) -> Inputs:
    """Texts or token ids, all of one kind, as ``{"text": ...}`` or ``{"input_ids": [...]}``.

    Raises:
        AtlasError: a row has neither or both, another type, or a label of more than 64 bits; as
            `inputs_from_texts`.
    """
    for name, row in zip(names, rows, strict=True):
        if ("text" in row) == ("input_ids" in row):
            raise AtlasError(
                'each line needs either "text" or "input_ids"',
                where=name,
                why=f"has {sorted(row)[:10]}",
            )
    key = "text" if "text" in rows[0] else "input_ids"
    for name, row in zip(names, rows, strict=True):
        _check_row(row.get(key), key, name)
    labels = _labels([next((row[k] for k in LABEL_KEYS if k in row), None) for row in rows], names)
    values = [row[key] for row in rows]
    if key == "text":
        return inputs_from_texts(values, model, length, names=names, labels=labels)
    arrays = pad(values, model, length, names)
    return Inputs(checked(arrays, names, model), tuple(names), labels=labels)


def _check_row(value: Any, key: str, name: str) -> None:
    if key == "text" and not (isinstance(value, str) and value.strip()):
        raise AtlasError('"text" must be a string that is not blank', where=name)
    integers = isinstance(value, list) and all(map(_is_integer, value))
    if key == "input_ids" and not (integers and value):
        raise AtlasError(
            '"input_ids" must be a list of integers of 64 bits, at least one', where=name
        )


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _labels(values: list[Any], names: Sequence[str]) -> np.ndarray | None:
    """Labels as an array if every row has an integer one."""
    if not all(type(value) is int for value in values):
        return None
    for value, name in zip(values, names, strict=True):
        if not _is_integer(value):
            raise AtlasError("the label has more than 64 bits", where=name)
    return np.array(values, dtype=np.int64)
