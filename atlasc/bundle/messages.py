"""Queries and answers as they travel between client and server.

A message is a set of files. ``index.json`` names the query, the program, and the SHA-256 of every
other file. Everything else follows from the program: which files there are, how large they may be,
and the level of each ciphertext. ``<n>.<m>.ct`` is ciphertext m of input or output n. ``<n>.mask``
is public input n of a query: an attention mask, one byte for each element.

The files lie in a folder, or in one byte string: a zip archive that stores them uncompressed.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import Entry, QueryId
from atlasc.files import new_folder
from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Schema, Sha256, parse_json, read_bytes, too_large
from atlasc.targets.base import RoleEngine

INDEX = "index.json"
Kind = Literal["query", "answer"]
_HEADER = MIB
"""Bytes of a ciphertext beside its numbers."""


class Index(Schema):
    """``index.json``.

    Attributes:
        format, kind: of the message.
        program: identity of the bundle.
        query: names the query; an answer names the query that it belongs to.
        count: inputs of the batch that are real.
        files: SHA-256 of every other file, by its name.
    """

    format: Literal[3]
    kind: Kind
    program: Sha256
    query: QueryId
    count: Annotated[int, Field(ge=1)]
    files: dict[str, Sha256]


@dataclass(frozen=True)
class Message:
    """A query or an answer whose files are those of its index.

    Attributes:
        index: checked against the program.
        files: content of the other files by name.
        place: what the message is called in errors.
    """

    index: Index
    files: Mapping[str, bytes]
    place: str

    @property
    def entry(self) -> Entry:
        """The line of the ledger on this message. The SHA-256 of an answer is that of its index,
        which has those of all files.
        """
        index, digest = self.index, ""
        if index.kind == "answer":
            digest = hashlib.sha256(index.model_dump_json().encode()).hexdigest()
        facts = index.model_dump(include={"query", "program", "count"})
        return Entry(event=index.kind, answer=digest, **facts)

    @classmethod
    def of(
        cls,
        kind: Kind,
        bundle: Bundle,
        engine: RoleEngine[Any],
        values: Mapping[str, list[Any]],
        count: int,
        *,
        public: Mapping[str, np.ndarray] | None = None,
        query: str = "",
    ) -> Message:
        """The message with ciphertexts by the name of the input or output.

        Args:
            kind, bundle, engine: of the message.
            values: the ciphertexts.
            count: inputs of the batch that are real.
            public: a query's public inputs by name, as zeros and ones.
            query: names the query; by default a new name.

        Raises:
            AtlasError: a public input is not a mask of the program's shape.
        """
        ordered = (c for ciphertexts in values.values() for c in ciphertexts)
        parts, masks = _parts(kind, bundle)
        files = {file: engine.serialize(c) for file, c in zip(parts, ordered, strict=True)}
        for file, (name, shape) in masks.items():
            mask = (public or {})[name]
            if mask.shape != shape or not np.isin(mask, (0, 1)).all():
                raise AtlasError(f"the public input {name} is not a mask of shape {shape}")
            files[file] = mask.astype(np.uint8).tobytes()
        index = Index(
            format=3,
            kind=kind,
            program=bundle.identity,
            query=query or secrets.token_hex(16),
            count=count,
            files={name: hashlib.sha256(data).hexdigest() for name, data in files.items()},
        )
        return cls(index, files, f"the {kind}")

    @classmethod
    def read(cls, source: Path | bytes, kind: Kind, bundle: Bundle) -> Message:
        """A message from a folder or a byte string; needs no keys.

        Raises:
            AtlasError: not such a message; of another format, kind or program; too many inputs; a
                file is missing, too large or damaged, or there is one too many.
        """
        place, names, fetch = _opened(source, kind)
        index = _read_index(place, fetch, kind, bundle)
        parts, masks = _parts(kind, bundle)
        sizes = {f: bundle.parameters.ciphertext_bytes(n) + _HEADER for f, (_, n) in parts.items()}
        sizes |= {file: int(np.prod(shape)) for file, (_, shape) in masks.items()}
        why, there = "", set(names()) - {INDEX}
        if index.count > bundle.batch:
            why = f"it is of {index.count} inputs, the program answers {bundle.batch} at a time"
        elif odd := sorted(sizes.keys() ^ index.files.keys() or sizes.keys() ^ there):
            why = f"{'it lacks' if odd[0] in sizes else 'it has too many files:'} {odd[0]}"
        if why:
            raise AtlasError(f"{place} is not complete", why=why, remedy="copy it again")
        content = {}
        for name, limit in sizes.items():
            content[name] = fetch(name, limit)
            if hashlib.sha256(content[name]).hexdigest() != index.files[name]:
                raise AtlasError(
                    "this file is damaged",
                    where=f"{place}/{name}",
                    why=f"its SHA-256 is not the one in {INDEX}",
                    remedy=f"copy the {kind} again",
                )
        return cls(index, content, place)

    def ciphertexts(
        self, bundle: Bundle, engine: RoleEngine[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
        """Ciphertexts by the name of the input or output, and public inputs by name.

        Raises:
            AtlasError: damaged ciphertexts, of other keys or of another level; public inputs that
                are no masks.
        """
        parts, masks = _parts(self.index.kind, bundle)
        values: dict[str, list[Any]] = {}
        for file, (name, level) in parts.items():
            values.setdefault(name, []).append(self._ciphertext(file, level, engine))
        public = {}
        for file, (name, shape) in masks.items():
            mask = np.frombuffer(self.files[file], np.uint8)
            if mask.size != np.prod(shape) or mask.max(initial=0) > 1:
                raise AtlasError(
                    f"the public input {name} is no attention mask",
                    where=f"{self.place}/{file}",
                    why=f"it needs {np.prod(shape)} bytes, each 0 or 1",
                )
            public[name] = mask.reshape(shape).astype(np.float64)
        return values, public

    def _ciphertext(self, file: str, wanted: int, engine: RoleEngine[Any]) -> Any:
        where = f"{self.place}/{file}"
        try:
            ciphertext = engine.deserialize(self.files[file])
        except AtlasError as error:
            raise AtlasError(error.what, where=where, why=error.why, remedy=error.remedy) from None
        if (level := engine.level(ciphertext)) != wanted:
            raise AtlasError(
                "this is a ciphertext of another place in the program",
                where=where,
                why=f"it is at level {level}, the program wants level {wanted}",
            )
        return ciphertext

    def save(self, folder: Path) -> None:
        """Write a new folder, which appears whole or not at all.

        Raises:
            AtlasError: the folder exists already or cannot be written.
        """
        with new_folder(folder) as draft:
            for name, content in self._all().items():
                (draft / name).write_bytes(content)

    def to_bytes(self) -> bytes:
        """The message as one byte string."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in self._all().items():
                archive.writestr(zipfile.ZipInfo(name), content)
        return buffer.getvalue()

    def _all(self) -> dict[str, bytes]:
        return {**self.files, INDEX: self.index.model_dump_json(indent=1).encode() + b"\n"}


