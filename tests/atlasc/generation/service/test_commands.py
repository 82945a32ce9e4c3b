"""``atlasc generate URL``: a text of a service from the command line."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tiny_model import Tiny

from atlasc.bundle.folder import Bundle
from atlasc.remote.texts import RemoteServer
from tests.atlasc.cli.command import Outcome, refused, run
from tests.atlasc.generation.test_session import greedy, words
from tests.atlasc.service.running import Running

pytestmark = [
    pytest.mark.filterwarnings("ignore:the target sim is a simulation"),
    pytest.mark.filterwarnings("ignore:the server sees in the clear"),
]
TEXT, FURTHER = [3, 17, 9, 30], [5]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("place")


@pytest.fixture(scope="module")
def service(whole: Running, place: Path) -> list[object]:
    """The address, and the options of a client."""
    token = place / "token"
    token.write_text(whole.token("acme"))
    token.chmod(0o600)
    return [whole.url, "--token-file", token, "--folder", place / "folder", "--allow-simulation"]


def generated(service: list[object], *words: object) -> Outcome:
    return run("generate", *service, *words)


def test_a_text_and_its_turns(
    service: list[object], place: Path, bundle: Bundle, whole: Running, tiny: Tiny
) -> None:
    session = ("--session", place / "talk")
    first = generated(service, words(TEXT), "--tokens", 1, *session, "--json")
    ids = greedy(TEXT, 1)
    assert json.loads(first.out)["ids"] == ids
    assert "the server sees in the clear" in first.err
    assert "the prompt of 4 tokens is computed at once" in first.err
    assert "this turn: 4 tokens to enter; at most 1 prefill and 0 steps" in first.err
    assert "s predicted" in first.err
    # It goes on: nothing is left to do, and nothing is asked.
    again = generated(service, *session, "--json")
    assert json.loads(again.out)["ids"] == ids and "this turn" not in again.err
    found = generated(service, "--next", words(FURTHER), "--tokens", 1, *session, "--json")
    assert json.loads(found.out)["ids"] == greedy([*TEXT, *ids, *FURTHER], 1)
    # Other settings are those of another session.
    assert "another way to choose tokens" in refused(
        "generate", *service, *session, "--temperature", 0.5, "--seed", 1
    )
    # Its keys are those of step and prefill, and stay while these are served.
    keys = partial(run, "keys", "prune", "--state", whole.state, "--dry-run", "--json", "--program")
    for folder in (bundle.folder, bundle.step.folder):
        assert json.loads(keys(folder).out)["keys"] == []
    assert json.loads(keys(tiny.bundle).out)["keys"]


def test_turns_of_a_file_and_a_draw(service: list[object], place: Path) -> None:
    (place / "turns").write_text(f"{words([3])}\n\n{words([5])}\n")
    draw = ("--temperature", 2, "--seed", 7, "--tokens", 2)
    found = json.loads(generated(service, "--turns", place / "turns", *draw, "--json").out)
    assert len(found["turns"]) == 1 and len(found["ids"]) == 2


def test_a_text_that_was_dropped(
    service: list[object], place: Path, whole: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, answer, asked = ("--session", place / "dropped"), RemoteServer.answer, list[int]()

    def dropped(self: RemoteServer, request: bytes, progress: Any = None) -> bytes:
        asked.append(len(request))
        if len(asked) == 2:
            shutil.rmtree(whole.state / "texts")
        return answer(self, request, progress)

    monkeypatch.setattr(RemoteServer, "answer", dropped)
    message = refused("generate", *service, words([3]), "--tokens", 2, *session)
    assert "--anew has the service compute all tokens" in message
    again = generated(service, "--anew", *session, "--json")
    assert json.loads(again.out)["ids"] == greedy([3], 2)


def test_what_a_place_does_not_take(
    service: list[object], bundle: Bundle, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--target has no effect on a service" in refused(
        "generate", *service, "w1", "--target", "sim"
    )
    assert "--allow-simulation has no effect without a service" in refused(
        "generate", bundle.folder, "w1", "--allow-simulation"
    )
    assert "--token-file has no effect" in refused("generate", bundle.folder, *service[1:3])
    assert "has no chat template" in refused("generate", *service, "w1", "--chat")
    monkeypatch.delenv("ATLASC_TOKEN", raising=False)
    assert "there is no token for the service" in refused("generate", service[0], "w1")
    assert "--next and --anew need a session" in refused("generate", *service, "--anew")
    (place / "texts.txt").write_text("w1\n")
    message = refused("query", *service, "--input", place / "texts.txt")
    assert "generates text" in message and "the command generate" in message
    fresh = place / "fresh"  # nothing is made or sent for what is refused
    words = ("query", *service[:3], "--folder", fresh, "--allow-simulation")
    assert "generates text" in refused(*words, "--input", place / "texts.txt")
    assert not [*fresh.rglob("*.key")]
    strict: Any = service[:-1]
    assert "the service would see every input" in refused(
        "generate", *strict[:3], "--folder", place / "strict", "w1"
    )
