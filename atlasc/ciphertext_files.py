"""Queries and answers on disk: folders of ciphertexts that travel between client and server.

``index.json`` names the program that they belong to and how many inputs of the batch are real; a
query has its public inputs (attention masks) beside it, in ``public.npz``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atlasc.bundle import Bundle
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError

FORMAT = 1
INDEX = "index.json"
PUBLIC = "public.npz"
Kind = Literal["query", "answer"]
_REMEDIES = {
    "query": "give the folder that atlasc encrypt wrote",
    "answer": "give the folder that atlasc execute wrote",
}


@dataclass(frozen=True)
class Ciphertexts:
    """What a folder holds.

    Attributes:
        values: ciphertexts by the name of the input or output.
        count: inputs of the batch that are real.
        public: a query's public inputs.
    """

    values: dict[str, list[Any]]
    count: int
    public: dict[str, np.ndarray]


def save(folder: Path, kind: Kind, bundle: Bundle, engine: Any, content: Ciphertexts) -> None:
    """Write ciphertexts into a new folder, which appears whole or not at all.

    Raises:
        AtlasError: the folder exists already or cannot be written.
    """
    with new_folder(folder) as draft:
        names: dict[str, list[str]] = {}
        for number, (name, values) in enumerate(content.values.items()):
            names[name] = [f"{number}.{position}.ct" for position in range(len(values))]
            for file, value in zip(names[name], values, strict=True):
                (draft / file).write_bytes(engine.serialize(value))
        if kind == "query":
            np.savez(draft / PUBLIC, **content.public)  # type: ignore[arg-type]
        index = {
            "format": FORMAT,
            "kind": kind,
            "program": bundle.identity,
            "count": content.count,
            "ciphertexts": names,
        }
        (draft / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def check(folder: Path, kind: Kind, bundle: Bundle) -> dict[str, Any]:
    """The index of a folder that fits the program; asked before any key is loaded.

    Raises:
        AtlasError: not such a folder, of another format, or of another program.
    """
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        found, version, program = index["kind"], index["format"], index["program"]
        int(index["count"])
        dict(index["ciphertexts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(
            f"{folder} is not {_article(kind)}",
            why=f"its {INDEX} is missing or damaged ({type(error).__name__})",
            remedy=_REMEDIES[kind],
        ) from None
    if found != kind or version != FORMAT:
        raise AtlasError(
            f"{folder} is not {_article(kind)}",
            why=f"{INDEX} says {found}, format {version}; expected {kind}, format {FORMAT}",
            remedy=_REMEDIES[kind],
        )
    if program != bundle.identity:
        raise AtlasError(
            f"{folder} belongs to another compiled program",
            why=f"the {kind} is for {str(program)[:8]}, the bundle is {bundle.identity[:8]}",
            remedy="client and server must use parts of the same bundle",
        )
    return index


def load(folder: Path, kind: Kind, bundle: Bundle, engine: Any) -> Ciphertexts:
    """Read what :func:`save` wrote.

    Raises:
        AtlasError: as :func:`check`; a missing or damaged file, or ciphertexts of other keys.
    """
    index = check(folder, kind, bundle)
    values = {
        name: [_read(folder / Path(file).name, engine) for file in files]
        for name, files in index["ciphertexts"].items()
    }
    public: dict[str, np.ndarray] = {}
    if kind == "query":
        try:
            with np.load(folder / PUBLIC, allow_pickle=False) as archive:
                public = {name: archive[name] for name in archive.files}
        except (OSError, ValueError) as error:
            raise AtlasError(
                f"{folder} is not complete", where=str(folder / PUBLIC), why=str(error)
            ) from None
    return Ciphertexts(values, int(index["count"]), public)


def _read(path: Path, engine: Any) -> Any:
    try:
        return engine.deserialize(path.read_bytes())
    except OSError as error:
        raise AtlasError(
            f"{path.parent} is not complete", where=str(path), why=str(error)
        ) from None
    except AtlasError as error:
        raise AtlasError(error.what, where=str(path), why=error.why, remedy=error.remedy) from None


def _article(kind: Kind) -> str:
    return "a query" if kind == "query" else "an answer"
