"""Queries and answers, of an engine that takes any bytes for a ciphertext."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.messages import Kind, Message
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled


class Engine:
    """Ciphertexts are bytes, of which the first is the level."""

    target = "sim"
    identity = "0" * 32

    def level(self, ciphertext: bytes) -> int:
        return ciphertext[0] if ciphertext else -1

    def serialize(self, ciphertext: bytes) -> bytes:
        return ciphertext

    def deserialize(self, data: bytes) -> bytes:
        return data

    def sub(self, one: bytes, other: bytes) -> bytes:
        return one

    def drop_to(self, ciphertext: bytes, level: int) -> bytes:
        return bytes([level]) + ciphertext[1:]


ENGINE: Any = Engine()


@cache
def _bundle() -> Bundle:
    return load_bundle(compiled() / "tiny" / "bundle")


def message(
    kind: Kind, bundle: Bundle, count: int, query: str = "0123456789abcdef" * 2, **public: Any
) -> Message:
    """A query or an answer of a program."""
    interface = bundle.client.interface
    content = {}
    for packed in interface.inputs if kind == "query" else interface.outputs:
        content[packed.name] = [
            bytes([packed.level]) + bytes([n]) * 100 for n in range(packed.ciphertexts)
        ]
    return Message.of(kind, bundle, ENGINE, content, count, public=public, query=query)


def _seeds(kind: Kind) -> Seeds:
    def seeds(folder: Path) -> list[Path]:
        message(kind, _bundle(), 2).save(folder / kind)
        return [folder / kind]

    return seeds


def _read(path: Path) -> Any:
    kind: Kind = "query" if path.name.startswith("query") else "answer"
    read = Message.read(path, kind, _bundle())
    assert Message.read(path.read_bytes(), kind, _bundle()).to_bytes() == read.to_bytes()
    values, public = read.ciphertexts(ENGINE)
    masks = {name: array.tobytes() for name, array in public.items()}
    return read.query, values, read.count, masks


def _same(seeds: list[Any], found: Any) -> bool:
    """Another name is another query, and another count is refused by the client's ledger: neither
    is taken for the original.
    """
    return all(seed[0] != found[0] or seed[2] != found[2] or seed == found for seed in seeds)


READERS = [
    Reader("query", _seeds("query"), _read, 1000, _same),
    Reader("answer", _seeds("answer"), _read, 1000, _same),
]
