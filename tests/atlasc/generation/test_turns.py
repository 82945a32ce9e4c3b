"""Sessions of several turns: each answer is that of the module on the tokens before it, whether the
server keeps them or computes them anew.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import MistralConfig, MistralForCausalLM

from atlasc.api.generation import step_server, text_client
from atlasc.api.program import Program
from atlasc.api.session import CLIENT, SERVER, TextSession
from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.cli.commands.generate import generate
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.generation.budget import Budget, cost_of
from atlasc.generation.client import TextClient
from atlasc.generation.record import RECORD
from atlasc.generation.server import StepServer
from atlasc.generation.steps import TextBundles, following, looks_back, seconds_of, successors
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.settings import Settings
from atlasc.service.programs import Programs
from tests.atlasc.cli.command import refused, run
from tests.atlasc.generation.conftest import TOKENS, VOCABULARY, changed, tokenizer
from tests.atlasc.generation.test_session import Killed, greedy, killed_in, words

FIRST, SECOND, THIRD = [3, 17], [5], [9]


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs of the queries that the servers answer."""
    seen, whole = list[str](), StepServer.answer

    def answer(self: StepServer, request: bytes, *more: Any) -> bytes:
        name = self._programs.of_message(request).folder.name
        seen.append(name)
        return whole(self, request, *more)

    monkeypatch.setattr(StepServer, "answer", answer)
    return seen


def test_three_turns_by_steps_send_nothing_again(bundle: Bundle, queries: list[str]) -> None:
    text = list[int]()
    with TextSession(bundle.step) as session:
        for prompt, tokens in ((FIRST, 2), (SECOND, 1), (THIRD, 2)):
            text += prompt
            found = session.say(prompt, tokens)
            assert found.ids == greedy(text, tokens)
            assert found.prompt == text
            text += found.ids
    assert queries == ["step"] * (len(text) - 1) and len(text) == TOKENS + 1


def test_a_turn_of_several_tokens_is_computed_anew_if_that_takes_less_time(
    bundle: Bundle, queries: list[str]
) -> None:
    notes = list[str]()
    with TextSession(bundle, note=lambda what, _: notes.append(what)) as session:
        first = session.say(FIRST, 2).ids
        assert queries == ["prefill", "step"]
        many = 1 + int(seconds_of(bundle.prefill) / seconds_of(bundle.step))
        found = session.say([5] * many, 1)
    assert found.ids == greedy([*FIRST, *first, *[5] * many], 1)
    assert queries == ["prefill", "step", "prefill"]
    assert any("computed anew: that is predicted to take less time" in one for one in notes)
    costs = [one for one in notes if one.startswith("this turn")]
    assert "2 tokens to enter; at most 1 prefill and 1 step, " in costs[0]
    assert f"{4 + many} tokens to enter; at most 1 prefill and 0 steps, " in costs[1]
    assert f"at most {4 + many} of {TOKENS} tokens are kept" in costs[1]


def test_the_tokens_that_are_told_are_those_of_this_turn(bundle: Bundle, tmp_path: Path) -> None:
    notes: list[str] = []

    def session() -> TextSession:
        return TextSession(bundle, tmp_path / "s", note=lambda what, _: notes.append(what))

    with session() as text:
        text.say([3, 17], 2)
    with session() as text:
        text.say([5], 1)
        text.say([6], 1)
    told = [note.rpartition("; ")[2] for note in notes if "tokens are chosen so" in note]
    assert told == ["2 tokens at most", "1 token at most"]


def test_a_cost_is_that_of_the_queries(bundle: Bundle) -> None:
    programs, step = TextBundles.of(bundle), bundle.step
    budget = Budget(TOKENS, 0, Settings())
    found = cost_of(programs, budget, 3, 1, False, 4)
    assert found[:3] == (2, 0, 5) and found.held == 6
    assert found.seconds == 5 * seconds_of(step)
    with (
        TextSession(step) as session,
    ):
        session.say(FIRST, 1)
        assert session._roles is not None
        client, server = session._roles
        client.turn(SECOND, 1)
        made = client.request()
        answer = server.answer(made)
    assert client.cost().up // client.cost().steps <= Message.largest("query", step)
    assert client.cost().down // client.cost().steps <= Message.largest("answer", step)
    assert client.cost().up and client.cost().down and made != answer


