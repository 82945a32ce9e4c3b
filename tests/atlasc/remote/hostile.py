"""A service that lies: it serves any bundle, says anything, and remembers what it was sent."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.manifest import INTERFACE_FILE, PROGRAM_FILE
from atlasc.runtime.interface import keys_of
from atlasc.targets.key_folders import configuration_of

Lie = Callable[["_Handler"], None] | tuple[int, Any]
"""What a request gets: any bytes, or a status and JSON or bytes."""
ID = "a" * 32
RAW = {
    "nothing": b"",
    "anything": bytes(1000),
    "JSON": b'{"error": "\x1b[2J"}',
    "a header without an end": (2**40).to_bytes(8, "little") + b"{" * 100,
    "a header of nothing": (2).to_bytes(8, "little") + b"{}",
    "an escape": (40).to_bytes(8, "little") + b'{"\x1b[2J": {"dtype": "\x1b[2J"}}'.ljust(40),
}
"""What a service may give for an answer that is none: over the network, or as a file to a client in
C++."""


def forged(
    bundle: Path,
    place: Path,
    edits: Mapping[str, Callable[[str], str]],
    parts: Sequence[str] = ("client",),
) -> Path:
    """Parts of a bundle with changed files, and a manifest that fits them; a file that is not there
    begins empty. Of a program and of an interface the JSON text is changed.
    """
    for part in parts:
        shutil.copytree(bundle / part, place / part)
    manifest = json.loads((bundle / "manifest.json").read_text())
    for name, edit in edits.items():
        path = place / name
        if name == "manifest.json":
            manifest = json.loads(edit(json.dumps(manifest)))
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        inside = name in (INTERFACE_FILE, PROGRAM_FILE)
        before = inner_text(path) if inside else path.read_text() if path.exists() else ""
        after = edit(before)
        assert after != before, f"the edit of {name} changes nothing"
        if inside:
            _write_inner(path, after)
        else:
            path.write_text(after)
    for name in (INTERFACE_FILE, PROGRAM_FILE):
        if (place / name).exists():
            _write_inner(place / name, program=manifest["program"])
    for name in manifest["files"].keys() | edits.keys() - {"manifest.json"}:
        if (place / name).exists():
            manifest["files"][name] = hashlib.sha256((place / name).read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


def inner_text(path: Path) -> str:
    """The JSON text of a program or an interface."""
    return load_file(path)[path.stem].tobytes().decode()


def _write_inner(path: Path, text: str | None = None, **facts: str) -> None:
    """Change the text, with its digest, or facts of the file's header."""
    arrays = load_file(path)
    with safe_open(path, "np") as file:
        known = file.metadata()
    if text is not None:
        arrays[path.stem] = np.frombuffer(text.encode(), np.uint8)
        facts["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    save_file(arrays, path, known | facts)


class Hostile(ThreadingHTTPServer):
    """Answers as a service would, but for its lies.

    Attributes:
        bundle: what it serves.
        lies: method and pattern of a path -> what such a request gets.
        sent: method, path and content of each request that is no GET.
        facts: changes of what it says of the program.
    """

    daemon_threads = True

    def __init__(self, bundle: Path, lies: Mapping[tuple[str, str], Lie], **facts: object) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.bundle, self.lies, self.sent = bundle, dict(lies), list[tuple[str, str, bytes]]()
        self.url, self._facts = f"http://127.0.0.1:{self.server_port}", facts
        self.size = 0

    @property
    def config(self) -> dict[str, Any]:
        content = (self.bundle / "manifest.json").read_bytes()
        manifest = json.loads(content)
        try:
            known = load_bundle(self.bundle, "client")
            plan = keys_of(known.interface)
            configuration = configuration_of(known.target, known.parameters, plan)
        except Exception:  # nobody will make keys of it
            configuration = "0" * 64
        facts = {
            "model": "m", "program": manifest["program"],
            "bundle": hashlib.sha256(content).hexdigest(), "target": manifest["target"],
            "batch": manifest["batch"], "sequence_length": manifest["sequence_length"],
            "configuration": configuration, "query_bytes": 2**30, "answer_bytes": 2**30,
            "key_bytes": 2**30, "seconds": 1.0, **self._facts,
        }  # fmt: skip
        return {
            "atlasc": "0", "chunk_bytes": 2**20, "programs": [facts], "keys": [], "queued": 0,
            "wait_seconds": 0.0,
        }  # fmt: skip

    def key(self, received: int | None = None) -> dict[str, Any]:
        """The status of a key, of which so many bytes arrived; by default all that were sent."""
        new = json.loads(next(body for how, _, body in self.sent if how == "POST"))
        here = sum(len(body) for how, _, body in self.sent if how == "PUT")
        here = here if received is None else received
        told = {"id": new.pop("sha256"), **new, "received": here}
        return {**told, "ready": here >= new["size"]}

    def job(self, **facts: object) -> dict[str, Any]:
        program = self.config["programs"][0]["program"]
        return {
            "id": ID, "state": "done", "program": program, "query": ID, "done": 100, "ahead": 0,
            "wait_seconds": None, "answer_bytes": 1, "fault": None, **facts,
        }  # fmt: skip

    def count(self, path: str) -> int:
        """Requests that are no GET for an address."""
        return sum(bool(re.fullmatch(path, place)) for _, place, _ in self.sent)


class _Handler(BaseHTTPRequestHandler):
    server: Hostile
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        server, path = self.server, self.path.partition("?")[0]
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.command != "GET":
            server.sent.append((self.command, path, body))
        for (method, pattern), lie in server.lies.items():
            if method == self.command and re.fullmatch(pattern, path):
                self.say(*lie) if isinstance(lie, tuple) else lie(self)
                return
        file = re.fullmatch(r"/v2/models/m/versions/[0-9a-f]+/client/(.*)", path)
        if file:
            place = server.bundle / file[1]
            found = place.read_bytes() if place.is_file() else b""
            self.say(200 if found else 404, found or {"error": "no such file"})
        elif path == "/config":
            self.say(200, server.config)
        elif path.startswith("/keys"):
            self.say(200, server.key())
        elif path.endswith("/answer"):
            self.say(200, b"answer")
        else:
            self.say(200, server.job())

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def say(self, status: int, content: Any) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def hostile(
    bundle: Path, lies: Mapping[tuple[str, str], Lie] | None = None, **facts: object
) -> Iterator[Hostile]:
    """A lying service, as long as the context lasts."""
    with Hostile(bundle, lies or {}, **facts) as server:
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server
        server.shutdown()


def endless(piece: bytes, first: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> Lie:
    """Bytes without an end, as slowly as no limit of a single read notices."""

    def lie(handler: _Handler) -> None:
        handler.close_connection = True
        try:
            handler.connection.settimeout(5)
            handler.wfile.write(first)
            while True:
                handler.wfile.write(piece)
                handler.wfile.flush()
                time.sleep(0.05)
        except OSError:
            pass

    return lie
