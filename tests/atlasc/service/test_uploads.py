"""Uploads of keys: cut anywhere, damaged, out of order, too large; and what survives a kill."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from atlasc.remote.wire import CHUNK, KeyStatus, NewKey
from atlasc.service.faults import Refusal
from atlasc.service.programs import Programs, Served
from atlasc.service.store import Store
from atlasc.service.uploads import Uploads
from tests.atlasc.service.conftest import Party

QUOTA = 2**30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "state")
    yield found
    found.close()


@pytest.fixture
def uploads(store: Store, programs: Programs) -> Uploads:
    return Uploads.of(store, programs, QUOTA)


def announced(content: bytes, served: Served, size: int | None = None) -> NewKey:
    digest = hashlib.sha256(content).hexdigest()
    return NewKey(
        configuration=served.configuration, size=size or len(content), sha256=digest
    )  # fmt: skip


def add(uploads: Uploads, key: str, offset: int, chunk: bytes) -> KeyStatus:
    return uploads.add("acme", key, offset, chunk, hashlib.sha256(chunk).digest())


def test_an_upload_in_pieces_of_any_size(
    uploads: Uploads, store: Store, party: Party, served: Served
) -> None:
    """Cut twenty times, with a service that starts anew each time."""
    content, rng = party.evaluation, random.Random(1)
    now = uploads.begin("acme", announced(content, served))
    cuts = sorted(rng.sample(range(1, len(content)), 20))
    for end in [*cuts, len(content)]:
        # What a kill leaves: bytes on the disk that the database does not know.
        path = store.key_path("acme", now.id, ready=False)
        with open(path, "ab") as file:
            file.write(rng.randbytes(rng.randrange(100)))
        uploads = Uploads.of(store, uploads.programs, QUOTA)
        now = uploads.begin("acme", announced(content, served))
        assert not now.ready
        now = add(uploads, now.id, now.received, content[now.received : end])
    assert now.ready and store.key_path("acme", now.id).read_bytes() == content
    assert add(uploads, now.id, 0, b"again") == now  # a chunk whose answer was lost
    assert not list(store.folder.rglob("*.part"))


def test_what_is_wrong_with_a_chunk(uploads: Uploads, party: Party, served: Served) -> None:
    content = party.evaluation
    half = len(content) // 2
    key = uploads.begin("acme", announced(content, served)).id
    add(uploads, key, 0, content[:half])
    for offset, chunk, status in (
        (0, content[:half], 409),
        (half + 1, content[half + 1 :], 409),
        (half, b"", 413),
        (half, content[half:] + b"more", 413),
        (half, bytes(CHUNK + 1), 413),
    ):
        with pytest.raises(Refusal) as caught:
            add(uploads, key, offset, chunk)
        assert caught.value.status == status
    with pytest.raises(Refusal, match="damaged on its way"):
        uploads.add("acme", key, half, content[half:], bytes(32))
    assert uploads.one("acme", key).received == half
    with pytest.raises(Refusal, match="no such keys"):
        uploads.add("other", key, half, content[half:], bytes(32))


def test_a_whole_that_is_not_the_announced_one_starts_again(
    uploads: Uploads, store: Store, party: Party, served: Served
) -> None:
    content = bytearray(party.evaluation)
    key = uploads.begin("acme", announced(party.evaluation, served)).id
    content[-200] ^= 1
    with pytest.raises(Refusal, match="not the one that was announced"):
        add(uploads, key, 0, bytes(content))
    now = uploads.one("acme", key)
    assert not now.ready and now.received == 0 and not store.key_path("acme", key).exists()
    assert add(uploads, key, 0, party.evaluation).ready


def test_a_secret_key_is_never_stored(
    uploads: Uploads, store: Store, party: Party, served: Served
) -> None:
    secret = (party.keys / "client" / "secret.key").read_bytes()
    for content in (secret, b"something else" * 100):
        key = uploads.begin("acme", announced(content, served)).id
        header = 8 + int.from_bytes(content[:8], "little")
        for first in (0, 8, min(header - 1, 100)):  # also one that is sent in small pieces
            if first:
                try:
                    add(uploads, key, 0, content[:first])
                except Refusal:
                    continue  # it does not even begin as a file of ours
            with pytest.raises(Refusal) as caught:
                add(uploads, key, first, content[first : header + 5])
            assert caught.value.status == 400
            kept = [path.stat().st_size for path in (store.folder / "keys").rglob("*.part")]
            assert sum(kept) <= first < header
            uploads.delete("acme", key)
            key = uploads.begin("acme", announced(content, served)).id


def test_limits(store: Store, programs: Programs, party: Party, served: Served) -> None:
    size = len(party.evaluation)
    uploads = Uploads.of(store, programs, size + 10)
    key = uploads.begin("acme", announced(party.evaluation, served)).id
    with pytest.raises(Refusal, match="share of the server's disk") as caught:
        uploads.begin("acme", announced(b"x" * 11, served))
    assert caught.value.status == 507
    assert uploads.begin("other", announced(party.evaluation, served)).received == 0
    for new, status in (
        (announced(b"x", served, served.key_bytes + 1), 413),
        (announced(party.evaluation, served, size + 1), 409),
        (NewKey(configuration="0" * 64, size=5, sha256="1" * 64), 409),
    ):
        with pytest.raises(Refusal) as caught:
            uploads.begin("acme", new)
        assert caught.value.status == status
    uploads.delete("acme", key)
    assert uploads.all("acme") == () and store.used_bytes("acme") == 0


def test_files_without_a_row_are_removed(
    store: Store, uploads: Uploads, party: Party, served: Served
) -> None:
    key = uploads.begin("acme", announced(party.evaluation, served)).id
    add(uploads, key, 0, party.evaluation)
    stray = store.key_path("acme", "0" * 64)
    stray.write_bytes(b"left by a kill")
    Uploads.of(store, uploads.programs, QUOTA)
    assert not stray.exists() and store.key_path("acme", key).exists()


def test_files_that_a_copy_lacks(
    uploads: Uploads, store: Store, party: Party, served: Served
) -> None:
    """Keys without their file are uploaded again; an upload goes on where its file ends."""
    content = party.evaluation
    now = uploads.begin("acme", announced(content, served))
    add(uploads, now.id, 0, content[:500])
    begun = store.key_path("acme", now.id, ready=False)
    begun.write_bytes(content[:200])
    uploads = Uploads.of(store, uploads.programs, QUOTA)
    assert uploads.one("acme", now.id).received == 200
    shutil.rmtree(begun.parent)
    uploads = Uploads.of(store, uploads.programs, QUOTA)
    assert uploads.one("acme", now.id).received == 0
    assert add(uploads, now.id, 0, content).ready, "without announcing it again"
    whole = store.key_path("acme", now.id)
    assert Uploads.of(store, uploads.programs, QUOTA).one("acme", now.id).ready
    whole.write_bytes(content[:-1])
    uploads = Uploads.of(store, uploads.programs, QUOTA)
    with pytest.raises(Refusal, match="no such keys"):
        uploads.one("acme", now.id)
    assert not whole.exists() and now.id in store.audit.path.read_text()
