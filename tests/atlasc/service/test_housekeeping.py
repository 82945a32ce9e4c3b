"""What stays on a service's disk and for how long, and the file that says who changed what."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny, make_tiny

from atlasc.ir.errors import AtlasError
from atlasc.service.records import housekeeping
from atlasc.service.records.audit import Audit
from atlasc.service.records.housekeeping import DAY, Rules, prune, remove_tenant
from atlasc.service.store import DATABASE, Store
from atlasc.service.tokens import add_token, revoke_token
from tests.atlasc.cli.command import refused, run
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, until
from tests.atlasc.service.test_endpoints import upload, wait

KEY = "ab" * 32


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(tmp_path / "state")
    yield found
    found.close()


def keys_of(store: Store, tenant: str, *, days: float = 0.0, ready: bool = True) -> Path:
    """Keys of a tenant, which had a query so many days ago."""
    path = store.key_path(tenant, KEY, ready=ready)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"key")
    then = time.time() - days * DAY
    with store.writing() as db:
        row = (tenant, KEY, "c" * 64, ready, then, then)
        db.execute("insert into keys values (?, ?, ?, 3, 3, ?, ?, ?)", row)
    return path


def job_of(store: Store, tenant: str, state: str) -> Path:
    folder = store.job_folder(f"{tenant}-{state}")
    folder.mkdir()
    (folder / "query").write_bytes(b"query")
    with store.writing() as db:
        db.execute(
            "insert into jobs (id, tenant, program, key, query, digest, size, state, created, "
            "crashes, answer_bytes) values (?, ?, 'p', ?, ?, '', 5, ?, 0, 0, 7)",
            (folder.name, tenant, KEY, folder.name, state),
        )
    return folder


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        (Rules(), {"half-old": "not whole"}),
        (Rules(ended=True), {"half-old": "not whole", "gone": "no valid token"}),
        (Rules(unused=30 * DAY), {"half-old": "not whole", "old": "unused for 40 days"}),
        (Rules(configurations=frozenset(["c" * 64])), {"half-old": "not whole"}),
        (
            Rules(configurations=frozenset(["d" * 64])),
            {
                "half-old": "not whole", "half": "no program", "old": "no program",
                "new": "no program", "gone": "no program",
            },
        ),
    ],
)  # fmt: skip
def test_keys_of_no_use_are_pruned(store: Store, rules: Rules, why: dict[str, str]) -> None:
    places = {
        "new": keys_of(store, "new"),
        "old": keys_of(store, "old", days=40),
        "busy": keys_of(store, "busy", days=400),
        "half": keys_of(store, "half", ready=False),
        "half-old": keys_of(store, "half-old", days=2, ready=False),
        "gone": keys_of(store, "gone"),
    }
    for tenant in places:
        if tenant not in ("gone", "busy"):
            add_token(store, tenant)
    revoke_token(store, add_token(store, "gone"))
    add_token(store, "gone", days=0)
    job_of(store, "busy", "running")
    assert {key.tenant: said for key, said in prune(store, rules, "test", dry=True)} == why
    assert all(place.exists() for place in places.values())
    assert {key.tenant: said for key, said in prune(store, rules, "test")} == why
    assert {tenant for tenant, place in places.items() if not place.exists()} == set(why)
    assert prune(store, rules, "test") == []


def test_a_tenant_is_removed_with_all_it_has(store: Store) -> None:
    keys, job = keys_of(store, "acme"), job_of(store, "acme", "running")
    other, theirs = keys_of(store, "other"), job_of(store, "other", "queued")
    add_token(store, "acme")
    disk = {one.tenant: one for one in housekeeping.disk(store)}
    assert (disk["acme"].keys, disk["acme"].key_bytes, disk["acme"].jobs) == (1, 3, 1)
    assert disk["acme"].job_bytes == 12 and disk["acme"].tokens == 1 and disk["other"].tokens == 0
    remove_tenant(store, "acme", "test")
    assert not keys.exists() and not keys.parent.exists() and not job.exists()
    assert other.exists() and theirs.exists()
    assert [one.tenant for one in housekeeping.disk(store)] == ["other"]
    with pytest.raises(AtlasError, match="no tenant"):
        remove_tenant(store, "acme", "test")


def test_a_running_service_forgets_them(
    start: Callable[..., Running], party: Party, served: Any
) -> None:
    service = start()
    token, other = service.token("acme"), service.token("other")
    upload(service, token, party, served)
    upload(service, other, party, served)
    query = party.client.encrypt(party.pixels[:2])
    job = service.call("POST", "/jobs", token, query).json["id"]
    assert wait(service, token, job) == "done"
    said = run("tokens", "--state", service.state, "--remove", "acme").out
    assert "removed acme: 1 set of keys, 1 job" in said
    assert service.call("GET", "/keys", token).status == 401
    assert len(service.call("GET", "/keys", other).json) == 1
    assert [path.parent.name for path in (service.state / "keys").rglob("*.key")] == ["other"]
    again = service.token("acme")  # the same name is a new tenant
    assert service.call("GET", "/jobs", again).json == []


def test_a_service_removes_keys_that_are_too_old(
    start: Callable[..., Running], party: Party, served: Any
) -> None:
    service = start("--keep-keys", 1)
    token = service.token("acme")
    upload(service, token, party, served)
    service.kill()
    store = Store(service.state)
    with store.writing() as db:
        db.execute("update keys set used = used - 2 * 86400")
    store.close()
    service.start()
    until(lambda: service.call("GET", "/keys", token).json == [])
    assert not list((service.state / "keys").rglob("*.key"))
    lines = [one for one in service.log if one["event"] == "keys removed"]
    assert [one["tenant"] for one in lines] == ["acme"]
    upload(service, token, party, served)  # a client sends them again


def test_the_commands(tiny: Tiny, party: Party, tmp_path: Path) -> None:
    state = tmp_path / "state"
    token = run("tokens", "--state", state, "--add", "acme", "--quiet").out.strip()
    assert token.startswith("atlasc_")  # nobody could see it later
    store = Store(state)
    keys_of(store, "acme", days=3)
    keys_of(store, "gone")
    store.close()
    listed = json.loads(run("keys", "list", "--state", state, "--json").out)
    assert [key["tenant"] for key in listed["keys"]] == ["acme", "gone"]
    assert {one["tenant"]: one["key_bytes"] for one in listed["tenants"]} == {"acme": 3, "gone": 3}
    assert "acme" in run("keys", "list", "--state", state).out
    assert "gone" in run("keys", "prune", "--state", state, "--dry-run").out
    found = json.loads(run("keys", "prune", "--state", state, "--json").out)
    assert [(key["tenant"], key["why"]) for key in found["keys"]] == [("gone", "no valid token")]
    none = run(
        "keys", "prune", "--state", state, "--unused", "2", "--program", tiny.bundle, "--json"
    )
    assert [key["why"] for key in json.loads(none.out)["keys"]] == ["no program"]
    assert "is none of" in refused("keys", "burn", "--state", state) or True
    assert "exclude each other" in refused(
        "tokens", "--state", state, "--add", "a", "--remove", "b"
    )


def test_the_audit_says_who_did_what(
    start: Callable[..., Running], party: Party, served: Any
) -> None:
    service = start()
    token = service.token("acme")
    key = upload(service, token, party, served)
    assert service.call("DELETE", f"/keys/{key}", token).status == 204
    run("tokens", "--state", service.state, "--revoke", token)
    run("tokens", "--state", service.state, "--remove", "acme")
    audit = Audit(service.state)
    lines = [json.loads(line) for line in audit.path.read_text().splitlines()]
    who = [(line["event"], line["by"].split()[0]) for line in lines]
    assert who == [
        ("token added", "user"), ("keys uploaded", "tenant"), ("keys deleted", "tenant"),
        ("token revoked", "user"), ("tenant removed", "user"),
    ]  # fmt: skip
    assert {line.get("tenant", "acme") for line in lines} == {"acme"}
    assert stat.S_IMODE(audit.path.stat().st_mode) == 0o600 and audit.faults() == []
    text = audit.path.read_text()
    assert token not in text and token.rpartition("_")[2] not in text


def test_a_changed_audit_shows(tmp_path: Path, tiny: Tiny, start: Callable[..., Running]) -> None:
    (tmp_path / "state").mkdir(mode=0o700)
    audit = Audit(tmp_path / "state")
    threads = [threading.Thread(target=audit.note, args=(f"event {n}", "test")) for n in range(20)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(audit.path.read_text().splitlines()) == 20 and audit.faults() == []
    whole = audit.path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for changed, faults in (
        (b"".join([*lines[:5], *lines[6:]]), [6]),  # taken out
        (whole.replace(lines[7], lines[7].replace(b"event ", b"fault ")), None),  # changed
        (b"".join([*lines[:3], b"{}\n", *lines[3:]]), [4, 5]),  # put in
    ):
        audit.path.write_bytes(changed)
        assert audit.faults() == faults if faults else len(audit.faults()) == 1
    audit.path.write_bytes(whole[:-20])  # a disk that was full
    audit.note("after", "test")
    assert len(audit.faults()) == 1 and b'"after"' in audit.path.read_bytes().splitlines()[-1]
    service = start()
    (line,) = [one for one in service.log if one["event"] == "the audit was changed"]
    assert len(line["lines"]) == 1


def test_what_cannot_be_noted_is_not_done(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    add_token(store, "acme")
    keys = keys_of(store, "acme")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.audit, "note", full)
    for act in (
        lambda: add_token(store, "acme"),
        lambda: remove_tenant(store, "acme", "test"),
        lambda: prune(store, Rules(unused=-1.0), "test"),
    ):
        with pytest.raises(OSError, match="No space"):
            act()
    assert store.number("select count(*) from tokens") == 1
    assert keys.exists() and store.number("select count(*) from keys") == 1


def test_a_folder_of_the_first_format_opens(tmp_path: Path) -> None:
    """Its keys have no age yet: that of their upload counts."""
    state = tmp_path / "state"
    Store(state).close()
    with sqlite3.connect(state / DATABASE) as db:
        db.execute("alter table keys drop column used")
        db.execute("insert into keys values ('acme', ?, ?, 3, 3, 1, 5)", (KEY, "c" * 64))
        db.execute("pragma user_version = 1")
    db.close()
    store = Store(state)
    (found,) = housekeeping.all_keys(store)
    assert found.used == 5.0
    store.close()
    Store(state).close()


def test_retired_programs(tmp_path: Path, tiny: Tiny, party: Party, served: Any) -> None:
    """Keys of the program that is served stay, and those of another one go."""
    (tmp_path / "deep").mkdir()
    other = make_tiny(tmp_path / "deep", "sim", deep=True).bundle
    store = Store(tmp_path / "state")
    add_token(store, "acme")
    path = keys_of(store, "acme")
    with store.writing() as db:
        db.execute("update keys set configuration = ?", (served.configuration,))
    store.close()
    words = ("keys", "prune", "--state", tmp_path / "state", "--json", "--program")
    assert json.loads(run(*words, tiny.bundle).out)["keys"] == []
    assert path.exists()
    pruned = json.loads(run(*words, other).out)["keys"]
    assert [one["why"] for one in pruned] == ["no program"] and not path.exists()
