"""Sessions on the simulator: the model's own text, whatever interrupts them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from atlasc.api.generation import sampling_of, text_client
from atlasc.api.program import Program
from atlasc.api.session import CLIENT, KEYS, SERVER, generate
from atlasc.bundle.folder import Bundle, load_bundle
from atlasc.bundle.ledger import LEDGER
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.files import locked
from atlasc.generation.client import TextClient
from atlasc.generation.ends import Generated
from atlasc.generation.processors import Text
from atlasc.generation.record import RECORD, REQUEST
from atlasc.generation.sampling import Sampling
from atlasc.generation.server import CACHE, StepServer, with_seal
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.settings import Settings
from tests.atlasc.cli.command import refused, run
from tests.atlasc.generation.conftest import TOKENS, VOCABULARY, changed, model

PROMPT = [3, 17, 5]


def words(ids: list[int]) -> str:
    """The text of ids."""
    return " ".join(f"w{one}" for one in ids)


def greedy(prompt: list[int], count: int) -> list[int]:
    """HuggingFace's own text."""
    with torch.no_grad():
        found = model().generate(torch.tensor([prompt]), max_new_tokens=count, do_sample=False)
    return found[0, len(prompt) :].tolist()


def test_the_text_is_that_of_the_model(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    most = TOKENS - len(PROMPT) + 1
    # Without a session nobody goes on, so keys and values are not written.
    monkeypatch.delattr("atlasc.generation.server.write_private_arrays")
    result = Program(bundle).generate(PROMPT, tokens=most)
    assert result.ids == greedy(PROMPT, most)
    assert len(set(result.ids)) > 1
    assert result.prompt == PROMPT
    assert result.text == words(result.ids)


def test_the_command_goes_on_with_a_session(bundle: Bundle, tmp_path: Path) -> None:
    wanted, session = greedy(PROMPT, 4), ("--session", tmp_path / "s")
    first = run("generate", bundle.folder, words(PROMPT), "--tokens", 2, *session)
    assert first.out == words(wanted[:2]) + "\n"
    second = json.loads(run("generate", bundle.folder, "--tokens", 4, *session, "--json").out)
    assert second == {"prompt": PROMPT, "ids": wanted, "text": words(wanted), "ended": False}
    assert "needs a prompt" in refused("generate", bundle.folder)
    assert "need a temperature" in refused("generate", bundle.folder, "w3", "--top-k", 3)


def test_a_model_that_is_no_decoder_is_refused_before_any_work(tmp_path: Path) -> None:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    data = {"input_ids": np.random.default_rng(0).integers(0, VOCABULARY, (8, TOKENS))}
    options = CompileOptions(target="sim", generate=True, sequence_length=TOKENS)
    with pytest.raises(AtlasError, match="attention cannot be computed for one token"):
        compile_model(BertModel(config, add_pooling_layer=False), data, tmp_path / "b", options)
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize("name", ["step", "prefill"])
def test_a_program_of_text_is_not_emitted(bundle: Bundle, tmp_path: Path, name: str) -> None:
    said = refused("emit", bundle.folder / name, "-o", tmp_path / "project")
    assert "the step and the prefill of a decoder cannot be emitted yet" in said


@pytest.fixture(scope="module", params=[None, Sampling(temperature=2.0, top_k=9, seed=4)])
def drawn(bundle: Bundle, request: pytest.FixtureRequest) -> tuple[Sampling | None, Generated]:
    """A way to choose tokens, and the text that it gives without an interrupt."""
    return request.param, generate(bundle, PROMPT, 4, request.param)


class Killed(Exception):
    """Stands for the end of a process."""


def killed_in(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, calls: int) -> None:
    """Let a method fail, before it does anything, when it is called for the last time."""
    whole: Callable[..., object] = getattr(owner, name)
    left = [calls]

    def dying(*args: object, **options: object) -> object:
        left[0] -= 1
        if not left[0]:
            raise Killed
        return whole(*args, **options)

    monkeypatch.setattr(owner, name, dying)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [
        (TextClient, "request", 4),
        (StepServer, "answer", 1),
        (StepServer, "_keep", 1),
        (StepServer, "_keep", 4),
        (TextClient, "receive", 4),
        (TextClient, "_save", 1),
        (TextClient, "_save", 4),
    ],
    ids=[
        "before a query",
        "before the prefill",
        "before the server writes the prompt",
        "before the server writes a step",
        "before an answer is read",
        "before the client writes the prompt",
        "before the client writes a token",
    ],
)
def test_a_killed_session_goes_on_at_the_same_token(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str,
    calls: int, drawn: tuple[Sampling | None, Generated],
) -> None:  # fmt: skip
    sampling, wanted = drawn
    with monkeypatch.context() as patched:
        killed_in(patched, owner, name, calls)
        with pytest.raises(Killed):
            generate(bundle, PROMPT, 4, sampling, session=tmp_path / "s")
    kept = json.loads((tmp_path / "s" / CLIENT / RECORD).read_text())
    assert len(kept["ids"]) < len(PROMPT) + 4
    assert generate(bundle, None, 4, session=tmp_path / "s") == wanted


