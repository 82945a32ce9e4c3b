"""From recordings to the arrays of a model: files, folders, tables of paths, and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.loading.audio.extractor import Extractor, load_extractor
from atlasc.loading.audio.reading import SUFFIXES, is_recording, read_recording
from atlasc.loading.inputs import Inputs
from atlasc.loading.items import (
    LABEL_KEYS,
    Item,
    Notes,
    faults_of_items,
    items_of_folder,
    labels_of_items,
    lost_of_items,
)
from atlasc.loading.texts.rows import without_ignored

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

AUDIO = ("input_values", "input_features")
"""Inputs of models that feature extractors of transformers make from recordings."""
AUDIO_KEYS = ("audio", "file", "path", "file_name")
"""Members of a row that hold a recording, or its path."""
MAX_NUMBERS = 1 << 30
"""Greatest number of samples, and of numbers of the arrays, of all recordings: 4 GiB."""


def load_audio(
    source: Path,
    model: LoadedModel,
    long: str,
    choice: Callable[[int], Sequence[int]] = range,
) -> Inputs:
    """Read a recording, or all recordings of a folder and of its subfolders one level down.

    Names and labels are as for images, see `items_of_folder`.

    Args:
        source: a recording or a folder.
        model: the model that will read the recordings.
        long: treatment of recordings that are longer than the program; "truncate" or "refuse".
        choice: given the number of recordings, the numbers of the wanted ones.

    Raises:
        AtlasError: there is no recording, or none can be read; or as `load_extractor`.
    """
    if not source.is_dir():
        return _inputs([Item(source.name, source)] * len(choice(1)), model, long, [])
    items, notes = items_of_folder(source, SUFFIXES, "recording", choice)
    return _inputs(items, model, long, notes)


def audio_of_rows(
    rows: Mapping[str, Mapping[str, Any]], folder: Path | None, model: LoadedModel, long: str
) -> Inputs:
    """Recordings of rows, such as ``{"audio": "a.wav", "label": 1}``.

    Args:
        rows: row name for messages -> row; a row has one of ``AUDIO_KEYS``.
        folder: paths are relative to it; None for the current one.
        model, long: see `load_audio`.

    Raises:
        AtlasError: a row has no recording, or an unknown member; or as `load_audio`.
    """
    members = list(dict.fromkeys(str(key) for row in rows.values() for key in row))
    read, notes = without_ignored(members)
    key = next((key for key in AUDIO_KEYS if key in members), None)
    if key is None or set(read) - {key, *LABEL_KEYS}:
        raise AtlasError(
            f"each row needs one of {', '.join(AUDIO_KEYS)}, and may have a label",
            where=next(iter(rows)),
            why=f"the rows have {', '.join(members)}",
            remedy="rename the member, or remove it",
        )
    items = []
    for name, row in rows.items():
        source = row.get(key)
        if isinstance(source, str):
            source = (folder or Path()) / source
        label = next((row[each] for each in LABEL_KEYS if each in row), None)
        items.append(Item(name, source, label))
    return _inputs(items, model, long, list(notes))


def audio_in_memory(data: object, model: LoadedModel, long: str) -> Inputs | None:
    """Recordings in memory; None if the data is something else, for example arrays of the model.

    Args:
        data: a recording (see `is_recording`), or a sequence of recordings, of pairs (recording,
            label) or of rows as for `audio_of_rows`.
        model, long: see `load_audio`.

    Raises:
        AtlasError: as `audio_of_rows`.
    """
    if is_recording(data) and not isinstance(data, str | Path):
        data = [data]
    if not isinstance(data, Sequence) or isinstance(data, str | bytes) or not len(data):
        return None
    named: dict[str, Mapping[str, Any]] = {}
    for number, row in enumerate(data):
        if isinstance(row, tuple) and len(row) == 2 and is_recording(row[0]):
            row = {AUDIO_KEYS[0]: row[0], LABEL_KEYS[0]: row[1]}
        elif is_recording(row) or not isinstance(row, Mapping):
            row = {AUDIO_KEYS[0]: row}
        named[f"data[{number}]"] = row
    first = next(iter(named.values()))
    if not any(is_recording(first.get(key)) for key in AUDIO_KEYS):
        return None
    return audio_of_rows(named, None, model, long)


def _inputs(items: Sequence[Item], model: LoadedModel, long: str, notes: Notes) -> Inputs:
    """The recordings as inputs. One that cannot be read keeps its row, without numbers.

    Raises AtlasError if none can be read.
    """
    if long == "windows":
        raise AtlasError(
            "--long windows is for texts",
            why="the model reads recordings",
            remedy="cut long recordings into parts yourself, or give --long truncate",
        )
    extractor = load_extractor(model)
    lost: dict[str, list[str]] = {}
    recordings: dict[int, np.ndarray] = {}
    faults: dict[int, AtlasError] = {}
    for number, item in enumerate(items):
        said: list[str] = []
        try:
            recordings[number] = read_recording(item.source, item.name, extractor.rate, said.append)
        except AtlasError as error:
            faults[number] = error
            if error.remedy.startswith("pip install"):
                raise
        for what in said:
            lost.setdefault(what, []).append(item.name)
        if sum(map(len, recordings.values())) > MAX_NUMBERS:
            raise _too_many(len(items))
    if not recordings:
        raise faults[0]
    length = _length(extractor, model, recordings)
    arrays: dict[int, np.ndarray] = {}
    for number, samples in recordings.items():
        try:
            said = _require_length(samples, length, extractor, items[number].name, long)
            arrays[number] = extractor(samples, length)
        except AtlasError as error:
            if long == "refuse":
                raise
            faults[number] = error
            continue
        for what in said:
            lost.setdefault(what, []).append(items[number].name)
    if not arrays:
        raise next(iter(faults.values()))
    shape = next(iter(arrays.values())).shape
    if len(items) * int(np.prod(shape)) > MAX_NUMBERS:
        raise _too_many(len(items))
    found = np.full((len(items), *shape), np.nan, dtype=np.float32)
    for number, array in arrays.items():
        found[number] = array
    notes += lost_of_items(lost, "recording")
    return Inputs(
        {extractor.name: found},
        tuple(item.name for item in items),
        labels_of_items([item.label for item in items], "recording", model, notes),
        notes=tuple(notes),
        faults=faults_of_items(faults, "recording", len(items)),
    )


def _length(extractor: Extractor, model: LoadedModel, recordings: Mapping[int, np.ndarray]) -> int:
    """Samples that the program reads: for a waveform those of the compiled program, or else of the
    longest recording.
    """
    if extractor.longest is not None:
        return extractor.longest
    known = model.shapes.get(extractor.name) or ()
    if len(known) == 2 and known[1] is not None:
        return known[1]
    return max(map(len, recordings.values()))


def _require_length(
    samples: np.ndarray, length: int, extractor: Extractor, name: str, long: str
) -> list[str]:
    """What is lost of a recording by its length. AtlasError if that would be wrong, or is
    refused.
    """
    count, seconds = len(samples), length / extractor.rate
    if count > length and long == "refuse":
        raise AtlasError(
            f"recording {name} is longer than the program's {seconds:g} s",
            why=f"it has {count} samples of {length}",
            remedy="cut it, or give --long truncate",
        )
    if count > length:
        return [f"more than {seconds:g} s: the rest is not read"]
    if count < length and extractor.masked:
        raise AtlasError(
            f"recording {name} is shorter than the program's {seconds:g} s",
            why=f"it has {count} samples, {length} are needed, and the model was trained with a "
            "mask of the padding, which programs do not have",
            remedy="give recordings of one length",
        )
    if count < length and extractor.longest is None:
        return [f"less than {seconds:g} s: filled with silence, as transformers does"]
    return []


def _too_many(count: int) -> AtlasError:
    return AtlasError(
        f"{count} recordings are more than fit into memory", remedy="give fewer recordings"
    )
