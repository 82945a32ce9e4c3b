"""Texts that are too long: cut as HuggingFace cuts them, divided, or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_files import tiny_bert
from transformers import BertTokenizerFast, PreTrainedTokenizerFast

from atlasc.compilation.options import CalibrationOptions
from atlasc.compilation.source import load_source
from atlasc.ir.errors import AtlasError
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import model_of
from atlasc.loading.texts.lengths import common_beginning, with_prefixes
from atlasc.loading.texts.tokens import special_ends

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat"]
LONG = "the cat sat on the mat on the mat"  # 11 tokens with [CLS] and [SEP]
UNKNOWN = "the cat sat on the dog sat dog dog dog"


def tokenizer(**options: Any) -> Any:
    return BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)}, **options)


def bare_tokenizer() -> Any:
    """One that adds no special tokens, as those of some decoders."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    found = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=found, unk_token="[UNK]", pad_token="[PAD]")


@pytest.fixture(scope="module")
def bert() -> LoadedModel:
    """With sixteen positions."""
    return model_of(tiny_bert(), tokenizer())


def told(inputs: Inputs) -> list[str]:
    notes: list[str] = []
    assert inputs.tell(lambda *parts: notes.append("\n".join(parts))) is inputs
    return notes


def rows(inputs: Inputs) -> list[list[int]]:
    """Token ids without padding."""
    kept = inputs.arrays["attention_mask"].astype(bool)
    return [ids[keep].tolist() for ids, keep in zip(inputs.arrays["input_ids"], kept, strict=True)]


@pytest.mark.parametrize(
    "tokens", [tokenizer(), tokenizer(truncation_side="left"), bare_tokenizer()]
)
@pytest.mark.parametrize("length", [3, 4, 7, 8, 11])
def test_a_text_is_cut_as_its_tokenizer_cuts_it(tokens: Any, length: int) -> None:
    texts = [LONG, "a cat", UNKNOWN]
    found = inputs_of(texts, model_of(tiny_bert(), tokens), length)
    expected = tokens(texts, truncation=True, max_length=length, padding="max_length")
    for name in ("input_ids", "attention_mask"):
        np.testing.assert_array_equal(found.arrays[name], expected[name])
    assert found.names == ("data[0]", "data[1]", "data[2]")


def test_one_note_says_how_many_were_cut_and_the_longest(bert: LoadedModel) -> None:
    inputs = inputs_of(["a cat", LONG, "the mat " * 20, "a"], bert, 8)
    (note,) = told(inputs)
    assert note.startswith("2 of 4 texts are cut to 8 tokens\n")
    assert "data[2], has 42 tokens" in note and "--long windows" in note
    (note,) = told(inputs.take([0, 1]))
    assert note.startswith("1 of 2 texts is cut") and "data[1], has 11 tokens" in note
    assert told(inputs.take([0, 3])) == told(inputs.take([])) == []
    assert told(inputs_of(["a cat", LONG], bert)) == []
    assert told(inputs_of([LONG], bert, 8, "windows")) == []


def test_windows_hold_every_token_once_and_their_own_special_tokens(
    bert: LoadedModel, tmp_path: Path
) -> None:
    lines = f'{{"text": "a cat", "label": 1}}\n{{"text": "{LONG}", "label": 2}}\n'
    (tmp_path / "t.jsonl").write_text(lines)
    found = inputs_of(tmp_path / "t.jsonl", bert, 6, "windows")
    assert found.names == ("t.jsonl:1", *(f"t.jsonl:2 [{part}/3]" for part in (1, 2, 3)))
    assert rows(found) == [[2, 5, 6, 3], [2, 9, 6, 7, 8, 3], [2, 9, 10, 8, 9, 3], [2, 10, 3]]
    assert found.labels is not None and found.labels.tolist() == [1, 2, 2, 2]
    overflow = tokenizer()(LONG, truncation=True, max_length=6, return_overflowing_tokens=True)
    assert rows(found)[1:] == overflow["input_ids"]


def test_without_a_tokenizer_a_row_is_cut_where_it_is_full() -> None:
    model = model_of(tiny_bert())
    ids = np.arange(1, 11).reshape(1, 10)
    assert rows(inputs_of(ids, model, 4)) == [[1, 2, 3, 4]]
    assert rows(inputs_of(ids, model, 4, "windows")) == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert told(inputs_of(ids.tolist(), model, 4))[0].startswith("1 of 1 texts is cut to 4 tokens")


