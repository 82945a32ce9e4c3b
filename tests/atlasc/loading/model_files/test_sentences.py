"""Folders of sentence-transformers: their programs give what ``encode`` gives, or say what not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_files import pickled
from torch.nn import functional as F
from transformers import BertConfig, BertModel, BertTokenizerFast

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.ir.final_functions import finished
from atlasc.ir.interpreter import interpret
from atlasc.loading.data import inputs_of
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model
from atlasc.passes.frontend.trace import trace

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "a", "cat", "sat", "on", "mat", "dog", "ran", "fast", "slow", "red"]
FEATURES, MOST = 8, 7
TEXTS = ["the cat sat", "A DOG RAN fast", "red mat", "the " * 9, "slow", "on the slow red mat"] * 6
TANH = "torch.nn.modules.activation.Tanh"


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def folder_of(
    place: Path, *kinds: str, pooling: dict[str, Any] | None = None, dense: str = TANH,
    inner: str = "", package: str = "sentence_transformers", **settings: object,
) -> Path:  # fmt: skip
    """A folder with a small BERT, a pooling, and further modules of some kinds."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=FEATURES, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=12, max_position_embeddings=16,
    )  # fmt: skip
    model = BertModel(config, add_pooling_layer=False).eval()
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(place / inner)
    (place / "vocab.txt").write_text("\n".join(WORDS))
    tokenizer = BertTokenizerFast(vocab=str(place / "vocab.txt"), do_lower_case=False)
    tokenizer.save_pretrained(place / inner)
    (place / "vocab.txt").unlink()
    names = ["Pooling", *kinds]
    paths = [f"{number}_{kind}" for number, kind in enumerate(names, 1)]
    width = FEATURES * len((pooling or {}).get("pooling_mode", ["mean"]))
    modules = [{"path": inner, "type": "sentence_transformers.models.Transformer"}]
    modules += [
        {"path": p, "type": f"{package}.models.{k}"} for p, k in zip(paths, names, strict=True)
    ]
    listed = [{"idx": i, "name": str(i), **module} for i, module in enumerate(modules)]
    write(place / "modules.json", listed)
    write(place / inner / "sentence_bert_config.json", {"max_seq_length": MOST, **settings})
    write(place / "1_Pooling" / "config.json", {"embedding_dimension": FEATURES, **(pooling or {})})
    for path, kind in zip(paths[1:], kinds, strict=True):
        if kind == "Dense":
            facts = {"in_features": width, "out_features": 3, "bias": True}
            write(place / path / "config.json", {**facts, "activation_function": dense})
            weights = {"linear.weight": torch.randn(3, width), "linear.bias": torch.randn(3)}
            save_file(weights, place / path / "model.safetensors")
            width = 3
        elif kind == "LayerNorm":
            write(place / path / "config.json", {"dimension": width})
            weights = {"norm.weight": torch.rand(width), "norm.bias": torch.randn(width)}
            torch.save(weights, place / path / "pytorch_model.bin")
    return place


def embeddings(model: LoadedModel) -> np.ndarray:
    arrays = inputs_of(TEXTS, model).arrays
    module = trace(model.module, {n: array[:2] for n, array in arrays.items()}, name="sentences")
    (op,) = module.outputs
    assert op.attributes["name"] == "sentence_embedding"
    (found,) = interpret(module, arrays).values()
    return finished(op.attributes.get("function"), found)


def by_hand(folder: Path, poolings: tuple[str, ...], *further: str) -> np.ndarray:
    """The embeddings as the pages of the library define them."""
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    encoded = tokenizer(
        [text.lower() for text in TEXTS], padding=True, truncation=True, max_length=MOST,
        return_tensors="pt",
    )  # fmt: skip
    with torch.no_grad():
        tokens = BertModel.from_pretrained(folder)(**encoded).last_hidden_state
    kept = encoded["attention_mask"][..., None].float()
    vectors = {
        "cls": tokens[:, 0],
        "mean": (tokens * kept).sum(1) / kept.sum(1),
        "lasttoken": tokens[range(len(TEXTS)), encoded["attention_mask"].sum(1) - 1],
    }
    x = torch.cat([vectors[name] for name in poolings], -1)
    for number, kind in enumerate(further, 2):
        path = folder / f"{number}_{kind}"
        if kind == "Dense":
            weights = load_file(path / "model.safetensors")
            x = torch.tanh(F.linear(x, weights["linear.weight"], weights["linear.bias"]))
        elif kind == "LayerNorm":
            weights = torch.load(path / "pytorch_model.bin")
            x = F.layer_norm(x, x.shape[1:], weights["norm.weight"], weights["norm.bias"])
        else:
            x = F.normalize(x, dim=-1)
    return x.numpy()


