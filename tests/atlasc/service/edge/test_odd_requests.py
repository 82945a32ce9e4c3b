"""Requests that no client of ours sends: each is refused as what it is, and never a fault."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tiny_model import Tiny

from atlasc.ir.files import LARGEST_COUNT, whole_number
from atlasc.service.edge.gate import MAX_QUERY
from atlasc.service.edge.protocol import LINES
from tests.atlasc.service.running import Running, head, raw, status
from tests.atlasc.service.test_endpoints import digest

ODD = {
    "": None, "0": 0, "007": 7, "42": 42, str(2**53): 2**53, "9" * 5000: LARGEST_COUNT,
    "0" * 5000: 0, "0" * 5000 + "8": 8, "-1": None, "+5": None, " 5": None, "5 ": None,
    "1_0": None, "1e3": None, "5.0": None, "0x10": None, "nan": None, "inf": None,
    "\u00b2": None, "\u0663": None, "5\n": None, "5\0": None,
}  # fmt: skip
"""A number as a stranger writes it -> the number that it is."""


def test_a_number_is_ascii_digits_and_has_a_limit() -> None:
    assert {text: whole_number(text) for text in ODD} == ODD


@pytest.fixture(scope="module")
def service(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(
        tmp_path_factory.mktemp("odd") / "state", tiny.bundle, "--demo", "--rate", 10_000
    )
    yield found
    found.end_without_a_fault()


@pytest.fixture(scope="module")
def token(service: Running) -> str:
    return f"Authorization: Bearer {service.token('odd')}"


def answered(service: Running, request: bytes) -> int:
    with raw(service, request) as connection:
        return status(connection)


def written(text: str) -> bool:
    """Whether a text can stand in a header."""
    return text.isprintable() and all(ord(one) < 256 for one in text)


def test_numbers_in_headers(service: Running, token: str, served: Any) -> None:
    """The service's own header, and the length of a body, which the HTTP server reads."""
    infer, body = f"/v2/models/{served.model}/infer", b"{" * 50
    for text in filter(written, ODD):
        line = f"Inference-Header-Content-Length: {text}"
        request = head("POST", infer, token, line, "Content-Length: 50")
        assert answered(service, request + body) == 400, text
        request = head("POST", "/keys", token, f"Content-Length: {text}")
        assert answered(service, request + body) in (400, 413), text


def test_numbers_in_addresses(service: Running, token: str) -> None:
    lines = (token, "Content-Length: 1", f"Content-Digest: {digest(b'x')}")
    for text, number in ODD.items():
        if len(text) < MAX_QUERY - 20:
            request = head("PUT", f"/keys/{'a' * 64}?offset={quote(text)}", *lines)
            assert answered(service, request + b"x") == (400 if number is None else 404), text


@pytest.mark.parametrize(
    "value",
    ["sha-256=:\xe9\xe9:", "sha-256=:=:", "sha-256=:AAAA:", "\xb2", "sha-256=" + "A" * 9999],
)
def test_a_digest_of_any_bytes(service: Running, token: str, value: str) -> None:
    lines = (token, "Content-Length: 1", f"Content-Digest: {value}")
    assert answered(service, head("PUT", f"/keys/{'a' * 64}?offset=0", *lines) + b"x") == 400


