"""Tokens: hashed, scoped, revocable, and of one tenant."""

from __future__ import annotations

import json
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from atlasc.ir.errors import AtlasError
from atlasc.service.store import DATABASE, Store, only_service
from atlasc.service.tokens import add_token, all_tokens, find_caller, note_expired, revoke_token
from tests.atlasc.cli.command import refused, run


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "state")
    yield found
    found.close()


def test_a_token_is_found_and_nothing_like_it(store: Store) -> None:
    token = add_token(store, "acme", ["infer"])
    caller = find_caller(store, token)
    assert caller is not None and caller.tenant == "acme" and caller.scopes == {"infer"}
    other = add_token(store, "other")
    mixed = token[: token.rindex("_")] + other[other.rindex("_") :]
    last = "1" if token[-1] == "0" else "0"
    for wrong in ("", "atlasc_", token[:-1], token[:-1] + last, token + "0", mixed, token.upper()):
        assert find_caller(store, wrong) is None


def test_the_files_hold_no_token(store: Store) -> None:
    token = add_token(store, "acme")
    secret = token.rpartition("_")[2].encode()
    contents = [path.read_bytes() for path in store.folder.rglob("*") if path.is_file()]
    assert contents and not any(secret in content for content in contents)
    two = [add_token(store, "acme"), add_token(store, "acme")]
    assert len({token, *two}) == 3


def test_revoked_and_expired_tokens_are_refused(store: Store) -> None:
    token, brief = add_token(store, "acme"), add_token(store, "acme", days=0)
    assert find_caller(store, brief) is None
    revoke_token(store, token.split("_")[1])
    assert find_caller(store, token) is None
    assert [one.state for one in all_tokens(store)] == ["revoked", "expired"]
    with pytest.raises(AtlasError, match="no token"):
        revoke_token(store, "0123456789abcdef")
    with pytest.raises(AtlasError, match="no scope"):
        add_token(store, "acme", ["all"])
    for name in ("", "../acme", "Acme", "a/b", "-a", "a" * 64):
        with pytest.raises(AtlasError, match="name of a tenant"):
            add_token(store, name)


def test_the_audit_has_what_became_of_tokens(store: Store) -> None:
    """Also what expires, once, whoever reads it."""
    revoked = add_token(store, "acme")
    assert store.audit.news() == [], "what was there at the start is known"
    short = add_token(store, "acme", days=1e-9)
    revoke_token(store, revoked)
    with open(store.audit.path, "a") as file:
        file.write("damaged\n")
    for _ in range(2):
        note_expired(store)
    told = store.audit.news()
    assert [line["event"] for line in told] == ["token added", "token revoked", "token expired"]
    assert {line["tenant"] for line in told} == {"acme"}
    assert told[2]["token"] == short.split("_")[1] and store.audit.news() == []
    text = store.audit.path.read_text()
    assert all(token.split("_")[2] not in text for token in (short, revoked))


def test_the_command_makes_lists_and_revokes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    token = run("tokens", "--state", state, "--add", "acme", "--days", "30").out.strip()
    (found,) = json.loads(run("tokens", "--state", state, "--json").out)["tokens"]
    assert found["tenant"] == "acme" and found["state"] == "valid" and found["id"] in token
    assert token not in run("tokens", "--state", state).out
    assert "revoked" in run("tokens", "--state", state, "--revoke", token).out
    assert "exclude each other" in refused(
        "tokens", "--state", state, "--add", "a", "--revoke", "b"
    )


def test_the_folder_is_private(tmp_path: Path, store: Store) -> None:
    assert stat.S_IMODE(store.folder.stat().st_mode) == 0o700
    for path in store.folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    store.folder.chmod(0o750)
    with pytest.raises(AtlasError, match="open to other users"):
        Store(store.folder)
    (tmp_path / "file").write_text("")
    with pytest.raises(AtlasError, match="cannot hold the state"):
        Store(tmp_path / "file")


def test_a_refused_folder_stays_as_it_is(tmp_path: Path) -> None:
    """Such as a bundle, or a folder whose name has a letter too many."""
    (tmp_path / "bundle").mkdir(mode=0o755)
    (tmp_path / "bundle").chmod(0o755)
    with pytest.raises(AtlasError, match="open to other users"):
        Store(tmp_path / "bundle")
    for words in (("tokens",), ("tokens", "--remove", "a"), ("keys", "list"), ("keys", "prune")):
        for name in ("bundle", "statee"):
            assert "no state of a service" in refused(*words, "--state", tmp_path / name), words
    assert list(tmp_path.rglob("*")) == [tmp_path / "bundle"]


def test_one_service_has_the_folder(store: Store) -> None:
    with only_service(store):
        again = Store(store.folder)  # the command tokens
        add_token(again, "acme")
        with pytest.raises(AtlasError, match="another service uses"), only_service(again):
            pass
        again.close()


def test_a_damaged_or_newer_database_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    Store(state).close()
    with sqlite3.connect(state / DATABASE) as db:
        db.execute("pragma user_version = 99")
    db.close()
    with pytest.raises(AtlasError, match="format 99"):
        Store(state)
    for path in state.glob(f"{DATABASE}*"):
        path.unlink()
    (state / DATABASE).write_bytes(b"no database" * 1000)
    (state / DATABASE).chmod(0o600)
    with pytest.raises(AtlasError, match="cannot be used"):
        Store(state)


def test_a_damaged_database_whose_message_is_no_text(tmp_path: Path) -> None:
    """SQLite quotes what it cannot read."""
    Store(tmp_path / "state").close()
    path = tmp_path / "state" / "service.sqlite"
    damaged = path.read_bytes().replace(b"CREATE TABLE", b"CREATE T\x80BLE")
    assert damaged != path.read_bytes()
    path.write_bytes(damaged)
    with pytest.raises(AtlasError, match="cannot be used"):
        Store(tmp_path / "state")


def test_what_fails_in_a_transaction_never_happened(store: Store) -> None:
    token = add_token(store, "acme")

    def half() -> None:
        with store.writing() as db:
            db.execute("delete from tokens")
            assert store.number("select count(*) from tokens") == 0  # the writer sees its own work
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half()
    assert find_caller(store, token) is not None
