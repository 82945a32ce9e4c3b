"""A text program for hostile services, with a tokenizer that hides a letter in its ids."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_model import make_text_bundle
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from atlasc.loading.texts.tokenizer import TokenizerFacts
from atlasc.remote import link

BITS = {"q": "1 0 1 1 0 1", "r": "1 0 0 1 1 0"}


def letters() -> str:
    """A tokenizer that writes a letter as bits."""
    found = Tokenizer(models.WordLevel({"0": 0, "1": 1}, unk_token="0"))
    found.normalizer = normalizers.Sequence([normalizers.Replace(*one) for one in BITS.items()])
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return str(found.to_str())


FACTS = TokenizerFacts(
    names=["input_ids"], splits_special=False, truncation_side="right", padding_side="right",
    pad_token_id=0, pad_token_type_id=0, model_max_length=None,
).model_dump_json()  # fmt: skip
SPEAKS = {
    "client/model/tokenizer.json": lambda _: letters(),
    "client/model/tokenizer_facts.json": lambda _: FACTS,
}
"""Edits that give the program the tokenizer."""


@pytest.fixture(scope="session")
def text_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_text_bundle(tmp_path_factory.mktemp("text"))


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way that must carry a hundred megabytes a second, after half a second."""
    monkeypatch.setattr(link, "TIMEOUT", 0.5)
    monkeypatch.setattr(link, "SLOWEST", 10**8)
    monkeypatch.setattr(link, "PATIENCE", 0.0)
    for call in (link.Link.fetch, link.Link.send):
        monkeypatch.setitem(call.__kwdefaults__, "patience", 0.0)
