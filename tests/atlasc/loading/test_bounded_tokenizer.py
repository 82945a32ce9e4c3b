"""The tokenizer of a bundle comes from somebody else: its memory and its time have bounds."""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from atlasc.ir.errors import AtlasError
from atlasc.loading import bounded_tokenizer
from atlasc.loading.bounded_tokenizer import BoundedTokenizer
from atlasc.loading.texts.tokenizer import BACKEND, FACTS, TokenizerFacts, read_tokenizer

WORDS = {"a": 0, "b": 1, "[CLS]": 2}
PLAIN = TokenizerFacts(
    names=["input_ids", "token_type_ids"], splits_special=False, truncation_side="right",
    padding_side="right", pad_token_id=1, pad_token_type_id=0, model_max_length=None,
)  # fmt: skip


def written(folder: Path, backend: Tokenizer | str, facts: str = PLAIN.model_dump_json()) -> Path:
    folder.mkdir(exist_ok=True)
    text = backend if isinstance(backend, str) else str(backend.to_str())
    (folder / BACKEND).write_text(text)
    (folder / FACTS).write_text(facts)
    return folder


def words() -> Tokenizer:
    found = Tokenizer(models.WordLevel(WORDS, unk_token="b"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    found.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A [CLS] $B:1", special_tokens=[("[CLS]", 2)]
    )
    return found


def test_it_gives_what_the_tokenizer_gives(tmp_path: Path) -> None:
    folder = written(tmp_path / "t", words())
    apart, here = BoundedTokenizer(folder), read_tokenizer(folder)
    assert here is not None and apart.facts == here.facts and apart.pad_token_id == 1
    texts = ["a b", "", "b " * 50, "é\u0000"] * 200
    assert apart(texts) == here(texts)
    assert apart(texts, texts[::-1]) == here(texts, texts[::-1])
    cut = {"truncation": "longest_first", "max_length": 7}
    assert apart(texts, texts, **cut) == here(texts, texts, **cut)
    assert apart.decode([0, 1, 2]) == here.decode([0, 1, 2])
    assert apart.decode([2], skip_special_tokens=True) == here.decode([2], skip_special_tokens=True)
    with pytest.raises(AttributeError):
        _ = apart.backend_tokenizer


def doubling() -> Tokenizer:
    """2^29 letters of one."""
    found = words()
    found.normalizer = normalizers.Sequence([normalizers.Replace("a", "aa")] * 29)
    return found


def spaced() -> Tokenizer:
    """2^23 tokens of one letter, each of little memory."""
    found = doubling()
    steps = [normalizers.Replace("a", "aa")] * 23 + [normalizers.Replace("a", "a ")]
    found.normalizer = normalizers.Sequence(steps)
    return found


def repeating() -> Tokenizer:
    """A template with the text a million times."""
    found = words()
    found.post_processor = processors.TemplateProcessing(
        single=" ".join(["$A"] * 10**6), pair="$A $B:1", special_tokens=[]
    )
    return found


def padding() -> str:
    told = json.loads(words().to_str())
    told["padding"] = {
        "strategy": {"Fixed": 2**40}, "direction": "Right", "pad_to_multiple_of": None,
        "pad_id": 0, "pad_type_id": 0, "pad_token": "a",
    }  # fmt: skip
    return json.dumps(told)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.mark.deep("faults")
@pytest.mark.parametrize("make", [doubling, spaced, repeating])
def test_memory_has_a_bound(tmp_path: Path, make) -> None:
    """In a process that lives on, and refuses clearly."""
    apart, before = BoundedTokenizer(written(tmp_path / "t", make())), peak()
    with pytest.raises(AtlasError, match="was stopped|makes [0-9]+ tokens of 1 texts") as caught:
        apart(["a " * 50 if make is repeating else "a"])
    assert "do not use this bundle" in caught.value.remedy
    assert peak() - before < 200
    assert apart(["b"])["input_ids"][0][-1] == 1  # it starts again


def test_padding_of_the_file_is_not_used(tmp_path: Path) -> None:
    apart = BoundedTokenizer(written(tmp_path / "t", padding()))
    assert apart(["a b"])["input_ids"] == [[2, 0, 1]]


def test_time_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = words()
    slow.normalizer = normalizers.Sequence([normalizers.Replace(Regex("z"), "y")] * 20_000)
    apart = BoundedTokenizer(written(tmp_path / "t", slow))
    monkeypatch.setattr(bounded_tokenizer, "SECONDS", 2.0)
    begun = time.monotonic()
    with pytest.raises(AtlasError, match="it takes more than 2 s"):
        apart(["a" * 2_000_000])
    assert time.monotonic() - begun < 30


@pytest.mark.parametrize(
    ("backend", "facts"),
    [
        ("{", PLAIN.model_dump_json()),
        ("[]", PLAIN.model_dump_json()),
        ("", PLAIN.model_dump_json()),
        (words().to_str(), "{}"),
        (words().to_str(), "["),
    ],
)
def test_what_is_no_tokenizer_is_refused(tmp_path: Path, backend: str, facts: str) -> None:
    with pytest.raises(AtlasError):
        BoundedTokenizer(written(tmp_path / "t", backend, facts))
