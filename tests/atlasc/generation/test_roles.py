"""Client and server of a text apart, each with its part of the bundle, and what each refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from short_text import module_of

from atlasc.api.generation import step_server, text_client
from atlasc.api.roles import Client, Server, keygen
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.compilation.generation.programs import fit_to_begin
from atlasc.generation.client import TextClient
from atlasc.generation.server import CACHE, StepServer, first_states
from atlasc.generation.steps import public_at
from atlasc.ir.errors import AtlasError
from atlasc.ir.layout import Layout
from atlasc.ir.text.storage import print_module
from atlasc.ir.types import CiphertextType
from atlasc.ir.verifier import verify
from atlasc.loading import IDS
from atlasc.program.key_plan import KeyPlan
from atlasc.targets.base import no_progress
from atlasc.targets.cpu.engine import CpuEngine
from atlasc.targets.cpu.parameters import CpuParameters
from tests.atlasc.cli.command import refused, run
from tests.atlasc.generation.conftest import TOKENS, VOCABULARY, compiled
from tests.atlasc.generation.test_session import PROMPT, greedy, words


class Parts(NamedTuple):
    """The two parts of a bundle, and the keys of its step."""

    client: Path
    server: Path
    keys: Path


@pytest.fixture(scope="module")
def parts(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Parts:
    folder = tmp_path_factory.mktemp("parts")
    run("split", bundle.folder, "-o", folder / "parts")
    client, server = folder / "parts" / "client", folder / "parts" / "server"
    run("keygen", client / "step", "-o", folder / "keys")
    return Parts(client, server, folder / "keys")


class Pair(NamedTuple):
    """The two roles of a text."""

    client: TextClient
    server: StepServer

    def step(self) -> None:
        self.client.receive(self.server.answer(self.client.request()))


@pytest.fixture
def pair(parts: Parts, tmp_path: Path) -> Iterator[Pair]:
    """Each token of the prompt takes a step."""
    client = load_bundle(parts.client / "step", "client")
    server = load_bundle(parts.server / "step", "server")
    with (
        text_client(client, parts.keys, tmp_path / "text", PROMPT) as one,
        step_server(server, parts.keys, tmp_path / "cache") as other,
    ):
        yield Pair(one, other)


def test_each_part_has_what_its_role_needs_and_no_more(parts: Parts) -> None:
    for part, role, other in (
        (parts.client, "client", "server"),
        (parts.server, "server", "client"),
    ):
        names = {str(path.relative_to(part)) for path in part.rglob("*")}
        for inner in ("step", "prefill"):
            assert {f"{inner}/{role}", f"{inner}/manifest.json"} <= names
        assert not {name for name in names if other in name.split("/")}
    assert not list((parts.keys / "server").rglob("*secret*"))


def test_the_commands_of_two_roles_write_the_text(parts: Parts, tmp_path: Path) -> None:
    """As two people would: each file is written by one role and read by the other."""
    wanted, session, cache = greedy(PROMPT, 3), tmp_path / "text", tmp_path / "cache"
    of_client = ("--keys", parts.keys / "client", "--session", session)
    of_server = ("--keys", parts.keys / "server", "--cache", cache)
    for number in range(3):  # the prompt, and two tokens
        query, answer = tmp_path / f"q{number}", tmp_path / f"a{number}"
        prompt = [words(PROMPT)] if number == 0 else []
        run("ask", parts.client, *prompt, *of_client, "-o", query)
        run("answer", parts.server, *of_server, "--query", query, "-o", answer)
        found = run("read", parts.client, *of_client, "--answer", answer, "--json").out
        shown = json.loads(found)
        assert shown["ids"] == wanted[: number + 1]
        assert shown["done"] == number + len(PROMPT)
    assert query.stat().st_mode & 0o077 == 0
    assert {path.name for path in cache.iterdir()} == {CACHE}
    for program, given in (("step", query), ("prefill", tmp_path / "q0")):
        place = parts.server / program
        said = refused("execute", place, *of_server[:2], "--query", given, "-o", tmp_path / "x")
        assert "use atlasc generate, or atlasc answer" in said
    said = refused("ask", parts.client, *of_client[:2], "--session", tmp_path / "n", "-o", "x")
    assert "needs a prompt" in said
    said = refused("emit", parts.server / "step", "-o", tmp_path / "project")
    assert "the step and the prefill of a decoder cannot be emitted yet" in said


def test_a_query_that_is_sent_again_gets_the_same_answer(pair: Pair, tmp_path: Path) -> None:
    pair.step()
    first = pair.client.request()
    assert pair.client.request() == first
    answer = pair.server.answer(first)
    assert pair.server.answer(first) == answer
    assert pair.server.tokens == 2
    pair.client.receive(answer)
    with pytest.raises(AtlasError, match="not the answer that the session waits for") as said:
        pair.client.receive(answer)
    assert said.value.why == "it was read before"
    assert pair.client.record.done == 2


def test_queries_out_of_order_are_refused(pair: Pair, parts: Parts, tmp_path: Path) -> None:
    first = pair.client.request()
    pair.client.receive(pair.server.answer(first))
    second = pair.client.request()
    pair.client.receive(pair.server.answer(second))
    with pytest.raises(AtlasError, match="the query is of token 0, but the next one is 2"):
        pair.server.answer(first)
    bundle = load_bundle(parts.server, "server")
    with (
        step_server(bundle, parts.keys, tmp_path / "empty") as empty,
        pytest.raises(AtlasError, match="the query is of token 1, but the next one is 0"),
    ):
        empty.answer(second)
    # Another token at the same place.
    changed = {"done": 1, "ids": [3, 4, 5]}
    pair.client.record = pair.client.record.model_copy(update=changed)
    anew = pair.client.request()
    assert anew != second
    with pytest.raises(AtlasError, match="the query is of token 1, but the next one is 2") as said:
        pair.server.answer(anew)
    assert "it is not the query that was answered" in said.value.why


def test_queries_of_another_session_or_program_are_refused(
    pair: Pair, parts: Parts, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    pair.step()
    client = load_bundle(parts.client / "step", "client")
    with text_client(client, parts.keys, tmp_path / "other", PROMPT) as other:
        with pytest.raises(AtlasError, match="of another session"):
            pair.server.answer(other.request())
        with pytest.raises(AtlasError, match="not the answer that the session waits for"):
            other.receive(pair.server.answer(pair.client.request()))
    program = compiled(tmp_path / "bundle", head="client", prefill=False)
    assert program.step.manifest.settings["no_prefill"] == "--without prefill left it out"
    with pytest.raises(AtlasError, match="has no prefill of a prompt"):
        _ = program.prefill
    keygen(program.step, tmp_path / "keys")
    with (
        text_client(program, tmp_path / "keys", tmp_path / "third", PROMPT) as third,
        pytest.raises(AtlasError, match="another compiled program"),
    ):
        pair.server.answer(third.request())


def test_full_keys_and_values_are_refused(pair: Pair) -> None:
    most = TOKENS - len(PROMPT) + 1
    while pair.client.record.done < pair.client.steps_for(most):
        last = pair.client.request()
        pair.client.receive(pair.server.answer(last))
    assert pair.client.result.ids == greedy(PROMPT, most)
    with pytest.raises(AtlasError, match="all 6 tokens of the session were asked for"):
        pair.client.request()
    assert pair.server.tokens == TOKENS
    pair.server.answer(last)  # the same query again


def test_a_prompt_and_keys_that_do_not_fit_are_refused(parts: Parts, tmp_path: Path) -> None:
    client = load_bundle(parts.client, "client")
    with (
        pytest.raises(AtlasError, match=f"the prompt has {TOKENS + 1} tokens"),
        text_client(client, parts.keys, tmp_path / "a", [1] * (TOKENS + 1)),
    ):
        pass
    with (
        pytest.raises(AtlasError, match="these are not the keys of a client"),
        text_client(client, parts.keys / "server", tmp_path / "b", PROMPT),
    ):
        pass
    with (
        text_client(client, parts.keys, tmp_path / "c", [VOCABULARY]) as one,
        pytest.raises(AtlasError, match="outside the vocabulary"),
    ):
        one.request()
    assert not (tmp_path / "a").exists()


def test_a_query_of_no_token_is_refused(pair: Pair, parts: Parts) -> None:
    step = load_bundle(parts.client / "step", "client")
    position, mask = "position", "attention_mask"
    client, given = Client(step, parts.keys), public_at(step, 2)
    ids = {IDS: 0 * given[mask] + 3}
    for wrong in ({position: public_at(step, 1)[position]}, {mask: given[position]}):
        query = client.query({**ids, **given, **wrong})
        with pytest.raises(AtlasError, match="not of one token after others"):
            pair.server.answer(query.to_bytes())
    with pytest.raises(AtlasError, match="is the step or the prefill of a decoder"):
        Server(load_bundle(parts.server / "step", "server"), parts.keys).execute(query.to_bytes())


def test_a_query_below_the_level_of_the_state_is_raised() -> None:
    """The server makes the first state of the first query, and levels only fall."""
    kind = 'layout = "[t:6 b:0 d:5 g:4 |  | b=1 t=64 g=4 d=32]", shape = [1, 64, 128]'
    text = f"""%s = ckks.input {{name = "keys.0", {kind}, state = true, level = 3}}
        %v = ckks.input {{name = "values.0", {kind}, state = true, level = 2}}
        ckks.output %v {{name = "values.0", shape = [1, 64, 128]}}
        %x = ckks.input {{name = "x", {kind}, level = LEVEL}}
        ckks.output %s {{name = "keys.0", shape = [1, 64, 128]}}
        %y = ckks.square %x
        ckks.output %y {{name = "y", shape = [1, 64, 128]}}"""
    low = module_of("ckks", text.replace("LEVEL", "1"))
    raised = fit_to_begin(low)
    verify(raised)
    levels = [(op.name, op.value.ciphertext.level) for op in raised.ops if op.result]
    inputs = [("ckks.input", 3), ("ckks.input", 2), ("ckks.input", 3)]
    assert levels == [*inputs, ("ckks.drop", 1), ("ckks.square", 0)]
    enough = module_of("ckks", text.replace("LEVEL", "3"))
    assert print_module(fit_to_begin(enough)) == print_module(enough)


def test_the_state_of_no_token_is_zero_on_ciphertexts() -> None:
    layout = Layout.parse("[t:6 b:0 d:5 g:4 |  | b=1 t=64 g=4 d=32]")
    parameters = CpuParameters.choose(3, 32768)
    engine = CpuEngine.fresh(parameters, KeyPlan({}, 3, None), no_progress)
    row, other = np.random.default_rng(0).normal(size=(2, engine.slots))
    states = {"keys.0": CiphertextType(layout, 2)}
    ((zero,),) = first_states(engine, states, engine.encrypt(row, 3), {}).values()
    kept = engine.deserialize(engine.serialize(zero))
    assert engine.level(kept) == 2
    added = engine.add(kept, engine.encrypt(other, 2))
    np.testing.assert_allclose(engine.decrypt(added), other, rtol=0, atol=1e-6)
    product = engine.mul(kept, engine.encrypt(other, 2))
    np.testing.assert_allclose(engine.decrypt(product), 0 * other, rtol=0, atol=1e-6)
