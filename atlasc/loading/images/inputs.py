"""From images to `pixel_values`: files, folders of files, and images in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError, explained, named
from atlasc.loading.images.processor import PIXELS, load_image_processor
from atlasc.loading.images.reading import SUFFIXES, is_image, read_image
from atlasc.loading.inputs import Inputs

if TYPE_CHECKING:
    from atlasc.loading.models import LoadedModel

MAX_PIXELS = 1 << 30
"""Greatest number of pixel values of all scaled images together: 4 GiB."""
IMAGE_KEYS = ("image", "img")
LABEL_KEYS = ("label", "labels")
Notes = list[tuple[str, str]]


class _Item(NamedTuple):
    """An image before it is read: its name for messages, its source, and its label."""

    name: str
    source: Any
    label: Any = None


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
        return _inputs([_Item(source.name, source)] * times, times, model, [])
    found = sorted(p for p in (*source.glob("*"), *source.glob("*/*")) if not _hidden(p, source))
    images = [p for p in found if p.is_file() and p.suffix.lower() in SUFFIXES]
    if not images:
        raise AtlasError(
            f"folder {source} has no images",
            why=f"it has {len(found)} other files and folders" if found else "it is empty",
            remedy=f"put images there: {', '.join(SUFFIXES)}",
        )
    chosen = [images[number] for number in choice(len(images))]
    notes = []
    others = [p for p in found if p.is_file() and p not in set(images)]
    deep = [p for p in found if p.is_dir() and p.parent != source]
    for paths, why in ((others, "not an image of a known kind"), (deep, "nested too deep")):
        if paths:
            names = [p.relative_to(source).as_posix() for p in paths]
            what = "file is" if len(names) == 1 else "files are"
            what = what if paths is others else what.replace("file", "folder")
            details = f"  why: {why}: {named(names)}\n  kinds that are read: {', '.join(SUFFIXES)}"
            notes.append((f"{len(names)} {what} left out", details))
    items = (
        _Item(p.relative_to(source).as_posix(), p, None if p.parent == source else p.parent.name)
        for p in chosen
    )
    return _inputs(items, len(chosen), model, notes)


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
    items = (_item(row, name) or _Item(name, row) for name, row in named_rows)
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


def _item(row: Any, name: str) -> _Item | None:
    """An image with or without a label; None if ``row`` is no image."""
    if is_image(row):
        return _Item(name, row)
    if isinstance(row, tuple) and len(row) == 2 and is_image(row[0]):
        return _Item(name, *row)
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
    return _Item(name, row[key], next((row[each] for each in LABEL_KEYS if each in row), None))


def _inputs(items: Iterable[_Item], count: int, model: LoadedModel, notes: Notes) -> Inputs:
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
    for what, which in lost.items():
        has = "image has" if len(which) == 1 else "images have"
        notes.append((f"{len(which)} {has} {what}", f"  which: {named(which)}"))
    shape = next(iter(rows.values())).shape
    pixels = np.full((count, *shape), np.nan, dtype=np.float32)
    for number, row in rows.items():
        pixels[number] = row
    why = {
        number: f"this image cannot be read: {fault.why or fault.what}"
        for number, fault in faults.items()
    }
    return Inputs(
        {PIXELS: pixels},
        tuple(names),
        _labels(labels, model, notes),
        notes=tuple(notes),
        faults=tuple(why.get(number, "") for number in range(count)) if why else (),
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


def _labels(labels: Sequence[Any], model: LoadedModel, notes: Notes) -> np.ndarray | None:
    """Labels of all images: int64, or names; a missing name is empty.

    Names that the model knows become class numbers.
    """
    missing = sum(label is None for label in labels)
    if missing == len(labels):
        return None
    if missing:
        why = "they lie in no labelled folder and have no member label"
        notes.append((f"{missing} of {len(labels)} images have no label", f"  why: {why}"))
    names = ["" if label is None else label for label in labels]
    if all(isinstance(name, str) for name in names):
        known = getattr(model.config, "label2id", None)
        numbers = [known.get(name) if isinstance(known, dict) else None for name in names]
        complete = all(type(number) is int for number in numbers)
        return np.array(numbers, dtype=np.int64) if complete else np.array(names)
    with explained("labels must be integers or names, all of one kind"):
        return np.array([label.__index__() for label in labels], dtype=np.int64)


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
