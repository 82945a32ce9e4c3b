"""Bodies that do not end, at every endpoint that may be sent one; and how a body may be framed.

The service of this file waits for a body for two seconds instead of sixty, by the same code.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import h11
import pytest
from fastapi.routing import APIRoute
from tiny_model import Tiny

from atlasc.demo.welcome import Demonstration
from atlasc.ir.files import MIB
from atlasc.service import endpoints, v2
from atlasc.service.edge.protocol import LINES, Careful
from benchmarks.service.party import resident
from tests.atlasc.service.running import Running, head, raw, status
from tests.atlasc.service.test_endpoints import digest

WAITS = 2.0
"""Seconds for which the service waits for a body, and for the rest of one that it refused."""
SOON = 5 * WAITS
"""Seconds within which all of that is over, on a machine on which other tests run."""
HASTY = f"""
import atlasc.service.edge.protocol as protocol
import atlasc.service.requests as requests
requests.BODY_SECONDS = protocol.UNREAD_SECONDS = {WAITS}
from atlasc.__main__ import main
main()
"""
INFER = ("Inference-Header-Content-Length: 900",)
BODIES = {
    ("POST", "/keys"): ("/keys", ()),
    ("PUT", "/keys/{key}"): (
        f"/keys/{'a' * 64}?offset=0", (f"Content-Digest: {digest(b'x')}",)
    ),
    ("POST", "/jobs"): ("/jobs", ()),
    ("POST", "/v2/models/{model}/infer"): ("/v2/models/MODEL/infer", INFER),
    ("POST", "/v2/models/{model}/versions/{version}/infer"): (
        "/v2/models/MODEL/versions/VERSION/infer", INFER
    ),
    ("POST", "/demo/visitors"): ("/demo/visitors", ()),
}  # fmt: skip
"""Every endpoint that may be sent a body -> an address of it, and lines."""
UNREAD = ("POST", "/demo/visitors")
"""It answers at once, whatever the body is."""
MOST_MEMORY = 24 * MIB


class Hasty(Running):
    program = ("-c", HASTY)


@pytest.fixture(scope="module")
def service(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Hasty(tmp_path_factory.mktemp("bodies") / "state", tiny.bundle, "--demo")
    yield found
    found.end_without_a_fault()


@pytest.fixture(scope="module")
def token(service: Running) -> str:
    return f"Authorization: Bearer {service.token('bodies')}"


def request(served: Any, endpoint: tuple[str, str], *lines: str) -> bytes:
    """The head of a request to an endpoint."""
    path, own = BODIES[endpoint]
    path = path.replace("MODEL", served.model).replace("VERSION", served.program)
    return head(endpoint[0], path, *own, *lines)


def test_the_table_has_every_endpoint(inside: Any) -> None:
    inside.uploads = replace(inside.uploads, quota=1)  # so that the disk has room for a visitor
    front = Demonstration(secure=False).router(inside)
    routers = (v2.router, endpoints.router, front)
    routes = [one for router in routers for one in router.routes if isinstance(one, APIRoute)]
    assert set(BODIES) == {
        (method, route.path)
        for route in routes
        for method in route.methods - {"GET", "HEAD", "DELETE"}
    }


def drip(connection: socket.socket, piece: bytes) -> None:
    """Send a piece now and then, if there is one, until the other side ends the connection."""
    try:
        while True:
            connection.sendall(piece)
            time.sleep(0.2)
    except OSError:
        return


def asking(service: Running, known: bool, endpoint: tuple[str, str]) -> tuple[str, ...]:
    """The line of a tenant of its own for an endpoint, or none."""
    name = f"t{list(BODIES).index(endpoint)}"
    return (f"Authorization: Bearer {service.token(name)}",) if known else ()


@pytest.mark.parametrize("known", [True, False], ids=["tenant", "stranger"])
def test_a_body_that_does_not_end(service: Running, served: Any, known: bool) -> None:
    """Nothing of it, a byte now and then, a small chunk now and then: the time is bounded."""
    held = []
    begun = time.monotonic()
    for endpoint in BODIES:
        who = asking(service, known, endpoint)
        sized = request(served, endpoint, *who, "Content-Length: 1000")
        chunked = request(served, endpoint, *who, "Transfer-Encoding: chunked")
        for first, piece in ((sized, b""), (sized, b"x"), (chunked, b"1\r\nx\r\n")):
            held.append((endpoint, raw(service, first)))
            threading.Thread(target=drip, args=(held[-1][1], piece), daemon=True).start()
    for endpoint, one in held:
        # 400: the chunks are small; 429: a tenant sends two chunks of keys, and three are begun.
        expected = {408, 400, 429} if known else {401}
        if endpoint == UNREAD:
            expected = {201, 429, 400}
        assert status(one) in expected, endpoint
    assert time.monotonic() - begun < 2 * SOON  # a minute, if the service were not hasty
    for _, one in held:
        one.close()


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(True, id="tenant", marks=pytest.mark.deep("faults")),  # may send gigabytes
        pytest.param(False, id="stranger"),
    ],
)
def test_a_body_without_an_end(service: Running, served: Any, known: bool) -> None:
    """As fast as it is taken: it is refused, the connection ends, and memory stays."""
    before = resident(service.process.pid)

    def ended(endpoint: tuple[str, str]) -> bool:
        who = asking(service, known, endpoint)
        with raw(service, request(served, endpoint, *who, "Transfer-Encoding: chunked")) as one:
            return refused(one, b"10000\r\n" + b"[" * 65536 + b"\r\n")

    with ThreadPoolExecutor(len(BODIES)) as threads:
        assert all(threads.map(ended, BODIES))
    assert resident(service.process.pid) - before < MOST_MEMORY


def refused(connection: socket.socket, piece: bytes, seconds: float = SOON) -> bool:
    """Whether the other side ends a connection over which much is sent."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            connection.sendall(piece)
        except OSError:
            return True
    return False


