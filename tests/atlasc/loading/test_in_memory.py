"""A module and data in memory are as good as a directory and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_files import TINY, tiny_bert
from torch.utils.data import DataLoader, TensorDataset
from transformers import BertTokenizerFast, ViTConfig, ViTForImageClassification

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import arrays_digest
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model, model_of

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "sat", "on", "the", "mat"]
TEXTS = ["the cat sat", "a mat"]


def weights_digest(model: LoadedModel) -> str:
    state = model.module.state_dict()
    return arrays_digest({name: tensor.numpy(force=True) for name, tensor in state.items()})


def tokenizer() -> Any:
    return BertTokenizerFast(vocab={word: i for i, word in enumerate(WORDS)})


def test_a_module_is_what_its_directory_is(tmp_path: Path) -> None:
    module = tiny_bert()
    module.save_pretrained(tmp_path / "bert")
    tokenizer().save_pretrained(tmp_path / "bert")
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    loaded, given = load_model(tmp_path / "bert"), model_of(module, tokenizer())
    assert given.module is module
    assert (given.kind, given.input_names) == (loaded.kind, loaded.input_names)
    assert given.source.name == "BertForSequenceClassification"
    assert weights_digest(given) == weights_digest(loaded)
    from_file = inputs_of(tmp_path / "texts.txt", loaded, 8)
    assert inputs_of(TEXTS, given, 8).digest() == from_file.digest()
    ids = [[2, 9, 6, 7, 3], [2, 5, 10, 3]]
    assert inputs_of(ids, given, 8).digest() == from_file.digest()
    rows = [{"text": text, "label": n} for n, text in enumerate(TEXTS)]
    with_labels = inputs_of(rows, given, 8)
    assert with_labels.digest() == from_file.digest()
    assert with_labels.labels is not None and with_labels.labels.tolist() == [0, 1]
    tensors = {name: torch.tensor(array) for name, array in from_file.arrays.items()}
    assert inputs_of(tensors, given, 8).digest() == from_file.digest()
    assert inputs_of(tmp_path / "texts.txt", given, 8).digest() == from_file.digest()
    assert inputs_of(from_file, given) is from_file


def test_the_files_of_a_module_go_with_it() -> None:
    given = model_of(tiny_bert(), tokenizer())
    folder = given.directory
    assert {"config.json", "tokenizer.json"} <= {path.name for path in folder.iterdir()}
    del given
    assert not folder.exists()


def test_the_callers_module_stays_as_it_is() -> None:
    module = tiny_bert().half().train()
    given = model_of(module)
    assert next(given.module.parameters()).dtype == torch.float32
    assert next(module.parameters()).dtype == torch.float16 and module.training


def test_pixels_in_memory_are_a_tensor_with_or_without_labels() -> None:
    given = model_of(ViTForImageClassification(ViTConfig(**TINY, image_size=8, patch_size=4)))
    pixels = torch.zeros(1, 3, 8, 8)
    assert inputs_of(pixels, given).names == ("data[0]",)
    labels = inputs_of({"pixel_values": pixels, "labels": [1]}, given).labels
    assert labels is not None and labels.tolist() == [1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_tensors_of_the_types_that_models_have(dtype: torch.dtype) -> None:
    """NumPy has neither bfloat16 nor float8."""
    given = model_of(ViTForImageClassification(ViTConfig(**TINY, image_size=8, patch_size=4)))
    pixels = torch.linspace(-1, 1, 3 * 8 * 8).reshape(1, 3, 8, 8).to(dtype)
    for data in (pixels, {"pixel_values": pixels}, [{"pixel_values": pixels[0]}]):
        found = inputs_of(data, given).arrays["pixel_values"]
        assert np.array_equal(found, pixels.float().numpy())


@pytest.mark.parametrize("labelled", [False, True])
def test_rows_and_batches_of_arrays(labelled: bool) -> None:
    """Lists and data sets have rows, loaders batches: by name, in tuples, or as they are."""
    values, classes = torch.arange(72.0).reshape(6, 4, 3), torch.arange(6)
    rows = TensorDataset(values, classes) if labelled else TensorDataset(values)
    named = [{"features": x} | ({"labels": int(y)} if labelled else {})
             for x, y in zip(values, classes, strict=True)]  # fmt: skip
    ways: list[Any] = [rows, DataLoader(rows, batch_size=4), DataLoader(rows, batch_size=3),
                       DataLoader(rows, batch_size=None), list(rows), named,
                       DataLoader(named, batch_size=4)]  # type: ignore[arg-type]  # fmt: skip
    if not labelled:
        ways += [list(values), DataLoader(list(values), batch_size=3)]  # type: ignore[arg-type]
    for data in ways:
        found = inputs_of(data, model_of(Plain()))
        assert np.array_equal(found.arrays["features"], values.numpy()), data
        assert (found.labels is None) is not labelled
        assert found.labels is None or found.labels.tolist() == list(range(6))


def test_a_tuple_of_two_inputs_is_no_label() -> None:
    for data in ([(torch.zeros(4, 3), torch.zeros(4))] * 2, [torch.zeros(4, 3), torch.zeros(5, 3)]):
        with pytest.raises(AtlasError, match="cannot be turned into an array"):
            inputs_of(data, model_of(Plain()))


class Plain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)

    def forward(self, features: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return self.linear(features) * scale


def test_any_module_is_taken_with_its_own_inputs() -> None:
    given = model_of(Plain())
    assert (given.kind, given.input_names, given.source.name) == ("module", ("features",), "Plain")
    inputs = inputs_of(torch.zeros(4, 5, 3), given)
    assert inputs.arrays["features"].shape == (4, 5, 3)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (["a", " "], "must be a string that is not blank"),
        (["a", ""], "must be a string that is not blank"),
        ([], "is empty"),
        (3, "is a single number"),
        ({"ids": np.ones((1, 2), int)}, "does not have the model's inputs"),
        ([[1, 99]], "id 99 is not in the model's vocabulary"),
        ([["a"]], "a list of 1 string"),
        (["a", [1]], "must be a string that is not blank"),
        ([{"words": "a"}], 'either "text" or "input_ids"'),
        ([[1], [2.5, 3]], "must be a non-empty list of 64-bit integers"),
        (object(), "which cannot be turned into inputs"),
    ],
)
def test_data_that_are_no_inputs(data: object, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        inputs_of(data, model_of(tiny_bert(), tokenizer()))


@pytest.mark.parametrize(
    ("model", "tokens", "message"),
    [
        (3, None, "a int is not a model"),
        ("some/where", object(), "only be given for a module in memory"),
        (Plain(), object(), "the tokenizer cannot be saved"),
    ],
)
def test_what_is_no_model(model: Any, tokens: object, message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        model_of(model, tokens)


@pytest.mark.parametrize(
    "wrap",
    [
        torch.compile,
        torch.nn.DataParallel,
        lambda module: torch.compile(torch.nn.DataParallel(module)),
        torch.optim.swa_utils.AveragedModel,
    ],
)
def test_a_wrapper_is_taken_off_and_named(wrap: Any) -> None:
    said: list[str] = []
    given = model_of(wrap(tiny_bert()), note=lambda headline, details: said.append(headline))
    assert type(given.module).__name__ == "BertForSequenceClassification"
    assert given.input_names == ("input_ids", "attention_mask", "token_type_ids")
    assert len(said) == 1 and "inside of the" in said[0]


def test_a_module_that_names_no_inputs_is_refused() -> None:
    class Anything(torch.nn.Module):
        def forward(self, *args):
            return args[0]

    for module in (Anything(), torch.jit.trace(torch.nn.Linear(4, 4), torch.zeros(1, 4))):
        with pytest.raises(AtlasError, match="does not name its inputs"):
            _ = model_of(module).input_names