@pytest.mark.parametrize("whole", [True, False], ids=["with a prefill", "by steps"])
def test_the_oldest_tokens_leave(bundle: Bundle, whole: bool) -> None:
    """The oracle is the module on the tokens that stay."""
    window, given, prompt = 7, bundle if whole else bundle.step, [35, 18]
    tokens = 12 if whole else 8
    with TextSession(given, window=window) as session:
        found = session.say(prompt, tokens)
        held, wanted = [*prompt], list[int]()
        for _ in range(tokens):
            if len(held) > TOKENS:
                held = held[-window:]
            wanted += greedy(held, 1)
            held.append(wanted[-1])
        assert found.ids == wanted and len(set(wanted[6:])) == tokens - 6
        # A further turn goes on behind what stayed.
        held += SECOND
        if len(held) > TOKENS:
            held = held[-window:]
        assert session.say(SECOND, 1).ids == greedy(held, 1)
        with pytest.raises(AtlasError, match="the turn has 8 tokens") as caught:
            session.say([7] * 8, 1)
        assert caught.value.why == "there is room for 7, even if all earlier ones leave"


def test_what_does_not_fit_is_refused_and_the_session_goes_on(bundle: Bundle) -> None:
    with TextSession(bundle.step) as session:
        first = session.say(FIRST, 3).ids
        with pytest.raises(AtlasError, match="do not fit") as caught:
            session.say([5] * 4, 1)
        assert "--window" in caught.value.remedy
        for prompt, what in (
            ([], "the turn has no token"),
            ([{"role": "user", "content": "w3"}], "the session is a text, and this turn is not"),
        ):
            with pytest.raises(AtlasError, match=what):
                session.say(prompt, 1)
        assert session.say(SECOND, 1).ids == greedy([*FIRST, *first, *SECOND], 1)


def mistral() -> MistralForCausalLM:
    """A decoder whose one layer looks back three tokens."""
    torch.manual_seed(0)
    config = MistralConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, head_dim=4, vocab_size=VOCABULARY, max_position_embeddings=32,
        sliding_window=3, bos_token_id=0, eos_token_id=VOCABULARY - 1,
    )  # fmt: skip
    made = MistralForCausalLM(config).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight.mul_(8)
    return made


def test_a_sliding_window_of_the_model_is_exact_beyond_the_program(tmp_path: Path) -> None:
    """Two turns of 17 tokens, in a program of 8, are those of the module on all of them."""
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (24, TOKENS))
    options = CompileOptions(recipe="is", target="sim", generate=True, sequence_length=TOKENS)
    data = [words(text) for text in ids.tolist()]
    made = compile_model(mistral(), data, tmp_path / "b", options, tokenizer=tokenizer())
    assert looks_back(made.bundle.step) == 3 and looks_back(made.bundle.prefill) == TOKENS
    text = list[int]()
    with TextSession(made.bundle, window=4) as session:
        for prompt, tokens in (([35, 11], 8), ([5], 6)):
            text += prompt
            with torch.no_grad():
                given = torch.tensor([text])
                wanted = mistral().generate(given, max_new_tokens=tokens, do_sample=False)
            found = session.say(prompt, tokens)
            assert found.ids == wanted[0, len(text) :].tolist()
            assert len(set(found.ids)) == tokens
            text += found.ids
    assert len(text) == 17