def test_what_follows_the_last_chunk_is_short(service: Running, token: str) -> None:
    """A line of it costs as much as one of a head, and no token is looked at before."""
    chunked = ("Transfer-Encoding: chunked",)
    for who in ((token,), ()):
        for lines, expected in ((LINES - 5, {400, 401}), (3900, {400})):
            body = b"2\r\n[]\r\n0\r\n" + b"a:\r\n" * lines + b"\r\n"
            with raw(service, head("POST", "/keys", *who, *chunked) + body) as one:
                assert status(one) in expected
    unparsed = Careful(h11.SERVER)
    unparsed.receive_data(head("POST", "/keys", *chunked) + b"0\r\n" + b"a:\r\n" * 3900 + b"\r\n")
    assert isinstance(unparsed.next_event(), h11.Request)
    with pytest.raises(h11.RemoteProtocolError, match="too many lines follow the body"):
        unparsed.next_event()
    few = Careful(h11.SERVER)
    few.receive_data(head("POST", "/keys", *chunked) + b"0\r\na: b\r\n\r\n" + b"\n" * 3900)
    assert isinstance(few.next_event(), h11.Request)
    assert isinstance(few.next_event(), h11.EndOfMessage)


def test_extensions_of_chunks(service: Running, token: str) -> None:
    """They are skipped, up to the bytes of a head; and none names a size of its own."""
    chunked = ("Transfer-Encoding: chunked",)
    for extension, expected in ((b";a=b", 400), (b";" + b"a" * 20_000, 400), (b"_0", 400)):
        body = b"2" + extension + b"\r\n[]\r\n0\r\n\r\n"
        before = time.monotonic()
        with raw(service, head("POST", "/keys", token, *chunked) + body) as one:
            assert status(one) == expected
        assert time.monotonic() - before < WAITS
    for size in (b"-1", b"0x2", b"+2", b"f" * 21, b"\xb2", b""):
        with raw(service, head("POST", "/keys", token, *chunked) + size + b"\r\n[]") as one:
            assert status(one) == 400


def test_old_and_absolute_requests(service: Running, token: str) -> None:
    """HTTP/1.0 ends the connection, whatever it asks for; the host in an address is not used."""
    old = head("GET", "/config", token, "Connection: keep-alive").replace(b"HTTP/1.1", b"HTTP/1.0")
    with raw(service, old * 2) as one:
        answer = one.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1 ") == 1
    for address in ("http://evil.example/config", "https://user:word@evil.example/config"):
        with raw(service, head("GET", address, token)) as one:
            assert status(one) == 404


def test_requests_that_come_together(service: Running, token: str) -> None:
    """They are answered one by one and in order; behind a refusal of a stranger none is."""
    get, jobs = head("GET", "/config", token), head("GET", "/jobs", token)
    with raw(
        service, (get + jobs) * 10 + head("GET", "/config", token, "Connection: close")
    ) as one:
        assert one.makefile("rb").read().count(b"HTTP/1.1 200") == 21
    with raw(service, head("GET", "/config") + get * 5) as one:
        answer = one.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 401") and answer.count(b"HTTP/1.1 ") == 1


def test_a_body_is_asked_for_once_it_may_come(service: Running, token: str) -> None:
    """``Expect``: a refusal comes before the body, and who is asked and sends nothing is let go."""
    expects = ("Expect: 100-continue", "Content-Length: 900")
    with raw(service, head("POST", "/keys", *expects)) as one:
        assert status(one) == 401
    begun = time.monotonic()
    with raw(service, head("POST", "/keys", token, *expects)) as one:
        lines = one.makefile("rb")
        assert b" 100 " in lines.readline()
        while not (line := lines.readline()).startswith(b"HTTP/1.1"):
            assert line
        assert b" 408 " in line
    assert WAITS - 0.5 < time.monotonic() - begun < SOON
    with raw(
        service, head("POST", "/keys", token, "Expect: something", "Content-Length: 2")
    ) as one:
        one.sendall(b"{}")
        assert status(one) in (400, 417)
