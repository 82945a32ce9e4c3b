"""Queries and answers: what fits the program is read, and nothing else reaches an engine."""

from __future__ import annotations

import json
import resource
import struct
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
from atlasc.ir.layout import Layout
from tests.atlasc.client.interfaces import give, with_rows
from tests.sealed_files import Array, opened, sealed

SLOTS = 2**14
CIPHERTEXT = "5/0"


@dataclass(frozen=True)
class Plain:
    """Slots and a level in the place of a ciphertext."""

    level: int
    values: np.ndarray


class PlainEngine:
    """Serialises slots as they are."""

    target = "sim"

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
        query, answer: files.
    """

    client: Client
    query: Path
    answer: Path

    @property
    def bundle(self) -> Bundle:
        return self.client.bundle

    def reply(self, path: Path, query: str | None = None, level: int | None = None) -> Path:
        """Another answer, of the right shape."""
        found = Message.read(self.query, "query", self.bundle)
        return answer(self.bundle, path, query or found.query, found.count, level)

    def decrypt(self, path: Path | None = None) -> Answers:
        return self.client.decrypt(Message.read(path or self.answer, "answer", self.bundle))


def answer(bundle: Bundle, path: Path, query: str, count: int, level: int | None = None) -> Path:
    packed = bundle.client.interface.outputs[0]
    shape = packed.ciphertexts, Layout.parse(packed.layout).slots
    slots = np.random.default_rng(len(path.name)).random(shape)
    values = [Plain(packed.level if level is None else level, row) for row in slots]
    found = {packed.name: values}
    Message.of("answer", bundle, ENGINE, found, count, query=query).save(path)
    return path


@pytest.fixture
def exchange(tiny: Tiny, tmp_path: Path) -> Exchange:
    """With a mask among the inputs, which the tiny model has not."""
    bundle = load_bundle(tiny.bundle)
    arrays = bundle.load_inputs(tiny.data).take([0, 1]).arrays
    public = {"name": "attention_mask", "shape": [2, 4]}
    give(bundle, with_rows(bundle.client.interface, publics=[public]))
    client = PlainClient(bundle, Ledger(tmp_path))
    client.query({**arrays, "attention_mask": MASK}).save(tmp_path / "query")
    made = Exchange(client, tmp_path / "query", tmp_path / "answer")
    made.reply(made.answer)
    return made


Change = Callable[[dict[str, Any], dict[str, Array]], object]


def edit(path: Path, change: Change) -> None:
    """Change metadata and arrays of a message, and seal it again, as a forger would."""
    metadata, arrays = opened(path.read_bytes())
    change(metadata, arrays)
    path.write_bytes(sealed(metadata, arrays))


def refused(exchange: Exchange, source: Path | bytes, kind: Any = "query") -> str:
    with pytest.raises(AtlasError) as caught:
        Message.read(source, kind, exchange.bundle).ciphertexts(ENGINE)
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
    arrays = {"pixel_values": np.zeros((1, 1, 8, 8), dtype=np.float32), "attention_mask": MASK[:1]}
    new = exchange.client.query(arrays).query
    edit(exchange.answer, lambda facts, _: facts.update(query=new))
    with pytest.raises(AtlasError, match="not the answer to a query of these keys") as caught:
        exchange.decrypt()
    assert "the query was for 1 inputs" in caught.value.why


def test_a_querys_ciphertext_is_no_answer(exchange: Exchange, tmp_path: Path) -> None:
    query: Any = exchange.bundle.client.interface.inputs[0]
    fake = exchange.reply(tmp_path / "fake", level=query.level)
    with pytest.raises(AtlasError, match="a ciphertext of another place in the program"):
        exchange.decrypt(fake)


@pytest.mark.parametrize("count", ["0", "-1", "3", "1000000000", "02", "", "1.0", 2, None])
def test_a_count_that_is_none_is_refused(exchange: Exchange, count: object) -> None:
    for path, kind in ((exchange.query, "query"), (exchange.answer, "answer")):
        edit(path, lambda facts, _: facts.update(count=count))
        message = refused(exchange, path, kind)
        assert "its count is not 1 to 2" in message or "is damaged" in message


def test_missing_and_extra_arrays_are_refused(exchange: Exchange) -> None:
    whole = exchange.query.read_bytes()
    more = Array("U8", (1,), b"x")
    edit(exchange.query, lambda _, arrays: arrays.update({"more": more}))
    assert "it has arrays that the program does not know" in refused(exchange, exchange.query)
    exchange.query.write_bytes(whole)
    edit(exchange.query, lambda _, arrays: arrays.pop(CIPHERTEXT))
    assert f"its array {CIPHERTEXT} is missing" in refused(exchange, exchange.query)


def test_links_and_devices_are_refused(exchange: Exchange) -> None:
    exchange.query.unlink()
    exchange.query.symlink_to("/dev/zero")
    assert "the path is a link" in refused(exchange, exchange.query)


def test_large_files_are_refused_unread(exchange: Exchange) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with exchange.query.open("r+b") as file:
        file.truncate(2**34)
    assert "too large" in refused(exchange, exchange.query)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_changed_ciphertext_is_refused(exchange: Exchange) -> None:
    data = bytearray(exchange.query.read_bytes())
    data[-100_000] ^= 1
    exchange.query.write_bytes(data)
    assert "does not match its checksum" in refused(exchange, exchange.query)


def test_headers_that_lie_are_refused(exchange: Exchange) -> None:
    content = exchange.query.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]

    def with_header(change: Callable[[dict[str, Any]], object]) -> bytes:
        found = json.loads(json.dumps(header))
        change(found)
        text = json.dumps(found).encode()
        return len(text).to_bytes(8, "little") + text + data

    ciphertext, seal = header[CIPHERTEXT], header["~sha256"]
    for change in (
        lambda h: h.pop("~sha256"),
        lambda h: h.pop(CIPHERTEXT),
        lambda h: h.update({"twice": ciphertext}),
        lambda h: h[CIPHERTEXT].update(shape=[2**60, 2**60]),
        lambda h: h[CIPHERTEXT].update(data_offsets=[0, 2**40]),
        lambda h: h[CIPHERTEXT].update(dtype="F32"),
        lambda h: h.update({"~sha256": {**seal, "shape": [1]}}),
        lambda h: h.update(x={"y": "z"}),
        lambda h: h.update({"__metadata__": ciphertext}),
    ):
        assert "is damaged" in refused(exchange, with_header(change))


def test_escapes_of_a_header_do_not_reach_the_terminal(exchange: Exchange) -> None:
    whole = exchange.query.read_bytes()
    for change in ({"kind": "\x1b[2J"}, {"\x1b[2J": "1"}):
        exchange.query.write_bytes(whole)
        edit(exchange.query, lambda facts, _, change=change: facts.update(change))
        assert "\x1b" not in refused(exchange, exchange.query)
    exchange.query.write_bytes(whole)
    edit(exchange.query, lambda _, arrays: arrays.update({"\x1b[2J": Array("U8", (0,), b"")}))
    assert "\x1b" not in refused(exchange, exchange.query)


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b"[" * 100_000, b'{"format": 2}', b"\x00"])
def test_a_damaged_header_is_refused(exchange: Exchange, text: bytes) -> None:
    exchange.query.write_bytes(len(text).to_bytes(8, "little") + text)
    for source in (exchange.query, text):
        message = refused(exchange, source)
        assert "is damaged" in message or "is no query" in message


def test_ciphertexts_of_another_engine_are_refused(exchange: Exchange) -> None:
    edit(exchange.query, lambda facts, _: facts.update(engine="cpu"))
    assert "has ciphertexts of the engine cpu" in refused(exchange, exchange.query)


def test_a_message_is_one_byte_string(exchange: Exchange) -> None:
    query = Message.read(exchange.query, "query", exchange.bundle)
    again = Message.read(query.to_bytes(), "query", exchange.bundle)
    assert (again.to_bytes(), again.entry) == (query.to_bytes(), query.entry)
    _, public = again.ciphertexts(ENGINE)
    np.testing.assert_array_equal(public["attention_mask"], MASK)
    answer = Message.read(exchange.answer, "answer", exchange.bundle).to_bytes()
    found = exchange.client.decrypt(Message.read(answer, "answer", exchange.bundle))
    np.testing.assert_array_equal(found.outputs["output"], exchange.decrypt().outputs["output"])


@pytest.mark.parametrize(
    "mask",
    [
        Array("F64", (2, 4), np.full(8, 2.0).tobytes()),
        Array("F64", (8,), np.ones(8).tobytes()),
        Array("U8", (7,), bytes(7)),
        Array("F64", (0,), b""),
    ],
)
def test_public_inputs_that_are_no_masks_are_refused(exchange: Exchange, mask: Array) -> None:
    edit(exchange.query, lambda _, arrays: arrays.update(attention_mask=mask))
    message = refused(exchange, exchange.query)
    assert (
        "its array attention_mask is missing" in message or "its mask attention_mask has" in message
    )


def test_a_client_sends_no_other_public_input(exchange: Exchange, tiny: Tiny) -> None:
    arrays = exchange.bundle.load_inputs(tiny.data).take([0, 1]).arrays
    for mask, words in ((MASK / 2, "input 0 is not encrypted"), (MASK[:, :3], "has not the shape")):
        with pytest.raises(AtlasError, match=words):
            exchange.client.query({**arrays, "attention_mask": mask})


def test_queries_have_names_of_their_own(exchange: Exchange, tiny: Tiny) -> None:
    arrays = exchange.bundle.load_inputs(tiny.data).take([0, 1]).arrays
    first, second = (exchange.client.query({**arrays, "attention_mask": MASK}) for _ in range(2))
    assert first.query != second.query
    with pytest.raises(AtlasError, match="is no answer"):
        exchange.decrypt(exchange.query)
