"""Queries and answers: what fits the program is read, and nothing else reaches an engine."""

from __future__ import annotations

import json
import resource
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

from atlasc.bundle import ciphertext_files
from atlasc.bundle.ciphertext_files import Ciphertexts
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.ledger import Ledger
from atlasc.client.answers import Answers
from atlasc.ir.errors import AtlasError
from atlasc.ir.files.plain import sha256_of
from atlasc.run import roles

SLOTS = 2**14


@dataclass(frozen=True)
class Plain:
    """Slots and a level in the place of a ciphertext."""

    level: int
    values: np.ndarray


class PlainEngine:
    """Serialises slots as they are."""

    def level(self, ciphertext: Plain) -> int:
        return ciphertext.level

    def encrypt(self, vector: np.ndarray, level: int) -> Plain:
        return Plain(level, vector)

    def decrypt(self, ciphertext: Plain) -> np.ndarray:
        return ciphertext.values

    def serialize(self, ciphertext: Plain) -> bytes:
        return struct.pack("<i", ciphertext.level) + ciphertext.values.tobytes()

    def deserialize(self, data: bytes) -> Plain:
        return Plain(struct.unpack("<i", data[:4])[0], np.frombuffer(data[4:]))


@dataclass
class Exchange:
    """A query and an answer to it.

    Attributes:
        bundle: the program.
        ledger: of the client.
        query, answer: folders.
    """

    bundle: Bundle
    ledger: Ledger
    query: Path
    answer: Path

    def reply(self, folder: Path, query: str | None = None, level: int | None = None) -> Path:
        """Another answer, of the right shape."""
        content = ciphertext_files.load(self.query, "query", self.bundle, PlainEngine())
        return answer(self.bundle, folder, query or content.query, content.count, level)

    def decrypt(self, folder: Path | None = None) -> Answers:
        return roles.decrypt(self.bundle, PlainEngine(), self.ledger, folder or self.answer)


def answer(bundle: Bundle, folder: Path, query: str, count: int, level: int | None = None) -> Path:
    op = bundle.client.interface.outputs[0]
    packed: Any = op.operands[0].type
    slots = np.random.default_rng(len(folder.name)).random(
        (packed.ciphertexts, packed.layout.slots)
    )
    values = [Plain(packed.level if level is None else level, row) for row in slots]
    content = Ciphertexts({op.attributes["name"]: values}, count, query, {})
    ciphertext_files.save(folder, "answer", bundle, PlainEngine(), content)
    return folder


@pytest.fixture
def exchange(tiny: Tiny, tmp_path: Path) -> Exchange:
    bundle, ledger = load_bundle(tiny.bundle), Ledger(tmp_path)
    arrays = bundle.load_inputs(tiny.data).take([0, 1]).arrays
    roles.encrypt(bundle, PlainEngine(), ledger, arrays, tmp_path / "query")
    made = Exchange(bundle, ledger, tmp_path / "query", tmp_path / "answer")
    made.reply(made.answer)
    return made


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def refused(exchange: Exchange, folder: Path, kind: Any = "query") -> str:
    with pytest.raises(AtlasError) as caught:
        ciphertext_files.load(folder, kind, exchange.bundle, PlainEngine())
    return str(caught.value)


def test_an_answer_is_taken_once_and_again(exchange: Exchange) -> None:
    first, again = exchange.decrypt().outputs, exchange.decrypt().outputs
    np.testing.assert_array_equal(again["output"], first["output"])
    assert first["output"].shape == (2, 3)


def test_a_second_answer_is_refused(exchange: Exchange, tmp_path: Path) -> None:
    exchange.decrypt()
    other = exchange.reply(tmp_path / "another answer")
    with pytest.raises(AtlasError, match="was answered before, and differently"):
        exchange.decrypt(other)


def test_an_answer_to_another_query_is_refused(exchange: Exchange, tmp_path: Path) -> None:
    other = exchange.reply(tmp_path / "other", query="f" * 32)
    with pytest.raises(AtlasError, match="not the answer to a query of these keys"):
        exchange.decrypt(other)


def test_an_old_answer_is_none_to_a_new_query(exchange: Exchange, tmp_path: Path) -> None:
    exchange.decrypt()
    arrays = {"pixel_values": np.zeros((1, 1, 8, 8), dtype=np.float32)}
    roles.encrypt(exchange.bundle, PlainEngine(), exchange.ledger, arrays, tmp_path / "new")
    new = json.loads((tmp_path / "new" / "index.json").read_text())["query"]
    edit(exchange.answer, lambda index: index.update(query=new))
    with pytest.raises(AtlasError, match="not the answer to a query of these keys") as caught:
        exchange.decrypt()
    assert "the query was for 1 inputs" in caught.value.why


