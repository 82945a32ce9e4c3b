"""Prompts that a service computes at once, and what becomes of a text where it does not."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import atlasc
from atlasc.api.generation import step_server
from atlasc.api.roles import Client, make_keys
from atlasc.bundle import signing
from atlasc.bundle.folder import Bundle, listed_bundle, load_bundle
from atlasc.bundle.manifest import INTERFACE_FILE
from atlasc.bundle.messages import Message
from atlasc.bundle.split import copy_part
from atlasc.generation.prompt import prompted
from atlasc.generation.record import REQUEST
from atlasc.generation.steps import TextBundles
from atlasc.ir.errors import AtlasError
from atlasc.progress import quiet
from atlasc.remote.connection import Connection
from atlasc.remote.link import Link
from atlasc.remote.programs import Texts
from atlasc.remote.texts import RemoteServer, RemoteSession
from atlasc.service.faults import Refusal
from atlasc.service.programs import Programs
from atlasc.service.workers.executor import memory_budget
from tests.atlasc.generation.conftest import TOKENS
from tests.atlasc.generation.service.conftest import connected, jobs
from tests.atlasc.generation.test_session import PROMPT, greedy
from tests.atlasc.remote.hostile import forged, hostile
from tests.atlasc.service.running import Running, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.filterwarnings("ignore:the server sees in the clear"),
]
LONG = [*PROMPT, 30]


def test_a_prompt_and_a_long_turn_are_one_job_each(
    client: Connection, bundle: Bundle, tmp_path: Path
) -> None:
    notes, before = list[str](), len(jobs(client))
    with client.session(tmp_path / "s", note=lambda what, _: notes.append(what)) as session:
        first = session.say([3], 1).ids
        assert first == greedy([3], 1) and "1 token is computed by steps" in notes[0]
        text = [3, *first, *LONG]
        assert session.say(LONG, 2).ids == greedy(text, 2)
    programs = [one.program for one in jobs(client)][before:]
    step, prefill = (one.manifest.program for one in (bundle.step, bundle.prefill))
    assert programs == [step, prefill, step]
    assert any("all 6 tokens are computed anew: that is predicted" in one for one in notes)
    with pytest.raises(AtlasError, match=f"{TOKENS + 1} tokens"), client.session() as session:
        session.say([*range(TOKENS + 1)], 1)
    assert len(jobs(client)) == before + 3
    with pytest.raises(AtlasError, match="generates text") as said:
        client.query(["w1"])
    assert "session()" in said.value.remedy


def test_another_tenant_finds_no_text(whole: Running, client: Connection, tmp_path: Path) -> None:
    """Not even with the same keys: a text lies in the folder of its tenant."""
    texts = client.texts
    assert texts is not None and not texts.lack
    with client.session(tmp_path / "s", note=quiet) as session:
        text, service = session._opened(prompted(client.bundle, LONG), 2)
        text.receive(service.answer(text.request()))
        query = text.request()
    folder = Path(client.client.ledger.folder).parents[2]
    with (
        connected(whole, tmp_path / "other", "other") as other,
        pytest.raises(AtlasError, match="made with other keys"),
    ):
        RemoteServer(other._link, texts.programs, other.keys).answer(query)
    shutil.copytree(folder, tmp_path / "thief")
    with connected(whole, tmp_path / "thief", "thief") as thief:
        assert thief.keys == client.keys
        with pytest.raises(AtlasError, match="but the next one is 0") as said:
            RemoteServer(thief._link, texts.programs, thief.keys).answer(query)
    assert "no keys and values of this session are here" in said.value.why
    with client.session(tmp_path / "s", note=quiet) as session:
        assert session.go_on().ids == greedy(LONG, 2)


def test_a_session_goes_on_where_the_prefill_has_gone(bundle: Bundle, tmp_path: Path) -> None:
    """It was begun with a prefill, whose answer was never read."""
    make_keys(bundle.step, tmp_path / "keys")
    client, notes = Client(bundle.step, tmp_path / "keys"), list[str]()
    talk = partial(RemoteSession, client, note=lambda what, _: notes.append(what))
    with step_server(bundle, tmp_path / "keys", tmp_path / "cache") as server:

        class Killed(RemoteServer):
            def answer(self, request: bytes, progress: Any = None) -> bytes:
                server.answer(request)
                raise KeyboardInterrupt

        texts = Texts(TextBundles.of(bundle))
        killed = Killed(None, texts.programs, "")  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt), talk(killed, texts, tmp_path / "s") as session:
            session.say(LONG, 2)
        assert server.tokens == len(LONG) and (tmp_path / "s" / REQUEST).exists()

        class Steps(RemoteServer):
            def answer(self, request: bytes, progress: Any = None) -> bytes:
                return server.answer(request)

        alone = Texts(TextBundles(bundle.step), "the service has no prefill")
        steps = Steps(None, alone.programs, "")  # type: ignore[arg-type]
        with talk(steps, alone, tmp_path / "s") as session:
            assert session.go_on().ids == greedy(LONG, 2)
    assert "each token of the prompt takes a step: the service has no prefill" in notes
    assert server.tokens == len(LONG) + 1


@pytest.mark.deep("faults")
@pytest.mark.parametrize("keeps", [True, False])
def test_a_service_that_is_killed_in_a_prefill(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: bool
) -> None:
    """Started again, it has the prefill (the session goes on) or not (it is computed anew)."""
    service = Running(tmp_path / "state", bundle.folder)
    get, kills = Link.get, list[int]()

    def killing(self: Link, path: str, *given: Any, **options: Any) -> Any:
        if path.startswith("/jobs/") and not kills:
            kills.append(1)
            until(lambda: any(one["event"] == "job started" for one in service.log))
            service.kill()
            service._arguments = (bundle.folder if keeps else bundle.step.folder,)
            service.start(service.port)
        return get(self, path, *given, **options)

    with connected(service, tmp_path / "folder", "acme") as connection:
        monkeypatch.setattr(Link, "get", killing)
        with connection.session(tmp_path / "s", note=quiet) as session:
            if keeps:
                assert session.say(LONG, 2).ids == greedy(LONG, 2)
            else:
                with pytest.raises(AtlasError, match="the program is not answered any more"):
                    session.say(LONG, 2)
    if not keeps:
        with connected(service, tmp_path / "folder", "acme") as connection:
            assert connection.texts is not None
            assert connection.texts.lack == "the service has no prefill"
            with connection.session(tmp_path / "s", note=quiet) as session:
                assert session.go_on().ids == greedy(LONG, 2)
    assert kills and "internal error" not in service.log_path.read_text()
    service.kill()


def test_what_is_served_of_a_text(bundle: Bundle, tmp_path: Path) -> None:
    programs = Programs([bundle.folder])
    (step,) = programs.listed
    (prefill,) = (one for one in programs if one is not step)
    assert (step.program, prefill.program) == (
        bundle.step.manifest.program, bundle.prefill.manifest.program
    )  # fmt: skip
    assert step.facts(None).configuration == prefill.configuration
    # A prompt needs room for its keys and values, as a token does.
    assert prefill.text_bytes == step.text_bytes > 0 and prefill.query_bytes > 0
    assert programs.of_model(step.model) is step
    # A worker has room for the keys of each: a message names the one that it has none for.
    sizes = {one.model: number for number, one in enumerate(programs.loadable.values())}
    with pytest.raises(AtlasError, match=f"one tenant of the prefill of {step.model} do not fit"):
        memory_budget(sizes, 0)
    for name in ("manifest.json", "prefill/manifest.json", "prefill/client/embed.air"):
        assert step.client_file(f"whole/{name}") == bundle.folder / name
    for name in (
        "whole/client/embed.air", "whole/server/program.air", "whole/prefill/server/program.air",
        "whole/step/manifest.json", "whole/../manifest.json", "prefill/manifest.json", "whole/",
    ):  # fmt: skip
        with pytest.raises(Refusal, match="no such file"):
            step.client_file(name)
    (alone,) = Programs([bundle.step.folder])
    with pytest.raises(Refusal, match="no such file"):
        alone.client_file("whole/manifest.json")
    with pytest.raises(AtlasError, match="is given twice"):
        Programs([bundle.folder, bundle.step.folder])
    copy_part(bundle.folder, "server", tmp_path / "part")
    for one in Programs([tmp_path / "part"], alone=True):
        assert one.configuration == step.configuration
    with pytest.raises(AtlasError, match="the server's part alone"):
        Programs([tmp_path / "part"])


@pytest.fixture
def copied(bundle: Bundle, tmp_path: Path) -> Path:
    """The client's part of the step, with that of the prefill at the place where a service gives
    it.
    """
    place = tmp_path / "served"
    shutil.copytree(bundle.step.folder / "client", place / "client")
    shutil.copy(bundle.step.folder / "manifest.json", place)
    shutil.copytree(bundle.folder / "prefill" / "client", place / "whole" / "prefill" / "client")
    shutil.copy(bundle.folder / "manifest.json", place / "whole")
    shutil.copy(bundle.prefill.folder / "manifest.json", place / "whole" / "prefill")
    return place


def forge(copied: Path, change: Callable[[Any], None], *, inside: bool) -> None:
    """Change the manifest of the prefill, which the whole one lists again, or the whole one."""
    whole, prefill = (
        copied / "whole" / name for name in ("manifest.json", "prefill/manifest.json")
    )
    place = prefill if inside else whole
    facts = json.loads(place.read_text())
    change(facts)
    place.write_text(json.dumps(facts))
    listed = json.loads(whole.read_text())
    if inside:
        listed["files"]["prefill/manifest.json"] = _digest(prefill)
        whole.write_text(json.dumps(listed))


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


LIES: dict[str, tuple[bool, Callable[[Any], Any], str]] = {
    "a prefill of another step": (
        False, lambda facts: facts["files"].update({"step/manifest.json": "0" * 64}),
        "does not list this step",
    ),
    "no prefill": (
        False, lambda facts: facts["files"].pop("prefill/manifest.json"), "has none"
    ),
    "another batch": (True, lambda facts: facts.update(batch=2), "differ in one of target"),
    "another target": (True, lambda facts: facts.update(target="cpu"), "differ in one of target"),
    "other parameters": (
        True, lambda facts: facts["parameters"].update(security_bits=192), "parameters"
    ),
    "another file": (
        True, lambda facts: facts["files"].update({"client/embed.air": "0" * 64}), "embed.air"
    ),
    "a file elsewhere": (
        False, lambda facts: facts["files"].update({"prefill/client/../../x": "0" * 64}), "damaged"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIES)
def test_a_prefill_that_is_not_that_of_the_step(copied: Path, tmp_path: Path, name: str) -> None:
    inside, change, words = LIES[name]
    forge(copied, change, inside=inside)
    with hostile(copied) as service, pytest.raises(AtlasError, match=words):
        _connect(service.url, tmp_path / "folder")
    assert not service.sent and not list((tmp_path / "folder").rglob("*.key"))


def test_a_prefill_that_asks_for_ids_in_the_clear(
    copied: Path, bundle: Bundle, tmp_path: Path
) -> None:
    mask = f'{{"name": "attention_mask", "shape": [1, {TOKENS}]}}'
    ids = mask.replace("attention_mask", "input_ids")
    edits = {INTERFACE_FILE: lambda text: text.replace(mask, f"{ids}, {mask}")}
    place = copied / "whole" / "prefill"
    shutil.rmtree(place)
    forged(bundle.prefill.folder, place, edits)
    forge(copied, lambda facts: None, inside=True)  # the bundle lists it
    with hostile(copied) as service, pytest.raises(AtlasError, match="would leave in the clear"):
        _connect(service.url, tmp_path / "folder")
    assert not service.sent


def _connect(url: str, folder: Path, **options: Any) -> Connection:
    return atlasc.connect(url, token="atlasc_x", folder=folder, allow_simulation=True, **options)


def test_a_folder_keeps_its_prefill(copied: Path, bundle: Bundle, tmp_path: Path) -> None:
    """A service that changes it, or has one later, is asked by steps until the user agrees."""
    folder, aside = tmp_path / "folder", tmp_path / "aside"
    with hostile(copied) as service:

        def lack(**options: Any) -> str:
            with _connect(service.url, folder, **options) as connection:
                assert connection.texts is not None
                programs, why = connection.texts
                assert (programs.prefill is None) == bool(why)
                return why

        (copied / "whole").rename(aside)
        assert lack() == "the service has no prefill"
        aside.rename(copied / "whole")
        assert "a prefill that this folder does not have; --update takes it" in lack()
        assert not lack(update=True) and not lack()
        forge(copied, lambda facts: facts.update(atlasc="0.0.1"), inside=False)
        assert "--update takes it" in lack() and not lack(update=True)
        # What lies in the folder is checked each time.
        identity = listed_bundle(copied / "whole").identity
        (kept,) = (folder / "programs").glob(f"{identity[:16]}/prefill/client/embed.air")
        kept.write_text(kept.read_text() + "\n")
        with pytest.raises(AtlasError, match="embed.air"):
            lack()


def test_a_maker_signs_step_and_bundle(copied: Path, tmp_path: Path) -> None:
    public = signing.make_key(tmp_path / "mine.key", "")
    with hostile(copied) as service:
        signing.sign(load_bundle(copied, "client"), tmp_path / "mine.key", "")
        with pytest.raises(AtlasError, match="is not signed"):
            _connect(service.url, tmp_path / "folder", signed_by=public)
        signing.sign(listed_bundle(copied / "whole"), tmp_path / "mine.key", "")
        with _connect(service.url, tmp_path / "folder", signed_by=public) as connection:
            assert connection.texts is not None and not connection.texts.lack


def test_an_answer_to_a_prompt_has_a_bound(copied: Path, bundle: Bundle, tmp_path: Path) -> None:
    limit = Message.largest("answer", bundle.prefill)
    lies: Any = {("GET", "/jobs/.*/answer"): (200, bytes(limit + 1))}
    with (
        hostile(copied, lies) as service,
        _connect(service.url, tmp_path / "folder") as connection,
        connection.session(note=quiet) as session,
        pytest.raises(AtlasError, match="is too large") as said,
    ):
        session.say(LONG, 1)
    assert said.value.why == f"above {limit}"
    assert service.count("/jobs") == 1
