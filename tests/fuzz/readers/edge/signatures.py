"""The signature of a bundle, and the public key that a user gives; the tokenizer in a bundle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from atlasc.bundle import signing
from atlasc.bundle.manifest import MANIFEST
from atlasc.ir.errors import explained
from atlasc.loading import tokenizer_process
from atlasc.loading.bounded_tokenizer import BoundedTokenizer
from atlasc.loading.texts.chat import ChatMessage
from atlasc.loading.texts.tokenizer import read_tokenizer
from tests.atlasc.remote.conftest import FACTS, letters
from tests.fuzz.reader import Reader

PUBLIC = "maker.pub"


def _signed(folder: Path) -> list[Path]:
    place = folder / "signed"
    place.mkdir()
    public = signing.make_key(folder / "maker", "")
    (place / PUBLIC).write_text(public.read_text())
    (place / MANIFEST).write_text('{"format": 1}')
    signing.sign(_bundle(place), folder / "maker", "")
    return [place]


def _bundle(folder: Path) -> Any:
    return SimpleNamespace(folder=folder, identity="0" * 32)


def _verified(folder: Path) -> Any:
    signing.verify(_bundle(folder), folder / PUBLIC)
    return (folder / MANIFEST).read_bytes()


def _tokenizers(folder: Path) -> list[Path]:
    (folder / "model").mkdir()
    (folder / "model" / "tokenizer.json").write_text(letters())
    facts = json.loads(FACTS) | {"chat": {"text": "a {{ messages[0].content }}", "tokens": {}}}
    (folder / "model" / "tokenizer_facts.json").write_text(json.dumps(facts))
    return [folder / "model"]


class _Forked:
    """The tokenizer's own process, without the half second in which a new one imports."""

    def __init__(self, command: list[str], **_: object) -> None:
        (given, asks), (answers, told) = os.pipe(), os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.dup2(given, 0)
            os.dup2(told, 1)
            sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
            try:
                tokenizer_process.main(Path(command[4]))
            finally:
                os._exit(0)
        os.close(given)
        os.close(told)
        self.stdin, self.stdout = os.fdopen(asks, "wb"), os.fdopen(answers, "rb")

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)

    def wait(self) -> None:
        os.waitpid(self._pid, 0)


def _tokens(folder: Path) -> Any:
    with patch.object(subprocess, "Popen", _Forked):
        found = BoundedTokenizer(folder)
    try:
        message = ChatMessage(role="user", content="q")
        chat = found.chat_ids([message]) if found.facts.chat else []
        return found(["a q", "r"]), found.places("a", "q", 8), chat
    finally:
        found._end()


def _read_tokens(folder: Path) -> Any:
    """As the tokenizer's own process does it, for the speed."""
    found, options = read_tokenizer(folder), {"truncation": False, "max_length": None}
    with explained("as main says of any error"):
        asked = {"texts": ["a q", "r"], "seconds": None, "options": options}
        places = {"places": ["a", "q", 8]}
        return found and [tokenizer_process._answer(found, one) for one in (asked, places)]


READERS = [
    Reader("signature", _signed, _verified, 1500, lambda seeds, found: found in seeds),
    Reader("bundled-tokenizer", _tokenizers, _tokens, 50),
    Reader("read-tokenizer", _tokenizers, _read_tokens, 1000),
]