def test_padding_at_the_end_is_no_length(bert: LoadedModel) -> None:
    """A row that is padded beyond the length is not cut; of one that is cut, tokens are kept."""
    short, long = [2, 5, 6, 3] + [0] * 8, [2, 5, 6, 7, 8, 9, 10, 6, 3] + [0] * 3
    mask = (np.array([short, long]) > 0).astype(int)
    arrays = {"input_ids": np.array([short, long]), "attention_mask": mask}
    found = inputs_of(arrays, bert, 6)
    assert rows(found) == [[2, 5, 6, 3], [2, 5, 6, 7, 8, 3]]
    assert told(found)[0].startswith("1 of 2")
    first = {name: array[:1] for name, array in arrays.items()}
    assert rows(inputs_of(first, bert, 6, "refuse")) == [[2, 5, 6, 3]]
    with pytest.raises(AtlasError, match="9 tokens is longer"):
        inputs_of(arrays, bert, 6, "refuse")


def test_without_a_length_the_positions_bound_it(bert: LoadedModel) -> None:
    texts = ["a cat", "the mat " * 20]
    found = inputs_of(texts, bert)
    assert found.arrays["input_ids"].shape == (2, 16)
    assert told(found)[0].startswith("1 of 2 texts is cut to 16 tokens")
    assert len(inputs_of(texts, bert, long="windows")) == 1 + 3
    with pytest.raises(AtlasError, match="42 is more than the model has positions for"):
        inputs_of(texts, bert, long="refuse")
    # As of RoBERTa, some of whose positions are not for tokens.
    fewer = model_of(tiny_bert(), tokenizer(model_max_length=14))
    assert inputs_of(texts, fewer).arrays["input_ids"].shape == (2, 14)
    assert inputs_of([LONG + " on the mat sat"], fewer).arrays["input_ids"].shape == (1, 15)


def test_a_length_without_room(bert: LoadedModel) -> None:
    with pytest.raises(AtlasError, match="length of 2 leaves no room") as caught:
        inputs_of([LONG], bert, 2)
    assert "--sequence-length 3" in caught.value.remedy


def test_only_known_ways(bert: LoadedModel) -> None:
    with pytest.raises(AtlasError, match="--long cannot be 'shorten'") as caught:
        inputs_of(["a"], bert, 8, "shorten")
    assert "truncate, windows, refuse" in caught.value.remedy


def test_a_text_of_one_token(bert: LoadedModel) -> None:
    assert rows(inputs_of(["a"], bert, 8)) == [[2, 5, 3]]
    assert rows(inputs_of([[5]], model_of(tiny_bert()), 8)) == [[5]]


def test_a_text_without_tokens(bert: LoadedModel) -> None:
    from tokenizers import normalizers

    assert rows(inputs_of(["\u200b"], bert, 8)) == [[2, 3]]
    tokens = bare_tokenizer()
    tokens.backend_tokenizer.normalizer = normalizers.Replace("-", " ")
    bare = model_of(tiny_bert(), tokens)
    with pytest.raises(AtlasError, match="no token in a text") as caught:
        inputs_of(["a", "--"], bare, 8)
    assert caught.value.where == "data[1]"


@pytest.mark.parametrize(
    ("ids", "special", "ends"),
    [
        ([2, 5, 1, 3], [2, 3], (1, 1)),
        ([2, 3], [2, 3], (2, 0)),
        ([5, 6], [2, 3], (0, 0)),
        ([2, 5], [2], (1, 0)),
        ([5, 3], [3], (0, 1)),
        ([5, 3, 2], [3, 2], (0, 2)),
        ([2], [2, 3], (1, 0)),
        ([5], [], (0, 0)),
    ],
)
def test_ends_that_a_tokenizer_added(
    ids: list[int], special: list[int], ends: tuple[int, int]
) -> None:
    assert special_ends(np.array(ids), np.array(special, int)) == ends


