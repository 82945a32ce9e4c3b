"""Queries and answers as they travel between client and server: one sealed file each.

The runtime library reads and writes them (``atlasc/messages.hpp``), for these roles as for those of
an emitted C++ project.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from atlasc.bundle.folder import Bundle
from atlasc.bundle.ledger import Entry
from atlasc.files import write_with
from atlasc.ir.files import MIB
from atlasc.runtime.engine import RoleEngine
from atlasc.runtime.interface import Interface
from atlasc.runtime.native import load_library, translated

Kind = Literal["query", "answer"]
_HEADER = MIB
"""Bytes of a ciphertext beside its numbers, at most."""


@dataclass(frozen=True)
class Message:
    """A query or an answer of a program.

    Attributes:
        interface: what the program's messages have.
        native: ``Message`` of the library.
    """

    interface: Interface
    native: Any

    @property
    def program(self) -> str:
        """Identity of the program."""
        return self.interface.identity

    @property
    def query(self) -> str:
        """Names the query; an answer has the name of the query that it belongs to."""
        return str(self.native.query)

    @property
    def count(self) -> int:
        """Inputs of the batch that are real."""
        return int(self.native.count)

    @property
    def digest(self) -> str:
        """SHA-256 of the message as it was read, or as it is written."""
        return str(self.native.digest) or hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def entry(self) -> Entry:
        """The line of the ledger on this message; the SHA-256 of an answer tells it from others."""
        digest = self.digest if self.native.kind == "answer" else ""
        return Entry(self.query, self.program, self.count, digest)

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
        """
        native = load_library().Message(
            kind=kind,
            engine=engine.target,
            query=query or secrets.token_hex(16),
            count=count,
            values={name: list(map(engine.serialize, parts)) for name, parts in values.items()},
            publics=dict(public or {}),
        )
        return cls(bundle.interface, native)

    @classmethod
    def read(cls, source: Path | bytes, kind: Kind, bundle: Bundle) -> Message:
        """A message from a file or a byte string; needs no keys.

        Raises:
            AtlasError: not such a message; of another format, kind or program; too many inputs; an
                array is missing, too large or damaged, or there is one too many.
        """
        interface, parameters = bundle.interface, bundle.parameters
        levels = {one.level for one in [*interface.inputs, *interface.outputs]}
        most = {level: parameters.ciphertext_bytes(level) + _HEADER for level in levels}
        place = str(source) if isinstance(source, Path) else source
        with translated():
            native = load_library().Message.read(place, kind, interface, most)
        return cls(interface, native)

    @classmethod
    def largest(cls, kind: Kind, bundle: Bundle) -> int:
        """Most bytes of a message of this kind: its ciphertexts, public inputs and header."""
        interface, size = bundle.interface, 2 * _HEADER
        if kind == "query":
            size += sum(8 * math.prod(one.shape) for one in interface.publics)
        for one in interface.inputs if kind == "query" else interface.outputs:
            each = bundle.parameters.ciphertext_bytes(one.level) + _HEADER
            size += one.ciphertexts * each
        return size

    def ciphertexts(
        self, engine: RoleEngine[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, np.ndarray]]:
        """Ciphertexts by the name of the input or output, and public inputs by name.

        Raises:
            AtlasError: ciphertexts of another engine, damaged, of other keys or of another level.
        """
        values: dict[str, list[Any]] = {}

        def load(name: str, data: bytes) -> int:
            ciphertext = engine.deserialize(data)
            values.setdefault(name, []).append(ciphertext)
            return engine.level(ciphertext)

        with translated():
            self.native.load(self.interface, engine.target, load)
        return values, dict(self.native.publics)

    def save(self, path: Path) -> None:
        """Write a new file, which appears whole or not at all.

        Raises:
            AtlasError: the file cannot be written.
        """
        write_with(path, lambda draft: draft.write_bytes(self.to_bytes()))

    def to_bytes(self) -> bytes:
        """The message as one byte string: the content of the file."""
        with translated():
            return bytes(self.native.sealed(self.interface))