def test_a_session_can_be_made_longer(bundle: Bundle, tmp_path: Path) -> None:
    generate(bundle, PROMPT, 2, session=tmp_path / "s")
    longer = generate(bundle, PROMPT, 5, session=tmp_path / "s")
    assert longer == generate(bundle, PROMPT, 5)


def test_the_text_ends_where_the_model_ends_it(
    bundle: Bundle,
) -> None:
    ids = greedy(PROMPT, 4)
    with changed(bundle, Settings(eos_token_id=(ids[1],))):
        found = generate(bundle, PROMPT, 4)
    assert found.ids == ids[: ids.index(ids[1]) + 1] and found.ended


@pytest.mark.parametrize(
    ("prompt", "tokens", "what"),
    [
        ([], 1, "the prompt has 0 tokens"),
        (list(range(1, TOKENS + 2)), 1, f"the prompt has {TOKENS + 1} tokens"),
        (PROMPT, TOKENS - 1, f"{TOKENS - 1} tokens after a prompt of 3 do not fit"),
        (PROMPT, 0, "0 tokens cannot be generated"),
        (None, 1, "a new session needs a prompt"),
        ([999], 1, "outside the vocabulary"),
    ],
)
def test_what_does_not_fit_is_refused(
    bundle: Bundle, prompt: list[int] | str | None, tokens: int, what: str
) -> None:
    with pytest.raises(AtlasError, match=what):
        generate(bundle, prompt, tokens)


def test_sessions_of_something_else_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    place = tmp_path / "s"
    generate(bundle, PROMPT, 1, session=place)
    for other, what in (
        ({"prompt": [4]}, "another prompt"),
        ({"sampling": Sampling(temperature=1.0)}, "another way to choose tokens"),
    ):
        with pytest.raises(AtlasError, match=what):
            generate(bundle, other.get("prompt"), 1, other.get("sampling"), session=place)
    record = place / CLIENT / RECORD
    whole = record.read_text()
    record.write_text(whole.replace(bundle.step.manifest.program, "0" * 64))
    with pytest.raises(AtlasError, match="another program"):
        generate(bundle, None, 1, session=place)
    record.write_text(whole.replace('"done":3', '"done":4'))
    with pytest.raises(AtlasError, match="damaged"):
        generate(bundle, None, 1, session=place)


def test_one_process_at_a_time_works_on_a_session(bundle: Bundle, tmp_path: Path) -> None:
    session = tmp_path / "s"
    generate(bundle, PROMPT, 1, session=session)
    with locked(session), pytest.raises(AtlasError, match="cannot be opened") as held:
        generate(bundle, None, 2, session=session)
    assert held.value.why == "another process works on it"
    assert generate(bundle, None, 2, session=session).ids == greedy(PROMPT, 2)


def test_keys_and_values_of_something_else_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for place in (one, other):
        generate(bundle, PROMPT, 1, session=place)
    cache = other / SERVER / CACHE
    held, others = dict(np.load(cache)), dict(np.load(one / SERVER / CACHE))
    for change, what in (
        (others, "of another session"),
        ({"keys.0/0": others["keys.0/0"]}, "made with other keys"),
        ({"program": np.zeros(64, np.uint8)}, "another program"),
        ({"tokens": np.array([1, 2])}, "damaged"),
        ({"tokens": np.array("4")}, "damaged"),
        ({"tokens": np.array(4.0)}, "damaged"),
        ({"keys.9/0": np.zeros(3, np.uint8)}, "damaged"),
        ({"tokens": np.array(99)}, "damaged"),
        ({"session": np.zeros(32, np.uint8)}, "of another session"),
        ({"keys.0/0": held["keys.0/0"][:-5]}, "ciphertext"),
    ):
        np.savez(cache, **with_seal({**held, **change}))
        with pytest.raises(AtlasError, match=what):
            generate(bundle, None, 2, session=other)
    cache.write_bytes(b"no archive")
    with pytest.raises(AtlasError, match="cannot be read") as unreadable:
        generate(bundle, None, 2, session=other)
    assert "--anew" in unreadable.value.remedy and "numpy" not in unreadable.value.remedy
    with (
        pytest.raises(AtlasError, match="of other keys"),
        text_client(bundle, one / KEYS, other / CLIENT),
    ):
        pass