# --- prefixes


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_a_prefix_is_its_text_given_short(bert: LoadedModel) -> None:
    texts = inputs_of([LONG, "a", UNKNOWN, "a cat"], bert, 16)
    found = with_prefixes(texts, bert, generator())
    assert found.names[:4] == texts.names and rows(found)[:4] == rows(texts)
    words = {"data[0]": LONG, "data[2]": UNKNOWN, "data[3]": "a cat"}  # "a" has no shorter one
    assert len(found) == 4 + len(words)
    for prefix, (name, text) in enumerate(words.items(), 4):
        count = int(found.arrays["attention_mask"][prefix].sum())
        whole = len(text.split()) + 2
        assert 3 <= count < whole
        assert found.names[prefix] == f"{name}, first {count} of {whole} tokens"
        short = inputs_of([" ".join(text.split()[: count - 2])], bert, 16)
        for key, array in short.arrays.items():
            np.testing.assert_array_equal(found.arrays[key][prefix], array[0])
    again = with_prefixes(texts, bert, generator())
    assert (again.names, again.digest()) == (found.names, found.digest())
    assert any(with_prefixes(texts, bert, generator(s)).names != found.names for s in (1, 2, 3))


def test_a_cut_text_has_prefixes_and_labels_stay(bert: LoadedModel) -> None:
    data = [{"text": LONG, "label": 7}, {"text": "a cat sat", "label": 8}]
    texts = inputs_of(data, bert, 6)
    found = with_prefixes(texts, bert, generator())
    assert found.labels is not None and found.labels.tolist() == [7, 8, 7, 8]
    assert found.tokens is not None and found.tokens.tolist() == [11, 5, 11, 5]
    assert all(row[0] == 2 and row[-1] == 3 for row in rows(found))


def test_without_a_tokenizer_every_length_down_to_one_token() -> None:
    """The logarithm of the length is uniform."""
    ids = np.arange(1 << 8) + np.zeros((4000, 1), int)
    arrays = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    texts = Inputs(arrays, tuple(map(str, range(len(ids)))))
    short = with_prefixes(texts, model_of(tiny_bert()), generator()).take(range(4000, 8000))
    counts = short.arrays["attention_mask"].sum(axis=1)
    assert (counts.min(), counts.max()) == (1, 255)
    for bits in range(1, 8):
        assert (counts < 1 << bits).mean() == pytest.approx(bits / 8, abs=0.03)
    for row in (0, 1, 2):
        assert rows(short)[row] == list(range(counts[row]))


def test_texts_that_are_all_short_have_no_prefixes(bert: LoadedModel) -> None:
    texts = inputs_of(["a", "cat", "on"], bert, 8)
    found = with_prefixes(texts, bert, generator())
    assert found.names == texts.names and found.digest() == texts.digest()


@pytest.mark.parametrize(
    ("texts", "alike"),
    [
        (["the cat sat", "the cat on the mat", "the cat"], 3),
        (["the cat sat", "a cat sat"], 1),
        (["the cat", "the cat"], 4),
        (["cat"], 3),
    ],
)
def test_what_all_texts_begin_with(texts: list[str], alike: int, bert: LoadedModel) -> None:
    """The tokens [CLS] and [SEP] count as well."""
    assert common_beginning(inputs_of(texts, bert, 8)) == alike


@pytest.mark.parametrize("tokens", [tokenizer(), bare_tokenizer()])
def test_prefixes_keep_what_all_texts_begin_with(tokens: Any) -> None:
    """A single held-back text has more in common with itself than with all the others."""
    ends = ["a cat", "mat on a mat", "a mat sat on the cat", "the mat", "on on a", "sat a mat cat"]
    data = [f"on the cat sat {end}" for end in ends]
    options = CalibrationOptions(sequence_length=16, held_back=0.2)
    told: list[str] = []
    source = load_source(
        tiny_bert(), data, options, tokens, note=lambda what, details="": told.append(what)
    )
    template = tokens("on the cat sat", add_special_tokens=False)["input_ids"]
    added = len(tokens("")["input_ids"])
    assert len(source.held_back) == 1
    assert any("begin with the same" in one for one in told)
    short = [*rows(source.measured)[len(source.inputs) :], *rows(source.validated)[1:]]
    assert len(short) == len(data)
    for ids in short:
        head = min(added, 1)
        assert ids[head : head + 4] == template and len(ids) >= added + 5
    counts = {len(ids) - added for ids in short}
    assert 5 in counts and len(counts) > 1
