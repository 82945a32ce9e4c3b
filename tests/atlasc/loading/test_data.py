"""Reading of inputs: every format, and one clear error for every mistake in the data."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import (
    BertConfig,
    BertModel,
    BertTokenizerFast,
    ViTConfig,
    ViTForImageClassification,
)

from atlasc.ir.errors import AtlasError
from atlasc.loading.data import inputs_of
from atlasc.loading.inputs import Inputs
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat"]
SIZES = {
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 8,
}
PREPROCESSING = {
    "do_resize": True,
    "size": {"height": 4, "width": 4},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.5, 0.2, 0.1],
}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tiny BERT with a tokenizer of eleven words and sixteen positions."""
    directory = tmp_path_factory.mktemp("bert")
    config = BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, **SIZES)
    BertModel(config).save_pretrained(directory)
    (directory / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)})
    tokenizer.save_pretrained(directory)
    return load_model(directory)


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    """A tiny colour ViT with a preprocessor_config.json; its labels are "cat" and "dog"."""
    directory = tmp_path_factory.mktemp("vit")
    config = ViTConfig(
        image_size=4, patch_size=2, id2label={0: "cat", 1: "dog"}, label2id={"cat": 0, "dog": 1},
        **SIZES,
    )  # fmt: skip
    ViTForImageClassification(config).save_pretrained(directory)
    (directory / "preprocessor_config.json").write_text(json.dumps(PREPROCESSING))
    return load_model(directory)


def write(path: Path, content: str) -> Path:
    path.write_text(content, encoding="utf-8")
    return path


def savez(path: Path, **arrays: object) -> Path:
    np.savez(path, **arrays)
    return path


def test_texts_are_tokenized_and_padded(bert: LoadedModel, tmp_path: Path) -> None:
    inputs = inputs_of(write(tmp_path / "t.txt", "the cat sat\n\n a mat \n"), bert, 8)
    assert inputs.arrays["input_ids"].tolist() == [
        [2, 9, 6, 7, 3, 0, 0, 0],
        [2, 5, 10, 3, 0, 0, 0, 0],
    ]
    assert inputs.arrays["attention_mask"].sum(axis=1).tolist() == [5, 4]
    assert {array.dtype for array in inputs.arrays.values()} == {np.dtype(np.int64)}
    assert inputs.names == ("t.txt:1", "t.txt:3")


def test_without_a_length_the_longest_text_decides(bert: LoadedModel) -> None:
    inputs = inputs_of(["a", "the cat sat on the mat"], bert)
    assert inputs.arrays["input_ids"].shape == (2, 8)


def test_json_lines_and_arrays_give_what_texts_give(bert: LoadedModel, tmp_path: Path) -> None:
    texts = inputs_of(write(tmp_path / "t.txt", "the cat\na"), bert, 6)
    rows = ['{"text": "the cat", "label": 1}', '{"text": "a", "label": 0}']
    from_json = inputs_of(write(tmp_path / "t.jsonl", "\n".join(rows)), bert, 6)
    rows = ['{"input_ids": [2, 9, 6, 3]}', '{"input_ids": [2, 5, 3]}']
    from_ids = inputs_of(write(tmp_path / "i.jsonl", "\n".join(rows)), bert, 6)
    ids = np.array([[2, 9, 6, 3], [2, 5, 3, 0]], dtype=np.int32)
    mask = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    arrays = savez(tmp_path / "t.npz", input_ids=ids, attention_mask=mask, labels=[1, 0])
    from_arrays = inputs_of(arrays, bert, 6)
    digests = {i.digest() for i in (texts, from_json, from_ids, from_arrays)}
    assert digests == {texts.digest()}
    assert from_json.labels is not None and from_json.labels.tolist() == [1, 0]
    assert from_arrays.labels is not None and from_arrays.labels.tolist() == [1, 0]
    assert from_ids.labels is None


def test_digest_depends_on_values_only(bert: LoadedModel) -> None:
    one = inputs_of(["the cat"], bert, 6)
    same = dataclasses.replace(one, names=("other.txt:1",))
    other = inputs_of(["the mat"], bert, 6)
    longer = inputs_of(["the cat"], bert, 7)
    assert one.digest() == same.digest()
    assert len({one.digest(), other.digest(), longer.digest()}) == 3


