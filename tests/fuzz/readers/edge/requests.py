"""Requests to a service, of a tenant who has a token, through the whole application; its audit, and
its database.

A request is JSON with its parts, so that the fuzzer changes them one by one. Whatever it says, the
service does not fail (status 500).
"""

from __future__ import annotations

import asyncio
import atexit
import base64
import hashlib
import json
import logging
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from atlasc.api.roles import make_keys
from atlasc.bundle.folder import load_bundle
from atlasc.demo.welcome import Demonstration
from atlasc.ir.files import MIB, Schema, read_json
from atlasc.service.app import make_app
from atlasc.service.edge.door import Place
from atlasc.service.edge.gate import Gate
from atlasc.service.edge.protocol import PLACE
from atlasc.service.edge.rates import Rates
from atlasc.service.jobs import Jobs, Limits
from atlasc.service.programs import Programs
from atlasc.service.records.audit import AUDIT, Audit
from atlasc.service.records.housekeeping import Rules
from atlasc.service.requests import Service
from atlasc.service.runner import Runner
from atlasc.service.store import DATABASE, Store
from atlasc.service.telemetry import Metrics
from atlasc.service.tokens import add_token
from atlasc.service.uploads import Uploads
from tests.fuzz.reader import Reader
from tests.fuzz.readers.messages import message
from tests.fuzz.seeds import compiled

ENDLESS = 1e9
"""Requests a second that are allowed."""


class Sent(Schema):
    """A request; texts stand for bytes of the same numbers."""

    method: str
    path: str
    query: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    body: str = ""


