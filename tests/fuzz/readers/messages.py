"""Queries and answers, of an engine that takes any bytes for a ciphertext."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Literal

from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.messages import Message
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import Seeds, compiled


class Engine:
    """Ciphertexts are bytes, of which the first is the level."""

    target = "desilo"

    def level(self, ciphertext: bytes) -> int:
        return ciphertext[0] if ciphertext else -1

    def serialize(self, ciphertext: bytes) -> bytes:
        return ciphertext

    def deserialize(self, data: bytes) -> bytes:
        return data


ENGINE: Any = Engine()


@cache
def _bundle() -> Bundle:
    return load_bundle(compiled() / "desilo" / "bundle")


def _message(kind: Literal["query", "answer"]) -> Message:
    interface = _bundle().client.interface
    content = {}
    for op in interface.inputs if kind == "query" else interface.outputs:
        packed = (op.value if kind == "query" else op.operands[0]).ciphertext
        content[op.attributes["name"]] = [
            bytes([packed.level or 0]) + bytes([n]) * 100 for n in range(packed.ciphertexts)
        ]
    return Message.of(kind, _bundle(), ENGINE, content, 2, query="0123456789abcdef" * 2)


def _seeds(kind: Literal["query", "answer"]) -> Seeds:
    def seeds(folder: Path) -> list[Path]:
        _message(kind).save(folder / kind)
        return [folder / kind]

    return seeds


def _read(path: Path) -> Any:
    kind: Literal["query", "answer"] = "query" if path.name.startswith("query") else "answer"
    message = Message.read(path, kind, _bundle())
    assert Message.read(path.read_bytes(), kind, _bundle()).to_bytes() == message.to_bytes()
    values, public = message.ciphertexts(ENGINE)
    masks = {name: array.tobytes() for name, array in public.items()}
    return message.query, values, message.count, masks


def _same(seeds: list[Any], found: Any) -> bool:
    """Another name is another query, and another count is refused by the client's ledger: neither
    is taken for the original.
    """
    return all(seed[0] != found[0] or seed[2] != found[2] or seed == found for seed in seeds)


READERS = [
    Reader("query", _seeds("query"), _read, 1000, _same),
    Reader("answer", _seeds("answer"), _read, 1000, _same),
]
