"""A service for visitors: its front page, a tenant for each of them, and their room."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from tiny_model import Tiny, make_tiny

import atlasc
from atlasc.bundle.folder import load_bundle
from atlasc.demo import visitors as module
from atlasc.demo.invitation import with_visitor_token
from atlasc.demo.visitors import Visitors, tight
from atlasc.demo.welcome import welcome
from atlasc.remote.link import Link, Refused, address
from atlasc.remote.wire import Config, NewKey
from atlasc.service.edge.rates import Rates
from atlasc.service.faults import Refusal
from atlasc.service.jobs import QUERY, Jobs, Limits
from atlasc.service.programs import Programs
from atlasc.service.requests import Service
from atlasc.service.store import Store
from atlasc.service.telemetry import Metrics
from atlasc.service.tokens import add_token, find_caller, revoke_token
from atlasc.service.uploads import Uploads
from tests.atlasc.demo.conftest import invite
from tests.atlasc.service.running import Running

WIDE = Limits(queue=64, tenant_queue=32, quota=1 << 40, keep=86400.0)


def test_the_front_page_says_how_to_come(service: Running, shown: Tiny) -> None:
    answer = service.call("GET", "/", Host="demo.example:8000")
    text = answer.content.decode()
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/html")
    assert "<pre>atlasc demo http://demo.example:8000 --allow-simulation</pre>" in text
    assert "<pre>pip install 'WHEEL[demo]'</pre>" in text
    assert "a simulation, which encrypts nothing" in text
    assert load_bundle(shown.bundle).manifest.program[:16] in text
    assert (
        "<script" not in text and "default-src 'none'" in answer.headers["content-security-policy"]
    )
    for host in ("a b", "x/<script>", "[::1", "a" * 300):
        assert service.call("GET", "/", Host=host).status == 400
    assert service.call("GET", "/", Host="[::1]:8000").status == 200


def test_what_visitors_may_not(service: Running) -> None:
    one, other = invite(service), invite(service)
    assert service.call("GET", "/config", one).status == 200
    assert service.call("GET", "/metrics", one).status == 403
    assert service.call("GET", "/config").status == 401
    new = NewKey(configuration="0" * 64, size=1, sha256="1" * 64)
    body = service.call("GET", "/config", one).json["programs"][0]
    new = new.model_copy(update={"configuration": body["configuration"]})
    sent = service.call("POST", "/keys", one, new.model_dump_json().encode())
    assert sent.status == 201
    assert service.call("GET", f"/keys/{new.sha256}", one).status == 200
    assert service.call("GET", f"/keys/{new.sha256}", other).status == 404, "another's tenant"


def test_a_plain_service_has_no_front(shown: Tiny, tmp_path: Path) -> None:
    service = Running(tmp_path / "state", shown.bundle)
    try:
        assert service.call("GET", "/").status == 401
        with pytest.raises(atlasc.AtlasError, match="gives no tokens to visitors"):
            with_visitor_token(service.url, tmp_path, None, lambda token: None)
        assert not list(tmp_path.glob("*.token"))
    finally:
        service.kill()


def test_a_token_is_kept_until_it_ends(service: Running, tmp_path: Path) -> None:
    def config(token: str) -> tuple[str, Config]:
        link = Link(service.url, token)
        try:
            return token, link.get(address("config"), Config, patience=0.0)
        finally:
            link.close()

    first, _ = with_visitor_token(service.url, tmp_path, None, config)
    again, _ = with_visitor_token(service.url, tmp_path, None, config)
    assert first == again
    assert stat.S_IMODE((tmp_path / "visitor.token").stat().st_mode) == 0o600
    store = Store(service.state)
    revoke_token(store, first)
    store.close()
    after, _ = with_visitor_token(service.url, tmp_path, None, config)
    assert after != first
    with pytest.raises(Refused, match="valid token"):
        config(first)


@pytest.fixture
def inside(tmp_path: Path, shown: Tiny, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """The parts of a service, without what computes."""
    monkeypatch.setattr(module, "Rates", lambda rate, who="": Rates(1000.0))
    store, programs, metrics = Store(tmp_path / "state"), Programs([shown.bundle]), Metrics()
    limits = tight(WIDE, programs)
    jobs = Jobs(store, programs, limits)
    uploads = Uploads.of(store, programs, limits.quota)
    runner = cast("Any", Told())  # nothing is computed here
    yield Service(store, programs, uploads, jobs, runner, metrics, Rates(100.0), 1.0)
    store.close()


class Told:
    """What the computing side was told to forget, and to cancel."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []
        self.cancelled: list[str] = []
        self.forget, self.cancel = self.forgotten.append, self.cancelled.append