class _Place:
    """A service of the tiny model without a worker, in a folder of its own."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)
        self.folder = Path(tempfile.mkdtemp(prefix="atlasc-fuzz-service-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        store = Store(self.folder / "state")
        scopes = ("infer", "keys", "metrics")
        self.token = add_token(store, "acme", scopes)
        programs = Programs([compiled() / "tiny" / "bundle"])
        (self.served,) = programs
        limits, metrics = Limits(10, 10, 2**26, 60.0), Metrics()
        jobs = Jobs(store, programs, limits)
        service = Service(
            store, programs, Uploads.of(store, programs, limits.quota), jobs,
            Runner(store, jobs, metrics, [], Rules()), metrics, Rates(ENDLESS), 0.01,
        )  # fmt: skip
        self.app = make_app(service, 0.0, [Demonstration(secure=False).router(service)])
        assert isinstance(self.app, Gate)
        self.app._of_address, self.app._of_all = Rates(ENDLESS), Rates(ENDLESS)

    def status(self, sent: Sent) -> tuple[int, bytes]:
        """What the application answers."""
        found: dict[str, Any] = {"status": 0, "body": b""}
        parts = [{"type": "http.request", "body": _bytes(sent.body), "more_body": False}]

        async def receive() -> dict[str, Any]:
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(told: Any) -> None:
            found["status"] = told.get("status", found["status"])
            found["body"] += told.get("body", b"")

        token = sent.headers.get("authorization", f"Bearer {self.token}")
        headers = {**sent.headers, "authorization": token}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http",
            "method": sent.method, "path": sent.path, "raw_path": _bytes(sent.path),
            "query_string": _bytes(sent.query), "root_path": "", "client": ("127.0.0.1", 9),
            "server": ("127.0.0.1", 8000), "state": {PLACE: Place(None, "127.0.0.1", 0.0, 0.0)},  # type: ignore[arg-type]
            "headers": [(_bytes(name.lower()), _bytes(one)) for name, one in headers.items()],
        }  # fmt: skip
        asyncio.run(self.app(scope, receive, send))
        return found["status"], found["body"]


@cache
def _place() -> _Place:
    return _Place()


def _bytes(text: str) -> bytes:
    """Characters as bytes of the same numbers; what is no byte is a question mark."""
    return text.encode("latin-1", "replace")


def _requests(folder: Path) -> list[Path]:
    place, program = _place(), _place().served.program
    bundle = load_bundle(compiled() / "tiny" / "bundle")
    make_keys(bundle, place.folder / "keys")
    keys = (place.folder / "keys" / "server" / "evaluation.key").read_bytes()
    name = hashlib.sha256(keys).hexdigest()
    new = {"configuration": place.served.configuration, "size": len(keys), "sha256": name}
    half = len(keys) // 2
    query = message("query", bundle, 1).to_bytes()
    asked = json.dumps({
        "id": "q", "parameters": {"keys": name}, "outputs": [],
        "inputs": [{"name": "query", "datatype": "UINT8", "shape": [len(query)],
                    "parameters": {"binary_data_size": len(query)}}],
    })  # fmt: skip
    model = f"/v2/models/{place.served.model}"
    infer = {"inference-header-content-length": str(len(asked))}
    seeds = {
        "config": Sent(method="GET", path="/config"),
        "announce": Sent(method="POST", path="/keys", body=json.dumps(new)),
        "chunk": _chunk(name, 0, keys[:half]),
        "rest": _chunk(name, half, keys[half:]),
        "job": Sent(
            method="POST", path="/jobs", query=f"keys={name}&program={program}",
            body=query.decode("latin-1"),
        ),
        "infer": Sent(
            method="POST", path=f"{model}/infer", body=asked + query.decode("latin-1"),
            headers=infer,
        ),
        "answer": Sent(method="GET", path=f"/jobs/{'0' * 32}/answer"),
        "cancel": Sent(method="DELETE", path=f"/jobs/{'0' * 32}"),
        "part": Sent(method="GET", path=f"{model}/versions/{program}/client/client/embed.air"),
        **{
            f"get{number}": Sent(method="GET", path=path)
            for number, path in enumerate((
                "/keys", f"/keys/{name}", "/jobs", f"/jobs/{'0' * 32}", "/metrics", "/v2", model,
                "/v2/health/live", "/v2/health/ready", f"{model}/ready",
            ))
        },
        "front": Sent(method="GET", path="/", headers={"host": "a.example"}),
        "visitor": Sent(method="POST", path="/demo/visitors"),
        "delete": Sent(method="DELETE", path=f"/keys/{name}"),
    }  # fmt: skip
    for kind, sent in seeds.items():
        (folder / f"{kind}.json").write_text(sent.model_dump_json())
    return [folder / f"{kind}.json" for kind in seeds]


def _chunk(name: str, offset: int, content: bytes) -> Sent:
    digest = base64.b64encode(hashlib.sha256(content).digest()).decode()
    return Sent(
        method="PUT", path=f"/keys/{name}", query=f"offset={offset}",
        body=content.decode("latin-1"),
        headers={"content-digest": f"sha-256=:{digest}:", "content-length": str(len(content))},
    )  # fmt: skip


def _requested(path: Path) -> Any:
    sent = read_json(path, Sent, "the request", MIB)
    status, content = _place().status(sent)
    if status in (0, 500):
        raise RuntimeError(f"{sent.method} {sent.path}: status {status}: {content[:200]!r}")
    return status


def _audits(folder: Path) -> list[Path]:
    (folder / "state").mkdir()
    audit = Audit(folder / "state")
    for number in range(3):
        audit.note("key added", "tenant acme", key=f"{number:064x}")
    return [folder / "state" / AUDIT]


def _audited(path: Path) -> Any:
    found = Audit(path.parent)
    found.path = path
    return found.faults()


def _states(folder: Path) -> list[Path]:
    store = Store(folder / "state")
    add_token(store, "acme", ("infer",))
    store.close()
    return [folder / "state"]


def _state(folder: Path) -> Any:
    with tempfile.TemporaryDirectory(dir=folder.parent.parent) as scratch:  # SQLite writes
        copy = Path(shutil.copytree(folder, Path(scratch) / "state", symlinks=True))
        copy.chmod(0o700)
        if (copy / DATABASE).exists() and not (copy / DATABASE).is_symlink():
            (copy / DATABASE).chmod(0o600)
        Store(copy).close()
    return None


READERS = [
    Reader("request", _requests, _requested, 300),
    Reader("audit", _audits, _audited, 4000),
    Reader("service-state", _states, _state, 500),
]
