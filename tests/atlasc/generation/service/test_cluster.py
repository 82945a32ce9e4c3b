"""Texts on workers of a cluster, which share no disk with the service."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from atlasc.api.generation import text_client
from atlasc.api.roles import make_keys
from atlasc.bundle.folder import Bundle
from atlasc.generation.client import TextClient
from atlasc.generation.server import CACHE
from atlasc.ir.errors import AtlasError
from atlasc.progress import quiet
from atlasc.service.programs import Programs
from atlasc.service.texts import name_text
from atlasc.service.workers.actor import RayActor, part_of
from atlasc.service.workers.base import Order, Record
from atlasc.service.workers.cluster import RayWorker
from atlasc.version import __version__
from tests.atlasc.generation.service.conftest import connected
from tests.atlasc.generation.test_session import PROMPT, greedy
from tests.atlasc.service.running import Running, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.filterwarnings("ignore:the server sees in the clear"),
]
LONG = [*PROMPT, 30]


class Gone(Exception):
    """What Ray raises for an actor whose machine is lost."""


class OneProcess:
    """Ray's calls, made at once in this process. An object is what it is of.

    Attributes:
        lost: which calls of ``run`` find their machine lost, by their number.
    """

    exceptions = SimpleNamespace(RayError=Gone)

    def __init__(self) -> None:
        self.lost, self.runs = set[int](), 0

    def put(self, content: np.ndarray) -> np.ndarray:
        return np.array(content)

    def wait(self, places: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return places[:1], []

    def get(self, place: Any) -> Any:
        if isinstance(place, Gone):
            raise place
        return place

    def kill(self, actor: Any) -> None:
        pass

    def actor(self) -> Any:
        made = RayActor(1)
        calls = {name: self.call(getattr(made, name)) for name in ("open", "look", "forget")}
        return SimpleNamespace(run=self.call(made.run, counted=True), **calls)

    def call(self, method: Any, counted: bool = False) -> Any:
        def remote(*given: Any) -> Any:
            self.runs += counted
            found = method(*given)
            return Gone("the node is lost") if counted and self.runs in self.lost else found

        return SimpleNamespace(remote=remote)


class Workers:
    """Two workers, and the texts of one set of keys."""

    def __init__(self, bundle: Bundle, keys: Path, folder: Path) -> None:
        self.texts, self.keys, self._folder = folder / "texts", keys, folder
        self.ray, programs = OneProcess(), Programs([bundle.folder])
        given = (programs.loadable, {"": part_of(bundle.folder)}, 2**30, 1, __version__)
        self.all = [RayWorker(number, self.ray, self.ray.actor, given) for number in range(2)]
        self.told = list[Record]()
        self.bundle = bundle
        for one in self.all:
            one.start(self.told.append)
        until(lambda: sum("ready" in one for one in self.told) == 2)

    def run(self, worker: int, text: TextClient, *, read: bool = True) -> Record:
        """Have a worker answer the next query of a text; ``read``: the client reads the answer."""
        query, answer = self._folder / "query", self._folder / "answer"
        query.write_bytes(text.request())
        program = text._program().manifest.program
        evaluation = self.keys / "server" / "evaluation.key"
        self.told.clear()
        self.all[worker].run(Order("job", program, "key", evaluation, query, answer, self.texts))
        ends = {"done", "failed", "died", "cancelled"}
        until(lambda: any(ends & one.keys() for one in self.told))
        record = next(one for one in self.told if ends & one.keys())
        if "done" in record and read:
            text.receive(answer.read_bytes())
        return record


@pytest.fixture
def workers(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(os, "umask", lambda mask: mask)
    monkeypatch.setenv("ATLASC_THREADS", "1")
    make_keys(bundle.step, tmp_path / "keys")
    found = Workers(bundle, tmp_path / "keys", tmp_path)
    yield found
    for one in found.all:
        one.end()


def test_any_worker_goes_on_with_a_text(workers: Workers, tmp_path: Path) -> None:
    """The prompt on one worker, whose machine is then lost in a step; its step on the other."""
    with text_client(workers.bundle, workers.keys, tmp_path / "s", LONG, steps=3) as text:
        assert "done" in workers.run(0, text)
        (folder,) = workers.texts.iterdir()
        assert [path.name for path in folder.iterdir()] == [CACHE] and text.done == len(LONG)
        before = (folder / CACHE).read_bytes()
        workers.ray.lost = {2}  # after it computed, before it told
        assert "the node is lost" in workers.run(0, text)["died"]
        assert (folder / CACHE).read_bytes() == before
        assert "done" in workers.run(1, text)
        assert (folder / CACHE).read_bytes() != before
        # Where the service is killed before it notes the answer, nothing is appended twice.
        assert "done" in workers.run(1, text, read=False)
        before = (folder / CACHE).read_bytes()
        assert "done" in workers.run(1, text)
        assert (folder / CACHE).read_bytes() == before
        assert text.result.ids == greedy(LONG, 3)
        # A session computed anew takes the place of the text.
        text.turn([5], 1)
        text.anew()
        workers.all[0].start(workers.told.append)
        while not text.finished:
            assert "done" in workers.run(0, text)
        (after,) = workers.texts.iterdir()
        assert after.name == text.record.session != folder.name
        assert text.result.ids == greedy([*LONG, *greedy(LONG, 3), 5], 1)


def test_what_fails_leaves_the_text(workers: Workers, tmp_path: Path) -> None:
    with text_client(workers.bundle.step, workers.keys, tmp_path / "s", [3], steps=3) as text:
        assert "done" in workers.run(0, text)
        (folder,) = workers.texts.iterdir()
        kept = (folder / CACHE).read_bytes()
        (folder / CACHE).write_bytes(kept[:-100])
        assert "cannot be read" in workers.run(1, text)["failed"]["error"]
        shutil.rmtree(folder)
        failed = workers.run(0, text)["failed"]
        assert "but the next one is 0" in failed["error"] and "--anew" in failed["remedy"]
        assert not list(workers.texts.iterdir())  # of a text that did not begin
        folder.mkdir()
        (folder / CACHE).write_bytes(kept)
        assert "done" in workers.run(1, text)
    with pytest.raises(AtlasError, match="of another session"):
        name_text(folder, "0" * 32)
    assert folder.exists()


@pytest.mark.deep("cluster")
def test_a_text_on_a_cluster_loses_a_worker(bundle: Bundle, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="needs the ray extra")
    ray = ("--workers", "ray{count=2,address=local}")
    service = Running(tmp_path / "state", bundle.folder, *ray)

    def lines(event: str) -> list[dict[str, Any]]:
        return [one for one in service.log if one["event"] == event]

    until(lambda: len(lines("worker started")) == 2)
    with connected(service, tmp_path / "folder", "acme") as connection:
        talk = partial(connection.session, tmp_path / "s", note=quiet)
        with talk() as session:
            first = session.say(LONG, 1).ids
        busy = lines("job started")[-1]["worker"]
        pid = next(one["pid"] for one in lines("worker started") if one["worker"] == busy)
        os.kill(pid, signal.SIGKILL)
        with talk() as session:
            assert session.say([5], 2).ids == greedy([*LONG, *first, 5], 2)
    assert first == greedy(LONG, 1)
    assert {line["worker"] for line in lines("job started")} == {0, 1}
    assert service.stop() == 0
