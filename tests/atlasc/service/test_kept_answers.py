"""An answer that was computed is never lost: to a limit, a kill, a fault, or a full disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_model import Tiny

import atlasc
from atlasc.bundle.messages import Message
from atlasc.remote.connection import Connection
from atlasc.remote.link import Link, Refused
from benchmarks.service.lost import lost
from tests.atlasc.cli.command import Outcome, refused, run
from tests.atlasc.service.conftest import Party
from tests.atlasc.service.running import ROOT, Running, until
from tests.atlasc.service.test_endpoints import wait

pytestmark = pytest.mark.filterwarnings("ignore:the target sim is a simulation")


@pytest.fixture
def words(tiny: Tiny, tmp_path: Path) -> Callable[..., list[object]]:
    """The words of ``atlasc query``."""

    def words(service: Running, *more: object, count: int = 0) -> list[object]:
        token = tmp_path / "token"
        if not token.exists():
            token.write_text(service.token("acme"))
            token.chmod(0o600)
        asked = ["--input", tiny.data, "--count", count] if count else []
        given = ["query", service.url, "--allow-simulation", *asked, "--token-file", token]
        return [*given, "--folder", tmp_path / "folder", *more]

    return words


@pytest.fixture
def expected(party: Party) -> np.ndarray:
    return atlasc.load(party.bundle).run(party.pixels).outputs["output"]


def connected(service: Running, folder: Path) -> Connection:
    """A client of a tenant, whose files lie in a folder of the folder."""
    return atlasc.connect(
        service.url, token=service.token("acme"), folder=folder / "folder", allow_simulation=True
    )


def outputs(path: Path) -> np.ndarray:
    with np.load(path) as file:
        return np.array(file["output"])


@pytest.mark.parametrize("count", [6, pytest.param(12, marks=pytest.mark.deep("faults"))])
def test_a_low_rate_delays_answers_and_loses_none(
    start: Callable[..., Running], words: Any, expected: np.ndarray, tmp_path: Path, count: int
) -> None:
    service = start("--rate", 5)
    run(*words(service, "-o", tmp_path / "found.npz", count=count))
    np.testing.assert_allclose(outputs(tmp_path / "found.npz"), expected[:count], atol=1e-6)
    assert not list((tmp_path / "folder" / "open").iterdir())


@pytest.mark.deep("faults")
def test_every_limit_at_once(
    start: Callable[..., Running], words: Any, expected: np.ndarray, party: Party, tmp_path: Path
) -> None:
    """One job may wait, and the share of the disk has room for keys and two jobs."""
    query = len(party.client.encrypt(party.pixels[:2]))
    service = start(
        "--rate", 5, "--tenant-queue", 1, "--quota", len(party.evaluation) + 2 * query + 4096
    )
    run(*words(service, "-o", tmp_path / "found.npz", count=12))
    np.testing.assert_allclose(outputs(tmp_path / "found.npz"), expected[:12], atol=1e-6)


@pytest.mark.deep("faults")
def test_a_killed_client_fetches_later(
    start: Callable[..., Running], words: Any, expected: np.ndarray, tmp_path: Path
) -> None:
    service = start("--rate", 5)
    command = [sys.executable, "-m", "atlasc", *map(str, words(service, count=12))]
    client = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, env={**os.environ})
    until(lambda: list((tmp_path / "folder").glob("open/*/*.answer")))
    client.send_signal(signal.SIGKILL)
    client.wait()
    service.kill()
    service.start(service.port)
    fetched = Outcome(words(service, "--fetch", "-o", tmp_path / "found.npz"), None)
    assert fetched.code in (0, 3), fetched.err  # 3: some were not sent yet
    found = outputs(tmp_path / "found.npz")
    sent = ~np.isnan(found).any(axis=1)
    assert len(found) == 12 and sent.sum() >= 2
    np.testing.assert_allclose(found[sent], expected[:12][sent], atol=1e-6)
    assert "nothing to fetch" in run(*words(service, "--fetch")).out


@pytest.mark.deep("faults")
def test_a_service_that_ends_in_the_middle(
    start: Callable[..., Running], tiny: Tiny, party: Party, expected: np.ndarray, tmp_path: Path
) -> None:
    """It is told that answers wait, and where."""
    service = start()
    with connected(service, tmp_path) as connection:
        link = connection._link
        fetch, calls = link.fetch, Counter[str]()

        def failing(method: str, path: str, *rest: Any, **more: Any) -> bytes:
            calls[method] += 1
            if path.endswith("/answer") and calls["DELETE"] == 2:
                raise atlasc.AtlasError("the service cannot be reached")
            return fetch(method, path, *rest, **more)

        link.fetch = failing  # type: ignore[method-assign]
        with pytest.raises(atlasc.AtlasError, match="query --fetch takes 3 answers later"):
            connection.query(party.pixels[:6])
        link.fetch = fetch  # type: ignore[method-assign]
        found = connection.fetch()
        assert found is not None and not found.lost
        np.testing.assert_allclose(found.outputs["output"], expected[:6], atol=1e-6)
        assert connection.fetch() is None


@pytest.mark.deep("faults")
@pytest.mark.parametrize(("count", "kills"), [(500, 4)])
def test_each_input_is_answered_once(tiny: Tiny, tmp_path: Path, count: int, kills: int) -> None:
    """Against a rate, two queues and a disk for four jobs; client and service are killed."""
    found = lost(tiny.bundle, tiny.data, count, kills, tmp_path)
    assert found["killed"] == {"client": kills, "service": kills}
    assert (found["answered"], found["wrong"], found["twice"]) == (count, 0, 0)
    assert found["jobs_done_twice"] == found["left_in_the_folder"] == 0


def test_a_clean_up_that_fails_is_a_warning(
    start: Callable[..., Running], party: Party, expected: np.ndarray, tmp_path: Path
) -> None:
    service = start()
    notes: list[str] = []
    with connected(service, tmp_path) as connection:
        fetch = connection._link.fetch

        def failing(method: str, path: str, *rest: Any, **more: Any) -> bytes:
            if method == "DELETE":
                raise atlasc.AtlasError("the service failed")
            return fetch(method, path, *rest, **more)

        connection._link.fetch = failing  # type: ignore[method-assign]
        found = connection.query(party.pixels[:4], note=lambda what, _="": notes.append(str(what)))
    np.testing.assert_allclose(found.outputs["output"], expected[:4], atol=1e-6)
    assert sum("also stays on the service" in one for one in notes) == 2


def test_one_answer_of_many_that_cannot_be_decrypted(
    start: Callable[..., Running], party: Party, expected: np.ndarray, tmp_path: Path
) -> None:
    """The others are delivered; it stays in the folder."""
    service = start()
    with connected(service, tmp_path) as connection:
        decrypt, calls = connection.client.decrypt, Counter[str]()

        def failing(answer: bytes | Path | Message) -> Any:
            calls["all"] += 1
            if calls["all"] == 2:
                raise atlasc.AtlasError("the ledger cannot be written")
            return decrypt(answer)

        connection.client.decrypt = failing  # type: ignore[method-assign]
        with pytest.warns(UserWarning, match="2 inputs have no answer"):
            found = connection.query(party.pixels[:6])
        assert set(found.lost) == {2, 3} and found.rows == (0, 1, 4, 5)
        assert np.isnan(found.outputs["output"][2:4]).all()
        again = connection.fetch()
        assert again is not None and not again.lost
        np.testing.assert_allclose(again.outputs["output"], expected[:6], atol=1e-6)


def test_an_output_that_cannot_be_written(
    start: Callable[..., Running], words: Any, expected: np.ndarray, tmp_path: Path
) -> None:
    service, place = start(), tmp_path / "found.npz"
    code = (
        "import sys, errno, atlasc.files as files\n"
        "def full(*_): raise files.AtlasError('the disk is full')\n"
        "files.write_private_arrays = full\n"
        "from atlasc.__main__ import main\nsys.argv[1:] = sys.argv[1:]\nmain()"
    )
    command = [sys.executable, "-c", code, *map(str, words(service, "-o", place, count=4))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "the disk is full" in done.stderr, done.stderr
    assert "query --fetch takes 2 answers later" in done.stderr
    run(*words(service, "--fetch", "-o", place))
    np.testing.assert_allclose(outputs(place), expected[:4], atol=1e-6)


def test_quiet_shows_answers_all_the_same(start: Callable[..., Running], words: Any) -> None:
    service = start()
    assert "images.npz[1]" in run(*words(service, "--quiet", count=2)).out
    assert "exclude each other" in refused(*words(service, "--fetch", count=2))
    assert "nothing to ask" in refused(*words(service))


def test_a_client_that_is_forgotten(
    start: Callable[..., Running], party: Party, words: Any, tmp_path: Path
) -> None:
    service = start()
    run(*words(service, count=2))
    token = (tmp_path / "token").read_text()
    (keys,) = (tmp_path / "folder" / "keys").iterdir()
    query = atlasc.Client(party.bundle, keys).encrypt(party.pixels[:2])
    job = service.call("POST", "/jobs", token, query).json["id"]
    assert wait(service, token, job) == "done"
    said = run(*words(service, "--forget")).out
    assert "1 job and 1 set of keys" in said
    assert service.call("GET", "/keys", token).json == []
    assert not list((service.state / "keys").rglob("*.key"))
    assert not list((service.state / "jobs").iterdir())
    assert list((tmp_path / "folder" / "keys").rglob("secret.key"))  # the client's own stay
    run(*words(service, count=2))  # and are uploaded again


class Busy(BaseHTTPRequestHandler):
    """Says "later" twice to each request, then answers."""

    def answer(self) -> None:
        seen: Counter[str] = self.server.seen  # type: ignore[attr-defined]
        length = int(self.headers.get("content-length", 0))
        self.rfile.read(length)
        seen[f"{self.command} {self.path}"] += 1
        late = seen[f"{self.command} {self.path}"] <= 2
        status = int(self.path.strip("/")) if late else 200
        content = b'{"error": "later"}' if late else b'{"error": "none"}'
        self.send_response(status)
        if late and status not in (502, 504):
            self.send_header("Retry-After", "1")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def busy() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Busy)
    server.seen = Counter()  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("status", [429, 503, 507, 502])
def test_every_request_waits_where_the_service_asks_for_it(
    busy: ThreadingHTTPServer, tmp_path: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    link = Link(f"http://127.0.0.1:{busy.server_port}", "token")
    for method in ("GET", "POST", "PUT", "DELETE"):
        assert b"none" in link.fetch(method, f"/{status}", b"x", limit=1000, patience=0.0)
    busy.seen.clear()  # type: ignore[attr-defined]
    link.download(f"/{status}", tmp_path / "file", 1000)
    assert b"none" in (tmp_path / "file").read_bytes()
    assert slept == [1.0] * 10
    busy.seen.clear()  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="later") as caught:  # who cannot wait is told how long
        link.fetch("GET", f"/{status}", limit=1000, queue=0.0)
    assert caught.value.wait == 1.0
    link.close()
