"""Pairs and segments, as people hold them: the same answers as HuggingFace's own pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from text_models import FAMILIES, WITH_SEGMENTS, logits, text_model

from atlasc.compilation.prepare import trace_model
from atlasc.ir.errors import AtlasError
from atlasc.ir.interpreter import interpret
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.texts.lengths import with_prefixes

PAIRS = [("the cat sat on the mat", "a cat"), ("a mat", "the cat sat"), ("cat", "mat")]
LENGTH = 14
Arrays = Mapping[str, np.ndarray]


@cache
def model_of_family(family: str) -> LoadedModel:
    return text_model(family)


@pytest.fixture(scope="module")
def bert() -> LoadedModel:
    return model_of_family("bert")


def answers(model: LoadedModel, inputs: Inputs) -> np.ndarray:
    """Of the traced module, for inputs of the length that it was traced for."""
    (length,) = {array.shape[1] for array in inputs.arrays.values()}
    module = _traced(model.module, length, tuple(inputs.arrays))
    (found,) = interpret(module, inputs.arrays).values()
    return found


_modules: dict[Any, Any] = {}


def _traced(module: Any, length: int, names: tuple[str, ...]) -> Any:
    key = id(module), length, names
    if key not in _modules:
        zeros = {name: np.zeros((1, length), np.int64) for name in names}
        found = next(m for m in map(model_of_family, FAMILIES) if m.module is module)
        _modules[key] = trace_model(found, 1, length, Inputs(zeros, ("",)))
    return _modules[key]


def told(inputs: Inputs) -> str:
    notes: list[str] = []
    inputs.tell(lambda *parts: notes.append("\n".join(parts)))
    return "\n".join(notes)


@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_are_answered_as_huggingface_does(family: str) -> None:
    model = model_of_family(family)
    expected = [logits(model, model.tokenizer(*pair, return_tensors="pt")) for pair in PAIRS]  # type: ignore[misc]
    inputs = inputs_of(PAIRS, model, LENGTH)
    assert ("token_type_ids" in inputs.arrays) is (family in WITH_SEGMENTS)
    np.testing.assert_allclose(answers(model, inputs), np.concatenate(expected), atol=1e-5)
    single = inputs_of([first for first, _ in PAIRS], model, LENGTH)
    assert np.abs(answers(model, single) - answers(model, inputs)).max() > 0.01


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_what_a_tokenizer_returns_is_taken_as_it_is(family: str, side: str) -> None:
    """Padding on either side, holes in the mask, ids without a mask, lists and tensors."""
    model = model_of_family(family)
    tokens = text_model(family, padding_side=side).tokenizer
    assert tokens is not None
    firsts, seconds = map(list, zip(*PAIRS, strict=True))
    wide = {"padding": "max_length", "max_length": LENGTH, "return_tensors": "np"}
    for options in ({}, {"padding": True, "return_tensors": "pt"}, wide):
        encoded = tokens(firsts, seconds, **options)
        rows = [{name: column[row] for name, column in encoded.items()} for row in range(3)]
        expected = [logits(model, {n: np.array([v]) for n, v in row.items()}) for row in rows]
        for data in (encoded, rows):
            found = answers(model, inputs_of(data, model, LENGTH))
            np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-5)
    encoded["attention_mask"][:, [2, 4]] = 0
    found = answers(model, inputs_of(dict(encoded), model, LENGTH))
    np.testing.assert_allclose(found, logits(model, encoded), atol=1e-5)
    del encoded["attention_mask"]
    found = answers(model, inputs_of(dict(encoded), model, LENGTH))
    np.testing.assert_allclose(found, logits(model, encoded), atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "albert", "roberta", "electra"])
def test_positions_that_are_given(family: str) -> None:
    model = model_of_family(family)
    random = np.random.default_rng(0)
    row = {
        "input_ids": random.integers(5, 11, 9),
        "attention_mask": np.array([1, 1, 0, 1, 1, 1, 0, 1, 1]),
        "position_ids": random.integers(0, 24, 9),
    }
    inputs = inputs_of([row], model, LENGTH)
    assert "position_ids" in inputs.arrays
    expected = logits(model, {name: array[None] for name, array in row.items()})
    np.testing.assert_allclose(answers(model, inputs), expected, atol=1e-5)
    with pytest.raises(AtlasError, match='no "position_ids"') as caught:
        inputs_of([row, {"input_ids": [5]}], model, LENGTH)
    assert caught.value.where == "data[1]"
    with pytest.raises(AtlasError, match="no position 24"):
        inputs_of([{**row, "position_ids": [24] * 9}], model, LENGTH)


def test_segments_of_a_model_without_any() -> None:
    """RoBERTa has one segment; DistilBERT's forward takes none."""
    ids = {"input_ids": [5, 6], "token_type_ids": [0, 1]}
    with pytest.raises(AtlasError, match="no segment 1") as caught:
        inputs_of([ids], model_of_family("roberta"), LENGTH)
    assert "leave token_type_ids out" in caught.value.remedy
    with pytest.raises(AtlasError, match='"token_type_ids" is not read'):
        inputs_of([ids], model_of_family("distilbert"), LENGTH)


