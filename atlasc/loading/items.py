"""Images and recordings before they are read: from a folder, with their labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from atlasc.ir.errors import AtlasError, explained, named

if TYPE_CHECKING:
    from atlasc.loading.loaded_model import LoadedModel

LABEL_KEYS = ("label", "labels")
Notes = list[tuple[str, str]]


class Item(NamedTuple):
    """An image or a recording: its name for messages, its source, and its label."""

    name: str
    source: Any
    label: Any = None


def items_of_folder(
    folder: Path, suffixes: Sequence[str], what: str, choice: Callable[[int], Sequence[int]]
) -> tuple[list[Item], Notes]:
    """The files of a folder and of its subfolders one level down, whose names are their labels.

    Args:
        folder: the folder; names of items are relative to it.
        suffixes: suffixes of the files to read, in lower case.
        what: what such a file is: "image".
        choice: given the number of files, the numbers of the wanted ones.

    Returns:
        The wanted files, and notes on files and folders that are not read.

    Raises:
        AtlasError: the folder has no such file.
    """
    found = sorted(p for p in (*folder.glob("*"), *folder.glob("*/*")) if not _hidden(p, folder))
    files = [p for p in found if p.is_file() and p.suffix.lower() in suffixes]
    if not files:
        raise AtlasError(
            f"folder {folder} has no {what}s",
            why=f"it has {len(found)} other files and folders" if found else "it is empty",
            remedy=f"put {what}s there: {', '.join(suffixes)}",
        )
    notes = []
    unknown = f"not {'an' if what[0] in 'aeiou' else 'a'} {what} of a known kind"
    others = [p for p in found if p.is_file() and p not in set(files)]
    deep = [p for p in found if p.is_dir() and p.parent != folder]
    for paths, why in ((others, unknown), (deep, "nested too deep")):
        if paths:
            names = [p.relative_to(folder).as_posix() for p in paths]
            kind = "file is" if len(names) == 1 else "files are"
            kind = kind if paths is others else kind.replace("file", "folder")
            details = f"  why: {why}: {named(names)}\n  kinds that are read: {', '.join(suffixes)}"
            notes.append((f"{len(names)} {kind} left out", details))
    chosen = [files[number] for number in choice(len(files))]
    return [
        Item(p.relative_to(folder).as_posix(), p, None if p.parent == folder else p.parent.name)
        for p in chosen
    ], notes


def labels_of_items(
    labels: Sequence[Any], what: str, model: LoadedModel, notes: Notes
) -> np.ndarray | None:
    """Labels of all items: int64, or names; a missing name is empty, and a note says so.

    Names that the model knows become class numbers.
    """
    missing = sum(label is None for label in labels)
    if missing == len(labels):
        return None
    if missing:
        why = "they lie in no labelled folder and have no member label"
        notes.append((f"{missing} of {len(labels)} {what}s have no label", f"  why: {why}"))
    names = ["" if label is None else label for label in labels]
    if all(isinstance(name, str) for name in names):
        known = getattr(model.config, "label2id", None)
        numbers = [known.get(name) if isinstance(known, dict) else None for name in names]
        complete = all(type(number) is int for number in numbers)
        return np.array(numbers, dtype=np.int64) if complete else np.array(names)
    with explained("labels must be integers or names, all of one kind"):
        return np.array([label.__index__() for label in labels], dtype=np.int64)


def faults_of_items(faults: Mapping[int, AtlasError], what: str, count: int) -> tuple[str, ...]:
    """Why an item has no input, for all ``count`` items; () if all have one."""
    if not faults:
        return ()
    why = {
        n: f"this {what} cannot be read: {fault.why or fault.what}" for n, fault in faults.items()
    }
    return tuple(why.get(number, "") for number in range(count))


def lost_of_items(lost: Mapping[str, Sequence[str]], what: str) -> Notes:
    """Notes on what is lost: what -> names of the items that lose it."""
    return [
        (
            f"{len(names)} {f'{what} has' if len(names) == 1 else f'{what}s have'} {part}",
            f"  which: {named(names)}",
        )
        for part, names in lost.items()
    ]


def _hidden(path: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(root).parts)