def test_take_and_split(bert: LoadedModel, tmp_path: Path) -> None:
    rows = [json.dumps({"text": " ".join(["cat"] * (i + 1)), "label": i}) for i in range(10)]
    inputs = inputs_of(write(tmp_path / "t.jsonl", "\n".join(rows)), bert)
    taken = inputs.take([3, 1])
    assert taken.names == ("t.jsonl:4", "t.jsonl:2")
    assert taken.labels is not None and taken.labels.tolist() == [3, 1]
    assert taken.arrays["attention_mask"].sum(axis=1).tolist() == [6, 4]
    used, held_back = inputs.split(0.3, seed=1)
    assert (len(used), len(held_back)) == (7, 3)
    assert used.labels is not None and held_back.labels is not None
    assert sorted([*used.labels, *held_back.labels]) == list(range(10))
    assert inputs.split(0.3, seed=1)[1].names == held_back.names
    assert any(inputs.split(0.3, seed=s)[1].names != held_back.names for s in range(2, 6))


@pytest.mark.parametrize(
    ("count", "fraction", "held_back"),
    [(10, 0.0, 0), (10, 0.01, 1), (1, 0.5, 0), (2, 0.9, 1), (10, 0.99, 9)],
)
def test_split_sizes(count: int, fraction: float, held_back: int) -> None:
    rows = np.zeros((count, 1, 2, 2), np.float32)
    inputs = Inputs({"pixel_values": rows}, tuple(map(str, range(count))))
    assert [len(part) for part in inputs.split(fraction)] == [count - held_back, held_back]


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_split_fraction_out_of_range(bert: LoadedModel, fraction: float) -> None:
    with pytest.raises(AtlasError, match="held-back fraction"):
        inputs_of(["a", "cat"], bert).split(fraction)


def test_long_text_names_length_limit_and_remedy(bert: LoadedModel, tmp_path: Path) -> None:
    path = write(tmp_path / "t.txt", "a cat\nthe cat sat on the mat on the mat\n")
    with pytest.raises(AtlasError) as caught:
        inputs_of(path, bert, 8, "refuse")
    message = str(caught.value)
    for part in ("11 tokens", "length 8", "t.txt:2", "the cat sat on", "--sequence-length 11"):
        assert part in message


def test_length_beyond_the_positions(bert: LoadedModel) -> None:
    with pytest.raises(AtlasError, match="17 is more than the model has positions"):
        inputs_of(["a"], bert, 17)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.txt", "", "is empty"),
        ("t.txt", " \n\n", "is empty"),
        ("t.xlsx", "a,b", "unknown format"),
        ("t.jsonl", "", "is empty"),
        ("t.jsonl", '{"text": "a"}\n{"text": ', "not a JSON object(.|\n)*t.jsonl:2"),
        ("t.jsonl", "[1]", "not a JSON object"),
        ("t.jsonl", '{"headline": "a"}', "either .*(.|\n)*headline"),
        ("t.jsonl", '{"text": "a", "input_ids": [1]}', 'either "text" or "input_ids"'),
        ("t.jsonl", '{"text": 3}', "must be a string"),
        ("t.jsonl", '{"text": "a"}\n{"input_ids": [1]}', "must be a string(.|\n)*t.jsonl:2"),
        ("t.jsonl", '{"input_ids": []}', "must be a non-empty list of 64-bit integers"),
        ("t.jsonl", '{"input_ids": [1.5]}', "must be a non-empty list of 64-bit integers"),
        ("t.jsonl", '{"input_ids": [2, 11]}', "id 11 is not in .*(.|\n)*position 1"),
        ("t.jsonl", '{"input_ids": [-1]}', "id -1 is not in"),
        ("t.jsonl", '{"input_ids": [1, 1, 1, 1, 1, 1, 1, 1, 1]}', "9 tokens is longer"),
    ],
)
def test_broken_texts(
    bert: LoadedModel, tmp_path: Path, name: str, content: str, message: str
) -> None:
    with pytest.raises(AtlasError, match=message):
        inputs_of(write(tmp_path / name, content), bert, 8, "refuse")