@pytest.mark.parametrize(
    "names",
    [
        ("text", "text_pair"), ("sentence1", "sentence2"), ("premise", "hypothesis"),
        ("question", "sentence"), ("question1", "question2"), ("question", "context"),
        ("query", "passage"),
    ],
)  # fmt: skip
def test_pairs_under_their_usual_names(names: tuple[str, str], bert: LoadedModel) -> None:
    expected = inputs_of(PAIRS, bert, LENGTH)
    rows = [dict(zip(names, pair, strict=True), label=at) for at, pair in enumerate(PAIRS)]
    found = inputs_of(rows, bert, LENGTH)
    assert found.digest() == expected.digest()
    assert found.labels is not None and found.labels.tolist() == [0, 1, 2]
    assert inputs_of([list(pair) for pair in PAIRS], bert, LENGTH).digest() == expected.digest()
    columns = {name: [row[name] for row in rows] for name in names}
    assert inputs_of(columns, bert, LENGTH).digest() == expected.digest()


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("length", [5, 6, 7, 9, 10])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_long_pair_is_cut_longest_first(family: str, length: int, side: str) -> None:
    model = text_model(family, truncation_side=side)
    assert model.tokenizer is not None
    if family == "roberta" and length == 5:
        with pytest.raises(AtlasError, match="leaves no room") as caught:
            inputs_of(PAIRS, model, length)
        assert "--sequence-length 6" in caught.value.remedy
        return
    found = inputs_of(PAIRS, model, length)
    expected = model.tokenizer(
        *map(list, zip(*PAIRS, strict=True)), truncation="longest_first", max_length=length,
        padding="max_length",
    )  # fmt: skip
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(array, expected[name])
    assert f"cut to {length} tokens" in told(found) and "longer text first" in told(found)


def test_windows_and_ids_of_a_pair_are_not_cut(bert: LoadedModel) -> None:
    with pytest.raises(AtlasError, match="windows of a pair") as caught:
        inputs_of(PAIRS, bert, 8, "windows")
    assert "data[0]: the cat sat" in caught.value.where and "--long truncate" in caught.value.remedy
    ids = inputs_of(PAIRS, bert, LENGTH).arrays
    for data in (dict(ids), [{name: array[0] for name, array in ids.items()}]):
        with pytest.raises(AtlasError, match="cannot be cut to 8") as caught:
            inputs_of(data, bert, 8)
        assert "token_type_ids" in caught.value.why and "truncation=True" in caught.value.remedy


