"""Queries and answers: what fits the program is read, and nothing else reaches an engine."""

from __future__ import annotations

import hashlib
import io
import json
import resource
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

from atlasc.api.roles import Client
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.ledger import Ledger
from atlasc.bundle.messages import Message
from atlasc.client.checks import Answers
from atlasc.ir.errors import AtlasError

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


ENGINE: Any = PlainEngine()


class PlainClient(Client):
    """Without keys."""

    def __init__(self, bundle: Bundle, ledger: Ledger) -> None:
        self.bundle, self.engine, self.ledger = bundle, ENGINE, ledger


MASK = np.array([[1, 1, 1, 0], [1, 0, 0, 0]])


@dataclass
class Exchange:
    """A query and an answer to it.

    Attributes:
        client: encrypts and decrypts.
        query, answer: folders.
    """

    client: Client
    query: Path
    answer: Path

    @property
    def bundle(self) -> Bundle:
        return self.client.bundle

    def reply(self, folder: Path, query: str | None = None, level: int | None = None) -> Path:
        """Another answer, of the right shape."""
        index = Message.read(self.query, "query", self.bundle).index
        return answer(self.bundle, folder, query or index.query, index.count, level)

    def decrypt(self, folder: Path | None = None) -> Answers:
        return self.client.decrypt(Message.read(folder or self.answer, "answer", self.bundle))


def answer(bundle: Bundle, folder: Path, query: str, count: int, level: int | None = None) -> Path:
    op = bundle.client.interface.outputs[0]
    packed = op.operands[0].ciphertext
    slots = np.random.default_rng(len(folder.name)).random(
        (packed.ciphertexts, packed.layout.slots)
    )
    values = [Plain((packed.level or 0) if level is None else level, row) for row in slots]
    found = {op.attributes["name"]: values}
    Message.of("answer", bundle, ENGINE, found, count, query=query).save(folder)
    return folder


@pytest.fixture
def exchange(tiny: Tiny, tmp_path: Path) -> Exchange:
    """With a mask among the inputs, which the tiny model has not."""
    bundle = load_bundle(tiny.bundle)
    public = {"name": "mask", "shape": [2, 4]}
    bundle.client.interface.add("ckks.public_input", [], public)
    client = PlainClient(bundle, Ledger(tmp_path))
    arrays = bundle.load_inputs(tiny.data).take([0, 1]).arrays
    client.query({**arrays, "mask": MASK}).save(tmp_path / "query")
    made = Exchange(client, tmp_path / "query", tmp_path / "answer")
    made.reply(made.answer)
    return made


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    index = json.loads((folder / "index.json").read_text())
    change(index)
    (folder / "index.json").write_text(json.dumps(index))


def refused(exchange: Exchange, source: Path | bytes, kind: Any = "query") -> str:
    with pytest.raises(AtlasError) as caught:
        Message.read(source, kind, exchange.bundle).ciphertexts(exchange.bundle, ENGINE)
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
    arrays = {"pixel_values": np.zeros((1, 1, 8, 8), dtype=np.float32), "mask": MASK[:1]}
    new = exchange.client.query(arrays).index.query
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
    Message.read(exchange.query, "query", exchange.bundle)
    (exchange.query / "0.0.ct").unlink()
    assert "it lacks 0.0.ct" in refused(exchange, exchange.query)


def test_an_index_that_names_one_file_often_is_refused(exchange: Exchange) -> None:
    index = json.loads((exchange.query / "index.json").read_text())
    index["ciphertexts"] = {"pixel_values": ["0.0.ct"] * 150}
    (exchange.query / "index.json").write_text(json.dumps(index))
    assert "is not a query" in refused(exchange, exchange.query)


@pytest.mark.parametrize("name", ["index.json", "0.0.ct", "0.mask"])
def test_links_and_devices_are_refused(exchange: Exchange, name: str) -> None:
    (exchange.query / name).unlink()
    (exchange.query / name).symlink_to("/dev/zero")
    assert "it is a link" in refused(exchange, exchange.query)


@pytest.mark.parametrize("name", ["0.0.ct", "0.mask"])
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


def test_a_message_is_one_byte_string(exchange: Exchange) -> None:
    query = Message.read(exchange.query, "query", exchange.bundle)
    again = Message.read(query.to_bytes(), "query", exchange.bundle)
    assert (again.index, again.files) == (query.index, query.files)
    _, public = again.ciphertexts(exchange.bundle, ENGINE)
    np.testing.assert_array_equal(public["mask"], MASK)
    answer = Message.read(exchange.answer, "answer", exchange.bundle).to_bytes()
    found = exchange.client.decrypt(Message.read(answer, "answer", exchange.bundle))
    np.testing.assert_array_equal(found.outputs["output"], exchange.decrypt().outputs["output"])


def zipped(folder: Path, compression: int = zipfile.ZIP_STORED, **more: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for path in folder.iterdir():
            archive.write(path, path.name)
        for name, content in more.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def test_archives_that_are_none_expand_or_hold_more_are_refused(exchange: Exchange) -> None:
    good = zipped(exchange.query)
    Message.read(good, "query", exchange.bundle)
    for damaged in (b"", b"PK", good[:-30], good[:2000]):
        assert "is not a query" in refused(exchange, damaged)
    flipped = bytearray(good)
    flipped[good.index(b"0.0.ct") + 500] ^= 1
    assert "0.0.ct of the query cannot be read" in refused(exchange, bytes(flipped))
    assert "it is compressed" in refused(exchange, zipped(exchange.query, zipfile.ZIP_DEFLATED))
    assert "too many files: more" in refused(exchange, zipped(exchange.query, more=b"x"))
    (exchange.query / "0.mask").write_bytes(bytes(10**6))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "too large" in refused(exchange, zipped(exchange.query))
    with (exchange.query / "0.0.ct").open("r+b") as file:
        file.truncate(2**27)
    bomb = zipped(exchange.query, zipfile.ZIP_DEFLATED)
    assert len(bomb) < 2**20 and "is not a query" in refused(exchange, bomb)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("content", [bytes([2] * 8), bytes([1] * 7), b""])
def test_public_inputs_that_are_no_masks_are_refused(exchange: Exchange, content: bytes) -> None:
    (exchange.query / "0.mask").write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(exchange.query, lambda index: index["files"].update({"0.mask": digest}))
    assert "the public input mask is no attention mask" in refused(exchange, exchange.query)


def test_a_client_sends_no_other_public_input(exchange: Exchange, tiny: Tiny) -> None:
    arrays = exchange.bundle.load_inputs(tiny.data).take([0, 1]).arrays
    for mask in (MASK / 2, MASK[:, :3]):
        with pytest.raises(AtlasError, match="the public input mask is not a mask of shape"):
            exchange.client.query({**arrays, "mask": mask})


def test_queries_have_names_of_their_own(exchange: Exchange, tiny: Tiny) -> None:
    arrays = exchange.bundle.load_inputs(tiny.data).take([0, 1]).arrays
    first, second = (exchange.client.query({**arrays, "mask": MASK}) for _ in range(2))
    assert first.index.query != second.index.query
    with pytest.raises(AtlasError, match="is not an answer"):
        exchange.decrypt(exchange.query)