def test_a_querys_ciphertext_is_no_answer(exchange: Exchange, tmp_path: Path) -> None:
    query: Any = exchange.bundle.client.interface.inputs[0].value.type
    fake = exchange.reply(tmp_path / "fake", level=query.level)
    with pytest.raises(AtlasError, match="a ciphertext of another place in the program"):
        exchange.decrypt(fake)


@pytest.mark.parametrize("count", [0, -1, 3, 10**9, "2", True, 1.0, None])
def test_a_count_that_is_none_is_refused(exchange: Exchange, count: object) -> None:
    for folder, kind in ((exchange.query, "query"), (exchange.answer, "answer")):
        edit(folder, lambda index: index.update(count=count))
        message = refused(exchange, folder, kind)
        assert "count" in message or "the program answers 2 at a time" in message


def test_missing_and_extra_files_are_refused(exchange: Exchange) -> None:
    (exchange.query / "more.ct").write_bytes(b"")
    assert "too many files: more.ct" in refused(exchange, exchange.query)
    edit(exchange.query, lambda index: index["files"].update({"more.ct": "0" * 64}))
    assert "too many files: more.ct" in refused(exchange, exchange.query)
    (exchange.query / "more.ct").unlink()
    edit(exchange.query, lambda index: index["files"].pop("more.ct"))
    ciphertext_files.check(exchange.query, "query", exchange.bundle)
    (exchange.query / "0.0.ct").unlink()
    assert "it lacks 0.0.ct" in refused(exchange, exchange.query)


def test_an_index_that_names_one_file_often_is_refused(exchange: Exchange) -> None:
    index = json.loads((exchange.query / "index.json").read_text())
    index["ciphertexts"] = {"pixel_values": ["0.0.ct"] * 150}
    (exchange.query / "index.json").write_text(json.dumps(index))
    assert "is not a query" in refused(exchange, exchange.query)


@pytest.mark.parametrize("name", ["index.json", "0.0.ct", "public.npz"])
def test_links_and_devices_are_refused(exchange: Exchange, name: str) -> None:
    (exchange.query / name).unlink()
    (exchange.query / name).symlink_to("/dev/zero")
    assert "it is a link" in refused(exchange, exchange.query)


@pytest.mark.parametrize("name", ["0.0.ct", "public.npz"])
def test_large_files_are_refused_unread(exchange: Exchange, name: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with (exchange.query / name).open("r+b") as file:
        file.truncate(2**34)
    assert "too large" in refused(exchange, exchange.query)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_changed_ciphertext_is_refused(exchange: Exchange) -> None:
    data = bytearray((exchange.query / "0.0.ct").read_bytes())
    data[-1] ^= 1
    (exchange.query / "0.0.ct").write_bytes(data)
    message = refused(exchange, exchange.query)
    assert "this file is damaged" in message and "0.0.ct" in message


def test_escapes_of_an_index_do_not_reach_the_terminal(exchange: Exchange) -> None:
    edit(exchange.query, lambda index: index.update(kind="\x1b[2J"))
    assert "\x1b" not in refused(exchange, exchange.query)
    edit(exchange.query, lambda index: index.update({"kind": "query", "\x1b[2J": 1}))
    assert "\x1b" not in refused(exchange, exchange.query)


@pytest.mark.parametrize("content", ["", "[]", "{}", "[" * 100_000, '{"format": 2}', "\x00"])
def test_a_damaged_index_is_refused(exchange: Exchange, content: str) -> None:
    (exchange.query / "index.json").write_text(content)
    assert "is not a query" in refused(exchange, exchange.query)


def test_a_bomb_among_the_public_inputs_is_refused(exchange: Exchange) -> None:
    path = exchange.query / "public.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file,
        file.open("mask.npy", "w") as member,
    ):
        for _ in range(300):
            member.write(bytes(10**6))
    edit(exchange.query, lambda index: index["files"].update({"public.npz": sha256_of(path)}))
    assert "too large" in refused(exchange, exchange.query)


def test_public_inputs_that_are_not_the_programs_are_refused(exchange: Exchange) -> None:
    path = exchange.query / "public.npz"
    np.savez(path, mask=np.ones((2, 4)))
    edit(exchange.query, lambda index: index["files"].update({"public.npz": sha256_of(path)}))
    assert "mask has not the shape of the program" in refused(exchange, exchange.query)


def test_queries_have_names_of_their_own(exchange: Exchange, tmp_path: Path) -> None:
    shutil.rmtree(exchange.answer)
    assert ciphertext_files.new_query() != ciphertext_files.new_query()
    with pytest.raises(AtlasError, match="is not an answer"):
        exchange.decrypt(exchange.query)