def test_padding_before_a_token_is_not_deleted(bert: LoadedModel) -> None:
    """It has positions; that behind the last token has none that anyone reads."""
    ids = np.full((1, 12), 6)
    for mask, fits in (([1, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0], True),
                       ([0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1], False)):  # fmt: skip
        arrays = {"input_ids": ids, "attention_mask": np.array([mask])}
        if fits:
            found = answers(bert, inputs_of(arrays, bert, 8))
            np.testing.assert_allclose(found, logits(bert, arrays), atol=1e-5)
        else:
            with pytest.raises(AtlasError, match="12 tokens cannot be cut to 8") as caught:
                inputs_of(arrays, bert, 8)
            assert "padding in front" in caught.value.why


@pytest.mark.parametrize("second", [None, "", " ", 3, float("nan")])
def test_a_second_text_that_is_missing(second: Any, bert: LoadedModel) -> None:
    rows = [{"text": "a cat", "text_pair": "a mat"}, {"text": "the mat", "text_pair": second}]
    with pytest.raises(AtlasError, match='"text_pair" must be a string') as caught:
        inputs_of(rows, bert, LENGTH)
    assert caught.value.where == "data[1]"
    rows[1].pop("text_pair")
    found = inputs_of(rows, bert, LENGTH, partial=True)
    assert len(found) == 2 and not found.faults[0] and "text_pair" in found.faults[1]
    assert found.take([1]).faults == found.faults[1:]
    with pytest.raises(AtlasError, match="cannot be used") as caught:
        found.require_finite()
    assert caught.value.where == "data[1]" and "text_pair" in caught.value.why
    with pytest.raises(AtlasError, match="text_pair"):
        inputs_of(rows[1:] + [{"text": "a", "text_pair": None}], bert, LENGTH, partial=True)


def test_a_tokenizer_that_puts_nothing_between_two_texts() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from atlasc.loading.models import model_of

    bare = Tokenizer(models.WordLevel({"a": 0, "b": 1}, "a"))
    bare.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens = PreTrainedTokenizerFast(tokenizer_object=bare, unk_token="a", pad_token="b")
    model = model_of(model_of_family("bert").module, tokens)
    with pytest.raises(AtlasError, match="reads no pairs") as caught:
        inputs_of([("a", "b")], model, LENGTH)
    assert "join the two texts" in caught.value.remedy


@pytest.mark.parametrize(
    ("row", "member"),
    [
        ({"text": "a", "headline": "b"}, "headline"),
        ({"text": "a", "attention_mask": [1, 1]}, "attention_mask"),
        ({"text": "a", "sentence1": "b"}, "sentence1"),
        ({"input_ids": [5], "bbox": [1]}, "bbox"),
        ({"input_ids": [5], "inputs_embeds": [1]}, "inputs_embeds"),
    ],
)
def test_a_member_that_is_not_known_is_refused_by_name(
    row: dict[str, Any], member: str, bert: LoadedModel
) -> None:
    with pytest.raises(AtlasError, match=f'"{member}" is not read') as caught:
        inputs_of([row], bert, LENGTH)
    assert "label" in caught.value.why and "remove" in caught.value.remedy


def test_what_numbers_the_rows_is_ignored_with_a_note(bert: LoadedModel) -> None:
    found = inputs_of([{"text": "a", "idx": 0, "id": "x"}, {"text": "cat", "idx": 1}], bert, LENGTH)
    assert "idx, id of the data are not read" in told(found)
    with pytest.raises(AtlasError, match="as many integers"):
        inputs_of([{"input_ids": [5, 6], "attention_mask": [1]}], bert, LENGTH)
    with pytest.raises(AtlasError, match="1 .keep. and 0"):
        inputs_of([{"input_ids": [5, 6], "attention_mask": [1, 2]}], bert, LENGTH)


