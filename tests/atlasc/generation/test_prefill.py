"""A prompt that is computed at once: what steps would write, and what each role refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from short_text import entry, poly

from atlasc.api.generation import client_of, step_server, text_client
from atlasc.api.roles import Client, make_keys
from atlasc.api.session import generate
from atlasc.bundle.folder import Bundle
from atlasc.bundle.messages import Message
from atlasc.cli.results import say_of_text, text_facts
from atlasc.compilation import lowering
from atlasc.compilation.checks import check_compile
from atlasc.compilation.generation import programs
from atlasc.compilation.generation.programs import Decoder, text_programs
from atlasc.compilation.options import CompileOptions, TargetOptions
from atlasc.generation.client import TextClient
from atlasc.generation.record import RECORD, REQUEST
from atlasc.generation.server import CACHE
from atlasc.generation.steps import TextBundles, public_at, seconds_of
from atlasc.ir.errors import AtlasError
from atlasc.loading import IDS
from atlasc.passes.framework.pass_base import run_passes
from atlasc.passes.generation.decode_step import DecodeStep
from atlasc.passes.generation.prefill import Prefill, for_step
from atlasc.passes.pipeline import Lowered
from atlasc.program.key_plan import key_plan
from atlasc.runtime.interface import keys_of
from atlasc.targets import find_target
from atlasc.targets.base import no_progress
from atlasc.targets.parameters import ParameterSet
from tests.atlasc.cli.command import run
from tests.atlasc.generation.conftest import TOKENS
from tests.atlasc.generation.test_roles import Pair
from tests.atlasc.generation.test_session import PROMPT, greedy
from tests.passes.generation.test_packed_steps import BLOCK, RANDOM

LONG = [*PROMPT, 30]


@pytest.fixture(scope="module")
def keys(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("keys") / "keys"
    make_keys(bundle.step, place)
    return place


@pytest.fixture
def pair(bundle: Bundle, keys: Path, tmp_path: Path) -> Iterator[Pair]:
    with (
        text_client(bundle, keys, tmp_path / "text", PROMPT) as client,
        step_server(bundle, keys, tmp_path / "cache") as server,
    ):
        yield Pair(client, server)


def tensors(bundle: Bundle, keys: Path, place: Path, tokens: int) -> dict[str, np.ndarray]:
    """Keys and values after some tokens, and the logits at the last of them."""
    place.mkdir()
    programs, engine = TextBundles.of(bundle), Client(TextBundles.of(bundle).step, keys).engine
    with (
        text_client(bundle, keys, place / "text", PROMPT) as client,
        step_server(bundle, keys, place / "cache") as server,
    ):
        while client.record.done < tokens:
            answer = server.answer(client.request())
            client.receive(answer)
    program = programs.of_message(answer)
    (values,) = Message.read(answer, "answer", program).ciphertexts(engine)[0].values()
    slots = {"logits": np.stack([engine.decrypt(one) for one in values])}
    with np.load(place / "cache" / CACHE) as held:
        kept = {name: engine.deserialize(held[name].tobytes()) for name in held if "/" in name}
    return {
        **{name: engine.decrypt(one) for name, one in kept.items()},
        **program.client.answers(slots, 1).outputs,
    }


def test_a_step_after_a_prefill_is_a_step_after_steps(
    bundle: Bundle, keys: Path, tmp_path: Path
) -> None:
    """Its answer, and the keys and values of the prompt and of its own token."""
    tokens = len(PROMPT) + 1
    steps = tensors(bundle.step, keys, tmp_path / "steps", tokens)
    prefill = tensors(bundle, keys, tmp_path / "prefill", tokens)
    assert steps.keys() == prefill.keys() > {"logits", "keys.0/0", "values.0/0"}
    for name, numbers in steps.items():
        tolerance = 1e-9 * np.abs(numbers).max()
        np.testing.assert_allclose(prefill[name], numbers, rtol=0, atol=tolerance, err_msg=name)


def test_a_prefill_alone_writes_no_text(bundle: Bundle) -> None:
    with pytest.raises(AtlasError, match="is the prefill of a prompt"):
        generate(bundle.prefill, LONG, 2)


def test_a_text_without_a_prefill_is_the_same(bundle: Bundle) -> None:
    said: list[str] = []
    found = generate(bundle, LONG, 2, note=lambda headline, _: said.append(headline))
    assert found.ids == greedy(LONG, 2)
    assert "the prompt of 4 tokens is computed at once" in said[0]
    prefill, step = bundle.prefill, bundle.step
    assert seconds_of(step) < seconds_of(prefill) < 3 * seconds_of(step)
    said.clear()
    assert generate(bundle, LONG[:1], 1, note=lambda *given: said.extend(given)).ids
    assert "the prompt of 1 token is computed by steps" in said[0]
    # A prompt that fills the window.
    whole = [*range(1, TOKENS + 1)]
    assert generate(bundle, whole, 1).ids == greedy(whole, 1)


def test_an_answer_to_a_prompt_is_read_once(pair: Pair) -> None:
    first = pair.client.request()
    assert pair.client.request() == first
    answer = pair.server.answer(first)
    assert pair.server.answer(first) == answer
    assert pair.server.tokens == len(PROMPT)
    pair.client.receive(answer)
    assert pair.client.record.done == len(PROMPT)
    with pytest.raises(AtlasError, match="not the answer that the session waits for") as said:
        pair.client.receive(answer)
    assert said.value.why == "it was read before"
    pair.step()
    assert pair.client.result.ids == greedy(PROMPT, 2)


def test_the_server_sends_no_keys_and_values(pair: Pair, bundle: Bundle) -> None:
    answer = pair.server.answer(pair.client.request())
    message = Message.read(answer, "answer", bundle.prefill)
    values, _ = message.ciphertexts(Client(bundle.step, pair_keys(pair)).engine)
    assert values.keys() == {"logits"}
    assert {one.name for one in bundle.prefill.client.interface.outputs} == {"logits"}
    assert len(bundle.prefill.program.outputs) == 3


def pair_keys(pair: Pair) -> Path:
    """The keys of the client of a pair."""
    return pair.client._role(pair.client._step).ledger.folder


def test_prompts_that_do_not_begin_the_session_are_refused(
    pair: Pair, bundle: Bundle, keys: Path, tmp_path: Path
) -> None:
    first = pair.client.request()
    longer = pair.client.record.model_copy(update={"ids": LONG, "prompt": len(LONG)})
    (tmp_path / "text" / REQUEST).unlink()
    pair.client.record, record = longer, pair.client.record
    other_length = pair.client.request()  # of the same session, with the same name
    pair.client.record = record
    pair.server.answer(first)
    with pytest.raises(AtlasError, match="of a prompt, but the keys and values are those of 3"):
        pair.server.answer(other_length)
    with text_client(bundle, keys, tmp_path / "other", LONG) as other:
        with pytest.raises(AtlasError, match="of another session"):
            pair.server.answer(other.request())
        # A step does not begin in the middle, and a prompt's query has its own public inputs.
        client = Client(bundle.prefill, keys)
        given = public_at(bundle.prefill, 2)
        earlier = public_at(bundle.prefill, 1)["position"]
        wrong = {IDS: np.ones((1, TOKENS), np.int64), **given, "position": earlier}
        with pytest.raises(AtlasError, match="position and its mask do not belong together"):
            pair.server.answer(client.query(wrong).to_bytes())


def test_a_session_with_a_prefill_needs_it(pair: Pair, bundle: Bundle, keys: Path) -> None:
    place, role = pair.client._kept.folder, partial(client_of, Client(bundle.step, keys))
    alone = TextClient(TextBundles(bundle.step), role, place, PROMPT)
    with pytest.raises(AtlasError, match="a session that begins with a prefill"):
        alone.request()
    record = place / RECORD
    found = json.loads(record.read_text())
    assert found["prefill"] is True
    record.write_text(json.dumps(found | {"done": 1}))
    with pytest.raises(AtlasError, match="damaged"):
        TextClient(TextBundles.of(bundle), role, place)


def test_one_key_set_has_the_keys_of_both_programs(bundle: Bundle) -> None:
    made = keys_of(bundle.step.client.interface)
    plans = [key_plan(one.program) for one in (bundle.step, bundle.prefill)]
    assert made.rotations.keys() == plans[0].rotations.keys() | plans[1].rotations.keys()
    for plan in plans:  # at the same levels: a key has one size
        assert plan.rotations.items() <= made.rotations.items()
        assert plan.relinearization_level == made.relinearization_level
        assert plan.conjugation_level in (None, made.conjugation_level)
    assert len(plans[0].rotations) < len(plans[1].rotations)
    assert bundle.step.parameters == bundle.prefill.parameters


def test_keys_of_the_step_alone_do_not_run_the_prefill(bundle: Bundle, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    for role in ("client", "server"):
        (keys / role).mkdir(mode=0o700, parents=True)
    plan = key_plan(bundle.step.program)
    find_target("sim").generate_keys(bundle.step.parameters, plan, keys, no_progress)
    with (
        text_client(bundle, keys, tmp_path / "text", PROMPT) as client,
        step_server(bundle, keys, tmp_path / "cache") as server,
        pytest.raises(AtlasError, match="these keys were made for another program") as said,
    ):
        server.answer(client.request())
    assert "keys are missing" in said.value.why


def test_the_prefill_is_the_one_that_the_bundle_lists(bundle: Bundle, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    for name in ("client", "server", "step", "prefill", "manifest.json"):
        folder.mkdir(exist_ok=True)
        (folder / name).symlink_to(bundle.folder / name)
    (folder / "prefill").unlink()
    (folder / "prefill").symlink_to(bundle.folder / "step")
    with pytest.raises(AtlasError, match="changed after the bundle was compiled"):
        _ = replace(bundle, folder=folder).prefill
    weaker = replace(bundle.prefill)
    vars(weaker)["parameters"] = None
    whole = replace(bundle)
    vars(whole).update(step=bundle.step, prefill=weaker)
    with pytest.raises(AtlasError, match="its step and its prefill have different parameters"):
        _ = TextBundles.of(whole).prefill


def test_inspect_shows_a_prefill(bundle: Bundle) -> None:
    shown = [
        json.loads(run("inspect", bundle.folder / name, "--json").out)
        for name in ("prefill", "step")
    ]
    assert shown[0]["seconds"] == pytest.approx(seconds_of(bundle.prefill))
    assert shown[0]["rotation_keys"] > shown[1]["rotation_keys"]


def test_compile_says_what_a_text_costs(bundle: Bundle, capsys: pytest.CaptureFixture) -> None:
    facts = text_facts(bundle)
    assert facts["least_prompt"] in (2, 3)
    assert facts["rotation_keys"] > facts["step_rotation_keys"]
    assert facts["key_bytes"] > facts["step_key_bytes"] > 2**30  # of bootstraps
    say_of_text(facts)
    seconds = seconds_of(bundle.prefill)
    assert f"tokens or more takes {seconds:.3g} s, all tokens at once" in capsys.readouterr().out
    say_of_text(facts | {"least_prompt": None, "no_prefill": "of a reason"})
    assert "there is no prefill: of a reason" in capsys.readouterr().out


def test_an_option_without_effect_is_refused(tmp_path: Path) -> None:
    options = CompileOptions(recipe="is", target="sim", prefill=False)
    with pytest.raises(AtlasError, match="--without prefill has no effect without --generate"):
        check_compile(tmp_path / "b", options)


@dataclass(frozen=True)
class Squares(Decoder):
    """A decoder from its poly module alone, whose functions are squares: it needs no bootstraps."""

    def step(self, parameters: ParameterSet | None = None) -> Lowered:
        window = run_passes(self.window, [DecodeStep()])
        return self._lowered("", self.module, window, parameters)

    def prefill(self, step: Lowered, parameters: ParameterSet | None = None) -> Lowered:
        window = for_step(run_passes(self.window, [Prefill()]), step.program)
        return self._lowered("", self.module, window, parameters)


@pytest.fixture(scope="module")
def squares() -> Squares:
    arrays: dict[str, Any] = {name: 0.4 * RANDOM.normal(size=(4, 4)) for name in "qkvo"}
    arrays |= {name: RANDOM.normal(size=(5, 2)) for name in ("cos", "sin")}
    window = poly(f"{entry('mask', (1, 5), 'public')}\n{BLOCK}", arrays, (1, 5, 4))
    return Squares(window, window, options=TargetOptions(target="sim"))


def test_without_bootstraps_both_have_the_greater_parameters(
    squares: Squares, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With features in the low bits the prefill takes more levels.
    monkeypatch.setattr(lowering, "PACKINGS", (True,))
    own = squares.step()
    assert own.parameters != squares.prefill(own).parameters
    found = text_programs(squares)
    assert found.prefill is not None, found.why
    assert found.step.parameters == found.prefill.parameters
    assert found.step.parameters.max_level > own.parameters.max_level
    assert found.step.parameters.bootstrap_level is None
    states = {op.attributes["name"]: op.attributes["level"] for op in found.step.program.inputs
              if op.attributes.get("state")}  # fmt: skip
    given = {op.attributes["name"]: op.operands[0].ciphertext.level
             for op in found.prefill.program.outputs}  # fmt: skip
    assert states.items() <= given.items()


def test_a_prefill_that_is_left_out_is_explained(
    squares: Squares, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert text_programs(squares, prefill=False).why == "--without prefill left it out"
    step = squares.step()
    levels = key_plan(step.program).rotations.values()
    memory = sum(step.parameters.key_bytes(level) for level in levels)
    small = replace(squares, options=replace(squares.options, key_memory=memory))
    found = text_programs(small)
    assert found.prefill is None
    assert "the rotation keys do not fit" in found.why
    monkeypatch.setattr(Squares, "step", lambda _: step)
    monkeypatch.setattr(programs, "_with_equal_parameters", lambda *_: (step, step))
    for seconds, what in (
        ([1.0, 5.0], "it takes 5 s, and 5 steps take 5 s"),
        ([1.0, None], "not predicted"),
    ):
        monkeypatch.setattr(programs, "_seconds", lambda _, left=[*seconds]: left.pop(0))
        assert what in text_programs(squares).why
