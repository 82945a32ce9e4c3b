"""What a client reads of a service and of its own folder: answers as they come over the network,
what a folder is for, runs that were left, the token; and a bundle's mask.
"""

from __future__ import annotations

import io
import json
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np

from atlasc.loading.client import OWN_MASK, client_model
from atlasc.loading.mask_argument import FORMS, OwnMask
from atlasc.remote import link
from atlasc.remote.programs import chosen_program
from atlasc.remote.runs import left_runs, new_run
from atlasc.remote.trust import RECORD, Record
from atlasc.remote.wire import Config, KeyStatus
from tests.fuzz.reader import Reader
from tests.fuzz.readers.edge.wire import DIGEST, KEY, SAMPLES

URL = "http://127.0.0.1:9"


class _Bytes:
    """A connection on which bytes have arrived; ``cut``: and that takes no more."""

    def __init__(self, content: bytes, cut: bool) -> None:
        self._content, self._cut = io.BytesIO(content), cut

    def makefile(self, *_: object) -> Any:
        return self._content

    def sendall(self, data: Any) -> None:
        if self._cut:
            raise BrokenPipeError("the other side has ended the connection")

    def shutdown(self, how: int) -> None: ...

    def close(self) -> None: ...


def _http(folder: Path) -> list[Path]:
    config = json.dumps(SAMPLES["config"][1]).encode()
    fault = json.dumps(SAMPLES["fault"][1]).encode()
    half = len(config) // 2
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in (config[:half], config[half:]))
    plain = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    key = json.dumps(KEY).encode()
    seeds = {
        "key": plain + b"Content-Length: %d\r\n\r\n" % len(key) + key,
        "config": plain + b"Content-Length: %d\r\n\r\n" % len(config) + config,
        "chunks": plain + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n",
        "close": b"HTTP/1.1 100 Continue\r\n\r\n" + plain + b"Connection: close\r\n\r\n" + config,
        "later": b"HTTP/1.1 429 Too Many\r\nRetry-After: 30\r\n"
        + b"Content-Length: %d\r\n\r\n" % len(fault) + fault,
        "cut": b"HTTP/1.1 401 No\r\nContent-Length: %d\r\n\r\n" % len(fault) + fault,
        "part": b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n0123456789",
    }  # fmt: skip
    for name, content in seeds.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in seeds]


def _answer(path: Path) -> Any:
    service = link.Link(URL, "atlasc_x")
    service._connection.sock = _Bytes(path.read_bytes(), path.name == "cut")  # type: ignore[assignment]
    service._connection.connect = _nobody  # type: ignore[method-assign]
    try:
        if path.name in ("key", "cut"):
            return service.send("POST", "/keys", KeyStatus, b"{}", patience=0.0).model_dump_json()
        if path.name != "part":
            found = service.send("GET", "/config", Config, patience=0.0, queue=0.0)
            return found.model_dump_json()
        with TemporaryDirectory(dir=path.parent.parent) as scratch:
            with patch.multiple(link, PATIENCE=0.0, BUSY=0.0):  # nobody is asked again
                service.download("/part", Path(scratch) / "part", 1000)
            return (Path(scratch) / "part").read_bytes()
    except link.Refused as refused:
        if (path.name, refused.wait) not in (("later", 30), ("cut", None)):
            raise
        return refused.status


def _nobody() -> None:
    raise ConnectionRefusedError("nothing listens there")


def _folders(folder: Path) -> list[Path]:
    record = Record(url=URL, model="tiny", program=DIGEST, target="cpu", signed_by="RWQ=")
    (folder / "service").mkdir()
    (folder / "service" / RECORD).write_text(record.model_dump_json())
    return [folder / "service"]


@cache
def _config() -> Config:
    return Config.model_validate_json(json.dumps(SAMPLES["config"][1]))


def _folder(folder: Path) -> Any:
    facts, record = chosen_program(_config(), folder, URL, None)
    return facts.program, record and (record.target, record.signed_by)


def _runs(folder: Path) -> list[Path]:
    (folder / "open").mkdir()
    with new_run(folder / "open", DIGEST, ["a", "b", "c"], {2: "it is odd"}) as run:
        for number, rows in enumerate(([0], [1])):
            run.begin(f"{number:032x}", rows)
            run.accepted(number, f"{number:032x}")
        run.keep(0, b"answer")
        run.folder.rename(folder / "open" / "run")
    return [folder / "open"]


def _left(folder: Path) -> Any:
    with TemporaryDirectory(dir=folder.parent.parent) as scratch:  # what is no run is removed
        copy = shutil.copytree(folder, Path(scratch) / "open", symlinks=True)
        with left_runs(copy) as runs:
            return [(run.asked.names, run.parts, run.answer(0, 1000)) for run in runs]


def _tokens(folder: Path) -> list[Path]:
    (folder / "token").write_text("atlasc_0123456789abcdef\n")
    return [folder / "token"]


def _token(path: Path) -> Any:
    path.chmod(0o600)
    return link.Link(URL, link.read_token(path))._headers()


def _masks(folder: Path) -> list[Path]:
    found = []
    for place, form in enumerate(FORMS):
        found.append(folder / str(place))
        found[-1].mkdir(parents=True)
        added = form.kind == "added"
        mask = OwnMask(argument="src_key_padding_mask", added=added, kept=form.kept)
        (found[-1] / OWN_MASK).write_text(mask.model_dump_json())
    return found


def _mask(folder: Path) -> Any:
    names = {"x": [2, 3, 4], "attention_mask": [2, 3]}
    inputs: Any = [SimpleNamespace(attributes={"name": n, "shape": s}) for n, s in names.items()]
    known = client_model(inputs, folder).mask
    given = np.eye(2, 3) * (-1e9 if known and known.added else 1)
    return known and (known, known.read(given).tolist())


READERS = [
    Reader("own-mask", _masks, _mask, 2000),
    Reader("http-answer", _http, _answer, 1500),
    Reader("service-folder", _folders, _folder, 300),
    Reader("left-runs", _runs, _left, 500),
    Reader("token", _tokens, _token, 4000),
]
