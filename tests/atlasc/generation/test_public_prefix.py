"""A public prefix: the text of the model, from keys and values that were computed in the clear."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedTokenizerFast,
)

from atlasc.api.session import CLIENT, SERVER, TextSession, generate
from atlasc.bundle.folder import PREFIX, Bundle, load_bundle
from atlasc.bundle.split import copy_part
from atlasc.compilation.checks import check_compile
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.generation.client import TextClient
from atlasc.generation.prompt import prompt_ids
from atlasc.generation.record import RECORD
from atlasc.generation.server import CACHE, StepServer, with_seal
from atlasc.generation.steps import public_tokens
from atlasc.ir.errors import AtlasError
from atlasc.loading.data import inputs_of
from atlasc.loading.models import model_of
from atlasc.loading.texts.public_prefix import prefix_of, put_before, room_after
from tests.atlasc.cli.command import run
from tests.atlasc.generation.conftest import TOKENS, VOCABULARY, model, tokenizer
from tests.atlasc.generation.test_session import Killed, killed_in, words

ROOT = Path(__file__).resolve().parents[3]

PUBLIC, PROMPT = [9, 3, 28], [17, 5]
MOST = TOKENS - len(PUBLIC) - len(PROMPT) + 1


def gpt2() -> GPT2LMHeadModel:
    """A decoder with learned positions."""
    torch.manual_seed(1)
    config = GPT2Config(
        n_embd=8, n_layer=1, n_head=2, vocab_size=VOCABULARY, n_positions=TOKENS,
        bos_token_id=0, eos_token_id=VOCABULARY - 1,
    )  # fmt: skip
    made = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for weight in made.parameters():
            if weight.ndim > 1:
                weight.mul_(20)
    return made


def greedy(made: Any, ids: list[int], count: int) -> list[int]:
    """HuggingFace's own text."""
    with torch.no_grad():
        found = made.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)
    return found[0, len(ids) :].tolist()


def compiled(folder: Path, made: Any, text: str = words(PUBLIC) + "\n", **given: Any) -> Bundle:
    """A decoder with a public prefix."""
    folder.mkdir()
    (folder / "prefix.txt").write_text(text)
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (24, TOKENS))
    options = {
        "recipe": "is", "target": "sim", "generate": True, "sequence_length": TOKENS,
        "public_prefix": folder / "prefix.txt",
    } | given  # fmt: skip
    data, place = [words(one) for one in ids], folder / "bundle"
    made_with = CompileOptions(**options)
    return compile_model(made, data, place, made_with, tokenizer=tokenizer()).bundle


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return compiled(tmp_path_factory.mktemp("public") / "llama", model())


def test_the_text_is_that_of_the_model_after_the_prefix(public: Bundle) -> None:
    result = generate(public, words(PROMPT), MOST)
    assert result.ids == greedy(model(), PUBLIC + PROMPT, MOST)
    assert result.ids != greedy(model(), PROMPT, MOST)
    assert result.prompt == PROMPT
    assert generate(public, PROMPT, MOST) == result


def test_the_prefix_stays_when_tokens_leave(public: Bundle) -> None:
    window, held, wanted = 6, [*PUBLIC, *PROMPT], list[int]()
    for _ in range(7):
        if len(held) > TOKENS:
            held = [*PUBLIC, *held[len(PUBLIC) - window :]]
        wanted += greedy(model(), held, 1)
        held.append(wanted[-1])
    with TextSession(public, window=window) as session:
        assert session.say(words(PROMPT), 7).ids == wanted
        with pytest.raises(AtlasError, match="the turn has 4 tokens") as caught:
            session.say(words([4, 5, 6, 7]), 1)
    assert "there is room for 3 beside the public prefix of 3" in caught.value.why


@pytest.mark.parametrize("head", ["client", "server"])
def test_learned_positions_begin_after_the_prefix(tmp_path: Path, head: str) -> None:
    bundle = compiled(tmp_path / "gpt2", gpt2(), head=head)
    wanted = greedy(gpt2(), PUBLIC + PROMPT, MOST)
    assert generate(bundle, words(PROMPT), MOST).ids == wanted
    assert len(set(wanted)) > 1


