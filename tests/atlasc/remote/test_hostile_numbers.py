"""Numbers that a service states: none of them is a fault of its client, takes its memory, or holds
it for long.
"""

from __future__ import annotations

import json
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, whole_number
from atlasc.remote.connection import ROUNDS
from atlasc.remote.link import LONGEST_WAIT, Link
from atlasc.remote.wire import Config
from tests.atlasc.remote.hostile import Lie, hostile
from tests.atlasc.service.edge.test_odd_requests import ODD

CONFIG, FLOOD = ("GET", "/config"), 200 * MIB


def said(content: bytes) -> Lie:
    """An answer, and the end of the connection."""

    def lie(handler: Any) -> None:
        handler.close_connection = True
        handler.wfile.write(content)

    return lie


def flood(first: bytes) -> Lie:
    """Much that comes quickly after a first piece."""

    def lie(handler: Any) -> None:
        handler.close_connection = True
        with suppress(OSError):
            handler.wfile.write(first)
            for _ in range(FLOOD // MIB):
                handler.wfile.write(b"x" * MIB)

    return lie


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("-1", "cannot be reached"), ("-ffffffff", "cannot be reached"), ("f" * 9999, "too large"),
        ("\xb2", "cannot be reached"), ("", "cannot be reached"), ("7fffffffffffffff", "too large"),
        ("5_0", "cannot be reached"),
    ],
    ids=lambda one: ascii(one[:9]),
)  # fmt: skip
def test_sizes_of_chunks(tiny: Tiny, size: str, words: str) -> None:
    """``read`` of the standard library takes a chunk of -1 bytes for all that comes."""
    first = f"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n".encode("latin-1")
    with hostile(tiny.bundle, {CONFIG: flood(first)}) as service:
        tracemalloc.start()
        with pytest.raises(AtlasError, match=words):
            Link(service.url, "x").get("/config", Config, patience=0.0)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert most < FLOOD / 2


@pytest.mark.parametrize("name", ["Content-Length", "Retry-After"])
def test_numbers_in_headers(tiny: Tiny, name: str) -> None:
    with hostile(tiny.bundle) as service:
        for text in ODD:
            lines = f"HTTP/1.1 400 Bad\r\n{name}: {text}\r\nConnection: close\r\n\r\n{{"
            content = lines.encode("latin-1", "replace")
            service.lies[CONFIG] = said(content)
            with pytest.raises(AtlasError) as caught:
                Link(service.url, "x").fetch("GET", "/config", patience=0.0, queue=0.0, limit=MIB)
            wait = getattr(caught.value, "wait", None)
            number = whole_number(text.strip()) if name == "Retry-After" else None
            expected = None if number is None else min(max(number, 0.5), LONGEST_WAIT)
            assert wait == expected, text


@pytest.mark.parametrize("name", ["chunk_bytes", "queued", "wait_seconds", "batch", "answer_bytes"])
def test_numbers_in_json(tiny: Tiny, name: str) -> None:
    with hostile(tiny.bundle) as service:
        config = service.config
        place = config if name in config else config["programs"][0]
        place[name] = "HERE"
        text = json.dumps(config)
        for number in ("9" * 5000, "1e999", "-1", "NaN", "true", '"5"'):
            service.lies[CONFIG] = (200, text.replace('"HERE"', number).encode())
            with pytest.raises(AtlasError, match="is not understood"):
                Link(service.url, "x").get("/config", Config)


def test_json_of_many_values(tiny: Tiny) -> None:
    """Five million objects took 10 GiB, and a minute (tests/ir/test_json_values.py)."""
    content = b'{"programs":[{}' + b",{}" * 5_000_000 + b"]}"
    with hostile(tiny.bundle, {CONFIG: (200, content)}) as service:
        with pytest.raises(AtlasError, match="more than 50,000 values"):
            Link(service.url, "x").get("/config", Config)
        service.lies[CONFIG] = (400, content)
        with pytest.raises(AtlasError, match="status 400"):
            Link(service.url, "x").get("/config", Config)


def test_a_service_that_always_has_jobs(tiny: Tiny, tmp_path: Path) -> None:
    """Each of another name: it would be asked to delete them for ever."""
    with hostile(tiny.bundle) as service:

        def jobs(handler: Any) -> None:
            number = service.count("/jobs/.*")
            handler.say(200, [service.job(id=f"{number:032x}", state="running")])

        service.lies[("GET", "/jobs")] = jobs
        with (
            atlasc.connect(
                service.url, token="x", folder=tmp_path, allow_simulation=True,
                note=lambda *_: None,
            ) as connection,
            pytest.raises(AtlasError, match="each time that they were deleted"),
        ):  # fmt: skip
            connection.forget()
    assert service.count("/jobs/.*") == ROUNDS
