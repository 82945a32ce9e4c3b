"""From images to `pixel_values`: files, folders of files, and images in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.loading.images.processor import PIXELS, load_image_processor
from atlasc.loading.images.reading import SUFFIXES, is_image, read_image
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

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

MAX_PIXELS = 1 << 30
"""Greatest number of pixel values of all scaled images together: 4 GiB."""
IMAGE_KEYS = ("image", "img")


def load_images(
    source: Path, model: LoadedModel, choice: Callable[[int], Sequence[int]] = range
) -> Inputs:
    """Read an image, or all images of a folder and of its subfolders one level down.

    Names are relative to the source. The label of an image is the name of its subfolder, or its
    class number if the model knows all these names. Notes list files that are not read.

    Args:
        source: an image file or a folder.
        model: the model that will read the images.
        choice: given the number of images, the numbers of the wanted ones.

    Raises:
        AtlasError: there is no image, or no image can be read; or as `load_image_processor`.
    """
    if not source.is_dir():
        times = len(choice(1))
        return _inputs([Item(source.name, source)] * times, times, model, [])
    items, notes = items_of_folder(source, SUFFIXES, "image", choice)
    return _inputs(items, len(items), model, notes)


def images_in_memory(data: object, model: LoadedModel) -> Inputs | None:
    """Images in memory; None if the data is something else, for example scaled pixels.

    Args:
        data: an image (see `is_image`), or a sequence of images, of pairs (image, label) or of
            mappings ``{"image": ..., "label": ...}``; a mapping of such columns; an array of bytes
            [N, H, W, C] or [N, C, H, W].

    Raises:
        AtlasError: a mapping has other members, or no image can be read; or as
            `load_image_processor`.
    """
    rows = _rows(data)
    if rows is None or _item(_row(rows, 0), "data[0]") is None:
        return None
    named_rows = ((f"data[{number}]", _row(rows, number)) for number in range(len(rows)))
    items = (_item(row, name) or Item(name, row) for name, row in named_rows)
    return _inputs(items, len(rows), model, [])


def _row(rows: Any, number: int) -> Any:
    """A row, or the exception of a data set that cannot decode its image."""
    try:
        return rows[number]
    except (ArithmeticError, LookupError, OSError, SyntaxError, ValueError) as error:
        return error


def _rows(data: Any) -> Any:
    """A non-empty sequence of possible images; None if the data is something else."""
    if not isinstance(data, str | Path) and is_image(data):
        return [data]
    if isinstance(data, Mapping):
        if not any(key in data for key in IMAGE_KEYS):
            return None
        with explained("the columns of the data have different lengths"):
            rows = zip(*data.values(), strict=True)
            return [dict(zip(data, row, strict=True)) for row in rows] or None
    sequence = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if isinstance(data, str | bytes | Path) or not sequence or getattr(data, "ndim", 4) != 4:
        return None
    return data if len(data) else None


def _item(row: Any, name: str) -> Item | None:
    """An image with or without a label; None if ``row`` is no image."""
    if is_image(row):
        return Item(name, row)
    if isinstance(row, tuple) and len(row) == 2 and is_image(row[0]):
        return Item(name, *row)
    key = next((key for key in IMAGE_KEYS if isinstance(row, Mapping) and key in row), None)
    if key is None:
        return None
    if unknown := row.keys() - {key, *LABEL_KEYS}:
        raise AtlasError(
            "an image has members that are not read",
            where=name,
            why=", ".join(sorted(map(str, unknown))),
            remedy=f"give {key} and label alone, for example data.select_columns(...)",
        )
    return Item(name, row[key], next((row[each] for each in LABEL_KEYS if each in row), None))


def _inputs(items: Iterable[Item], count: int, model: LoadedModel, notes: Notes) -> Inputs:
    """The images as inputs. An image that cannot be read keeps its row, without numbers.

    Raises AtlasError if no image can be read.
    """
    processor = load_image_processor(model)
    mode = "L" if model.image_shape[0] == 1 else "RGB"
    names: list[str] = []
    labels: list[Any] = []
    lost: dict[str, list[str]] = {}
    rows: dict[int, np.ndarray] = {}
    faults: dict[int, AtlasError] = {}
    for number, item in enumerate(items):
        names.append(item.name)
        labels.append(item.label)
        said: list[str] = []
        try:
            image = read_image(item.source, item.name, mode, said.append)
        except AtlasError as error:
            faults[number] = error
            continue
        rows[number] = processor(image)
        first = next(iter(rows))
        _require_fit(rows[number].shape, item.name, rows[first].shape, names[first], count)
        for what in said:
            lost.setdefault(what, []).append(item.name)
    if not rows:
        raise faults[0]
    notes += lost_of_items(lost, "image")
    shape = next(iter(rows.values())).shape
    pixels = np.full((count, *shape), np.nan, dtype=np.float32)
    for number, row in rows.items():
        pixels[number] = row
    return Inputs(
        {PIXELS: pixels},
        tuple(names),
        labels_of_items(labels, "image", model, notes),
        notes=tuple(notes),
        faults=faults_of_items(faults, "image", count),
    )


def _require_fit(
    shape: tuple[int, ...], name: str, known: tuple[int, ...], first: str, count: int
) -> None:
    """Raise AtlasError for an image of another shape than the first, or for too many images."""
    if shape != known:
        raise AtlasError(
            f"image {name} has another size than {first}",
            where=name,
            why=f"after the model's preprocessing the shapes {shape} and {known} differ",
        )
    if count * int(np.prod(shape)) > MAX_PIXELS:
        raise AtlasError(
            f"{count} images of shape {shape} are more than fit into memory",
            remedy="give fewer images",
        )
