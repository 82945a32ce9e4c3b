"""What strangers and tenants can cost a service: the rows of the table in docs/deploy.md.

``benchmarks/service/edge.py`` runs the same attacks for 30 seconds each, and measures milliseconds.
Here they run for a few, beside all other tests: bounds on time are wide, all others are exact.
"""

from __future__ import annotations

import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny

import atlasc
from atlasc.ir.files import MIB
from atlasc.remote.link import Link, Refused
from atlasc.service.edge import door as doors
from atlasc.service.requests import AT_ONCE, MAX_REQUEST
from atlasc.service.uploads import MOST_BEGUN
from benchmarks.service.attacks import ATTACKS, TENANTS
from benchmarks.service.edge import attacked
from benchmarks.service.party import resident
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import Running, head, raw, status, until
from tests.atlasc.service.test_endpoints import upload, wait

SECONDS = 2.0
"""Of an attack."""
MOST_MEMORY, MOST_LOG = 50 * MIB, MIB
SLOWEST_MS = 2000.0
"""Of 99 % of health checks, on a machine on which other tests run."""


@pytest.fixture(scope="module")
def service(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("edge") / "state", tiny.bundle, "--demo")
    yield found
    found.kill()


@pytest.fixture(scope="module")
def ask(service: Running, party: Party, served: Any) -> Callable[[], None]:
    """A query of a tenant that attacks nobody."""
    token = service.token("acme")
    upload(service, token, party, served)

    def ask() -> None:
        query = party.client.encrypt(party.pixels[:2])
        job = service.call("POST", "/jobs", token, query).json["id"]
        assert wait(service, token, job) == "done"

    ask()
    return ask


@pytest.mark.parametrize(
    "name",
    [
        *(pytest.param(one, marks=pytest.mark.deep("faults")) for one in ATTACKS if one != "none"),
        "all",
    ],
)
def test_an_attack_costs_little(
    service: Running, ask: Callable[[], None], served: Any, name: str
) -> None:
    token = service.token(f"attacker-{name}")
    names = [*ATTACKS] if name == "all" else [name]
    seconds = SECONDS * (3 if name == "all" else 1)  # so that each of them has its turn
    costs = attacked(
        service.port, service.process.pid, service.log_path, names, seconds, token,
        served.configuration, ask, nice=0,
    )  # fmt: skip
    assert costs.failed == 0 and costs.checks
    assert costs.health_ms["p99"] < SLOWEST_MS * (3 if name == "all" else 1)
    assert costs.memory < MOST_MEMORY and costs.log < MOST_LOG
    assert min(costs.writes[one] for one in names if one != "none") > 0
    if name in TENANTS or name == "all":
        keys = service.call("GET", "/keys", token).json
        assert len(keys) <= MOST_BEGUN


def test_idle_connections_lock_nobody_out(service: Running, ask: Callable[[], None]) -> None:
    """As many as there are places, and more, from one address and from many."""
    idle = [raw(service, source=f"127.0.0.{2 + n % 6}") for n in range(360)]
    try:
        assert service.call("GET", "/v2/health/live").status == 200
        ask()
        ended = [one for one in idle if ends(one)]
        assert len(ended) >= 360 - doors.PLACES
    finally:
        for one in idle:
            one.close()