def test_a_flipped_bit_of_the_keys_and_values_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    """Wherever it is: in a file as it lies there, and in one that was written anew."""
    session = tmp_path / "s"
    generate(bundle, PROMPT, 1, session=session)
    cache = session / SERVER / CACHE
    whole, random = cache.read_bytes(), np.random.default_rng(0)
    for place in random.integers(200, len(whole) - 2000, 9).tolist():
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        cache.write_bytes(changed)
        with pytest.raises(AtlasError):
            generate(bundle, None, 2, session=session)
    cache.write_bytes(whole)
    held = dict(np.load(cache))
    for name, array in held.items():
        other = np.array(array)
        other.reshape(-1)[-1] ^= 1
        np.savez(cache, **{**held, name: other})
        with pytest.raises(AtlasError, match="damaged|another program"):
            generate(bundle, None, 2, session=session)


def test_the_step_is_the_one_that_the_bundle_lists(bundle: Bundle, tmp_path: Path) -> None:
    shutil.copytree(bundle.folder, tmp_path / "b")
    manifest = tmp_path / "b" / "step" / "manifest.json"
    manifest.write_text(manifest.read_text() + "\n")
    with pytest.raises(AtlasError, match="changed after the bundle was compiled"):
        _ = load_bundle(tmp_path / "b").step
    shutil.rmtree(tmp_path / "b" / "step")
    with pytest.raises(AtlasError, match="no step that generates text"):
        _ = load_bundle(tmp_path / "b").step


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"top_k": 3}, "need a temperature"),
        ({"temperature": 0.0, "seed": 3}, "need a temperature"),
        ({"temperature": -1.0}, "cannot be chosen"),
        ({"temperature": 1.0, "top_k": 0}, "cannot be chosen"),
    ],
)
def test_ways_to_choose_tokens_that_are_refused(given: dict, what: str) -> None:
    with pytest.raises(AtlasError, match=what):
        sampling_of(**given)


def test_tokens_are_drawn_by_their_weights() -> None:
    logits = np.log(np.array([1.0, 4.0, 3.0, 2.0]))
    texts = [Text(np.zeros(place, int), 0) for place in range(4000)]
    drawn = [Sampling(temperature=1.0, top_k=3, seed=1).choose(logits, one) for one in texts]
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    np.testing.assert_allclose(shares, [0, 4 / 9, 3 / 9, 2 / 9], atol=0.03)
    assert Sampling().choose(logits, texts[7]) == 1
    cold = [Sampling(temperature=0.01, seed=2).choose(logits, one) for one in texts[:50]]
    assert set(cold) == {1}


def test_the_folder_is_private(bundle: Bundle, tmp_path: Path) -> None:
    generate(bundle, PROMPT, 1, session=tmp_path / "s")
    session = tmp_path / "s"
    for place in (session, session / CLIENT / RECORD, session / SERVER / CACHE):
        assert place.stat().st_mode & 0o077 == 0, place
    assert {one.name for one in session.iterdir()} == {KEYS, CLIENT, SERVER}
    assert not (session / CLIENT / REQUEST).exists()


def test_a_killed_text_leaves_neither_key_nor_prompt(bundle: Bundle, tmp_path: Path) -> None:
    """Whoever reads the folder for temporary files later finds nothing that opens the text."""
    code = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from atlasc.bundle.folder import load_bundle\n"
        "from atlasc.api.session import generate\n"
        "from atlasc.generation.server import StepServer\n"
        "StepServer.answer = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"generate(load_bundle(Path({str(bundle.folder)!r})), {PROMPT}, 2)\n"
    )
    place = tmp_path / "temporary"
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(place)}, capture_output=True
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = {path.name for path in place.rglob("*") if path.is_file()}
    assert "evaluation.key" in left and left <= {"evaluation.key", "keys.json", LEDGER}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(place))
        generate(bundle, PROMPT, 1)
    assert not list(place.iterdir())


def test_a_draw_has_a_seed_of_its_own(bundle: Bundle, tmp_path: Path) -> None:
    """Which nobody can guess; a session keeps it, and goes on without being told."""
    hot, seeds = Sampling(temperature=5.0), set()
    for name in ("one", "other"):
        generate(bundle, PROMPT, 2, hot, session=tmp_path / name)
        record = json.loads((tmp_path / name / CLIENT / RECORD).read_text())
        seeds.add(record["sampling"]["seed"])
    assert len(seeds) == 2 and 0 not in seeds
    whole = generate(bundle, PROMPT, 4, Sampling(temperature=5.0, seed=record["sampling"]["seed"]))
    assert generate(bundle, None, 4, hot, session=tmp_path / "other").ids == whole.ids
    for other in (Sampling(temperature=5.0, seed=1), Sampling(temperature=4.0)):
        with pytest.raises(AtlasError, match="another way to choose tokens"):
            generate(bundle, None, 5, other, session=tmp_path / "other")