def test_the_side_of_padding_is_said() -> None:
    model = text_model("bert", padding_side="left")
    found = inputs_of(["a cat", "the mat sat"], model, LENGTH)
    assert "pads on the left" in told(found)
    assert found.arrays["attention_mask"][0].tolist() == [1] * 4 + [0] * 10


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_prefixes_of_pairs(family: str) -> None:
    """A pair given short: both texts lose tokens at their ends, segments stay with their text."""
    model = model_of_family(family)
    assert model.tokenizer is not None
    texts = inputs_of(PAIRS * 20, model, LENGTH)
    found = with_prefixes(texts, model, np.random.default_rng(0)).take(range(60, 100))
    for row, name in enumerate(found.names):
        number = int(name.split("[")[1].split("]")[0]) % 3
        first, second = (text.split() for text in PAIRS[number])
        assert number != 2  # one token each: there is no shorter pair
        short = [
            model.tokenizer(" ".join(first[:m]), " ".join(second[:n]), padding="max_length",
                            max_length=LENGTH)
            for m in range(1, len(first) + 1) for n in range(1, len(second) + 1)
            if m + n < len(first) + len(second)
        ]  # fmt: skip
        assert any(
            all(found.arrays[key][row].tolist() == one[key] for key in found.arrays)
            for one in short
        ), name


def test_a_data_set_in_memory(bert: LoadedModel) -> None:
    """What pandas, datasets and torch give, by what these can do."""
    expected = inputs_of(PAIRS, bert, LENGTH).digest()
    rows = [dict(zip(("premise", "hypothesis"), pair, strict=True)) for pair in PAIRS]

    class Frame:
        columns = ("premise", "hypothesis")

        def to_dict(self, orient: str) -> list[dict[str, str]]:
            assert orient == "records"
            return rows

    class Dataset:
        column_names = ("premise", "hypothesis")

        def __iter__(self) -> Any:
            return iter(rows)

    class Series:
        def to_list(self) -> list[str]:
            return ["a cat", "mat"]

    batches = torch.utils.data.DataLoader(rows, batch_size=2)  # type: ignore[arg-type]
    for data in (Frame(), Dataset(), batches, (row for row in rows)):
        assert inputs_of(data, bert, LENGTH).digest() == expected
    texts = inputs_of(["a cat", "mat"], bert, LENGTH).digest()
    assert inputs_of(Series(), bert, LENGTH).digest() == texts
    with pytest.raises(AtlasError, match="several data sets: train, test") as caught:
        inputs_of({"train": Dataset(), "test": Dataset()}, bert, LENGTH)
    assert "data['train']" in caught.value.remedy
    with pytest.raises(AtlasError, match="same number of rows"):
        inputs_of({"text": ["a", "cat"], "label": [1]}, bert, LENGTH)


def test_tuples_of_arrays_have_no_names(bert: LoadedModel) -> None:
    """A guess could take a mask for the labels."""
    ids = torch.tensor([[1, 2, 3], [1, 4, 3]])
    named = torch.utils.data.TensorDataset(ids, torch.ones_like(ids))
    for data in (named, torch.utils.data.DataLoader(named), list(named), [(ids,)]):
        with pytest.raises(AtlasError, match="a tuple of arrays") as caught:
            inputs_of(data, bert)
        assert "attention_mask" in caught.value.remedy


def test_a_loader_of_batches_of_several_widths(bert: LoadedModel) -> None:
    assert bert.tokenizer is not None
    batches = [
        {**bert.tokenizer([first], [second], return_tensors="pt"), "labels": torch.tensor([at])}
        for at, (first, second) in enumerate(PAIRS)
    ]
    found = inputs_of(batches, bert, LENGTH)
    assert found.digest() == inputs_of(PAIRS, bert, LENGTH).digest()
    assert found.labels is not None and found.labels.tolist() == [0, 1, 2]
    one = inputs_of(bert.tokenizer("a cat"), bert, LENGTH)
    assert one.digest() == inputs_of(["a cat"], bert, LENGTH).digest()
