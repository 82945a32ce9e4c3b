"""A text's files and messages: the client's session, the server's keys and values, queries of a
prompt and of a token, the public prefix, settings of generation, conversations, and the bundle with
a step and a prefill in it.

Ciphertexts are those of an engine that takes any bytes for one.
"""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from atlasc.bundle.folder import GENERATION, PREFIX, Bundle, load_bundle
from atlasc.cli.commands.generate import said
from atlasc.generation.client import TextClient
from atlasc.generation.processors import Text
from atlasc.generation.record import RECORD
from atlasc.generation.sampling import Sampling
from atlasc.generation.server import CACHE, StepServer
from atlasc.generation.steps import TextBundles, name_of, public_at
from atlasc.ir.text.storage import print_module
from atlasc.loading.generation.folder import settings_of, unapplied
from atlasc.loading.texts.chat import ChatTemplate, messages_of, rendered
from atlasc.loading.texts.public_prefix import PublicPrefix, read_public_prefix
from tests.atlasc.client.interfaces import rows_of
from tests.fuzz.reader import Reader
from tests.fuzz.readers.messages import ENGINE, message
from tests.fuzz.seeds import compiled

TEMPLATE = ChatTemplate(text="{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")
SESSION, PROMPT = "0123456789abcdef" * 2, 2


@cache
def _programs() -> TextBundles:
    return TextBundles.of(load_bundle(compiled() / "decoder" / "bundle"))


class _Role:
    """Both roles of a program, which compute nothing."""

    engine = ENGINE

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle

    def query(self, arrays: Any, *, name: str) -> Any:
        public = {one.name for one in self.bundle.interface.publics} & arrays.keys()
        given = {one: np.asarray(arrays[one], float) for one in public}
        return message("query", self.bundle, 1, name, **given)

    def compute(self, values: Any, public: Any, progress: Any = None) -> Any:
        outputs = self.bundle.program.outputs
        kinds = {op.attributes["name"]: op.operands[0].ciphertext for op in outputs}
        made = {
            name: [bytes([kind.level or 0]) + bytes(100)] * kind.ciphertexts
            for name, kind in kinds.items()
        }
        return made, None


def _query(place: int) -> bytes:
    """The query of the prompt, or of a token after it."""
    programs = _programs()
    program = programs.step if place >= PROMPT else programs.prefill
    assert program is not None
    given = {name: one.astype(float) for name, one in public_at(program, place).items()}
    name = name_of(SESSION, 0 if place < PROMPT else place)
    return message("query", program, 1, name, **given).to_bytes()


def _messages(folder: Path) -> list[Path]:
    (folder / "prefill").write_bytes(_query(PROMPT - 1))
    (folder / "step").write_bytes(message_of_first_token())
    return [folder / "prefill", folder / "step"]


def message_of_first_token() -> bytes:
    """The query of a text whose prompt is computed by steps."""
    step = _programs().step
    given = {name: one.astype(float) for name, one in public_at(step, 0).items()}
    return message("query", step, 1, SESSION, **given).to_bytes()


def _answered(path: Path) -> Any:
    server = StepServer(_programs(), _Role, None)
    return len(server.answer(path.read_bytes())), server.tokens


def _caches(folder: Path) -> list[Path]:
    (folder / "text").mkdir()
    StepServer(_programs(), _Role, folder / "text").answer(_query(PROMPT - 1))
    return [folder / "text"]


def _cache(folder: Path) -> Any:
    server = StepServer(_programs(), _Role, folder)
    assert (folder / CACHE).exists() == (server.tokens > 0)
    states = server._read_states(ENGINE) if server.tokens else {}
    return server.tokens, server._kept, states


def _sessions(folder: Path) -> list[Path]:
    text = TextClient(_programs(), _Role, folder / "session", [1, 2], steps=3)
    text.request()
    return [folder / "session"]


def _session(folder: Path) -> Any:
    text = TextClient(_programs(), _Role, folder)
    if (folder / RECORD).exists() and not text.finished:
        copy = folder.with_name("copy")
        shutil.copytree(folder, copy, symlinks=True, dirs_exist_ok=True)
        try:
            TextClient(_programs(), _Role, copy).request()
        finally:
            shutil.rmtree(copy)
    return text.record.ids, text.record.done


def _prefixes(folder: Path) -> list[Path]:
    (folder / "part" / PREFIX).parent.mkdir(parents=True)
    known = PublicPrefix(text="be brief\n", ids=(1, 2, 3))
    (folder / "part" / PREFIX).write_text(known.model_dump_json())
    (folder / "part" / "system.txt").write_text("be brief\n")
    return [folder / "part"]


def _prefix(folder: Path) -> Any:
    bundle = SimpleNamespace(manifest=SimpleNamespace(files={PREFIX: ""}), folder=folder)
    known = Bundle.public_prefix.func(bundle)  # type: ignore[attr-defined]
    return known.digest, read_public_prefix(folder / "system.txt")


def _settings(folder: Path) -> list[Path]:
    place = folder / "model"
    (place / GENERATION).parent.mkdir(parents=True)
    known = {"eos_token_id": [2, 3], "repetition_penalty": 1.5, "bad_words_ids": [[1, 2]]}
    old = {"model_type": "llama", "text_config": {"eos_token_id": 2, "min_length": 3}}
    (place / "config.json").write_text(json.dumps(old | {"suppress_tokens": [5]}))
    (place / "generation_config.json").write_text(json.dumps(known | {"num_beams": 2}))
    (place / GENERATION).write_text(json.dumps(known))
    (folder / "old").mkdir()
    shutil.copy(place / "config.json", folder / "old")
    shutil.copytree(place / "client", folder / "old" / "client")
    return [place, folder / "old"]


def _setting(folder: Path) -> Any:
    read = Bundle.generation.func(  # type: ignore[attr-defined]
        SimpleNamespace(manifest=SimpleNamespace(files={GENERATION: ""}), folder=folder)
    )
    text = Text(np.array([1, 2, 3]), 2, 9)
    chosen = [Sampling().choose(np.arange(9.0), text, one) for one in (read, settings_of(folder))]
    return chosen, [*unapplied(folder)]


def _chats(folder: Path) -> list[Path]:
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"}]
    (folder / "chat.json").write_text(json.dumps(messages))
    return [folder / "chat.json"]


def _chat(path: Path) -> Any:
    return rendered(TEMPLATE, messages_of(said("", True, path)))


def _bundles(folder: Path) -> list[Path]:
    return [Path(shutil.copytree(compiled() / "decoder" / "bundle", folder / "bundle"))]


def _bundle(folder: Path) -> Any:
    programs = TextBundles.of(load_bundle(folder))
    found = [one for one in (programs.step, programs.prefill, programs.whole) if one is not None]
    texts = [(print_module(one.program), rows_of(one.interface, "inputs")) for one in found]
    return [one.identity for one in found], texts


READERS = [
    Reader("text-message", _messages, _answered, 500),
    Reader("text-cache", _caches, _cache, 300, lambda seeds, found: found in seeds or not found[0]),
    Reader("text-session", _sessions, _session, 500),
    Reader("public-prefix", _prefixes, _prefix, 1500),
    Reader("generation", _settings, _setting, 800),
    Reader("chat", _chats, _chat, 800),
    Reader("text-bundle", _bundles, _bundle, 10, lambda seeds, found: _same_programs(seeds, found)),
]


def _same_programs(seeds: list[Any], found: Any) -> bool:
    """Who changes a program has another identity."""
    return all(identity != found[0] or texts == found[1] for identity, texts in seeds)
