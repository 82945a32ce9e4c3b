"""Queries and answers, of an engine whose ciphertexts carry a digest, as those of desilofhe do."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, Literal

from atlasc import ciphertext_files
from atlasc.bundle import Bundle, load_bundle
from atlasc.ciphertext_files import Ciphertexts
from atlasc.ir.errors import AtlasError
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled


class Engine:
    """Ciphertexts are bytes, and on disk these bytes behind their SHA-256."""

    def serialize(self, ciphertext: bytes) -> bytes:
        return hashlib.sha256(ciphertext).digest() + ciphertext

    def deserialize(self, data: bytes) -> bytes:
        if hashlib.sha256(data[32:]).digest() != data[:32]:
            raise AtlasError("this ciphertext is damaged")
        return data[32:]


@cache
def _bundle() -> Bundle:
    return load_bundle(compiled() / "desilo" / "bundle")


def _seeds(kind: Literal["query", "answer"]) -> Seeds:
    def seeds(folder: Path) -> list[Path]:
        interface = _bundle().client.interface
        ops = interface.inputs if kind == "query" else interface.outputs
        content = {}
        for op in ops:
            value = op.value if kind == "query" else op.operands[0]
            count = value.type.ciphertexts  # type: ignore[union-attr]
            content[op.attributes["name"]] = [bytes([n]) * 100 for n in range(count)]
        ciphertexts = Ciphertexts(content, 2, {})
        ciphertext_files.save(folder / kind, kind, _bundle(), Engine(), ciphertexts)
        return [folder / kind]

    return seeds


def _read(folder: Path) -> Any:
    kind: Literal["query", "answer"] = "query" if folder.name == "query" else "answer"
    found = ciphertext_files.load(folder, kind, _bundle(), Engine())
    return found.values, found.count, {name: a.tobytes() for name, a in found.public.items()}


def _same(seeds: list[Any], found: Any) -> bool:
    return found in seeds


READERS = [
    Reader("query", _seeds("query"), _read, 1000, _same),
    Reader("answer", _seeds("answer"), _read, 1000, _same),
]