def test_only_the_prompt_takes_steps(public: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, whole = [], StepServer.answer

    def answer(self: StepServer, *given: Any, **more: Any) -> bytes:
        asked.append(self.tokens)
        return whole(self, *given, **more)

    monkeypatch.setattr(StepServer, "answer", answer)
    generate(public, PROMPT, 2)
    assert asked == [3, 4, 5]


def test_keys_and_values_of_the_prefix_are_exact(public: Bundle) -> None:
    """The server has those of the prefix, and the client its tokens."""
    with torch.no_grad():
        cache = model()(torch.tensor([PUBLIC]), use_cache=True).past_key_values
    values = cache.layers[0].values.numpy()
    program = public.step.program
    (rows,) = (
        program.symbols[op.attributes["prefix"].name]
        for op in program.inputs
        if op.attributes["name"] == "values.0"
    )
    assert rows.shape == values.shape == (1, 2, len(PUBLIC), 4)
    factor = float((rows * values).sum() / np.square(values).sum())  # packed values are scaled
    np.testing.assert_allclose(rows, factor * values, rtol=0, atol=1e-5 * np.abs(rows).max())
    prefix = public.step.public_prefix
    assert prefix is not None
    assert (list(prefix.ids), prefix.text) == (PUBLIC, words(PUBLIC) + "\n")


def test_the_roles_apart_know_the_prefix(public: Bundle, tmp_path: Path) -> None:
    for role in ("client", "server"):
        copy_part(public.folder, role, tmp_path / role)
        assert public_tokens(load_bundle(tmp_path / role, role).step) == len(PUBLIC)
    assert not (tmp_path / "server" / "step" / PREFIX).exists()
    parts, keys = tmp_path, tmp_path / "keys"
    run("keygen", parts / "client" / "step", "-o", keys)
    mine = ("--keys", keys / "client", "--session", tmp_path / "text")
    theirs = ("--keys", keys / "server", "--cache", tmp_path / "cache")
    found: dict[str, Any] = {}
    for number in range(3):
        query, answer = tmp_path / f"query.{number}", tmp_path / f"answer.{number}"
        prompt = [] if number else [words(PROMPT)]
        said = run("ask", parts / "client", *prompt, *mine, "-o", query, "--json").out
        assert json.loads(said)["token"] == number
        run("answer", parts / "server", *theirs, "--query", query, "-o", answer)
        found = json.loads(run("read", parts / "client", *mine, "--answer", answer, "--json").out)
    assert found["ids"] == greedy(model(), PUBLIC + PROMPT, 2)
    assert (found["prompt"], found["done"]) == (PROMPT, 3)


@pytest.mark.parametrize(
    ("owner", "name", "calls"),
    [(TextClient, "request", 2), (StepServer, "_keep", 1), (TextClient, "_save", 3)],
)
def test_a_killed_session_goes_on_at_the_same_token(
    public: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str,
    calls: int,
) -> None:  # fmt: skip
    with monkeypatch.context() as patched:
        killed_in(patched, owner, name, calls)
        with pytest.raises(Killed):
            generate(public, PROMPT, MOST, session=tmp_path / "s")
    wanted = greedy(model(), PUBLIC + PROMPT, MOST)
    assert generate(public, None, MOST, session=tmp_path / "s").ids == wanted


def test_sessions_and_caches_of_another_prefix_are_refused(public: Bundle, tmp_path: Path) -> None:
    place = tmp_path / "s"
    generate(public, PROMPT, 1, session=place)
    other = compiled(tmp_path / "other", model(), words([9, 3, 29]) + "\n")
    with pytest.raises(AtlasError, match="a session of another public prefix"):
        generate(other, None, 2, session=place)
    record = place / CLIENT / RECORD
    whole = record.read_text()
    found = json.loads(whole)
    assert found["public"] == public.step.public_prefix.digest
    for change in ({"ids": [1, *found["ids"][1:]]}, {"done": 1}, {"prompt": 3}):
        record.write_text(json.dumps(found | change))
        with pytest.raises(AtlasError, match="damaged"):
            generate(public, None, 2, session=place)
    record.write_text(whole)
    cache = place / SERVER / CACHE
    held = dict(np.load(cache))
    np.savez(cache, **with_seal({**held, "tokens": np.array(len(PUBLIC))}))
    with pytest.raises(AtlasError, match="damaged"):
        generate(public, None, 2, session=place)


@pytest.mark.parametrize(
    ("prompt", "tokens", "what"),
    [
        ("", 1, "the prompt has 0 tokens"),
        ([], 1, "the prompt has 0 tokens"),
        (list(range(1, TOKENS)), 1, f"the prompt has {TOKENS - 1} tokens"),
        (PROMPT, MOST + 1, f"{MOST + 1} tokens after a prompt of 5 with 3 public ones do not fit"),
    ],
)
def test_what_does_not_fit_is_refused(
    public: Bundle, prompt: list[int] | str, tokens: int, what: str
) -> None:
    with pytest.raises(AtlasError, match=what):
        generate(public, prompt, tokens)


def test_a_damaged_prefix_is_refused(public: Bundle, tmp_path: Path) -> None:
    shutil.copytree(public.folder, tmp_path / "b")
    place = tmp_path / "b" / "step" / PREFIX
    place.write_text(place.read_text().replace("28", "27"))
    with pytest.raises(AtlasError, match="was changed after the bundle was compiled"):
        _ = load_bundle(tmp_path / "b").step
    for text in ("{}", '{"text": "w1", "ids": []}', '{"text": "w1", "ids": [-1]}'):
        place.write_text(text)
        with pytest.raises(AtlasError, match="the public prefix"):
            _ = replace(public.step, folder=tmp_path / "b" / "step").public_prefix


def joining() -> PreTrainedTokenizerFast:
    """Pairs of letters are tokens: the border of two texts may lie in one. A text begins with 0."""
    letters = "abcd"
    pairs = [one + other for one in letters for other in letters]
    tokens = ["<s>", *letters, *pairs, "\n", *(f"<{n}>" for n in range(VOCABULARY - 22))]
    ids = {token: number for number, token in enumerate(tokens)}
    found = Tokenizer(models.BPE(ids, [(pair[0], pair[1]) for pair in pairs]))
    found.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    found.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)])
    return PreTrainedTokenizerFast(tokenizer_object=found, pad_token="<s>")