@pytest.mark.parametrize(
    ("poolings", "kinds"),
    [
        (("mean",), ()),
        (("cls",), ("Normalize",)),
        (("lasttoken",), ("Normalize",)),
        (("cls", "mean"), ("Dense", "LayerNorm", "Normalize")),
    ],
)
def test_embeddings_are_those_of_the_library(
    tmp_path: Path, poolings: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    given = {"pooling_mode": list(poolings)}
    folder = folder_of(tmp_path / "m", *kinds, pooling=given, do_lower_case=True)
    model = load_model(folder)
    assert not model.notes
    found = embeddings(model)
    np.testing.assert_allclose(found, by_hand(folder, poolings, *kinds), atol=1e-6)
    library = pytest.importorskip("sentence_transformers")
    np.testing.assert_allclose(
        found, library.SentenceTransformer(str(folder)).encode(TEXTS), atol=1e-6
    )


def test_old_settings_and_inner_folders(tmp_path: Path) -> None:
    old = {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    folder = folder_of(tmp_path / "m", "Normalize", pooling=old, inner="0_T", do_lower_case=True)
    found = embeddings(load_model(folder / "0_T"))
    folder_of(tmp_path / "same", pooling={"pooling_mode": ["cls"]}, do_lower_case=True)
    same = by_hand(tmp_path / "same", ("cls",))
    np.testing.assert_allclose(found, F.normalize(torch.from_numpy(same)).numpy(), atol=1e-6)


@pytest.mark.parametrize(
    ("kinds", "options", "said"),
    [
        (("Normalize",), {"pooling": {"pooling_mode": "max"}}, ["Pooling (max)", "Normalize"]),
        (("Dense",), {"dense": "os.system"}, ["Dense (8 to 3, system)"]),
        (("Dense",), {"dense": "torch.nn.Softmax"}, ["Dense (8 to 3, Softmax)"]),
        (("Normalize", "Dense"), {}, ["Normalize, Dense (8 to 3, Tanh)"]),
        (("Router",), {}, ["Router"]),
        (("Normalize",), {"package": "other"}, ["Pooling (mean), Normalize"]),
        ((), {"pooling": {"include_prompt": False}}, ["Pooling (mean)"]),
        ((), {"transformer_task": "fill-mask"}, ["Pooling (mean)"]),
    ],
)
def test_what_is_left_to_the_client_is_said(
    tmp_path: Path, kinds: tuple[str, ...], options: dict[str, Any], said: list[str]
) -> None:
    model = load_model(folder_of(tmp_path / "m", *kinds, **options))
    assert isinstance(model.module, BertModel)
    ((headline, details),) = model.notes
    assert headline == "the program computes the embeddings of tokens, not of sentences"
    for part in said:
        assert part in details


@pytest.mark.parametrize("weights", [{}, {"linear.weight": torch.zeros(3, 5)}])
def test_weights_that_do_not_fit(tmp_path: Path, weights: dict[str, torch.Tensor]) -> None:
    folder = folder_of(tmp_path / "m", "Dense")
    save_file(weights, folder / "2_Dense" / "model.safetensors")
    with pytest.raises(AtlasError, match="the weights of the step Dense do not fit"):
        load_model(folder)


def test_weights_cannot_run_code(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", "Dense")
    (folder / "2_Dense" / "model.safetensors").unlink()
    (folder / "2_Dense" / "pytorch_model.bin").write_bytes(pickled(tmp_path / "ran"))
    with pytest.raises(AtlasError, match="pytorch_model.bin"):
        load_model(folder)
    assert not (tmp_path / "ran").exists()


def test_texts_are_not_compiled_for_more_than_the_library_reads(tmp_path: Path) -> None:
    model = load_model(folder_of(tmp_path / "m"))
    assert inputs_of(TEXTS, model).arrays["input_ids"].shape == (len(TEXTS), MOST)
    with pytest.raises(AtlasError, match="more than sentence-transformers reads") as caught:
        inputs_of(TEXTS, model, MOST + 1)
    assert f"--sequence-length {MOST}" in caught.value.remedy


def test_a_client_reads_and_answers_as_the_library(tmp_path: Path) -> None:
    """A saved program has the tokenizer with the lower case, and ends with the normalisation."""
    folder = folder_of(tmp_path / "m", "Normalize", do_lower_case=True)
    program = atlasc.compile(folder, TEXTS, target="sim", recipe="is", max_error=1e9)
    program.save(tmp_path / "program")
    answers = atlasc.load(tmp_path / "program").run(TEXTS[:2], unchecked=True)
    wanted = by_hand(folder, ("mean",), "Normalize")[:2]
    assert np.abs(answers.outputs["sentence_embedding"] - wanted).max() < 1e-4
    assert answers.max_error < 1e-6