def test_heads_of_many_lines(service: Running, token: str) -> None:
    """Each line takes some microseconds, and there are four thousand in 16 KiB."""
    for lines, expected in ((LINES - 5, 200), (LINES + 5, 400), (3900, 400)):
        for path in ("/config", "/v2/health/live"):
            assert answered(service, head("GET", path, token, *["a:"] * lines)) == expected
    unfinished = head("GET", "/config", token, *["a:"] * 3900)[:-2]
    assert answered(service, unfinished) == 400  # not only once it has come whole
    together = head("GET", "/config", token) * (LINES // 2)
    assert answered(service, together) == 200  # heads one after the other are not one


def test_long_addresses(service: Running, token: str) -> None:
    assert answered(service, head("GET", f"/config?{'a' * MAX_QUERY}", token)) == 200
    for more in ("a=b&" * 3500, "a" * (MAX_QUERY + 1)):
        assert answered(service, head("POST", f"/jobs?{more}", token, "Content-Length: 0")) == 414
        assert answered(service, head("GET", f"/?{more}")) == 414


@pytest.mark.parametrize("lines", [("Content-Length: 3",), ("Content-Length: 10",)])
def test_a_body_has_one_length(service: Running, token: str, lines: tuple[str, ...]) -> None:
    """A proxy in front may believe the other one, and see another request in the rest."""
    body = b"5\r\nhello\r\n0\r\n\r\n"
    chunked = "Transfer-Encoding: chunked"
    with raw(service, head("POST", "/keys", token, chunked, *lines) + body) as one:
        answer = one.makefile("rb").read()  # the connection ends
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
    old = head("POST", "/keys", token, chunked).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert answered(service, old + body) == 400


def test_nothing_leads_elsewhere(service: Running, token: str) -> None:
    """A redirection would be to the host that the request names."""
    for path in ("/config/", "/keys/", "/jobs/", "//evil.example/config"):
        with raw(
            service, head("GET", path, token).replace(b"Host: a", b"Host: evil.example")
        ) as one:
            lines = one.makefile("rb")
            assert b" 404 " in lines.readline()


def test_health_is_read(service: Running) -> None:
    """With another method it is a request like any other."""
    for method, expected in (("GET", 200), ("HEAD", 200), ("CONNECT", 401), ("POST", 401)):
        assert answered(service, head(method, "/v2/health/live")) == expected


NAMES = (
    "%00", "%ED%A0%80", "..", "%2e%2e", "%2f..%2f..%2fetc%2fpasswd", "%zz", "%ff", "a" * 9999,
    "..%5c", "%F0%9F%98%80", "%E2%80%AE", "%0d%0aX:%20y",
)  # fmt: skip


def test_names_of_anything(service: Running, token: str, served: Any) -> None:
    """No name of keys, a job, a model, a version or a file is more than a name."""
    model, version = served.model, served.program
    for name in NAMES:
        for method, path in (
            ("GET", f"/keys/{name}"), ("DELETE", f"/keys/{name}"), ("GET", f"/jobs/{name}"),
            ("PUT", f"/keys/{name}?offset=0"), ("GET", f"/jobs/{name}/answer"),
            ("DELETE", f"/jobs/{name}"), ("POST", f"/jobs?keys={name[:99]}&program={name[:99]}"),
            ("GET", f"/v2/models/{name}"), ("POST", f"/v2/models/{name}/infer"),
            ("GET", f"/v2/models/{model}/versions/{name}"), ("GET", f"/{name}"),
            ("GET", f"/v2/models/{model}/versions/{version}/client/{name}"),
            ("GET", f"/v2/models/{model}/versions/{version}/client/client/{name}"),
        ):  # fmt: skip
            found = answered(service, head(method, path, token, "Content-Length: 0"))
            assert found in (400, 404, 405, 409, 414), (method, path[:60])


def test_other_protocols_and_packed_bodies(service: Running, token: str) -> None:
    """An upgrade is not made, a packed body is not unpacked, and an announced one is asked for."""
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13")
    for request, expected in (
        (head("GET", "/config", token, *upgrade), 200),
        (head("GET", "/config", *upgrade), 401),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 401),
        (b"GET /config\r\n\r\n", 400),
        (head("OPTIONS", "*"), 401),
        (head("POST", "/keys", token, "Content-Encoding: gzip", "Content-Length: 2") + b"{}", 400),
        (head("POST", "/keys", token, "Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 400),
        (head("POST", "/keys", token, "Expect: 100-continue", "Content-Length: 5"), 100),
        (head("POST", "/keys", token, "Expect: 100-continue", "Content-Length: 99999999"), 413),
        (head("POST", "/keys", "Expect: 100-continue", "Content-Length: 5"), 401),
    ):
        assert answered(service, request) == expected, request[:60]


@pytest.mark.parametrize("path", ["/keys", "/v2/models/MODEL/infer"])
def test_json_of_many_values(service: Running, served: Any, path: str) -> None:
    """What is wrong with each of 21,800 objects held the service for 0.2 s and took 69 MiB."""
    body = b'{"inputs":[{}' + b",{}" * 21_800 + b"]}"
    told = {"Inference_Header_Content_Length": str(len(body))}
    token, path = service.token("values"), path.replace("MODEL", served.model)
    answer = service.call("POST", path, token, body, **told)
    assert answer.status == 400 and "more than 256 values" in answer.json["why"]