def test_a_token_across_the_border_is_refused(tmp_path: Path) -> None:
    """The first token of all texts is that of the prefix, once."""
    data = ["abcdab", "ba", "cdcdab", "ddaacc"] * 6
    (tmp_path / "prefix.txt").write_text("abc")
    options = CompileOptions(
        recipe="is", target="sim", generate=True, public_prefix=tmp_path / "prefix.txt",
    )  # fmt: skip
    step = compile_model(model(), data, tmp_path / "b", options, tokenizer=joining()).bundle.step
    known = joining()("abc")["input_ids"]
    assert (known[0], list(step.public_prefix.ids)) == (0, known)
    assert step.manifest.sequence_length == len(known) + 3  # the longest text has three pairs
    with pytest.raises(AtlasError, match="joins the prompt and the end of the public prefix") as e:
        prompt_ids(step, "dab")
    assert "the last 1 would change" in e.value.why
    assert prompt_ids(step, "\nab") == joining()("\nab")["input_ids"][1:]


@pytest.mark.parametrize(
    ("text", "given", "what"),
    [
        (" \n", {}, "is empty"),
        (words(PUBLIC), {"generate": False}, "no effect without --generate"),
        (words(PUBLIC), {"recipe": None, "front": Path("front")}, "--public-prefix and --front"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, text: str, given: dict, what: str) -> None:
    place = tmp_path / "prefix.txt"
    place.write_text(text)
    options = {"target": "sim", "generate": True, "public_prefix": place, "recipe": "is"} | given
    with pytest.raises(AtlasError, match=what):
        check_compile(tmp_path / "bundle", CompileOptions(**options))


def test_prefixes_that_leave_no_room_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match=f"the public prefix has {TOKENS} tokens") as found:
        compiled(tmp_path / "long", model(), words(list(range(TOKENS))))
    assert f"--sequence-length {TOKENS + 1} or more" in found.value.remedy
    with pytest.raises(AtlasError, match="nothing.txt"):
        compiled(tmp_path / "gone", model(), public_prefix=tmp_path / "nothing.txt")


@pytest.mark.parametrize(
    ("segments", "what"),
    [(1, "attention cannot be computed for one token"), (2, "a public prefix is for decoders")],
)
def test_an_encoder_is_refused(tmp_path: Path, segments: int, what: str) -> None:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16, type_vocab_size=segments,
    )  # fmt: skip
    with pytest.raises(AtlasError, match=what):
        compiled(tmp_path / "bert", BertModel(config, add_pooling_layer=False))


def test_a_model_of_images_is_refused() -> None:
    with pytest.raises(AtlasError, match="--public-prefix is for texts"):
        prefix_of("ab", model_of(ROOT / "examples" / "digits_vit" / "model"))


def test_public_tokens_are_reported(public: Bundle) -> None:
    assert "the first 3 tokens are public" in run("inspect", public.step.folder).out
    assert json.loads(run("inspect", public.folder, "--json").out)["public_tokens"] == 3
    assert "first 3 tokens of a generated text" in (public.folder / "report.html").read_text()


def test_texts_of_data_follow_the_prefix() -> None:
    """What the tokenizer puts before a text comes once; texts are cut to what is left."""
    loaded = model_of(model(), joining())
    prefix = prefix_of("ab\n", loaded)
    first, *_ = prefix.ids
    room = room_after(prefix, loaded, 6)
    assert (first, room) == (0, 6 - len(prefix.ids) + 1)
    texts = inputs_of(["cd", "cdcdcdcd"], loaded, room)
    found = put_before({"data": texts}, loaded, prefix, 6)["data"]
    pair = joining()("cd")["input_ids"][1]
    front = list(prefix.ids)
    assert found.arrays["input_ids"].tolist() == [
        [*front, pair, *[0] * (5 - len(front))],
        [*front, *[pair] * (6 - len(front))],
    ]
    assert found.arrays["attention_mask"].sum(axis=1).tolist() == [len(front) + 1, 6]
    ids = inputs_of([[pair] * room], loaded, room)
    with pytest.raises(AtlasError, match="a text of 7 tokens with the public prefix is too long"):
        put_before({"data": ids}, loaded, prefix, 6)
