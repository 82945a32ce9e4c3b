"""A service behind nginx, which has the TLS, by the configuration that docs/deploy.md shows."""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB
from atlasc.remote.link import Link
from atlasc.remote.wire import Config
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import ROOT, SECONDS, Answer, Running, head, status, until
from tests.atlasc.service.test_client import certificate

pytestmark = [
    pytest.mark.deep("faults"),
    pytest.mark.skipif(
        shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light"
    ),
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
]
CONFIGURATION = ROOT / "packaging" / "nginx" / "atlasc.conf"
MAIN = """daemon off; pid {0}/pid; error_log {0}/error.log; worker_processes 1;
worker_rlimit_nofile 20000;
events {{ worker_connections 8192; }}
http {{
    client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;
    uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;
    include {0}/atlasc.conf;
}}
"""
SLOWEST = 2.0
"""Seconds of a health check, on a machine on which other tests run."""
WAITING = 600
"""Connections that wait: more than twice the places of the service."""


@dataclass(frozen=True)
class Proxied:
    """A service and the proxy in front.

    Attributes:
        port: of the proxy.
        folder: of the proxy's files.
    """

    service: Running
    port: int
    certificate: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def connect(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        """A connection whose handshake is over."""
        plain = socket.create_connection(("127.0.0.1", self.port), 20, (source, 0))
        context = ssl.create_default_context(cafile=self.certificate)
        return context.wrap_socket(plain, server_hostname="127.0.0.1")

    def call(
        self, method: str, path: str, token: str = "", body: object = None,
        source: str = "127.0.0.1", **headers: str,
    ) -> Answer:  # fmt: skip
        """One request; underscores of header names stand for hyphens."""
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=SECONDS, source_address=(source, 0),
            context=ssl.create_default_context(cafile=self.certificate),
        )  # fmt: skip
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(
                method, path, body, told | ({"Authorization": f"Bearer {token}"} if token else {})
            )
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def healthy(self) -> bool:
        with suppress(OSError, http.client.HTTPException):
            return self.call("GET", "/v2/health/live").status == 200
        return False


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def proxied(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    folder = tmp_path_factory.mktemp("proxy")
    cert, key = certificate(folder)
    options = ("--demo", "--proxy", "127.0.0.1", "--plain-http")
    service = Running(folder / "state", tiny.bundle, *options)
    port = free_port()
    text = CONFIGURATION.read_text()
    for before, after in (
        ("listen 443 ", f"listen 127.0.0.1:{port} "),
        ("127.0.0.1:8000", f"127.0.0.1:{service.port}"),
        ("/etc/nginx/atlasc/cert.pem", str(cert)), ("/etc/nginx/atlasc/key.pem", str(key)),
    ):  # fmt: skip
        assert before in text
        text = text.replace(before, after)
    (folder / "atlasc.conf").write_text(text)
    (folder / "nginx.conf").write_text(MAIN.format(folder))
    words = ["nginx", "-p", str(folder), "-e", str(folder / "error.log")]
    process = subprocess.Popen([*words, "-c", str(folder / "nginx.conf")])
    found = Proxied(service, port, cert, folder)
    try:
        until(found.healthy, 30)
        yield found
    finally:
        process.terminate()
        process.wait()
        service.end_without_a_fault()


def test_a_client_uploads_asks_and_fetches(proxied: Proxied, party: Party, tmp_path: Path) -> None:
    token = proxied.service.token("acme")
    with atlasc.connect(
        proxied.url, token=token, folder=tmp_path / "folder", authority=proxied.certificate,
        allow_simulation=True, note=lambda *_: None,
    ) as connection:  # fmt: skip
        found = connection.query(party.pixels[:3])
        assert np.isfinite(found.outputs["output"]).all() and not found.lost
        assert connection.fetch() is None
        assert connection.forget()[1] == 1


def test_what_the_service_says_arrives(proxied: Proxied) -> None:
    """Health, figures, and refusals with their reasons."""
    assert proxied.call("GET", "/v2/health/ready").json == {"ready": True}
    assert proxied.call("HEAD", "/v2/health/live").status == 200
    assert "remedy" in proxied.call("GET", "/config").json
    assert proxied.call("GET", "/metrics").status == 401
    watcher = proxied.service.token("watch", "metrics")
    assert b"atlasc_" in proxied.call("GET", "/metrics", watcher).content
    token = proxied.service.token("asker")
    assert proxied.call("GET", "/nothing", token).status == 404
    assert proxied.call("GET", "/jobs/a%2Fb", token).json["error"]
    assert f"{proxied.url}" in proxied.call("GET", "/").content.decode()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_long_body_without_a_token_is_refused_and_not_kept(
    proxied: Proxied, chunked: bool
) -> None:
    """The reason arrives, not the proxy's own 502, for which a client would wait."""
    for _ in range(5):
        content = bytes(32 * MIB)
        body = (
            (content[at : at + MIB] for at in range(0, len(content), MIB)) if chunked else content
        )
        with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):
            assert proxied.call("PUT", "/keys/a", "atlasc_x", body).status == 401
    assert not [one for one in (proxied.folder / "body").rglob("*") if one.is_file()]


