"""Inputs of a model, from files or from Python objects, as named arrays of one fixed shape.

All checks that need no model execution are made here, so that a mistake in the data costs a second
and not an hour of compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import GIB, MIB, parse_json, read_npz, read_text
from atlasc.loading import LONG, images
from atlasc.loading.inputs import Inputs, checked
from atlasc.loading.lengths import padded

if TYPE_CHECKING:
    from atlasc.loading.models import LoadedModel

LABEL_KEYS = ("labels", "label")
MAX_ARRAYS = 4 * GIB
"""Bytes of the arrays of an .npz."""
MAX_TEXTS = 256 * MIB
"""Bytes of a file of texts; a tokenizer needs about fifty times as many."""
MAX_LINE = MIB
"""Characters of one input."""


def inputs_of(
    data: object, model: LoadedModel, sequence_length: int | None = None, long: str = LONG[0]
) -> Inputs:
    """Inputs from a file, or from what the caller has in memory.

    Args:
        data: one of

            - a path: `.txt` (a text a line), `.jsonl` (`{"text": ...}` or `{"input_ids": [...]}` a
              line, with an optional `"label"`), `.npz` (arrays named like the model's inputs, with
              optional `labels`), an image, or a folder of images (in a folder for each label, or
              in one);
            - a sequence of texts, of lists of token ids, or of mappings like the lines of `.jsonl`;
            - images: see :func:`atlasc.loading.images.images_in_memory`;
            - an array or a tensor of the model's main input, or a mapping of them as in `.npz`;
            - `Inputs`.
        model: has the tokenizer, the vocabulary, the image size and the preprocessing.
        sequence_length: texts are padded to it on the right; None pads to the longest one that the
            model has positions for.
        long: what becomes of longer texts, one of ``LONG``.

    Raises:
        AtlasError: missing or empty data; wrong format, keys, type or shape; a text that is too
            long, where it is refused; an id outside the vocabulary.
    """
    if isinstance(data, Inputs):
        return data
    if isinstance(data, str | Path):
        return _from_file(Path(data).expanduser(), model, sequence_length, long)
    main = model.input_names[0]
    if main == "pixel_values":
        found = images.images_in_memory(data, model)
        if found is not None:
            return checked(found, model)
    rows = list(data) if main == "input_ids" and isinstance(data, Sequence) else []
    if rows and all(isinstance(row, str | Sequence | Mapping) for row in rows):
        named = {
            f"data[{number}]": row
            if isinstance(row, Mapping)
            else {"text" if isinstance(row, str) else "input_ids": row}
            for number, row in enumerate(rows)
        }
        return _from_rows(named, model, sequence_length, long)
    given = data if isinstance(data, Mapping) else {main: data}
    with explained("data cannot be made an array"):
        arrays = {
            str(name): np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
            for name, value in given.items()
        }
    if main in arrays and arrays[main].dtype.kind not in "biuf":
        raise AtlasError(
            f"data is a {type(data).__name__}, from which no inputs can be made",
            why=f"the model reads {', '.join(model.input_names)}",
            remedy="give texts, arrays by the name of the input, or the path of a file",
        )
    return _from_arrays(arrays, model, sequence_length, long, "data")


def _from_file(source: Path, model: LoadedModel, length: int | None, long: str) -> Inputs:
    if not source.exists():
        raise AtlasError(f"data {source} not found", remedy="check the path for a misspelling")
    main, suffix = model.input_names[0], source.suffix.lower()
    if suffix == ".npz":
        arrays = read_npz(source, MAX_ARRAYS, what="data")
        return _from_arrays(arrays, model, length, long, str(source))
    if source.is_dir() or suffix in images.SUFFIXES:
        have, needed = "images", "pixel_values"
    elif suffix in (".txt", ".jsonl"):
        have, needed = "texts" if suffix == ".txt" else "texts or ids", "input_ids"
    else:
        raise AtlasError(
            f"data {source} has an unknown format",
            remedy="give one of .txt, .jsonl, .npz, or an image or a folder of them: "
            + ", ".join(images.SUFFIXES),
        )
    if main != needed:
        raise AtlasError(
            f"data {source} holds {have}, but the model reads {main}",
            remedy=f"give data of the right kind, or an .npz with an array named {main}",
        )
    if have == "images":
        return checked(images.load_images(source, model), model)
    lines = _lines(source)
    if suffix == ".txt":
        texts = {name: {"text": line} for name, line in lines.items()}
        return _from_rows(texts, model, length, long)
    rows = {}
    for name, line in lines.items():
        with explained("not a JSON object", name):
            rows[name] = parse_json(line, dict[str, Any])
    return _from_rows(rows, model, length, long)


def _lines(source: Path) -> dict[str, str]:
    """Every line that is not blank, under a name such as "texts.txt:3"."""
    remedy = "write one input a line"
    content = enumerate(read_text(source, MAX_TEXTS).split("\n"), 1)
    lines = {f"{source.name}:{number}": line.strip() for number, line in content if line.strip()}
    if not lines:
        raise AtlasError(f"data {source} is empty", remedy=remedy)
    longest = max(lines, key=lambda name: len(lines[name]))
    if len(lines[longest]) > MAX_LINE:
        raise AtlasError(
            f"a line of {len(lines[longest])} characters is longer than any input",
            where=longest,
            why=f"it may have {MAX_LINE} at most",
            remedy=remedy,
        )
    return lines


def _from_rows(
    rows: Mapping[str, Mapping[str, Any]], model: LoadedModel, length: int | None, long: str
) -> Inputs:
    """Texts or token ids, all of one kind, as ``{"text": ...}`` or ``{"input_ids": [...]}``; rows
    have names for messages.
    """
    key = "text" if "text" in next(iter(rows.values())) else "input_ids"
    labels = []
    for name, row in rows.items():
        if ("text" in row) == ("input_ids" in row):
            raise AtlasError(
                'each line needs either "text" or "input_ids"',
                where=name,
                why=f"has {sorted(row)[:10]}",
            )
        value = row.get(key)
        if key == "text" and not (isinstance(value, str) and value.strip()):
            raise AtlasError('"text" must be a string that is not blank', where=name)
        integers = isinstance(value, list) and value and all(map(_is_integer, value))
        if key == "input_ids" and not integers:
            raise AtlasError(
                '"input_ids" must be a list of integers of 64 bits, at least one', where=name
            )
        labels.append(next((row[each] for each in LABEL_KEYS if each in row), None))
        if type(labels[-1]) is int and not _is_integer(labels[-1]):
            raise AtlasError("the label has more than 64 bits", where=name)
    names, values = tuple(rows), [row[key] for row in rows.values()]
    words = values if key == "text" else None
    ids = values if words is None else model.tokenize(words)
    if [] in ids:
        raise AtlasError("the tokenizer finds no token in a text", where=names[ids.index([])])
    known = np.array(labels, np.int64) if all(map(_is_integer, labels)) else None
    texts = [np.array([row, [1] * len(row)], np.int64) for row in ids]
    return checked(padded(texts, names, known, model, length, long, words), model)


def _is_integer(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _from_arrays(
    arrays: dict[str, np.ndarray], model: LoadedModel, length: int | None, long: str, source: str
) -> Inputs:
    """Inputs from arrays by the names of the model's inputs, ``labels`` among them or not."""
    labels = next((arrays.pop(key) for key in LABEL_KEYS if key in arrays), None)
    main = model.input_names[0]
    if main not in arrays or not arrays.keys() <= set(model.input_names):
        raise AtlasError(
            f"{source} does not have the model's inputs",
            why=f"it has {sorted(arrays) or 'nothing'}; the model reads "
            f"{', '.join(model.input_names)}",
            remedy=f"name the arrays like the inputs; only {main} must be there",
        )
    count = len(arrays[main]) if arrays[main].ndim else 0
    if count == 0:
        raise AtlasError(f"{source} is empty", why=f"{main} has shape {arrays[main].shape}")
    for name, array in [*arrays.items(), ("labels", labels)]:
        if array is not None and array.shape[:1] != (count,):
            raise AtlasError(
                f"{name} has shape {array.shape}, but {main} has {count} rows", where=source
            )
    if labels is not None and labels.dtype.kind not in "biuU":
        raise AtlasError(f"labels must be integers or names, not {labels.dtype}", where=source)
    names = tuple(f"{Path(source).name}[{row}]" for row in range(count))
    if main == "input_ids":
        ids = arrays["input_ids"]
        if ids.ndim != 2 or ids.dtype.kind not in "iu":
            raise AtlasError(
                f"input_ids must be integers of shape [N, n], not {ids.dtype} of shape {ids.shape}",
                where=source,
            )
        mask = arrays.get("attention_mask", np.ones(ids.shape, dtype=np.int64))
        if mask.shape != ids.shape or not np.isin(mask, (0, 1)).all():
            raise AtlasError(
                f"attention_mask must have the shape {ids.shape} of input_ids and hold 1 (keep) "
                "and 0 (padding)",
                where=source,
                why=f"its shape is {mask.shape}",
            )
        texts = list(np.stack([ids, mask], axis=1, dtype=np.int64, casting="unsafe"))
        return checked(padded(texts, names, labels, model, length, long), model)
    return checked(Inputs(arrays, names, labels), model)
