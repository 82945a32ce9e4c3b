"""Inputs of a model: text, `.jsonl`, `.npz` and images, as named arrays of one fixed shape.

All checks that need no model execution are made here, so that a mistake in the data costs a second
and not an hour of compilation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files.arrays import read_npz
from atlasc.ir.files.plain import GIB
from atlasc.loading import images
from atlasc.loading.inputs import Inputs, checked
from atlasc.loading.texts import LABEL_KEYS, from_json_lines, inputs_from_texts, pad, read_lines

if TYPE_CHECKING:
    from atlasc.loading.models import LoadedModel

__all__ = ["Inputs", "inputs_from_texts", "load_inputs"]

MAX_ARRAYS = 4 * GIB
"""Bytes of the arrays of an .npz."""
FORMATS = ".txt, .jsonl, .npz, or a .png/.jpg image or a folder of them"


def load_inputs(path: str | Path, model: LoadedModel, sequence_length: int | None = None) -> Inputs:
    """Read inputs for a model.

    Args:
        path: `.txt` (a text a line), `.jsonl` (`{"text": ...}` or `{"input_ids": [...]}` a line,
            with an optional `"label"`), `.npz` (arrays named like the model's inputs, with an
            optional `labels`), an image, or a folder of images (in a folder for each label, or
            in one).
        model: has the tokenizer, the vocabulary, the image size and the preprocessing.
        sequence_length: texts are padded to it on the right; None pads to the longest one.

    Raises:
        AtlasError: missing or empty data; wrong format, keys, type or shape; a text that is too
            long; an id outside the vocabulary.
    """
    source = Path(path).expanduser()
    if not source.exists():
        raise AtlasError(f"data {source} not found", remedy="check the path for a misspelling")
    main = model.input_names[0]
    suffix = source.suffix.lower()
    if suffix == ".npz":
        content = read_npz(source, MAX_ARRAYS, what="data")
        inputs = inputs_from_arrays(content, model, sequence_length, str(source))
    elif source.is_dir() or suffix in images.SUFFIXES:
        _require(source, "images", main, "pixel_values")
        arrays, names, labels = images.load_images(source, model)
        inputs = Inputs(checked({"pixel_values": arrays}, names, model), names, labels=labels)
    elif suffix == ".txt":
        _require(source, "texts", main, "input_ids")
        rows = [(f"{source.name}:{n}", text) for n, text in read_lines(source)]
        names, texts = (tuple(column) for column in zip(*rows, strict=True))
        inputs = inputs_from_texts(texts, model, sequence_length, names=names)
    elif suffix == ".jsonl":
        _require(source, "texts or ids", main, "input_ids")
        inputs = from_json_lines(source, model, sequence_length)
    else:
        raise AtlasError(f"data {source} has an unknown format", remedy=f"give one of {FORMATS}")
    return inputs


def inputs_from_arrays(
    content: dict[str, np.ndarray], model: LoadedModel, length: int | None, source: str
) -> Inputs:
    """Inputs from arrays by the names of the model's inputs, ``labels`` among them or not.

    Args:
        content: the arrays.
        model, length: see :func:`load_inputs`.
        source: name of the data, for messages.

    Raises:
        AtlasError: as :func:`load_inputs`.
    """
    labels = next((content.pop(key) for key in LABEL_KEYS if key in content), None)
    main = model.input_names[0]
    unknown = sorted(set(content) - set(model.input_names))
    if main not in content or unknown:
        raise AtlasError(
            f"{source} does not have the model's inputs",
            why=f"it has {sorted(content) or 'nothing'}; the model reads "
            f"{', '.join(model.input_names)}",
            remedy=f"name the arrays like the inputs; only {main} must be there",
        )
    count = len(content[main]) if content[main].ndim else 0
    if count == 0:
        raise AtlasError(f"{source} is empty", why=f"{main} has shape {content[main].shape}")
    for name, array in [*content.items(), ("labels", labels)]:
        if array is not None and array.shape[:1] != (count,):
            raise AtlasError(
                f"{name} has shape {array.shape}, but {main} has {count} rows", where=source
            )
    if labels is not None and labels.dtype.kind not in "biuU":
        raise AtlasError(f"labels must be integers or names, not {labels.dtype}", where=source)
    names = tuple(f"{Path(source).name}[{row}]" for row in range(count))
    if main == "input_ids":
        content = _pad_arrays(content, model, length, names, source)
    return Inputs(checked(content, names, model), names, labels=labels)


def _pad_arrays(
    content: dict[str, np.ndarray],
    model: LoadedModel,
    length: int | None,
    names: Sequence[str],
    where: str,
) -> dict[str, np.ndarray]:
    ids = content["input_ids"]
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise AtlasError(
            f"input_ids must be integers of shape [N, n], not {ids.dtype} of shape {ids.shape}",
            where=where,
        )
    mask = content.get("attention_mask", np.ones(ids.shape, dtype=np.int64))
    if mask.shape != ids.shape or not np.isin(mask, (0, 1)).all() or not mask.any(axis=1).all():
        raise AtlasError(
            f"attention_mask must have the shape {ids.shape} of input_ids and hold 1 (keep) and "
            "0 (padding), with a 1 in each row",
            where=where,
            why=f"its shape is {mask.shape}",
        )
    padded = pad(ids.astype(np.int64).tolist(), model, length, names)
    padded["attention_mask"][:, : ids.shape[1]] = mask
    return padded


def _require(source: Path, have: str, main: str, needed: str) -> None:
    if main != needed:
        raise AtlasError(
            f"data {source} holds {have}, but the model reads {main}",
            remedy=f"give data of the right kind, or an .npz with an array named {main}",
        )