def ends(connection: socket.socket) -> bool:
    """Whether the other side has ended a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_a_request_that_does_not_begin_or_end(service: Running) -> None:
    """Its connection ends, a byte now and then or not."""
    slow = [raw(service), raw(service, b"GET / HT"), raw(service, head("GET", "/config")[:-2])]
    begun = time.monotonic()
    until(lambda: all(ends(one) for one in slow), doors.HEAD_SECONDS + 15)
    assert time.monotonic() - begun > doors.HEAD_SECONDS - 1
    for one in slow:
        one.close()


def test_a_body_in_small_chunks(service: Running) -> None:
    """Refused with and without a token; large chunks are a body like any other."""
    chunked = "Transfer-Encoding: chunked"
    token = f"Authorization: Bearer {service.token('chunks')}"
    small = b"1\r\n[\r\n" * 100 + b"0\r\n\r\n"
    large = b"1000\r\n" + b"[" * 4096 + b"\r\n0\r\n\r\n"
    for lines, body, expected in (
        ((chunked,), small, {401, 400}),
        ((chunked, token), small, {400}),
        ((chunked, token), large, {400}),  # the JSON is wrong, not the chunks
    ):
        with raw(service, head("POST", "/keys", *lines) + body) as one:
            assert status(one) in expected
    assert service.call("GET", "/v2/health/live").status == 200


def test_what_a_stranger_sends_after_a_refusal_is_not_read(service: Running) -> None:
    with raw(service, head("POST", "/keys", f"Content-Length: {1 << 30}")) as one:
        assert status(one) == 401
        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            one.sendall(bytes(1 << 26))
    with raw(service, head("GET", "/config")) as one:  # and the next request is none
        answer = one.makefile("rb").read()
        assert b" 401 " in answer and b"connection: close" in answer


@pytest.mark.parametrize("size", [2 * MIB, 8 * MIB, 64 * MIB])
def test_the_reason_arrives_although_the_body_was_not_read(service: Running, size: int) -> None:
    """A token that ended in the middle of an upload: the client says so, and does not try again.
    Proxies ask for the end of the connection.
    """
    link = Link(service.url, "atlasc_x")
    for headers in ({}, {"Connection": "close"}):
        with pytest.raises(Refused, match="needs a valid token") as caught:
            link.fetch("PUT", "/keys/a", bytes(size), headers=headers, patience=0.0, limit=MIB)
        assert caught.value.status == 401


@pytest.mark.parametrize("known", [False, True])
def test_an_answer_comes_before_the_end_that_was_asked_for(service: Running, known: bool) -> None:
    """The rest of the body comes late; then the connection of a tenant ends, as it was asked to."""
    token = f"Authorization: Bearer {service.token('closer') if known else 'none'}"
    lines = (token, "Connection: close", "Content-Length: 2000")
    with raw(service, head("PUT", "/keys/a?offset=x", *lines) + b"x") as one:
        until(lambda: not closing(service.port, one))
        time.sleep(0.5)
        one.sendall(bytes(1000))
        assert status(one) in (400, 401, 404, 422)
        one.sendall(bytes(999))
        one.settimeout(doors.HEAD_SECONDS + 10)
        while known and one.recv(1 << 16):
            pass


def test_a_stranger_that_takes_no_answer_is_let_go(service: Running) -> None:
    """Its window is full: the service cannot write, and does not wait for it."""
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    one.connect(("127.0.0.1", service.port))
    one.sendall(head("GET", "/"))  # the front page, larger than the window
    before = time.monotonic()
    until(lambda: closing(service.port, one), doors.HEAD_SECONDS + 15)
    assert time.monotonic() - before < doors.HEAD_SECONDS + 5
    one.close()


def closing(port: int, connection: socket.socket) -> bool:
    """Whether the service holds a connection no more, by the kernel's list."""
    mine = f":{connection.getsockname()[1]:04X}"
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    held_by_it = [w for w in lines if w[1].endswith(f":{port:04X}") and w[2].endswith(mine)]
    return all(words[3] != "01" for words in held_by_it)  # 01: established


def test_methods_and_paths_are_no_labels(service: Running) -> None:
    names = [f"METHOD{n}" for n in range(50)]
    token = service.token("labels")
    for name in names:
        service.call(name, f"/{name}")
        service.call(name, f"/{name}", token)
    text = service.call("GET", "/metrics", service.token("ops", "metrics")).content.decode()
    assert not any(name in text for name in names)
    assert 'method="other"' in text and text.count("atlasc_request_seconds_count") < 100
    assert not any(name in service.log_path.read_text() for name in names)


def test_small_requests_are_small(service: Running) -> None:
    """16 MiB of JSON are refused before they come, and while they come."""
    token = service.token("json")
    before = resident(service.process.pid)
    found = service.call("POST", "/keys", token, b"[" * (MAX_REQUEST + 1))
    assert found.status == 413
    line = f"Authorization: Bearer {token}"
    held = [
        raw(service, head("POST", "/keys", line, "Content-Length: 60000") + b"[" * 50_000)
        for _ in range(8)
    ]
    assert sorted(status(one) for one in held[AT_ONCE["bodies"] :]) == [429] * 4
    for one in held:
        one.close()
    assert resident(service.process.pid) - before < 10 * MIB


