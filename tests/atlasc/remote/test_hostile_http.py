"""What HTTP lets a service ask of its client beside the answer: nothing of it is done or kept."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB
from atlasc.remote.link import LONGEST_WAIT, Link, Refused
from atlasc.remote.wire import Config
from tests.atlasc.remote.hostile import hostile
from tests.atlasc.remote.test_hostile_numbers import CONFIG, said

BOMB = gzip.compress(bytes(256 * MIB), 9)
ENDS: dict[str, tuple[bytes, str]] = {
    "a packed bomb": (
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB)
        + BOMB,
        "not understood",
    ),
    "a bomb on its way": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n%x\r\n" % len(BOMB)
        + BOMB + b"\r\n0\r\n\r\n",
        "not understood",
    ),
    "101 lines": (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 101 + b"\r\n", "cannot be reached"),
    "a long line": (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 65536 + b"\r\n\r\n", "cannot be reached"),
    "lines before the answer": (
        b"HTTP/1.1 100 Continue\r\n" + b"A: b\r\n" * 10**6, "cannot be reached"
    ),
    "early hints": (b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000, "not understood"),
    "another protocol": (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n", "not understood"),
    "HTTP/0.9": (b"{}", "cannot be reached"),
    "HTTP/2": (b"HTTP/2.0 200 OK\r\n\r\n{}", "cannot be reached"),
    "a status of five digits": (b"HTTP/1.1 20000 OK\r\n\r\n{}", "cannot be reached"),
    "no content": (b"HTTP/1.1 204 No\r\n\r\n", "not understood"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_odd_answers_are_refused(tiny: Tiny, name: str) -> None:
    content, words = ENDS[name]
    with hostile(tiny.bundle, {CONFIG: said(content)}) as service:
        tracemalloc.start()
        started = time.monotonic()
        with pytest.raises(AtlasError, match=words) as caught:
            Link(service.url, "x").get("/config", Config, patience=0.0)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < 64 * MIB and time.monotonic() - started < 20
    assert caught.value.render().isascii()


def test_old_answers_are_read(tiny: Tiny) -> None:
    """Of HTTP/1.0, with and without a length."""
    with hostile(tiny.bundle) as service:
        config = json.dumps(service.config).encode()
        for line in (b"", b"Content-Length: %d\r\n" % len(config)):
            service.lies[CONFIG] = said(b"HTTP/1.0 200 OK\r\n" + line + b"\r\n" + config)
            assert Link(service.url, "x").get("/config", Config).wait_seconds == 0


def test_cookies_are_not_kept(tiny: Tiny) -> None:
    heads: list[dict[str, str]] = []
    with hostile(tiny.bundle) as service:

        def say(handler: Any) -> None:
            heads.append({name.lower(): value for name, value in handler.headers.items()})
            config = json.dumps(service.config).encode()
            handler.send_response(200)
            handler.send_header("Set-Cookie", "who=me; Path=/; Max-Age=99999999")
            handler.send_header("Alt-Svc", 'h2="other.example:443"')
            handler.send_header("Content-Length", str(len(config)))
            handler.end_headers()
            handler.wfile.write(config)

        service.lies[CONFIG] = say
        link = Link(service.url, "x")
        for _ in range(3):
            link.get("/config", Config)
    assert heads == [heads[0]] * 3
    assert set(heads[0]) == {"host", "authorization", "accept-encoding"}
    assert heads[0]["accept-encoding"] == "identity"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_token_goes_nowhere_else(tiny: Tiny, status: int, tmp_path: Path) -> None:
    with hostile(tiny.bundle) as other, hostile(tiny.bundle) as service:
        other.lies[("GET", ".*")] = lambda handler: other.sent.append(("GET", "/", b""))
        for place in (f"{other.url}/config", f"//127.0.0.1:{other.server_port}/", "file:///etc/"):
            line = f"HTTP/1.1 {status} Else\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
            service.lies[("GET", ".*")] = said(line.encode())
            with pytest.raises(Refused, match=f"status {status}"):
                Link(service.url, "x").get("/config", Config)
            with pytest.raises(Refused, match=f"status {status}"):
                Link(service.url, "x").download("/part", tmp_path / "part", MIB)
    assert not other.sent


@pytest.mark.parametrize("status", [400, 429, 503])
def test_what_a_service_asks_to_wait(tiny: Tiny, status: int) -> None:
    """Only seconds in digits count; others are one second, where a wait is usual."""
    usual = None if status == 400 else 1.0
    waits = {
        "1e300": usual, "NaN": usual, "inf": usual, "-5": usual, "": usual, "0x10": usual,
        "Wed, 21 Oct 2115 07:28:00 GMT": usual, "9" * 400: LONGEST_WAIT, "0": 0.5, " 7 ": 7,
    }  # fmt: skip
    with hostile(tiny.bundle) as service:
        for text, wait in waits.items():
            line = f"HTTP/1.1 {status} No\r\nRetry-After: {text}\r\nContent-Length: 0\r\n\r\n"
            service.lies[CONFIG] = said(line.encode())
            with pytest.raises(Refused) as caught:
                Link(service.url, "x").fetch("GET", "/config", queue=0.0, limit=MIB)
            assert caught.value.wait == wait, text


@pytest.mark.parametrize(
    "text",
    [
        '{"error": "a", "error": "b"}', '{"error": ' + "[" * 10**5, '{"error": "\\ud800"}',
        '\ufeff{"error": "a"}', '{"error": "a"}{}', '{"error": NaN}',
    ],
    ids=["twice", "deep", "half a character", "a mark", "two", "no number"],
)  # fmt: skip
def test_odd_json_of_a_fault_is_none(tiny: Tiny, text: str) -> None:
    with (
        hostile(tiny.bundle, {CONFIG: (400, text.encode())}) as service,
        pytest.raises(Refused, match="the service answered with status 400"),
    ):
        Link(service.url, "x").get("/config", Config)