def test_missing_file_and_wrong_encoding(bert: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="not found"):
        inputs_of(tmp_path / "none.txt", bert)
    (tmp_path / "t.txt").write_bytes(b"a\ncaf\xe9")
    with pytest.raises(AtlasError, match="UTF-8(.|\n)*line 2(.|\n)*iconv"):
        inputs_of(tmp_path / "t.txt", bert)


def test_texts_without_a_tokenizer(tmp_path: Path) -> None:
    BertModel(BertConfig(vocab_size=20, **SIZES)).save_pretrained(tmp_path / "m")
    model = load_model(tmp_path / "m")
    with pytest.raises(AtlasError, match="has no tokenizer"):
        inputs_of(write(tmp_path / "t.txt", "a"), model)
    ids = inputs_of(write(tmp_path / "i.jsonl", '{"input_ids": [1, 2]}'), model, 4)
    assert ids.arrays["input_ids"].tolist() == [[1, 2, 0, 0]]


IDS = np.ones((2, 4), np.int64)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "does not have the model's inputs"),
        ({"ids": IDS}, "does not have .*(.|\n)*'ids'"),
        ({"input_ids": IDS, "extra": IDS}, "does not have"),
        ({"input_ids": IDS[:0]}, "is empty"),
        ({"input_ids": np.int64(3)}, "has no rows\n.*is a single number"),
        ({"input_ids": IDS * 0.5}, "must be integers"),
        ({"input_ids": IDS[0]}, "must be integers of shape"),
        ({"input_ids": IDS * 11}, "id 11 is not in"),
        ({"input_ids": np.ones((2, 9), np.int64)}, "9 tokens is longer"),
        ({"input_ids": IDS, "attention_mask": IDS[:1]}, "attention_mask has shape"),
        ({"input_ids": IDS, "attention_mask": IDS[:, :3]}, "must have the shape"),
        ({"input_ids": IDS, "attention_mask": IDS * 2}, "hold 1"),
        ({"input_ids": IDS, "attention_mask": IDS + np.eye(2, 4, dtype=int)}, "hold 1"),
        ({"input_ids": IDS, "labels": [1]}, "labels has shape"),
        ({"input_ids": np.array([["a"]], dtype=object)}, "cannot be read"),
    ],
)
def test_broken_id_arrays(bert: LoadedModel, tmp_path: Path, arrays: dict, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        inputs_of(savez(tmp_path / "t.npz", **arrays), bert, 8, "refuse")


def test_npz_that_is_something_else(bert: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="cannot be read as an .npz"):
        inputs_of(write(tmp_path / "t.npz", "hello"), bert)


def test_pixel_arrays(vit: LoadedModel, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).normal(size=(3, 3, 4, 4))
    inputs = inputs_of(savez(tmp_path / "p.npz", pixel_values=pixels, labels=[0, 1, 0]), vit)
    assert inputs.arrays["pixel_values"].dtype == np.float32
    np.testing.assert_array_equal(inputs.arrays["pixel_values"], pixels.astype(np.float32))
    assert inputs.names[2] == "p.npz[2]"


PIXELS = np.zeros((2, 3, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (PIXELS.astype(np.uint8), "must be floats"),
        (PIXELS[0], "must be floats of shape"),
        (PIXELS[:, :1], r"\(1, 4, 4\)(.|\n)*\(3, 4, 4\)"),
        (PIXELS[:, :, :3], "images of shape"),
    ],
)
def test_broken_pixel_arrays(
    vit: LoadedModel, tmp_path: Path, pixels: np.ndarray, message: str
) -> None:
    with pytest.raises(AtlasError, match=message):
        inputs_of(savez(tmp_path / "p.npz", pixel_values=pixels), vit)


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.where(np.arange(2)[:, None, None, None] == 1, np.nan, PIXELS), r"p.npz\[1\]"),
        (PIXELS + np.inf, "not finite"),
    ],
)
def test_nothing_is_learnt_from_pixels_that_are_not_finite(
    vit: LoadedModel, tmp_path: Path, pixels: np.ndarray, message: str
) -> None:
    inputs = inputs_of(savez(tmp_path / "p.npz", pixel_values=pixels), vit)
    with pytest.raises(AtlasError, match=message):
        inputs.require_finite()


