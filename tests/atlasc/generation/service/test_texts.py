"""Text that a service generates: turns, a text that was dropped while its user typed, bounds."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import atlasc
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.files import locked
from atlasc.generation.server import CACHE
from atlasc.generation.steps import following
from atlasc.ir.errors import AtlasError
from atlasc.progress import quiet
from atlasc.remote.connection import Connection
from atlasc.remote.link import address
from atlasc.remote.wire import JobStatus
from atlasc.service import texts
from atlasc.service.programs import Programs
from atlasc.service.records.housekeeping import disk, remove_keys, remove_tenant
from atlasc.service.store import Store
from atlasc.service.texts import MOST_TEXTS, drop_idle
from tests.atlasc.generation.conftest import TOKENS, make_decoder
from tests.atlasc.generation.test_session import greedy
from tests.atlasc.service.running import Running
from tests.suite.made_once import made_once

pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.filterwarnings("ignore:the server sees in the clear"),
]
FIRST, SECOND = [3, 17], [5]


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "decoder", make_decoder) / "bundle" / "step"


@pytest.fixture(scope="module")
def service(step: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    found = Running(tmp_path_factory.mktemp("texts") / "state", step)
    yield found
    found.end_without_a_fault()


@pytest.fixture(scope="module")
def connection(service: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    folder = tmp_path_factory.mktemp("client") / "folder"
    with atlasc.connect(
        service.url, token=service.token("acme"), folder=folder, allow_simulation=True
    ) as found:
        yield found


def kept(service: Running) -> list[Path]:
    return sorted((service.state / "texts" / "acme").glob("*/*"))


def test_two_turns_and_a_text_that_was_dropped(
    service: Running, connection: Connection, tmp_path: Path
) -> None:
    notes, place = list[str](), tmp_path / "s"
    talk = partial(connection.session, place, note=lambda what, _: notes.append(what))
    with talk() as session:
        first = session.say(FIRST, 2).ids
        assert first == greedy(FIRST, 2)
        text = [*FIRST, *first, *SECOND]
        second = session.say(SECOND, 1).ids
        assert second == greedy(text, 1)
    (folder,) = kept(service)
    assert {path.name for path in folder.iterdir()} == {CACHE}
    assert [one for one in notes if one.startswith("this turn: ")] == [
        one for one in notes if " MB up and " in one
    ]
    shutil.rmtree(folder)
    text += second
    with talk() as session:  # the user typed for too long
        with pytest.raises(AtlasError, match="but the next one is 0") as caught:
            session.say([9], 1)
        assert "they were dropped" in caught.value.why
        assert "anew()" in caught.value.remedy
        assert f"({len(text) + 1} tokens to enter; at most" in caught.value.remedy
        assert not kept(service)
        session.anew()
        assert session.go_on().ids == greedy([*text, 9], 1)
    (folder,) = kept(service)
    assert folder.name != following(folder.name) and len(text) + 1 <= TOKENS
    # All answers were read, and deleted on the service.
    assert {job["answer_bytes"] for job in _jobs(connection)} <= {0}


def _jobs(connection: Connection) -> list[dict]:
    known = connection._link.get(address("jobs"), list[JobStatus])
    return [one.model_dump() for one in known]


@pytest.mark.deep("faults")
def test_tokens_that_leave_and_too_many_texts(service: Running, connection: Connection) -> None:
    for folder in kept(service):
        shutil.rmtree(folder)
    with connection.session(window=4, note=quiet) as session:
        # A text that is computed anew takes the place of the one before.
        found = session.say([35, 18], 8).ids
    assert len(found) == 8 and len(kept(service)) == 1
    for _ in range(MOST_TEXTS - 1):
        with connection.session(note=quiet) as session:
            session.say(FIRST, 1)
    with connection.session(note=quiet) as session:
        with pytest.raises(AtlasError, match=f"you have {MOST_TEXTS} texts") as caught:
            session.say(FIRST, 1)
        assert "60 minutes after its last query" in caught.value.why
        assert len(kept(service)) == MOST_TEXTS
        shutil.rmtree(kept(service)[0])
        session.anew()  # a job that failed stays failed under its name
        assert session.go_on().ids == greedy(FIRST, 1)
    assert len(kept(service)) == MOST_TEXTS


def test_texts_end_with_their_keys_and_their_time(tmp_path: Path) -> None:
    store = Store(tmp_path / "state")
    try:
        for key in ("one", "two"):
            place = store.text_folder("acme", key) / ("0" * 32)
            place.mkdir(parents=True)
            (place / CACHE).write_bytes(bytes(1000))
        with store.writing() as db:
            for key in ("one", "two"):
                values = ("acme", key, "c", 5, 5, 1, time.time())
                db.execute(
                    "insert into keys (tenant, id, configuration, size, received, ready, created) "
                    "values (?, ?, ?, ?, ?, ?, ?)",
                    values,
                )
        assert store.used_bytes("acme") == 2 * 1000 + 2 * 5
        assert disk(store)[0].job_bytes == 2000
        assert remove_keys(store, "acme", "one", "a test")
        assert store.text_bytes("acme") == 1000
        root = store.text_folder("")
        assert not list(drop_idle(root))
        old = time.time() - texts.IDLE_SECONDS - 1
        (kept,) = root.glob("*/*/*")
        os.utime(kept / CACHE, (old, old))
        with locked(kept):
            assert not list(drop_idle(root))  # a job uses it
        assert list(drop_idle(root)) == [kept] and not kept.exists()
        kept.mkdir()
        remove_tenant(store, "acme", "a test")
        assert not store.text_folder("acme").exists()
    finally:
        store.close()


def test_a_service_says_what_a_text_takes(step: Path) -> None:
    bundle: Bundle = load_bundle(step)
    (served,) = Programs([step])
    states = [one for one in bundle.server.interface.inputs if one.state]
    assert served.text_bytes > 0 and len(states) == 2
    assert served.facts(None).configuration == served.configuration