def test_a_tenant_takes_some_connections_and_others_go_on(
    service: Running, ask: Callable[[], None]
) -> None:
    line = f"Authorization: Bearer {service.token('greedy')}"
    body = head("POST", "/jobs", line, "Content-Length: 100000") + b"x"
    held = [raw(service, body, source="127.0.0.3") for _ in range(60)]
    refused = [one for one in held if status_now(one) == 429]
    assert len(refused) >= 60 - AT_ONCE["bodies"]
    ask()
    for one in held:
        one.close()


def status_now(connection: socket.socket) -> int:
    """The status of an answer that comes within a second; 0 without one."""
    connection.settimeout(1.0)
    return status(connection)


def test_uploads_that_are_announced_are_counted(service: Running, served: Any) -> None:
    token = service.token("announcer")
    codes = []
    for _ in range(MOST_BEGUN + 3):
        new = {
            "configuration": served.configuration, "size": 1, "sha256": secrets.token_hex(32),
        }  # fmt: skip
        codes.append(service.call("POST", "/keys", token, json.dumps(new).encode()).status)
    assert codes == [201] * MOST_BEGUN + [507] * 3


@pytest.mark.parametrize(
    ("host", "proxy", "believed"),
    [
        ("127.0.0.1", "127.0.0.1", True), ("127.0.0.1", "10.9.9.9", False),
        ("::", "127.0.0.1", True), ("::", "::ffff:127.0.0.1", True),
    ],
)  # fmt: skip
def test_forwarded_addresses_are_believed_from_a_proxy_alone(
    tiny: Tiny, tmp_path: Path, host: str, proxy: str, believed: bool
) -> None:
    """A visitor has few tokens for each address; who is behind a proxy has an address as well. A
    socket of IPv6 has another name for a proxy's address.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, 0), family=family).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    options = ("--demo", "--host", host, "--plain-http", "--proxy", proxy)
    service = Running(tmp_path / "state", tiny.bundle, *options)
    try:
        found = [
            service.call("POST", "/demo/visitors", X_Forwarded_For=f"192.0.2.{n}").status
            for n in range(3)
            for _ in range(2)
        ]
        assert found.count(201) == (6 if believed else 2)
    finally:
        service.kill()


def test_a_client_that_goes_in_the_middle_is_no_fault(service: Running) -> None:
    line = f"Authorization: Bearer {service.token('leaver')}"
    raw(service, head("POST", "/jobs", line, "Content-Length: 1000000") + b"x" * 10).close()
    raw(service, head("POST", "/keys", line, "Content-Length: 1000") + b"x" * 10).close()
    time.sleep(0.5)
    assert service.call("GET", "/v2/health/live").status == 200
    assert not [one for one in service.log if one["event"] == "internal error"]
    assert "Traceback" not in service.log_path.read_text()


def test_threads_wait_for_no_body(service: Running, party: Party) -> None:
    """Bodies that stop in the middle hold no thread, which others need."""
    line = f"Authorization: Bearer {service.token('slow')}"
    query = party.client.encrypt(party.pixels[:2])
    part = head("POST", "/jobs", line, f"Content-Length: {len(query)}") + query[: len(query) // 2]
    open_ones = [raw(service, part) for _ in range(4)]
    answers: list[int] = []
    other = service.token("other")
    threads = [
        threading.Thread(
            target=lambda: answers.append(service.call("GET", "/config", other).status)
        )
        for _ in range(20)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(20)
    assert answers == [200] * 20
    for one in open_ones:
        one.close()


def test_the_client_sees_a_busy_service_and_waits(service: Running, party: Party) -> None:
    """Every request of a tenant beyond its rate gets 429, and the client asks again."""
    link = atlasc.remote.link.Link(service.url, service.token("fast"))  # type: ignore[attr-defined]
    for _ in range(400):
        link.fetch("GET", "/keys", limit=1000)
    link.close()
