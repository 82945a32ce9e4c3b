"""Inputs of a model, from files or from Python objects, as named arrays of one fixed shape.

All checks that need not run the model are made here, so that a mistake in the data is found in a
second and not after an hour of compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import GIB, read_npz
from atlasc.loading import IDS, LONG, MASK, SEGMENTS
from atlasc.loading.audio import reading as recordings
from atlasc.loading.audio.inputs import AUDIO, audio_in_memory, audio_of_rows, load_audio
from atlasc.loading.images.inputs import images_in_memory, load_images
from atlasc.loading.images.reading import SUFFIXES
from atlasc.loading.inputs import Inputs, checked
from atlasc.loading.mask_argument import read_masks
from atlasc.loading.texts import memory, tables
from atlasc.loading.texts.lengths import Texts, padded
from atlasc.loading.texts.padding import as_compiled
from atlasc.loading.texts.rows import LABEL_KEYS, TEXTS, texts_of, without_ignored

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

MAX_ARRAYS = 4 * GIB
"""Greatest number of bytes of the arrays of an .npz."""
FORMATS = (*tables.READERS, ".npz")
KNOWN = (*FORMATS, *SUFFIXES, *recordings.SUFFIXES)
"""Suffixes of files of data."""
NO_MASK = (
    f"leave {MASK} out, because forward takes none; a mask that forward computes from ids is read "
    "off the data"
)
OTHER_LENGTHS = f"lists of several lengths are read as token ids where forward takes {IDS}"
SHOWN = 80
"""Greatest number of characters of a path that a message shows."""
Choice: TypeAlias = Callable[[int], Sequence[int]]
"""Given the number of inputs, the numbers of the wanted ones; ``range`` wants all."""


def inputs_of(
    data: object,
    model: LoadedModel,
    sequence_length: int | None = None,
    long: str = LONG[0],
    *,
    partial: bool = False,
    choice: Choice = range,
) -> Inputs:
    """Inputs from a file, or from objects in memory.

    Args:
        data: one of

            - a path: `.txt` (a text a line); `.jsonl`, `.csv`, `.tsv`, `.parquet` or a folder that
              `datasets` wrote (rows of `text`, of the two texts of a pair, see ``rows.TEXTS``, or
              of `input_ids` and further inputs of the model, each with an optional `label`);
              `.npz` (arrays named like the model's inputs, with optional `labels`); an image or a
              recording, or a folder of them (in a folder for each label, or in one); rows with the
              paths of recordings, see ``audio_of_rows``;
            - a sequence of texts, of pairs of texts, of lists of token ids, or of mappings like the
              lines of `.jsonl`;
            - one or several images: see :func:`atlasc.loading.images.inputs.images_in_memory`;
            - one or several recordings: see :func:`atlasc.loading.audio.inputs.audio_in_memory`;
            - the output of a tokenizer, or other columns by name; a DataFrame or a Series, a data
              set of `datasets` or of torch, or another iterable of rows. Only what cannot be
              indexed, as a loader, may have batches. Where the model reads arrays, a row or a batch
              may be a mapping, an array, or a tuple of an array and its label or labels;
            - an array or a tensor of the model's main input, or a mapping by input name as in
            `.npz`; - `Inputs`.
        model: the model with its tokenizer, vocabulary, image size and preprocessing.
        sequence_length: texts are padded on the right to this many tokens; None pads to the
            longest text for which the model has positions.
        long: treatment of longer texts, one of ``LONG``.
        partial: a row without an input becomes one of ``Inputs.faults``, if others have an input.
        choice: which inputs of a file are wanted. Others are not tokenised or decoded, unless a
            text may become several inputs.

    Raises:
        AtlasError: the data is missing or empty; has a wrong format, type or shape, or an unknown
            member; a text is too long and ``long`` refuses it; an id is outside the vocabulary.
    """
    if isinstance(data, Inputs):
        return data
    lengths = sequence_length, long
    require_data(data)
    if isinstance(data, str | Path):
        divided = long == "windows"
        of_file = range if divided else choice
        inputs = _from_file(Path(data).expanduser(), model, lengths, partial, of_file)
        return _chosen(inputs, choice) if divided else inputs
    main = model.input_names[0]
    if main == "pixel_values":
        found = images_in_memory(data, model)
        if found is not None:
            return checked(found, model)
    if main in AUDIO:
        found = audio_in_memory(data, model, long)
        if found is not None:
            return checked(found, model)
    known = memory.plain(data)
    if main == IDS and (rows := _rows(known)):
        named = {f"data[{number}]": row for number, row in enumerate(rows)}
        return _from_rows(named, model, lengths, partial)
    rank = 4 if main == "pixel_values" else None
    remedy = f"give {main} as one array of equal rows; {OTHER_LENGTHS}"
    with explained("the data cannot be turned into an array", remedy=remedy):
        if isinstance(known, Sequence) and known:
            known = memory.stacked(known, main, memory.yields_batches(data), rank) or known
        given = known if isinstance(known, Mapping) else {main: known}
        arrays = {str(name): memory.array_of(value) for name, value in given.items()}
    if main in arrays and arrays[main].dtype.kind not in "biuf":
        raise AtlasError(
            f"data is a {type(data).__name__}, which cannot be turned into inputs",
            why=f"the model reads {', '.join(model.input_names)}",
            remedy="give texts, arrays by the name of the input, or the path of a file",
        )
    return _from_arrays(arrays, model, lengths, "data")


def require_data(data: object) -> None:
    """Raise AtlasError for a path without data, or of an unknown format, before a model is read for
    it.
    """
    if not isinstance(data, str | Path):
        return
    path, text = Path(data).expanduser(), isinstance(data, str)
    with suppress(OSError):  # a long text is no name of a file
        if path.exists():
            if not path.is_dir() and path.suffix.lower() not in KNOWN:
                raise AtlasError(
                    f"data {data} has an unknown format",
                    remedy=f"give one of {', '.join(FORMATS)}, a folder that datasets wrote, or an "
                    "image or a recording or a folder of them: "
                    f"{', '.join(SUFFIXES + recordings.SUFFIXES)}",
                )
            return
    # A string may be a text that was meant as one; a path is named whole.
    shown = data if not text or len(str(data)) <= SHOWN else f"{str(data)[:SHOWN]} ..."
    raise AtlasError(
        f"data {shown} not found",
        why="a string is the path of a file" if text else "",
        remedy="check the path for a misspelling"
        + ("; a text is given in a list: [text]" if text else ""),
    )


def _rows(data: object) -> list[dict[str, Any]] | None:
    """Rows of texts or ids, for a model that reads ids; None for arrays and other data."""
    if isinstance(data, Mapping):
        texts = any(data.keys() >= set(keys) for keys in TEXTS)
        arrays = getattr(data.get(IDS), "ndim", 0) == 2
        return memory.rows_of(data) if texts or (IDS in data and not arrays) else None
    return memory.rows_of(data) if isinstance(data, Sequence) else None


def _from_file(
    source: Path,
    model: LoadedModel,
    lengths: tuple[int | None, str],
    partial: bool,
    choice: Choice,
) -> Inputs:
    main, suffix = model.input_names[0], source.suffix.lower()
    if suffix == ".npz":
        arrays = read_npz(source, MAX_ARRAYS, what="data")
        return _chosen(_from_arrays(arrays, model, lengths, str(source)), choice)
    dataset = source.is_dir() and tables.is_dataset(source)
    table = dataset or (suffix in tables.READERS and not source.is_dir())
    audio = main in AUDIO and (table or source.is_dir()) and suffix != ".txt"
    if suffix in recordings.SUFFIXES or audio:
        have, needed = "recordings", main if main in AUDIO else AUDIO[0]
    elif table:
        have, needed = "texts" if suffix == ".txt" else "texts or ids", IDS
    else:
        have, needed = "images", "pixel_values"
    if main != needed:
        holds = "is a folder, which is read as" if source.is_dir() and not dataset else "holds"
        raise AtlasError(
            f"data {source} {holds} {have}, but the model reads {main}",
            remedy=f"give data of the right kind, or an .npz with an array named {main}",
        )
    if have == "images":
        return checked(load_images(source, model, choice), model)
    if have == "recordings" and not table:
        return checked(load_audio(source, model, lengths[1], choice), model)
    content = tables.read_rows(source)
    named, wanted = list(content.rows.items()), list(choice(len(content.rows)))
    distinct = list(dict.fromkeys(wanted))
    rows = dict(named[number] for number in distinct)
    if have == "recordings":
        inputs = checked(audio_of_rows(rows, source.parent, model, lengths[1]), model)
    else:
        inputs = _from_rows(rows, model, lengths, partial)
    inputs = replace(inputs, notes=(*content.notes, *inputs.notes), read=content.read)
    return inputs if distinct == wanted else inputs.take([distinct.index(n) for n in wanted])


def _chosen(inputs: Inputs, choice: Choice) -> Inputs:
    return inputs if choice is range else inputs.take(choice(len(inputs)))


def _from_rows(
    rows: Mapping[str, Mapping[str, Any]],
    model: LoadedModel,
    lengths: tuple[int | None, str],
    partial: bool,
) -> Inputs:
    texts = texts_of(rows, model, partial=partial)
    return checked(padded(texts, model, *lengths), model)


def _from_arrays(
    arrays: dict[str, np.ndarray],
    model: LoadedModel,
    lengths: tuple[int | None, str],
    source: str,
) -> Inputs:
    """Inputs from arrays under the names of the model's inputs, with or without ``labels``."""
    labels = next((arrays.pop(key) for key in LABEL_KEYS if key in arrays), None)
    arrays = read_masks(arrays, model.module, model.mask)
    read, notes = without_ignored(list(arrays))
    arrays = {name: arrays[name] for name in read}
    main, known = model.input_names[0], (*model.input_names, *model.optional_names)
    if main not in arrays or not arrays.keys() <= set(known):
        alone = main in arrays and arrays.keys() - {*known} == {MASK}
        raise AtlasError(
            f"{source} does not have the model's inputs",
            why=f"the data has {sorted(arrays) or 'nothing'}; the model reads {', '.join(known)}",
            remedy=NO_MASK if alone else f"name the arrays like the inputs; {_required(model)}",
        )
    if arrays[main].ndim == 0:
        raise AtlasError(
            f"{source} has no rows",
            why=f"{main} is a single number or text",
            remedy=f"give one row of {main} for each input; texts are given in a list",
        )
    count = len(arrays[main])
    if count == 0:
        raise AtlasError(f"{source} is empty", why=f"{main} has shape {arrays[main].shape}")
    for name, array in [*arrays.items(), ("labels", labels)]:
        if array is not None and array.shape[:1] != (count,):
            raise AtlasError(
                f"{name} has shape {array.shape}, but {main} has {count} rows", where=source
            )
    if labels is not None and labels.dtype.kind not in "biufU":
        raise AtlasError(f"labels must be numbers or names, not {labels.dtype}", where=source)
    names = tuple(f"{Path(source).name}[{row}]" for row in range(count))
    inputs = Inputs({}, names, labels, notes=tuple(notes))
    if main == IDS:
        texts = _texts_of_arrays(arrays, model, inputs, source)
        return checked(padded(texts, model, *lengths), model)
    if MASK in model.input_names:
        tokens = arrays[main].shape[:2]
        arrays[MASK] = _mask_of(arrays, tokens, f"the tokens of {main}", source)
        if (empty := ~arrays[MASK].any(axis=1)).any():
            raise AtlasError(
                f"row {int(empty.argmax())} of {MASK} keeps no token",
                where=source,
                remedy="leave this input out",
            )
    _require(model.input_names, arrays, model, source)
    return checked(as_compiled(replace(inputs, arrays=arrays), model), model)


MADE = (MASK, SEGMENTS)
"""Inputs that texts have by themselves."""


def _required(model: LoadedModel) -> str:
    """Which inputs data must have, and which it may have, in words."""
    required = [name for name in model.input_names if name not in MADE]
    optional = [*(n for n in model.input_names if n in MADE), *model.optional_names]
    more = f"; {', '.join(optional)} may be left out" if optional else ""
    return f"required: {', '.join(required)}{more}"


def _require(
    names: Iterable[str], arrays: Mapping[str, np.ndarray], model: LoadedModel, source: str
) -> None:
    """Raise AtlasError for all inputs that data lack."""
    made = MADE if IDS in arrays else ()
    if missing := [name for name in names if name not in (*arrays, *made)]:
        raise AtlasError(
            f"{source} lacks {', '.join(missing)}",
            why=f"forward takes {'it' if len(missing) == 1 else 'them'} without a default",
            remedy=f"add {'it' if len(missing) == 1 else 'them'} as arrays of as many rows; "
            f"{_required(model)}",
        )


def _mask_of(
    arrays: Mapping[str, np.ndarray], tokens: tuple[int, ...], of: str, source: str
) -> np.ndarray:
    """The attention mask ``[N, tokens]`` of an input; without one, all tokens are kept."""
    mask = arrays.get(MASK, np.ones(tokens))
    fits = bool(np.isin(mask, (0, 1)).all())
    return _of_tokens(MASK, mask, tokens, fits, f"{of} and hold 1 (keep) and 0 (padding)", source)


def _of_tokens(
    name: str, array: np.ndarray, tokens: tuple[int, ...], fits: bool, what: str, source: str
) -> np.ndarray:
    """An array with one integer per token. AtlasError unless ``fits``; ``what`` names the
    demand.
    """
    if array.shape != tokens or not fits:
        raise AtlasError(
            f"{name} must have the shape {tokens} of {what}",
            where=source,
            why=f"its shape is {array.shape}",
        )
    return array.astype(np.int64)


def _texts_of_arrays(
    arrays: dict[str, np.ndarray], model: LoadedModel, inputs: Inputs, source: str
) -> Texts:
    """Ids and the other numbers per token, as arrays ``[N, n]``."""
    ids = arrays[IDS]
    if ids.ndim != 2 or ids.dtype.kind not in "iu":
        raise AtlasError(
            f"input_ids must be integers of shape [N, n], not {ids.dtype} of shape {ids.shape}",
            where=source,
        )
    channels = dict.fromkeys([IDS, MASK, *model.input_names, *arrays])
    _require(channels, arrays, model, source)
    found = []
    for name in channels:
        if name == MASK:
            found.append(_mask_of(arrays, ids.shape, "input_ids", source))
            continue
        array = arrays.get(name, np.zeros(ids.shape, np.int64))
        fits = array.dtype.kind in "biu"
        what = "input_ids and hold integers"
        found.append(_of_tokens(name, array, ids.shape, fits, what, source))
    return Texts(tuple(channels), list(np.stack(found, axis=1)), inputs)