def test_sizes_are_judged_by_the_service(proxied: Proxied) -> None:
    token = proxied.service.token("sizes")
    answer = proxied.call("POST", "/jobs", token, bytes(20 * MIB))
    assert answer.status in (400, 404, 409, 413) and answer.json["error"]


def test_addresses_are_those_of_the_clients(proxied: Proxied) -> None:
    """A visitor has few tokens; what a stranger says of the address counts for nothing."""

    def visit(source: str, **headers: str) -> int:
        return proxied.call("POST", "/demo/visitors", source=source, **headers).status

    mine = [
        visit("127.0.0.5", X_Forwarded_For=f"192.0.2.{n}", Forwarded=f"for=192.0.2.{n}",
              X_Real_IP=f"192.0.2.{n}")
        for n in range(4)
    ]  # fmt: skip
    assert mine.count(201) <= 3 and mine[-1] == 429
    assert visit("127.0.0.6") == 201


def test_heads_that_do_not_end_and_connections_that_idle(
    proxied: Proxied, party: Party, tmp_path: Path
) -> None:
    """They stay at the proxy: nobody is locked out, and they end however their bytes come."""
    token = proxied.service.token("patient")
    with ExitStack() as stack:
        sources = [f"127.0.0.{2 + number % 6}" for number in range(WAITING)]
        idle = [stack.enter_context(proxied.connect(source)) for source in sources]
        began, heads = time.monotonic(), idle[::2]
        for one in heads:
            one.sendall(b"GET /config HTTP/1.1\r\nHost: a\r\nX: ")
        for number in range(20):
            started = time.monotonic()
            assert proxied.healthy() and time.monotonic() - started < SLOWEST
            with suppress(OSError):
                heads[number % 2].sendall(b"a")
        with atlasc.connect(
            proxied.url, token=token, folder=tmp_path / "folder", authority=proxied.certificate,
            allow_simulation=True, note=lambda *_: None,
        ) as connection:  # fmt: skip
            connection.query(party.pixels[:2])
        for one in idle:
            one.settimeout(0.5)
            while not _ended(one):
                assert time.monotonic() - began < 40
                with suppress(OSError):
                    one.sendall(b"a")


def _ended(connection: ssl.SSLSocket) -> bool:
    """Whether the other side has ended a connection; waits half a second for it."""
    try:
        return connection.recv(4096) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_bodies_that_do_not_end(proxied: Proxied) -> None:
    """Of a stranger, who is refused before it comes."""
    with ExitStack() as stack:
        for number in range(WAITING // 2):
            one = stack.enter_context(proxied.connect(f"127.0.0.{2 + number % 6}"))
            one.sendall(head("POST", "/jobs", "Content-Length: 1000000") + b"x")
            assert number % 50 or status(one) in (401, 429)
        started = time.monotonic()
        assert proxied.healthy() and time.monotonic() - started < SLOWEST


def test_an_address_has_a_share(proxied: Proxied) -> None:
    """Of requests a second; health is no part of it, and other addresses have their own."""
    text = b""
    with proxied.connect("127.0.0.9") as one:
        one.settimeout(20)
        one.sendall(head("GET", "/config") * 600)
        while b"HTTP/1.1 429" not in text and (piece := one.recv(1 << 16)):
            text += piece
    assert b"HTTP/1.1 429" in text
    assert proxied.call("GET", "/v2/health/live", source="127.0.0.9").status == 200
    assert proxied.call("GET", "/config", source="127.0.0.8").status == 401


def test_a_service_that_is_away(proxied: Proxied) -> None:
    """The proxy's own page is a reason to ask again, and is not shown."""
    token, port = proxied.service.token("later"), proxied.service.port
    proxied.service.kill()
    with pytest.raises(AtlasError, match="status 502") as caught:
        Link(proxied.url, token, proxied.certificate).send("GET", "/config", Config, queue=0.0)
    assert caught.value.wait == 1.0 and "<" not in str(caught.value)  # type: ignore[attr-defined]
    proxied.service.start(port)
    assert proxied.call("GET", "/config", token).status == 200


def test_the_log_of_the_proxy_stays_small(proxied: Proxied) -> None:
    """After all attacks of this file."""
    assert sum(one.stat().st_size for one in proxied.folder.glob("*.log")) < MIB


def test_the_page_shows_the_files() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    for file in sorted((ROOT / "packaging" / "nginx").iterdir()):
        assert f"```text\n{file.read_text()}```\n" in page, file.name
