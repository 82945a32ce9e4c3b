"""A service in a process of its own, over loopback, and plain requests to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from atlasc.service.store import Store
from atlasc.service.tokens import DEFAULT_SCOPES, add_token

ROOT = Path(__file__).resolve().parents[3]
SECONDS = 120.0
"""No test waits longer for anything."""


class Answer:
    """Status, headers and content of an answer."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.content = answer.status, answer.read()
        self.headers = {name.lower(): value for name, value in answer.getheaders()}

    @property
    def json(self) -> Any:
        return json.loads(self.content)


class Running:
    """``atlasc serve``; it ends with the test.

    Attributes:
        state: its folder.
        url: its address.
        log: the lines on its standard error.
        program: what Python runs.
    """

    program: tuple[str, ...] = ("-m", "atlasc")

    def __init__(
        self, state: Path, *arguments: object, port: int = 0, checked: bool = True
    ) -> None:
        """Start it; ``checked``: wait until it is healthy, without TLS."""
        self.state, self._arguments, self._checked = state, arguments, checked
        self.log_path = state.with_name(state.name + ".log")
        self.start(port)

    def start(self, port: int = 0) -> None:
        """Start, or start again."""
        words = ["serve", *self._arguments, "--state", self.state, "--port", port]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self.program, *map(str, words)],
                cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE,
                stderr=log, text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first.startswith("serving at "), self.log_path.read_text()
        self.url = first.split()[-1]
        if self._checked:
            until(lambda: self.call("GET", "/v2/health/live").status == 200)

    @property
    def port(self) -> int:
        return urlsplit(self.url).port or 0

    def kill(self) -> None:
        """SIGKILL, as the kernel does where memory runs out."""
        self.process.kill()
        self.process.wait()

    def end_without_a_fault(self) -> None:
        """Kill it; its log must name no fault of its own."""
        text = self.log_path.read_text()
        self.kill()
        assert "internal error" not in text and "Traceback" not in text

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)

    def token(self, tenant: str, *scopes: str, days: float | None = None) -> str:
        store = Store(self.state)
        try:
            return add_token(store, tenant, scopes or DEFAULT_SCOPES, days)
        finally:
            store.close()

    def call(
        self, method: str, path: str, token: str = "", body: bytes | None = None, **headers: str
    ) -> Answer:
        """One request; underscores of header names stand for hyphens."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        if token:
            told["Authorization"] = f"Bearer {token}"
        try:
            connection.request(method, path, body, told)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = self.log_path.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


def raw(service: Running, *sends: bytes, source: str = "127.0.0.1") -> socket.socket:
    """A connection over which some bytes were sent."""
    made = socket.create_connection(("127.0.0.1", service.port), 20, (source, 0))
    for one in sends:
        made.sendall(one)
    return made


def status(connection: socket.socket) -> int:
    """The status of the next answer; 0 if the connection ends without one."""
    try:
        line = connection.makefile("rb").readline()
    except OSError:
        return 0
    return int(line.split()[1]) if line else 0


def head(method: str, path: str, *lines: str) -> bytes:
    """The head of a request, whose characters are bytes."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: a", *lines, "", "")).encode("latin-1")


def until(condition: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait for something that must happen."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
