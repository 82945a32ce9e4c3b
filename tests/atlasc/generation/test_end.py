"""Where a text ends is one bit about a decrypted answer: hidden, or counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from atlasc.api.generation import step_server, text_client
from atlasc.bundle.folder import Bundle
from atlasc.generation.client import TextClient
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.settings import Settings
from tests.atlasc.cli.command import refused, run
from tests.atlasc.generation.conftest import TOKENS, VOCABULARY, changed
from tests.atlasc.generation.test_session import PROMPT, greedy, words

END = VOCABULARY - 1


class Parties(NamedTuple):
    bundle: Bundle
    keys: Path
    folder: Path

    def text(self, name: str, ends: list[int], **options: object) -> tuple[int, TextClient]:
        """Write a text of a model that ends it with some tokens; how many queries were sent."""
        asked, place = 0, self.folder / name
        ended = Settings(eos_token_id=tuple(ends))
        with (
            changed(self.bundle, ended),
            text_client(self.bundle, self.keys, place, PROMPT, **options) as client,
            step_server(self.bundle, self.keys, None) as server,
        ):
            while not client.finished:
                client.receive(server.answer(client.request()))
                asked += 1
            with pytest.raises(AtlasError):
                client.request()
            return asked, client


@pytest.fixture
def parties(bundle: Bundle, tmp_path: Path) -> Parties:
    run("keygen", bundle.folder / "step", "-o", tmp_path / "keys")
    return Parties(bundle, tmp_path / "keys", tmp_path)


def test_the_server_sees_as_many_queries_wherever_a_text_ends(parties: Parties) -> None:
    """A hostile bundle may call any token the end, and a hostile answer choose the token."""
    room = TOKENS - len(PROMPT) + 1
    wanted = greedy(PROMPT, room)
    for number in range(room):
        ends = [wanted[number]]
        asked, client = parties.text(f"text {number}", ends)
        first = wanted.index(wanted[number])
        assert asked == room and client.ended and client.result.ids == wanted[: first + 1]
        assert client.spent == 0
    asked, client = parties.text("endless", [])
    assert asked == room and not client.ended and client.result.ids == wanted
    asked, client = parties.text("short", [wanted[0]], steps=2)
    assert asked == 2 and client.result.ids == wanted[:1]


def test_nothing_is_decrypted_behind_the_end(parties: Parties) -> None:
    (first, *_) = greedy(PROMPT, 1)
    parties.text("text", [first])
    lines = (parties.keys / "client" / "ledger.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines].count("answer") == 1


def test_texts_that_end_visibly_are_counted(parties: Parties) -> None:
    (first, *_) = greedy(PROMPT, 1)
    for number in range(16):
        asked, client = parties.text(f"text {number}", [first], until_end=True)
        assert asked == 1 and client.spent == number + 1
    with pytest.raises(AtlasError, match="these keys are used up") as caught:
        parties.text("one more", [first])
    assert "--tokens" in caught.value.remedy


def test_a_session_keeps_its_number(parties: Parties) -> None:
    parties.text("text", [END], steps=2)
    for options in ({"steps": 3}, {"until_end": True}):
        with pytest.raises(AtlasError, match="a session of another number of tokens"):
            parties.text("text", [END], **options)
    with pytest.raises(AtlasError, match="do not fit"):
        parties.text("long", [END], steps=100)
    assert not (parties.folder / "long").exists()


def test_ask_says_how_many_tokens_are_asked_for(parties: Parties, tmp_path: Path) -> None:
    command = ("ask", parties.bundle.folder, words(PROMPT), "--keys", parties.keys)
    command += ("--session", tmp_path / "s")
    said = refused(*command, "-o", tmp_path / "q", "--tokens", "2", "--until-end")
    assert "exclude each other" in said
    shown = run(*command, "-o", tmp_path / "q", "--tokens", "2")
    assert f"{len(PROMPT) + 1} will be asked for" in shown.out