def save_image(path: Path, colour: tuple[int, int, int], size: int = 4) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    Image.new("RGB", (size, size), colour).save(path)
    return path


def test_folder_of_images_is_scaled_as_the_model_says(vit: LoadedModel, tmp_path: Path) -> None:
    save_image(tmp_path / "b.png", (255, 0, 51))
    save_image(tmp_path / "a.png", (0, 0, 0), size=9)
    write(tmp_path / "notes.md", "not an image")
    inputs = inputs_of(tmp_path, vit)
    assert inputs.names == ("a.png", "b.png")
    assert inputs.labels is None
    assert inputs.arrays["pixel_values"].shape == (2, 3, 4, 4)
    expected = [(1 - 0.5) / 0.5, (0 - 0.4) / 0.2, (0.2 - 0.3) / 0.1]
    np.testing.assert_allclose(inputs.arrays["pixel_values"][1, :, 0, 0], expected, atol=1e-5)
    one = inputs_of(tmp_path / "b.png", vit)
    assert one.digest() == inputs.take([1]).digest()


def test_broken_images(vit: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="has no images"):
        inputs_of(tmp_path, vit)
    write(tmp_path / "x.png", "not a picture")
    with pytest.raises(AtlasError, match="x.png cannot be read"):
        inputs_of(tmp_path, vit)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no preprocessor_config.json"),
        ("{", "cannot be read"),
        ("{}", r"images of shape \(3, 224, 224\)"),
    ],
)
def test_broken_preprocessing(tmp_path: Path, content: str | None, message: str) -> None:
    config = ViTConfig(image_size=4, patch_size=2, **SIZES)
    ViTForImageClassification(config).save_pretrained(tmp_path / "m")
    if content is not None:
        write(tmp_path / "m" / "preprocessor_config.json", content)
    image = save_image(tmp_path / "x.png", (0, 0, 0))
    with pytest.raises(AtlasError, match=message):
        inputs_of(image, load_model(tmp_path / "m"))


def test_data_of_the_wrong_kind(bert: LoadedModel, vit: LoadedModel, tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="holds texts, but the model reads pixel_values"):
        inputs_of(write(tmp_path / "t.txt", "a"), vit)
    with pytest.raises(AtlasError, match="holds images, but the model reads input_ids"):
        inputs_of(save_image(tmp_path / "x.png", (0, 0, 0)), bert)
    with pytest.raises(AtlasError, match="is a folder, which is read as images, but the model"):
        inputs_of(tmp_path, bert)


def test_archive_fixes_the_shapes(bert: LoadedModel, vit: LoadedModel, tmp_path: Path) -> None:
    ids, mask = torch.ones(1, 8, dtype=torch.long), torch.ones(1, 8, dtype=torch.long)
    arguments = {"input_ids": ids, "attention_mask": mask}
    program = torch.export.export(bert.module, (), arguments, strict=False)
    torch.export.save(program, tmp_path / "b.pt2")
    model = load_model(tmp_path / "b.pt2")
    rows = write(tmp_path / "i.jsonl", '{"input_ids": [2, 5, 3]}')
    assert inputs_of(rows, model).arrays["input_ids"].shape == (1, 8)
    with pytest.raises(AtlasError, match="exported for 8"):
        inputs_of(rows, model, 16)
    program = torch.export.export(vit.module, (torch.zeros(1, 3, 4, 4),), strict=False)
    torch.export.save(program, tmp_path / "v.pt2")
    model = load_model(tmp_path / "v.pt2")
    assert len(inputs_of(savez(tmp_path / "p.npz", pixel_values=PIXELS), model)) == 2
    with pytest.raises(AtlasError, match="images of shape"):
        inputs_of(savez(tmp_path / "q.npz", pixel_values=PIXELS[:, :2]), model)


def test_a_text_beyond_the_positions_cannot_be_compiled_for(
    bert: LoadedModel, tmp_path: Path
) -> None:
    path = write(tmp_path / "t.txt", "a cat\n" + "the cat " * 40)
    with pytest.raises(AtlasError) as caught:
        inputs_of(path, bert, 8, "refuse")
    assert "82 tokens" in caught.value.what and "at most 16 tokens" in caught.value.why
    assert caught.value.remedy == "shorten the text"
