"""Queries and answers on disk: folders of ciphertexts that travel between client and server.

``index.json`` names the query, the program, and the SHA-256 of every other file. All else follows
from the program: which files there are, how large they may be, and the level of each ciphertext.
A query has its public inputs (attention masks) beside it, in ``public.npz``.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import Named, QueryId
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.arrays import read_npz
from atlasc.ir.files.json_text import Schema, Sha256, parse_json
from atlasc.ir.files.plain import MIB, read_bytes, sha256_of
from atlasc.ir.module import Module
from atlasc.ir.types import CiphertextType

INDEX = "index.json"
PUBLIC = "public.npz"
Kind = Literal["query", "answer"]
_REMEDIES = {
    "query": "give the folder that atlasc encrypt wrote",
    "answer": "give the folder that atlasc execute wrote",
}
_LARGEST_INDEX = MIB
_HEADER = MIB
"""Bytes of a ciphertext or of an array beside its numbers."""


class Index(Schema):
    """``index.json``.

    Attributes:
        format, kind: of the folder.
        program: identity of the bundle.
        query: names the query; an answer names the one that it belongs to.
        count: inputs of the batch that are real.
        files: SHA-256 of every other file, by its name.
    """

    format: Literal[2]
    kind: Kind
    program: Sha256
    query: QueryId
    count: Annotated[int, Field(ge=1)]
    files: dict[str, Sha256]

    def named(self) -> Named:
        """What an answer says of itself; its SHA-256 is that of the index, which has all others."""
        digest = hashlib.sha256(self.model_dump_json().encode()).hexdigest()
        return Named(self.query, self.program, self.count, digest)


@dataclass(frozen=True)
class Ciphertexts:
    """What a folder holds.

    Attributes:
        values: ciphertexts by the name of the input or output.
        count: inputs of the batch that are real.
        query: names the query.
        public: a query's public inputs.
    """

    values: dict[str, list[Any]]
    count: int
    query: str
    public: dict[str, np.ndarray]


@dataclass(frozen=True)
class _Slot:
    """A file with one ciphertext: name of its value, number, and level."""

    file: str
    name: str
    level: int


def new_query() -> str:
    """A name for a query that no other one has."""
    return secrets.token_hex(16)


def save(folder: Path, kind: Kind, bundle: Bundle, engine: Any, content: Ciphertexts) -> None:
    """Write ciphertexts into a new folder, which appears whole or not at all.

    Raises:
        AtlasError: the folder exists already or cannot be written.
    """
    with new_folder(folder) as draft:
        ordered = (c for values in content.values.values() for c in values)
        for slot, ciphertext in zip(_slots(bundle, kind), ordered, strict=True):
            (draft / slot.file).write_bytes(engine.serialize(ciphertext))
        if kind == "query":
            np.savez(draft / PUBLIC, **content.public)  # type: ignore[arg-type]
        files = {path.name: sha256_of(path) for path in sorted(draft.iterdir())}
        index = Index(
            format=2,
            kind=kind,
            program=bundle.identity,
            query=content.query,
            count=content.count,
            files=files,
        )
        text = json.dumps(index.model_dump(), indent=1) + "\n"
        (draft / INDEX).write_text(text, encoding="utf-8")


def check(folder: Path, kind: Kind, bundle: Bundle) -> Index:
    """The index of a folder that fits the program; asked before any key is loaded.

    Raises:
        AtlasError: not such a folder; of another format, kind or program; too many inputs; a file
            is missing, or there is one too many.
    """
    try:
        index = parse_json(read_bytes(folder / INDEX, _LARGEST_INDEX, links=False), Index)
    except (AtlasError, ValueError) as error:
        raise AtlasError(
            f"{folder} is not {_article(kind)}",
            why=f"its {INDEX} is missing or damaged: {error}",
            remedy=_REMEDIES[kind],
        ) from None
    if index.kind != kind:
        raise AtlasError(
            f"{folder} is not {_article(kind)}",
            why=f"{INDEX} says {index.kind}",
            remedy=_REMEDIES[kind],
        )
    if index.program != bundle.identity:
        raise AtlasError(
            f"{folder} belongs to another compiled program",
            why=f"the {kind} is for {index.program[:8]}, the bundle is {bundle.identity[:8]}",
            remedy="client and server must use parts of the same bundle",
        )
    _check_names(folder, kind, bundle, index)
    return index


def _check_names(folder: Path, kind: Kind, bundle: Bundle, index: Index) -> None:
    wanted = {slot.file for slot in _slots(bundle, kind)} | ({PUBLIC} if kind == "query" else set())
    there = set(os.listdir(folder)) - {INDEX}
    why = ""
    if index.count > bundle.batch:
        why = f"it is of {index.count} inputs, the program answers {bundle.batch} at a time"
    elif odd := sorted(wanted ^ set(index.files) or wanted ^ there):
        why = f"{'it lacks' if odd[0] in wanted else 'it has too many files:'} {odd[0]}"
    if why:
        raise AtlasError(f"{folder} is not complete", why=why, remedy="copy it again")


def load(folder: Path, kind: Kind, bundle: Bundle, engine: Any) -> Ciphertexts:
    """Read what :func:`save` wrote.

    Raises:
        AtlasError: as :func:`check`; a damaged file, ciphertexts of other keys or of another
            level, public inputs that are no masks.
    """
    index = check(folder, kind, bundle)
    values: dict[str, list[Any]] = {}
    for slot in _slots(bundle, kind):
        path = folder / slot.file
        limit = bundle.parameters.ciphertext_bytes(slot.level) + _HEADER
        content = read_bytes(path, limit, links=False)
        _check_digest(path, hashlib.sha256(content).hexdigest(), index)
        values.setdefault(slot.name, []).append(_ciphertext(path, content, slot.level, engine))
    public = _public(folder / PUBLIC, bundle, index) if kind == "query" else {}
    return Ciphertexts(values, index.count, index.query, public)


def _slots(bundle: Bundle, kind: Kind) -> Iterator[_Slot]:
    """The ciphertexts of a query or an answer, in the order of the program."""
    module = bundle.interface
    ops = module.inputs if kind == "query" else module.outputs
    for number, op in enumerate(ops):
        packed = (op.value if kind == "query" else op.operands[0]).type
        assert isinstance(packed, CiphertextType)
        for position in range(packed.ciphertexts):
            yield _Slot(f"{number}.{position}.ct", op.attributes["name"], packed.level or 0)


def _public(path: Path, bundle: Bundle, index: Index) -> dict[str, np.ndarray]:
    """A query's attention masks: 1 for a token, 0 for padding."""
    shapes = _public_shapes(bundle.interface)
    limit = sum(8 * int(np.prod(shape)) + _HEADER for shape in shapes.values()) + _HEADER
    _check_digest(path, hashlib.sha256(read_bytes(path, limit, links=False)).hexdigest(), index)
    arrays = read_npz(path, limit, what="the public inputs", links=False)
    for name in sorted(arrays.keys() | shapes.keys()):
        found, wanted = arrays.get(name), shapes.get(name)
        if found is None or wanted is None or found.shape != wanted:
            raise AtlasError(
                f"the public input {name} has not the shape of the program",
                where=str(path),
                why=f"it has {None if found is None else found.shape}, the program {wanted}",
            )
        if found.dtype.kind not in "biuf" or not np.isin(found, (0, 1)).all():
            raise AtlasError(
                f"the public input {name} is no attention mask",
                where=str(path),
                why="it has values beside 0 and 1",
            )
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _public_shapes(module: Module) -> dict[str, tuple[int, ...]]:
    ops = (op for op in module.ops if op.name == "ckks.public_input")
    return {op.attributes["name"]: tuple(op.attributes["shape"]) for op in ops}


def _ciphertext(path: Path, content: bytes, level: int, engine: Any) -> Any:
    try:
        ciphertext = engine.deserialize(content)
    except AtlasError as error:
        raise AtlasError(error.what, where=str(path), why=error.why, remedy=error.remedy) from None
    if engine.level(ciphertext) != level:
        raise AtlasError(
            "this is a ciphertext of another place in the program",
            where=str(path),
            why=f"it is at level {engine.level(ciphertext)}, the program wants level {level}",
        )
    return ciphertext


def _check_digest(path: Path, found: str, index: Index) -> None:
    if found != index.files[path.name]:
        raise AtlasError(
            "this file is damaged",
            where=str(path),
            why=f"its SHA-256 is not the one in {INDEX}",
            remedy="copy the folder again",
        )


def _article(kind: Kind) -> str:
    return "a query" if kind == "query" else "an answer"
