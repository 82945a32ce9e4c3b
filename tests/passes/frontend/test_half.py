"""Models in 16 bits: their weights stay in their files, and the numbers are those of float32."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, PreTrainedModel

from atlasc.compilation.compile import compile_model
from atlasc.compilation.options import CompileOptions
from atlasc.ir.arrays import lazy
from atlasc.ir.arrays.lazy import LazyArray
from atlasc.ir.arrays.tensor_files import read_safetensors
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.loading.models import load_model
from atlasc.passes.frontend.exported.half import half_tensor
from atlasc.passes.frontend.trace import ShapeSpec, trace

LARGE = 1000
HalfTensor = half_tensor()


def llama() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50, max_position_embeddings=32,
    )  # fmt: skip
    return LlamaModel(config).eval()


def in_half(folder: Path, dtype: torch.dtype) -> None:
    llama().to(dtype).save_pretrained(folder)


def in_shards(folder: Path) -> None:
    llama().bfloat16().save_pretrained(folder, max_shard_size="10KB")
    assert len(list(folder.glob("*.safetensors"))) > 2


def mixed(folder: Path) -> None:
    in_half(folder, torch.bfloat16)
    weights = load_file(folder / "model.safetensors")
    for number, name in enumerate(sorted(weights)):
        weights[name] = weights[name].to((torch.float32, torch.float16, torch.bfloat16)[number % 3])
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def as_float32(folder: Path, other: Path) -> Path:
    """The model of a folder in float32, in one file."""
    weights = {
        name: tensor.float()
        for file in folder.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }
    shutil.copytree(folder, other, ignore=shutil.ignore_patterns("model*"))
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    return other


def traced(folder: Path) -> Module:
    shape = ShapeSpec((1, 4))
    inputs = {"input_ids": shape, "attention_mask": shape}
    return trace(load_model(folder).module, inputs, name="half")


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lazy, "LARGE", LARGE)


FORMS = [lambda folder: in_half(folder, torch.bfloat16), lambda f: in_half(f, torch.float16),
         in_shards, mixed]  # fmt: skip


@pytest.mark.parametrize("save", FORMS, ids=["bfloat16", "float16", "shards", "mixed"])
def test_weights_are_converted_when_they_are_read_and_equal_those_of_float32(
    tmp_path: Path, save: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "half")
    plain, converted = HalfTensor.plain, []
    monkeypatch.setattr(
        HalfTensor, "plain", lambda self: converted.append(self.numel()) or plain(self)
    )
    module = traced(tmp_path / "half")
    assert 4 * max(converted, default=0) <= LARGE
    wanted = traced(as_float32(tmp_path / "half", tmp_path / "whole"))
    assert module.symbols.keys() == wanted.symbols.keys()
    assert sum(isinstance(array, LazyArray) for array in module.symbols.values()) >= 5
    for name, array in wanted.symbols.items():
        assert module.symbols[name].dtype == array.dtype == np.float32
        np.testing.assert_array_equal(module.symbols[name], array)
    assert converted


def test_a_program_of_16_bits_is_that_of_float32(tmp_path: Path) -> None:
    """All that is folded into weights, in the files of the programs."""
    model = llama()
    model.layers = model.layers[:1]
    model.config.num_hidden_layers = 1
    model.bfloat16().save_pretrained(tmp_path / "half")
    data = {"input_ids": [[1, 2], [4, 5], [7, 8], [3, 2], [9, 1], [5, 7]]}
    files = []
    for folder in (tmp_path / "half", as_float32(tmp_path / "half", tmp_path / "whole")):
        bundle = folder / "program"
        compile_model(folder, data, bundle, CompileOptions(recipe="is", target="sim"))
        assert (bundle / "owner" / "answers.safetensors").exists()  # the module was asked
        names = ("server/program.safetensors", "client/embed.safetensors")
        texts = ("program", "interface")  # have the name of the model
        read = [read_safetensors(bundle / name) for name in names]
        files.append(
            [{n: np.asarray(a).tobytes() for n, a in one.items() if n not in texts} for one in read]
        )
    assert files[0] == files[1]


def test_torch_computes_with_it_as_in_float32(tmp_path: Path) -> None:
    in_half(tmp_path / "half", torch.bfloat16)
    ids = torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        found = load_model(tmp_path / "half").module(ids).last_hidden_state
        wanted = llama().bfloat16().float()(ids).last_hidden_state
    assert type(found) is torch.Tensor
    torch.testing.assert_close(found, wanted, rtol=1e-6, atol=1e-6)


def test_tied_embeddings_are_one_array(tmp_path: Path) -> None:
    config = llama().config
    config.tie_word_embeddings = True
    model = LlamaForCausalLM(config)
    model.bfloat16().save_pretrained(tmp_path)
    module = load_model(tmp_path).module
    assert isinstance(module, LlamaForCausalLM)
    assert module.lm_head.weight is module.model.embed_tokens.weight
    assert isinstance(module.lm_head.weight, HalfTensor)


def test_a_file_that_changes_is_noticed(tmp_path: Path) -> None:
    in_half(tmp_path, torch.bfloat16)
    module = traced(tmp_path)
    array = next(one for one in module.symbols.values() if isinstance(one, LazyArray))
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(AtlasError, match=r"was changed while it was in use(.|\n)*start again"):
        np.asarray(array)


def test_a_shard_that_is_cut_off_or_missing_is_named(tmp_path: Path) -> None:
    in_shards(tmp_path)
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size - 1)
    for _ in range(2):
        with pytest.raises(AtlasError, match=rf"{shard.name} is missing or damaged(.|\n)*again"):
            load_model(tmp_path)
        shard.unlink(missing_ok=True)
