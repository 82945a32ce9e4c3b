"""Queries and answers as they travel between client and server: one sealed file each.

The metadata names the kind, the engine, the query and the program. Everything else follows from the
program: which arrays there are, how large they may be, and the level of each ciphertext.
``NAME/<m>`` is ciphertext m of an input or output, ``NAME`` is a public input of a query: an
attention mask. The client and the server of an emitted C++ project read and write the same files.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import Entry, QueryId
from atlasc.bundle.sealed import Array, opened, sealed
from atlasc.files import write_with
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, Schema, Sha256, parse_json, read_bytes, too_large
from atlasc.runtime.engine import RoleEngine

Kind = Literal["query", "answer"]
_HEADER = MIB
"""Bytes of a ciphertext beside its numbers, and of a file beside its arrays."""


class Facts(Schema):
    """The metadata of a message.

    Attributes:
        format: of the message.
        kind: query or answer.
        engine: whose ciphertexts these are.
        program: identity of the program.
        query: names the query; an answer names the query that it belongs to.
        count: inputs of the batch that are real.
    """

    format: Literal["2"] = "2"
    kind: Kind
    engine: Annotated[str, Field(pattern=r"^[a-z]{1,30}$")]
    program: Sha256
    query: QueryId
    count: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,8}$")]


@dataclass(frozen=True)
class Message:
    """A query or an answer.

    Attributes:
        facts: checked against the program.
        arrays: ciphertexts and masks by name.
        place: what the message is called in errors.
        digest: SHA-256 of the bytes that it was read from; empty: it was made here.
    """

    facts: Facts
    arrays: Mapping[str, Array]
    place: str
    digest: str = ""

    @property
    def count(self) -> int:
        """Inputs of the batch that are real."""
        return int(self.facts.count)

    @property
    def entry(self) -> Entry:
        """The line of the ledger on this message; the SHA-256 of an answer tells it from others."""
        facts, digest = self.facts, ""
        if facts.kind == "answer":
            digest = self.digest or hashlib.sha256(self.to_bytes()).hexdigest()
        return Entry(facts.query, facts.program, self.count, digest)

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
        arrays = {}
        for name, ciphertexts in values.items():
            for part, ciphertext in enumerate(ciphertexts):
                data = engine.serialize(ciphertext)
                arrays[f"{name}/{part}"] = Array("U8", (len(data),), data)
        for name, shape in _masks(kind, bundle).items():
            mask = (public or {})[name]
            if mask.shape != shape or not np.isin(mask, (0, 1)).all():
                raise AtlasError(f"the public input {name} is not a mask of shape {shape}")
            arrays[name] = Array("F64", shape, mask.astype("<f8").tobytes())
        facts = Facts(
            kind=kind,
            engine=engine.target,
            program=bundle.manifest.program,
            query=query or secrets.token_hex(16),
            count=str(count),
        )
        return cls(facts, arrays, f"the {kind}")

    @classmethod
    def read(cls, source: Path | bytes, kind: Kind, bundle: Bundle) -> Message:
        """A message from a file or a byte string; needs no keys.

        Raises:
            AtlasError: not such a message; of another format, kind or program; too many inputs; an
                array is missing, too large or damaged, or there is one too many.
        """
        ciphertexts, bounds = _ciphertexts(kind, bundle), _bounds(kind, bundle)
        # Whichever kind it is: a query in an answer's place is to be told as such.
        limit = max(
            sum(sizes.values()) + _HEADER * (len(sizes) + 1)
            for sizes in (_bounds("query", bundle), _bounds("answer", bundle))
        )
        place = str(source) if isinstance(source, Path) else f"the {kind}"
        if isinstance(source, Path):
            # It came from somebody else: no links, no devices.
            source = read_bytes(source, limit, links=False)
        elif len(source) > limit:
            raise too_large(Path(place), len(source), limit)
        try:
            metadata, arrays = opened(source)
            facts = parse_json(json.dumps(metadata), Facts)
        except ValueError as error:
            raise _not_a(kind, place, str(error)) from None
        if facts.kind != kind:
            raise _not_a(kind, place, f"it is {'an answer' if kind == 'query' else 'a query'}")
        if facts.program != bundle.manifest.program:
            raise AtlasError(
                f"{place} belongs to another compiled program",
                why=f"the {kind} is for {facts.program[:8]}, the bundle has "
                f"{bundle.manifest.program[:8]}",
                remedy="client and server must use parts of the same bundle",
            )
        why = ""
        if int(facts.count) > bundle.batch:
            why = f"it is of {facts.count} inputs, the program answers {bundle.batch} at a time"
        elif odd := sorted(bounds.keys() ^ arrays.keys()):
            why = f"{'it lacks' if odd[0] in bounds else 'it has too many arrays:'} {odd[0]}"
        elif large := [n for n in bounds if len(arrays[n].data) > bounds[n] + _HEADER]:
            why = f"{large[0]} is too large"
        elif none := [n for n in ciphertexts if arrays[n].dtype != "U8"]:
            why = f"{none[0]} is no ciphertext"
        if why:
            raise AtlasError(f"{place} is not complete", why=why, remedy="copy it again")
        return cls(facts, arrays, place, hashlib.sha256(source).hexdigest())

    def ciphertexts(
        self, bundle: Bundle, engine: RoleEngine[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
        """Ciphertexts by the name of the input or output, and public inputs by name.

        Raises:
            AtlasError: ciphertexts of another engine, damaged, of other keys or of another level;
                public inputs that are no masks.
        """
        if self.facts.engine != engine.target:
            raise AtlasError(
                f"{self.place} has ciphertexts of the engine {self.facts.engine}",
                why=f"these keys are of the target {engine.target}",
                remedy="use keys and messages of one target",
            )
        values: dict[str, list[Any]] = {}
        for name, level in _ciphertexts(self.facts.kind, bundle).items():
            ciphertext = self._ciphertext(name, level, engine)
            values.setdefault(name.rpartition("/")[0], []).append(ciphertext)
        public = {}
        for name, shape in _masks(self.facts.kind, bundle).items():
            found = self.arrays[name]
            mask = np.frombuffer(found.data, "<f8" if found.dtype == "F64" else np.uint8)
            if found.shape != shape or not np.isin(mask, (0, 1)).all():
                raise AtlasError(
                    f"the public input {name} is no attention mask",
                    where=f"{self.place}: {name}",
                    why=f"it needs zeros and ones of shape {shape}",
                )
            public[name] = mask.reshape(shape).astype(np.float64)
        return values, public

    def _ciphertext(self, name: str, wanted: int, engine: RoleEngine[Any]) -> Any:
        where = f"{self.place}: {name}"
        try:
            ciphertext = engine.deserialize(self.arrays[name].data)
        except AtlasError as error:
            raise AtlasError(error.what, where=where, why=error.why, remedy=error.remedy) from None
        if (level := engine.level(ciphertext)) != wanted:
            raise AtlasError(
                "this is a ciphertext of another place in the program",
                where=where,
                why=f"it is at level {level}, the program wants level {wanted}",
            )
        return ciphertext

    def save(self, path: Path) -> None:
        """Write a new file, which appears whole or not at all.

        Raises:
            AtlasError: the file cannot be written.
        """
        write_with(path, lambda draft: draft.write_bytes(self.to_bytes()))

    def to_bytes(self) -> bytes:
        """The message as one byte string: the content of the file."""
        return sealed(self.facts.model_dump(), self.arrays)


def _ciphertexts(kind: Kind, bundle: Bundle) -> dict[str, int]:
    """Level of each ciphertext of a message, by the name of its array, in the program's order."""
    module, levels = bundle.interface, {}
    for op in module.inputs if kind == "query" else module.outputs:
        packed = (op.value if kind == "query" else op.operands[0]).ciphertext
        for part in range(packed.ciphertexts):
            levels[f"{op.attributes['name']}/{part}"] = packed.level or 0
    return levels


def _bounds(kind: Kind, bundle: Bundle) -> dict[str, int]:
    """Bytes of each array of a message, but for a ciphertext's header, by name."""
    levels, masks = _ciphertexts(kind, bundle), _masks(kind, bundle)
    bounds = {name: bundle.parameters.ciphertext_bytes(level) for name, level in levels.items()}
    return bounds | {name: 8 * int(np.prod(shape)) for name, shape in masks.items()}


def _masks(kind: Kind, bundle: Bundle) -> dict[str, tuple[int, ...]]:
    """Shapes of the public inputs of a query, by name."""
    public = [op for op in bundle.interface.ops if op.name == "ckks.public_input"]
    shapes = {op.attributes["name"]: tuple(op.attributes["shape"]) for op in public}
    return shapes if kind == "query" else {}


def _not_a(kind: Kind, place: str, why: str) -> AtlasError:
    article, writer = ("a", "encrypt") if kind == "query" else ("an", "execute")
    return AtlasError(
        f"{place} is not {article} {kind}",
        why=why,
        remedy=f"give the {kind} that atlasc {writer} wrote",
    )
