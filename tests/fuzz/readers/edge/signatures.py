"""The signature of a bundle, and the public key that a user gives; the tokenizer in a bundle."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from atlasc.bundle import signing
from atlasc.bundle.manifest import MANIFEST
from atlasc.loading.bounded_tokenizer import BoundedTokenizer
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
    (folder / "model" / "tokenizer_facts.json").write_text(FACTS)
    return [folder / "model"]


def _tokens(folder: Path) -> Any:
    found = BoundedTokenizer(folder)
    try:
        return found(["a q", "r"])
    finally:
        found._end()


READERS = [
    Reader("signature", _signed, _verified, 1500, lambda seeds, found: found in seeds),
    Reader("bundled-tokenizer", _tokenizers, _tokens, 2),
]