@pytest.mark.parametrize("window", [TOKENS, TOKENS + 1])
def test_windows_that_are_refused(bundle: Bundle, window: int) -> None:
    with (
        TextSession(bundle, window=window) as session,
        pytest.raises(AtlasError, match=f"a window of {window} tokens is not possible"),
    ):
        session.say(FIRST, 1)
    with pytest.raises(AtlasError, match="of which 3 are the public prefix"):
        Budget(TOKENS, 3, Settings(), 3)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [(TextClient, "_save", 1), (StepServer, "_keep", 1), (TextClient, "_save", 2)],
    ids=["before the turn", "before the server forgets", "before its first token"],
)
def test_a_killed_turn_goes_on(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str,
    calls: int,
) -> None:  # fmt: skip
    place, prompt = tmp_path / "s", [5, 9, 4]
    with TextSession(bundle, place) as session:
        first = session.say(FIRST, 2).ids
    with monkeypatch.context() as patched, TextSession(bundle, place) as session:
        killed_in(patched, owner, name, calls)
        with pytest.raises(Killed):
            session.say(prompt, 2)
    with TextSession(bundle, place) as session:
        begun = (name, calls) != ("_save", 1)
        found = session.go_on(None, 2) if begun else session.say(prompt, 2)
    assert found.ids == greedy([*FIRST, *first, *prompt], 2)


def test_keys_and_values_that_were_dropped_are_computed_anew(
    bundle: Bundle, tmp_path: Path
) -> None:
    place = tmp_path / "s"
    with TextSession(bundle.step, place) as session:
        first = session.say(FIRST, 2).ids
    shutil.rmtree(place / SERVER)
    with TextSession(bundle.step, place) as session:
        with pytest.raises(AtlasError, match="but the next one is 0") as caught:
            session.say(SECOND, 1)
        assert "they were dropped" in caught.value.why and "--anew" in caught.value.remedy
    said = run("generate", bundle.folder / "step", "--session", place, "--anew", "--tokens", "1")
    assert said.out == words(greedy([*FIRST, *first, *SECOND], 1)) + "\n"
    assert "5 tokens to enter" in said.err
    with TextSession(bundle.step, place) as session:
        session.anew()
        client, _ = session._roles or (None, None)
        assert client is not None
        known = client.record
        session.anew()
        assert client.record == known  # the server has nothing more to lose


def test_only_the_next_session_takes_the_place_of_another(bundle: Bundle, tmp_path: Path) -> None:
    place = tmp_path / "s"
    with TextSession(bundle.step, place) as session:
        session.say(FIRST, 1)
        assert session._roles is not None
        client, server = session._roles
        name = client.record.session
        for other in (following([*successors(name)][-1]), "0" * 32):
            taken = client.record.model_copy(update={"session": other, "done": 0})
            client.record, client.most = taken, 4
            with pytest.raises(AtlasError, match="of another session"):
                server.answer(client.request())
        assert server.tokens == len(FIRST)


