"""Folders with settings of generation: the text of ``model.generate`` with the same folder.

The role of :func:`written` decrypts nothing: its logits are the module's own. Two folders go
through the whole compiler and both roles on the simulator.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig

from atlasc.api.session import generate
from atlasc.bundle.folder import GENERATION, Bundle
from atlasc.client.checks import Answers
from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.generation.budget import DEFAULT_STEPS
from atlasc.generation.client import TextClient
from atlasc.generation.sampling import Sampling
from atlasc.generation.steps import TextBundles
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.folder import settings_of
from atlasc.loading.generation.settings import Settings, end_alone
from atlasc.loading.models import load_model
from tests.atlasc.cli.command import run
from tests.atlasc.generation.conftest import VOCABULARY, changed, tokenizer
from tests.atlasc.generation.test_session import words
from tests.fuzz.readers.messages import ENGINE, message

WINDOW, PROMPT = 24, [3, 17, 5, 17]
ROOM = WINDOW - len(PROMPT) + 1
FILE = "generation_config.json"


def loud(module: Any) -> Any:
    """Weights that are large enough for its tokens to matter."""
    with torch.no_grad():
        for weight in module.parameters():
            if weight.ndim > 1:
                weight.mul_(8)
    return module.eval()


def llama() -> Any:
    torch.manual_seed(3)
    config = LlamaConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, vocab_size=VOCABULARY, max_position_embeddings=WINDOW + 8,
        bos_token_id=0, eos_token_id=VOCABULARY - 1,
    )  # fmt: skip
    return loud(transformers.LlamaForCausalLM(config))


def plain(count: int) -> list[int]:
    """The likeliest tokens, without any setting."""
    ids = torch.tensor([PROMPT])
    found = llama().generate(ids, max_new_tokens=count, do_sample=False, eos_token_id=None)
    return found[0, len(PROMPT) :].tolist()


def folder_of(place: Path, settings: Any, **config: object) -> Path:
    """A folder of the model; settings None: without a file of them."""
    llama().save_pretrained(place)
    tokenizer().save_pretrained(place)
    (place / FILE).unlink()
    if settings is not None:
        (place / FILE).write_text(json.dumps(settings))
    facts = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps(facts | config))
    return place


def readable() -> Any:
    """The tokenizer with the word before which transformers decodes each token."""
    found = tokenizer()
    found.add_tokens("abcdef")
    return found


def texts_of(number: int) -> list[str]:
    ids = np.random.default_rng(0).integers(1, VOCABULARY, (number, WINDOW))
    return [words(one) for one in ids.tolist()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A folder that went through the compiler: two ends, penalties and a length of its own."""
    settings = {
        "eos_token_id": [plain(9)[8], VOCABULARY - 1], "repetition_penalty": 1.3,
        "no_repeat_ngram_size": 2, "suppress_tokens": [plain(1)[0]], "max_new_tokens": 9,
        "min_new_tokens": 3,
    }  # fmt: skip
    place = tmp_path_factory.mktemp("folder")
    options = CompileOptions(
        recipe="is", target="sim", generate=True, sequence_length=WINDOW, prefill=False
    )
    model = folder_of(place / "model", settings)
    return compile_model(model, texts_of(24), place / "bundle", options).bundle


class Role:
    """The client's role of a program, whose answers are the module's own logits."""

    engine = ENGINE

    def __init__(self, bundle: Bundle, module: Any) -> None:
        self.bundle, self._module, self.ids = bundle, module, list[int]()
        self.ledger, self.ends = self, 0

    def end(self, entry: object) -> None:
        """Count an end that the server sees."""
        self.ends += 1

    def query(self, arrays: Any, *, name: str) -> Any:
        place = int(np.argmax(arrays["position"]))
        self.ids = np.asarray(arrays["input_ids"])[0, : place + 1].tolist()
        public = {one.name: np.asarray(arrays[one.name], float) for one in self._publics}
        return message("query", self.bundle, 1, name, **public)

    @property
    def _publics(self) -> Any:
        return self.bundle.interface.publics

    def decrypt(self, answer: Any) -> Answers:
        with torch.no_grad():
            logits = self._module(torch.tensor([self.ids])).logits[0, -1]
        return Answers({"logits": logits.numpy()[None].astype(float)}, {})


