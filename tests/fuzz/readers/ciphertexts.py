"""Queries and answers, of an engine that takes any bytes for a ciphertext."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from atlasc.bundle import ciphertext_files
from atlasc.bundle.ciphertext_files import Ciphertexts
from atlasc.bundle.folder import Bundle, load_bundle
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled


class Engine:
    """Ciphertexts are bytes, of which the first is the level."""

    def level(self, ciphertext: bytes) -> int:
        return ciphertext[0] if ciphertext else -1

    def serialize(self, ciphertext: bytes) -> bytes:
        return ciphertext

    def deserialize(self, data: bytes) -> bytes:
        return data


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
            packed: Any = value.type
            content[op.attributes["name"]] = [
                bytes([packed.level]) + bytes([n]) * 100 for n in range(packed.ciphertexts)
            ]
        ciphertexts = Ciphertexts(content, 2, "0123456789abcdef" * 2, {})
        ciphertext_files.save(folder / kind, kind, _bundle(), Engine(), ciphertexts)
        return [folder / kind]

    return seeds


def _read(folder: Path) -> Any:
    kind: Literal["query", "answer"] = "query" if folder.name == "query" else "answer"
    found = ciphertext_files.load(folder, kind, _bundle(), Engine())
    public = {name: array.tobytes() for name, array in found.public.items()}
    return found.query, found.values, found.count, public


def _same(seeds: list[Any], found: Any) -> bool:
    """Another name is another query, and another count is refused by the client's ledger: neither
    is taken for the original.
    """
    return all(seed[0] != found[0] or seed[2] != found[2] or seed == found for seed in seeds)


READERS = [
    Reader("query", _seeds("query"), _read, 1000, _same),
    Reader("answer", _seeds("answer"), _read, 1000, _same),
]