class _Apart:
    """The commands of two roles."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        self.bundle, self.folder, self.asked = bundle, folder, 0
        run("keygen", bundle.folder / "step", "-o", folder / "keys")

    def turn(self, *options: object) -> str:
        """Ask until all tokens were asked for; what the last read printed."""
        place, out = self.folder, ""
        client = ("--keys", place / "keys" / "client", "--session", place / "s")
        while True:
            query, answer = place / f"q{self.asked}", place / f"a{self.asked}"
            run("ask", self.bundle.folder, *options, *client, "-o", query)
            server = ("--keys", place / "keys" / "server", "--cache", place / "c")
            run("answer", self.bundle.folder, *server, "--query", query, "-o", answer)
            out = run("read", self.bundle.folder, *client, "--answer", answer).out
            self.asked, options = self.asked + 1, ()
            if "all tokens of the session were asked for" in out:
                return out.splitlines()[0]


def test_turns_of_the_two_roles_apart(bundle: Bundle, tmp_path: Path) -> None:
    both = _Apart(bundle, tmp_path)
    first = greedy(FIRST, 2)
    assert both.turn(words(FIRST), "--tokens", "2") == words(first)
    text = [*FIRST, *first, *SECOND]
    assert both.turn(words(SECOND), "--next", "--tokens", "1") == words(greedy(text, 1))
    said = refused(
        "ask", bundle.folder, "--keys", tmp_path / "keys" / "client", "--session", tmp_path / "s",
        "--next", "-o", tmp_path / "x",
    )  # fmt: skip
    assert "--next needs a prompt" in said


@pytest.fixture
def ended(bundle: Bundle, tmp_path: Path) -> Iterator[tuple[TextClient, StepServer]]:
    """A text that the model ended before all its tokens were asked for."""
    run("keygen", bundle.folder / "step", "-o", tmp_path / "keys")
    end = Settings(eos_token_id=(greedy(FIRST, 1)[0],))
    with (
        changed(bundle, end),
        text_client(bundle.step, tmp_path / "keys", tmp_path / "t", FIRST, steps=3) as client,
        step_server(bundle.step, tmp_path / "keys", None) as server,
    ):
        while not client.finished:
            client.receive(server.answer(client.request()))
        yield client, server


def test_tokens_behind_an_end_do_not_stay_and_are_counted(
    ended: tuple[TextClient, StepServer],
) -> None:
    """The server sees that they are computed anew, and so that the text had ended."""
    client, server = ended
    assert client.ended and client.spent == 0 and server.tokens == 4
    client.turn(SECOND, 1)
    assert client.spent == 1 and "of the 4 tokens that the server has, the first 3" in client.note
    while not client.finished:
        client.receive(server.answer(client.request()))
    text = [*FIRST, *greedy(FIRST, 1), *SECOND]
    assert client.result.ids == greedy(text, 1) and server.tokens == len(text)


def test_a_turn_waits_for_the_one_before(bundle: Bundle, tmp_path: Path) -> None:
    place = tmp_path / "s"
    with TextSession(bundle.step, place) as session:
        session.say(FIRST, 1)
        assert session._roles is not None
        client, _ = session._roles
        client.turn(SECOND, 1)
        with pytest.raises(AtlasError, match="the turn before is not finished"):
            client.turn(THIRD, 1)
    record = place / CLIENT / RECORD
    record.write_text(record.read_text().replace('"left":0', '"left":9'))
    with TextSession(bundle.step, place) as session, pytest.raises(AtlasError, match="damaged"):
        session.go_on()


def test_who_types_hears_each_answer_before_the_next_turn(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused there ends nothing; in a script it ends the command."""
    typed, command = iter([words(SECOND), words([7] * 9), ""]), sys.modules[generate.__module__]
    first = greedy(FIRST, 1)
    heard = list[str]()
    monkeypatch.setattr(command, "print_written", heard.append)

    def asked(most: int) -> str:
        assert len(heard) >= 1
        return next(typed)

    monkeypatch.setattr(command, "_asked", asked)
    given = ("generate", bundle.folder / "step", words(FIRST), "--tokens", "1", "--turns", "-")
    with monkeypatch.context() as patched:
        patched.setattr(command, "_is_typed", lambda: True)
        shown = run(*given)
    assert heard == [words(first), words(greedy([*FIRST, *first, *SECOND], 1))]
    assert "warning: 1 tokens after a prompt of" in shown.err
    typed = iter([words([7] * 9), ""])
    with pytest.raises(AssertionError, match="do not fit"):
        run(*given)


def test_python_and_the_command_read_turns(bundle: Bundle, tmp_path: Path) -> None:
    first = greedy(FIRST, 1)
    second = greedy([*FIRST, *first, *SECOND], 1)
    command = ("generate", bundle.folder, "--tokens", "1", "--turns")
    shown = run(*command, "-", stdin=f"{words(FIRST)}\n\n{words(SECOND)}\n")
    assert shown.out == f"{words(first)}\n{words(second)}\n"
    (tmp_path / "turns.txt").write_text(words(SECOND))
    shown = run(*command, tmp_path / "turns.txt", "--session", tmp_path / "s", "--json")
    assert "1 token to enter" not in shown.out
    with Program(bundle).session(tmp_path / "p") as session:
        assert session.say(FIRST, 1).ids == first
    goes_on = ("generate", bundle.folder, "--session", tmp_path / "p", "--tokens", "1", "--next")
    assert run(*goes_on, words(SECOND)).out == words(second) + "\n"
    assert "needs a prompt" in refused(*goes_on)
    assert "need a session" in refused("generate", bundle.folder, "w3", "--next")


def test_a_service_does_not_begin_with_a_prefill(bundle: Bundle) -> None:
    """It keeps nothing for one, so each job would fail."""
    with pytest.raises(AtlasError, match="is the step or the prefill of a decoder"):
        Programs([bundle.folder / "prefill"])