def test_limits_are_tight(shown: Tiny) -> None:
    programs = Programs([shown.bundle])
    (one,) = programs
    found = tight(WIDE, programs)
    assert found.tenant_queue == module.JOBS and found.keep == module.KEEP
    waiting = (module.JOBS + 1) * (one.query_bytes + one.answer_bytes)
    assert found.quota == one.key_bytes + waiting, "one set of keys, and jobs that wait"
    strict = replace(WIDE, tenant_queue=1, quota=1000, keep=1.0)
    assert tight(strict, programs) == strict, "what the operator asked for is no wider"


def test_room_is_bounded_and_comes_back(inside: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 2)
    visitors, store = Visitors(inside), inside.store
    tokens = [visitors.welcome("192.0.2.1").token for _ in range(2)]
    with pytest.raises(Refusal, match="no room for one more visitor") as caught:
        visitors.welcome("192.0.2.1")
    assert caught.value.status == 429 and 0 < (caught.value.retry_after or 0) <= module.STAY
    callers = [find_caller(store, token) for token in tokens]
    tenant, other = (caller.tenant for caller in callers if caller is not None)
    _fill(inside, tenant, runs=True)
    _fill(inside, other)
    friend = add_token(store, "friend", days=-1.0)  # no visitor, whatever became of the token
    with store.writing() as db:
        db.execute("update tokens set expires = created where tenant = ?", (tenant,))
    assert visitors.welcome("192.0.2.1").token not in tokens
    assert find_caller(store, tokens[0]) is None and find_caller(store, tokens[1]) is not None
    assert not inside.uploads.all(tenant) and inside.uploads.all(other)
    assert [one.state for one in inside.jobs.all(tenant)] == ["cancelled"]
    assert [one.state for one in inside.jobs.all(other)] == ["queued"]
    told = cast("Any", inside.runner)
    assert told.forgotten == [KEY] and told.cancelled == [one.id for one in inside.jobs.all(tenant)]
    assert store.used_bytes(tenant) == 0 < store.used_bytes(other)
    assert sorted(path.name for path in (store.folder / "keys").iterdir()) == [other]
    assert len(list((store.folder / "jobs").iterdir())) == 1
    assert friend.split("_")[1] in {row["id"] for row in store.rows("select id from tokens")}


KEY = "ab" * 32


def _fill(service: Service, tenant: str, *, runs: bool = False) -> None:
    """Whole keys, and a job that waits or runs."""
    key, (one,) = KEY, service.programs
    path = service.store.key_path(tenant, key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"key")
    with service.store.writing() as db:
        db.execute(
            "insert into keys values (?, ?, ?, 3, 3, 1, 0, null)", (tenant, key, one.configuration)
        )
    folder = service.jobs.new_folder()
    (folder / QUERY).write_bytes(b"query")
    service.jobs.accept(tenant, folder, one.program, key, f"query of {tenant}", "digest")
    if runs:
        row = service.jobs.next()
        assert row is not None and row["tenant"] == tenant


def test_a_visitor_without_keys_makes_room(
    inside: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST", 1)
    visitors = Visitors(inside)
    first = visitors.welcome("192.0.2.1").token
    with pytest.raises(Refusal, match="no room"):
        visitors.welcome("192.0.2.1")
    monkeypatch.setattr(module, "EMPTY", -1.0)
    assert visitors.welcome("192.0.2.1").token != first
    assert find_caller(inside.store, first) is None


def test_a_disk_without_room(inside: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(inside.uploads, quota=1 << 60)
    monkeypatch.setattr(inside, "uploads", small)
    with pytest.raises(atlasc.AtlasError, match="no room for a visitor"):
        Visitors(inside)


def test_many_who_come_at_once_wait(inside: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "Rates", Rates)
    visitors = Visitors(inside)
    for _ in range(2):
        visitors.welcome("192.0.2.1")
    with pytest.raises(Refusal, match="too many requests") as caught:
        visitors.welcome("192.0.2.1")
    assert caught.value.retry_after == 1.0


def test_several_models_are_named(inside: Service, shown: Tiny, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    deep = make_tiny(tmp_path / "deep", "sim", deep=True).bundle
    for name in ("tiny", "a-deep-one"):  # a version of the same model, then another model
        text = (deep / "manifest.json").read_text().replace('"name": "tiny"', f'"name": "{name}"')
        (deep / "manifest.json").write_text(text)
        programs = Programs([shown.bundle, deep])
        service = replace(inside, programs=programs, jobs=replace(inside.jobs, programs=programs))
        shown_text = welcome(service, Visitors(service), "https://a.example")
        several = {one.model for one in programs} == {"tiny", "a-deep-one"}
        commands = re.findall("<pre>(atlasc demo [^<]*)</pre>", shown_text)
        start = "atlasc demo https://a.example --allow-simulation"
        expected = [f"{start} --model {one}" for one in ("tiny", name)] if several else [start]
        assert commands == expected and several == (name != "tiny")