def written(
    bundle: Bundle, module: Any, settings: Settings, role: Role | None = None, **given: Any
) -> TextClient:
    """A text to its end, by the settings."""
    step = bundle.step
    with changed(bundle, settings):
        role = role or Role(step, module)
        client = TextClient(TextBundles(step), lambda _: role, None, PROMPT, **given)  # type: ignore[arg-type]
        while not client.finished:
            name = client._name(client.record.done)
            client.request()
            client.receive(message("answer", step, 1, name).to_bytes())
        return client


TOKENS = plain(ROOM)
FIRST, SECOND, THIRD = list(dict.fromkeys(TOKENS))[:3]
FOLDERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "one end": {"eos_token_id": TOKENS[5]},
    "two ends": {"eos_token_id": [TOKENS[7], SECOND], "pad_token_id": 0},
    "an end that is padding too": {"eos_token_id": SECOND, "pad_token_id": SECOND},
    "a stop string": {"stop_strings": f"w{SECOND}"},
    "a stop string of several tokens": {"stop_strings": ["never", f"w{TOKENS[6]} w{TOKENS[7]}"]},
    "a stop string that ends within a token": {"stop_strings": [f"{TOKENS[4]} w", "\n"]},
    "a stop string that begins in the prompt": {"stop_strings": f"w{PROMPT[-1]} w{TOKENS[0]}"},
    "a stop string before an end": {"stop_strings": f" w{TOKENS[3]}", "eos_token_id": TOKENS[5]},
    "a least number of new tokens": {"eos_token_id": SECOND, "min_new_tokens": 9},
    "a least length": {"eos_token_id": [FIRST, SECOND], "min_length": 9},
    "a greatest number of new tokens": {"max_new_tokens": 6},
    "a greatest length": {"max_length": 11},
    "both lengths": {"max_length": 9, "max_new_tokens": 7},
    "suppressed tokens": {"suppress_tokens": [FIRST, THIRD, 11]},
    "tokens that do not begin": {"begin_suppress_tokens": [TOKENS[0]], "eos_token_id": SECOND},
    "a penalty": {"repetition_penalty": 1.7},
    "a reward": {"repetition_penalty": 0.6},
    "a penalty for the prompt": {"encoder_repetition_penalty": 0.4},
    "pairs occur once": {"no_repeat_ngram_size": 2},
    "tokens occur once": {"no_repeat_ngram_size": 1},
    "pairs of the prompt": {"encoder_no_repeat_ngram_size": 2},
    "bad words": {"bad_words_ids": [[FIRST], [SECOND, THIRD], [1, 2, 3]]},
    "a bad word that is the end": {"bad_words_ids": [[SECOND], [FIRST]], "eos_token_id": SECOND},
    "biases": {"sequence_bias": [[[7], 6.5], [[FIRST, SECOND], -9.0], [[17, 9], 20.0]]},
    "a forced end": {"forced_eos_token_id": 8, "max_new_tokens": 7, "eos_token_id": 8},
    "two forced ends": {"forced_eos_token_id": [8, 9], "max_length": 10},
    "a forced beginning": {"forced_bos_token_id": 8},
    "an end that grows": {"exponential_decay_length_penalty": [3, 1.9], "eos_token_id": 21},
    "invalid values": {"remove_invalid_values": True, "suppress_tokens": [FIRST]},
    "one token is drawn": {
        "do_sample": True, "top_k": 1, "temperature": 3.0, "eos_token_id": SECOND
    },
    "a draw of the likeliest": {"do_sample": True, "top_p": 0.0, "temperature": 0.7},
    "all numbers are normalised": {"renormalize_logits": True, "eos_token_id": TOKENS[4]},
    "settings of a draw without one": {"temperature": 0.2, "top_p": 0.5, "top_k": 3},
    "many at once": {
        "eos_token_id": [VOCABULARY - 1, THIRD], "min_new_tokens": 5, "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3, "suppress_tokens": [FIRST], "bad_words_ids": [[17]],
        "begin_suppress_tokens": [SECOND], "max_new_tokens": 15,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", FOLDERS)
def test_the_text_is_that_of_the_folder(whole: Bundle, tmp_path: Path, name: str) -> None:
    facts = FOLDERS[name]
    folder = folder_of(tmp_path, {"eos_token_id": None, "pad_token_id": 0, **facts})
    module = AutoModelForCausalLM.from_pretrained(folder).eval()
    length = {} if facts.keys() & {"max_new_tokens", "max_length"} else {"max_new_tokens": ROOM}
    found = module.generate(torch.tensor([PROMPT]), tokenizer=readable(), **length)
    ids, settings = found[0, len(PROMPT) :].tolist(), settings_of(folder)
    client = written(whole, module, settings, until_end=True)
    assert client.result.ids == ids
    stops = bool(settings.stop_strings) and len(ids) < ROOM
    assert client.ended == (ids[-1] in settings.eos_token_id or stops)
    fixed = written(whole, module, settings, **({"steps": ROOM} if length else {}))
    assert fixed.result.ids == ids  # the server sees a fixed number of queries


def test_folders_differ_from_the_likeliest_tokens(tmp_path: Path) -> None:
    """Otherwise a setting that does nothing would pass."""
    module = llama()
    changing = 0
    for facts in FOLDERS.values():
        config = transformers.GenerationConfig(eos_token_id=None)
        config.update(**{"max_new_tokens": ROOM} | facts)
        ids = module.generate(
            torch.tensor([PROMPT]), generation_config=config, tokenizer=readable()
        )
        changing += ids[0, len(PROMPT) :].tolist() != TOKENS
    assert changing >= len(FOLDERS) - 6


def test_settings_in_the_old_place_are_applied(whole: Bundle, tmp_path: Path) -> None:
    old = {"eos_token_id": SECOND, "repetition_penalty": 1.4, "min_length": 9, "top_k": 7}
    folder = folder_of(tmp_path, None, **old)
    module = AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = module.generate(torch.tensor([PROMPT]), max_new_tokens=ROOM)[0, len(PROMPT) :].tolist()
    found = settings_of(folder)
    assert found == Settings(eos_token_id=(SECOND,), repetition_penalty=1.4, min_length=9, top_k=7)
    assert written(whole, module, found, steps=ROOM).result.ids == ids
    assert not load_model(folder).notes
    (folder / FILE).write_text("{}")  # takes the place of config.json altogether
    assert settings_of(folder) == Settings()
    said = "\n".join(load_model(folder).notes[0])
    assert "config.json: repetition_penalty = 1.4" in said and "min_length = 9" in said


def test_a_compiled_folder_writes_its_own_text(whole: Bundle, tmp_path: Path) -> None:
    """Through the compiler, encryption and the command, without an option."""
    module = AutoModelForCausalLM.from_pretrained(whole.folder.parent / "model").eval()
    ids = module.generate(torch.tensor([PROMPT]))[0, len(PROMPT) :].tolist()
    assert len(ids) <= 9 and ids != TOKENS[: len(ids)]
    result = generate(whole, PROMPT, None)
    assert result.ids == ids
    shown = run("generate", whole.folder, words(PROMPT), "--tokens", 2)
    assert shown.out == words(ids[:2]) + "\n"
    assert "repetition_penalty 1.3, no_repeat_ngram_size 2" in shown.err
    assert "2 tokens at most" in shown.err
    cold = generate(whole, PROMPT, 2, Sampling(temperature=0.0))
    assert cold.ids == ids[:2]
    assert f"{GENERATION}" in whole.step.manifest.files


def test_a_module_has_settings_of_its_own(tmp_path: Path) -> None:
    """``module.generation_config`` of a model in memory, which no file has."""
    torch.manual_seed(1)
    config = GPT2Config(
        n_embd=8, n_layer=1, n_head=2, vocab_size=VOCABULARY, n_positions=WINDOW,
        bos_token_id=0, eos_token_id=VOCABULARY - 1,
    )  # fmt: skip
    module = loud(GPT2LMHeadModel(config))
    module.generation_config.update(
        repetition_penalty=2.0, suppress_tokens=[5], max_length=9, do_sample=False, temperature=0.3
    )
    ids = module.generate(torch.tensor([PROMPT]))[0, len(PROMPT) :].tolist()
    options = CompileOptions(
        recipe="is", target="sim", generate=True, sequence_length=12, prefill=False
    )
    texts = [" ".join(one.split()[:12]) for one in texts_of(24)]
    found = compile_model(module, texts, tmp_path / "b", options, tokenizer=tokenizer())
    assert found.bundle.step.generation.eos_token_id == (VOCABULARY - 1,)
    assert generate(found.bundle, PROMPT, None).ids == ids


def test_a_session_that_settings_stop_is_counted(whole: Bundle) -> None:
    """Where no token is left depends on the text, and the server sees that no query follows."""
    settings = Settings(
        no_repeat_ngram_size=1, suppress_tokens=tuple(set(range(VOCABULARY)) - {7, 8})
    )
    role = Role(whole.step, llama())
    with pytest.raises(AtlasError, match=f"leave no token at place {len(PROMPT) + 2}"):
        written(whole, role._module, settings, role, steps=4)
    assert role.ends == 1


def test_a_text_without_a_length_has_the_default_one(whole: Bundle) -> None:
    module = llama()
    most = min(DEFAULT_STEPS, ROOM)
    assert len(written(whole, module, Settings()).result.ids) == most
    long = Settings(max_length=4096)
    assert len(written(whole, module, long).result.ids) == ROOM  # as many as fit
    with pytest.raises(AtlasError, match="max_length of the model is 3"):
        written(whole, module, Settings(max_length=3))
    assert len(written(whole, module, Settings(max_length=3), steps=2).result.ids) == 2


def test_a_bundle_without_settings_ends_where_its_config_says(whole: Bundle) -> None:
    """As older versions wrote it: the likeliest tokens, or all of them where the user draws."""
    assert end_alone(7) == Settings(eos_token_id=(7,), top_k=0)
    assert end_alone([7, -1, "x", 2**40]) == end_alone(7)
    assert end_alone(None) == Settings(top_k=0)
    older = whole.step.manifest.model_copy(update={"files": {}})
    found = Bundle(whole.step.folder, older, whole.step.identity).generation
    assert found == end_alone(VOCABULARY - 1)


@pytest.mark.parametrize(
    "settings",
    [
        {"eos_token_id": [2, VOCABULARY]}, {"suppress_tokens": [VOCABULARY]},
        {"bad_words_ids": [[1, VOCABULARY]]}, {"sequence_bias": [[[VOCABULARY], 1.0]]},
        {"forced_bos_token_id": VOCABULARY}, {"forced_eos_token_id": VOCABULARY},
        {"begin_suppress_tokens": [VOCABULARY + 3]},
    ],
)  # fmt: skip
def test_ids_outside_of_the_vocabulary_are_refused_before_any_work(
    whole: Bundle, tmp_path: Path, settings: dict[str, Any]
) -> None:
    folder, (name,) = folder_of(tmp_path / "m", settings), settings
    options = CompileOptions(recipe="is", target="sim", generate=True, sequence_length=WINDOW)
    with pytest.raises(AtlasError, match=f"{name} has the id") as caught:
        compile_model(folder, texts_of(8), tmp_path / "b", options)
    assert caught.value.why == f"the vocabulary has {VOCABULARY} tokens"
    with pytest.raises(AtlasError, match=f"{name} has the id"):
        written(whole, llama(), settings_of(folder))
