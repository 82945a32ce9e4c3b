"""What a service and its client read of each other before anything else: the beginning of a file,
and JSON.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atlasc.bundle.sealed import sealed_facts
from atlasc.demo.invitation import Invitation
from atlasc.demo.visit import Asked
from atlasc.generation.record import Record as TextRecord
from atlasc.ir.errors import AtlasError
from atlasc.ir.files import parse_json
from atlasc.remote.trust import Record
from atlasc.remote.wire import Config, Fault, JobStatus, NewKey
from tests.fuzz.reader import Reader

DIGEST = "0123456789abcdef" * 4
PROGRAM = {
    "model": "tiny", "program": DIGEST, "bundle": DIGEST, "target": "cpu", "batch": 2,
    "sequence_length": None, "configuration": DIGEST, "query_bytes": 1000, "answer_bytes": 100,
    "key_bytes": 10000, "seconds": 0.5,
}  # fmt: skip
KEY = {"id": DIGEST, "configuration": DIGEST, "size": 10, "received": 5, "ready": False}
SAMPLES: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "new-key": (NewKey, {"configuration": DIGEST, "size": 10, "sha256": DIGEST}),
    "config": (Config, {"atlasc": "0.1.0", "chunk_bytes": 65536, "programs": [PROGRAM],
                        "keys": [KEY], "queued": 0, "wait_seconds": 0.0}),
    "job": (JobStatus, {"id": "0" * 32, "state": "failed", "program": DIGEST, "query": "1" * 32,
                        "done": 0, "ahead": 3, "wait_seconds": None, "answer_bytes": 0,
                        "fault": {"error": "no", "where": "", "why": "", "remedy": ""}}),
    "folder": (Record, {"url": "https://a.example", "model": "tiny", "program": DIGEST,
                        "target": "cpu", "signed_by": "untrusted comment: minisign\nRWQ=\n"}),
    "text": (TextRecord, {"format": 2, "program": DIGEST, "keys": "0" * 32, "session": "1" * 32,
                          "public": "", "prompt": 2, "ids": [1, 2, 3], "prefill": True, "done": 2,
                          "sampling": {"temperature": 1.0, "top_k": 3, "seed": 5}, "steps": 32}),
    "asked": (Asked, {"image": "AAAA", "drawing": True, "texts": ["a", "b"]}),
    "invitation": (Invitation, {"token": "atlasc_0", "seconds": 7200.0}),
    "fault": (Fault, {"error": "the query is damaged", "why": "it is", "remedy": "send it again"}),
}  # fmt: skip


def _heads(folder: Path) -> list[Path]:
    header = json.dumps({"__metadata__": {"kind": "query", "program": DIGEST}, "x": {}}).encode()
    (folder / "head").write_bytes(len(header).to_bytes(8, "little") + header + b"content")
    return [folder / "head"]


def _objects(folder: Path) -> list[Path]:
    for name, (_, sample) in SAMPLES.items():
        (folder / f"{name}.json").write_text(json.dumps(sample))
    return [folder / f"{name}.json" for name in SAMPLES]


def _object(path: Path) -> Any:
    schema, _ = SAMPLES[path.stem if path.stem in SAMPLES else "fault"]
    try:
        return parse_json(path.read_bytes(), schema)
    except ValueError as error:  # as requests.json_body, Link.send and demo.local turn it
        raise AtlasError("the request is not what is expected here", why=str(error)) from None


READERS = [
    Reader("sealed-head", _heads, lambda path: sealed_facts(path.read_bytes()), 5000),
    Reader("service-json", _objects, _object, 5000),
]