def _parts(
    kind: Kind, bundle: Bundle
) -> tuple[dict[str, tuple[str, int]], dict[str, tuple[str, tuple[int, ...]]]]:
    """By file: name and level of the ciphertexts of a message, in the order of the program, and
    name and shape of its masks.
    """
    module, ciphertexts = bundle.interface, {}
    for number, op in enumerate(module.inputs if kind == "query" else module.outputs):
        packed = (op.value if kind == "query" else op.operands[0]).ciphertext
        for position in range(packed.ciphertexts):
            ciphertexts[f"{number}.{position}.ct"] = op.attributes["name"], packed.level or 0
    public = [op for op in module.ops if op.name == "ckks.public_input" and kind == "query"]
    return ciphertexts, {
        f"{number}.mask": (op.attributes["name"], tuple(op.attributes["shape"]))
        for number, op in enumerate(public)
    }


_Fetch = Callable[[str, int], bytes]
"""``fetch(name, limit)``: the content of a file, which has at most so many bytes."""


def _opened(source: Path | bytes, kind: Kind) -> tuple[str, Callable[[], list[str]], _Fetch]:
    """What a message is called, the names of its files, and their content."""
    if isinstance(source, Path):

        def from_folder(name: str, limit: int) -> bytes:
            # It came from somebody else: no links, no devices.
            return read_bytes(source / name, limit, links=False)

        return str(source), partial(os.listdir, source), from_folder
    try:
        archive = zipfile.ZipFile(io.BytesIO(source))
    except Exception as error:  # whatever zipfile makes of damaged bytes
        raise _not_a(kind, "what was given", str(error)) from None

    def from_archive(name: str, limit: int) -> bytes:
        with explained(f"{name} of the {kind} cannot be read"):
            member = archive.getinfo(name)
            if member.file_size > limit:
                raise too_large(Path(name), member.file_size, limit)
            if member.compress_type != zipfile.ZIP_STORED:
                raise ValueError("it is compressed")
            return archive.read(member)

    return f"the {kind}", archive.namelist, from_archive


def _read_index(place: str, fetch: _Fetch, kind: Kind, bundle: Bundle) -> Index:
    try:
        index = parse_json(fetch(INDEX, MIB), Index)
    except (AtlasError, ValueError) as error:
        raise _not_a(kind, place, f"its {INDEX} is missing or damaged: {error}") from None
    if index.kind != kind:
        raise _not_a(kind, place, f"{INDEX} says {index.kind}")
    if index.program != bundle.identity:
        raise AtlasError(
            f"{place} belongs to another compiled program",
            why=f"the {kind} is for {index.program[:8]}, the bundle is {bundle.identity[:8]}",
            remedy="client and server must use parts of the same bundle",
        )
    return index


def _not_a(kind: Kind, place: str, why: str) -> AtlasError:
    article, writer = ("a", "encrypt") if kind == "query" else ("an", "execute")
    return AtlasError(
        f"{place} is not {article} {kind}",
        why=why,
        remedy=f"give the {kind} that atlasc {writer} wrote",
    )
