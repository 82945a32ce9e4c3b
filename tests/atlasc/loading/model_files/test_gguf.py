"""Models in `.gguf` files: equal to HuggingFace's, or refused by name."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_files import tiny_bert

import atlasc
from atlasc.ir.errors import AtlasError
from atlasc.loading.generation.folder import settings_of
from atlasc.loading.models import load_model

pytest.importorskip("gguf")
pytest.importorskip("accelerate")
from tests.atlasc.loading.model_files.small_gguf import small_llama, write_gguf

IDS = torch.tensor([[0, 5, 9, 30, 12, 3]])


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(input_ids=IDS).logits
    return found


@pytest.mark.parametrize("options", [{}, {"tie_word_embeddings": True}, {"head_dim": 32}])
def test_the_weights_of_a_file_are_the_models(tmp_path: Path, options: dict[str, Any]) -> None:
    model = small_llama(**options)
    loaded = load_model(write_gguf(tmp_path / "m.gguf", model))
    assert type(loaded.module) is type(model) and loaded.kind == "llama" and loaded.name == "m"
    assert not loaded.module.training and loaded.notes == ()
    assert torch.equal(logits(loaded.module), logits(model))
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_1"])
def test_quantised_weights_are_the_numbers_that_they_stand_for(tmp_path: Path, kind: str) -> None:
    model = small_llama()
    before = logits(model)
    loaded = load_model(write_gguf(tmp_path / "m.gguf", model, kind))
    assert torch.allclose(logits(loaded.module), logits(model), atol=1e-5)
    assert not torch.allclose(before, logits(model), atol=1e-5)
    said = "".join(headline for headline, _ in loaded.notes)
    assert said == ("" if kind == "F16" else f"the weights of m.gguf are quantised ({kind})")


def test_a_folder_with_one_file_and_a_config_alone(tmp_path: Path) -> None:
    write_gguf(tmp_path / "m.gguf", small_llama())
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')  # as some folders have it
    bare = load_model(tmp_path, weights=False)
    assert {p.device.type for p in bare.module.parameters()} == {"meta"}
    assert bare.config is not None and bare.config.hidden_size == 64
    write_gguf(tmp_path / "n.gguf", small_llama())
    with pytest.raises(AtlasError, match=r"has 2 \.gguf files(.|\n)*m.gguf, n.gguf"):
        load_model(tmp_path)
    tiny_bert().save_pretrained(tmp_path)
    assert load_model(tmp_path).kind == "bert"  # its own weights count


def test_texts_end_at_the_token_of_a_file(tmp_path: Path) -> None:
    """Also where it is the default of the config's class, which config.json leaves out."""
    for end in (1, 2):
        model = small_llama(eos_token_id=end)
        path = write_gguf(tmp_path / f"{end}.gguf", model, tokenizer__ggml__eos_token_id=end)
        assert settings_of(load_model(path).directory).eos_token_id == (end,)


def test_the_tokenizer_of_a_file(tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    path = write_gguf(tmp_path / "m.gguf", small_llama())
    theirs = AutoTokenizer.from_pretrained(str(tmp_path), gguf_file="m.gguf")
    texts = ["cat sat.", "a  s", "</s>cat"]
    assert load_model(path).tokenize(texts) == theirs(texts)["input_ids"]
    assert load_model(path).tokenize(["cat s"]) == [[31, 32]]
    none = write_gguf(tmp_path / "none.gguf", small_llama(), tokenizer__ggml__model=None)
    with pytest.raises(AtlasError, match="has no tokenizer"):
        load_model(none).tokenize(["cat"])
    odd = load_model(
        write_gguf(tmp_path / "odd.gguf", small_llama(), tokenizer__ggml__model="rwkv")
    )
    assert "the tokenizer of odd.gguf is not read" in odd.notes[0][0]
    assert "rwkv" in odd.notes[0][1] and "token ids" in odd.notes[0][1]


def test_a_program_of_a_file_reads_texts(tmp_path: Path) -> None:
    model = small_llama()
    path = write_gguf(tmp_path / "m.gguf", model)
    texts = ["cat sat.", "a cat", "sat", "the cat sat at a mat."]
    program = atlasc.compile(path, data=texts, sequence_length=8, recipe="is", target="sim")
    found = program.run(texts[:1])
    ids = found.inputs.arrays["input_ids"][:, : int(found.inputs.arrays["attention_mask"].sum())]
    with torch.no_grad():
        wanted = model(input_ids=torch.as_tensor(ids)).logits
    answer = found.outputs["logits"][0, : ids.shape[1]]
    assert np.abs(answer - wanted[0].numpy()).max() < 1e-2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"llama__rope__scaling__type": "yarn"}, r"llama.rope.scaling.type = yarn"),
        ({"llama__rope__scaling__factor": 4.0}, r"llama.rope.scaling.factor = 4.0"),
        ({"llama__attention__key_length": 32}, r"llama.attention.key_length = 32"),
        (
            {"llama__logit_scale": 0.5},
            r"transformers does not read(.|\n)*logit_scale",
        ),
        ({"split__count": 3}, r"one of 3 parts(.|\n)*llama-gguf-split --merge"),
        ({"llama__block_count": 2}, r"tensors of m.gguf are not those of a LlamaForCausalLM"),
        ({"llama__block_count": 100_000}, r"too large: num_hidden_layers is 100000"),
        ({"llama__embedding_length": 1 << 30}, r"too large: llama.embedding_length"),
    ],
)
def test_what_transformers_would_pass_over(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    path = write_gguf(tmp_path / "m.gguf", small_llama(), **settings)
    with pytest.raises(AtlasError, match=message):
        load_model(path)


def test_settings_that_change_nothing(tmp_path: Path) -> None:
    same = {
        "llama__rope__scaling__type": "none",
        "llama__attention__key_length": 16,
        "llama__expert_count": 0,
        "llama__attention__causal": True,
    }
    model = small_llama()
    loaded = load_model(write_gguf(tmp_path / "m.gguf", model, **same))
    assert torch.equal(logits(loaded.module), logits(model))


def test_factors_of_the_rotation_are_refused(tmp_path: Path) -> None:
    extra = {"rope_freqs.weight": np.ones(8, np.float32)}
    path = write_gguf(tmp_path / "m.gguf", small_llama(), extra=extra)
    with pytest.raises(AtlasError, match=r"does not read rope_freqs.weight"):
        load_model(path)


def test_an_architecture_that_transformers_does_not_read(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", small_llama(), architecture="bert")
    with pytest.raises(AtlasError, match=r"does not read the architecture 'bert'") as caught:
        load_model(path)
    assert "config.json and model.safetensors" in caught.value.remedy


def test_damaged_files(tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "m.gguf", small_llama()).read_bytes()
    cut, odd = tmp_path / "cut.gguf", bytearray(whole)
    odd[24:32] = (1 << 62).to_bytes(8, "little")  # the size of the first name
    damage = [b"", whole[:3], b"GGUE" + whole[4:], whole[:100], whole[:-1], bytes(odd)]
    damage += [whole[:4] + whole[7:3:-1] + whole[8:]]  # big-endian
    for content in damage:
        cut.write_bytes(content)
        with pytest.raises(AtlasError, match=r"cut.gguf is no .gguf file, or is damaged"):
            load_model(cut)
    with pytest.raises(AtlasError, match="does not exist"):
        load_model(tmp_path / "none.gguf")


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_without_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    path = write_gguf(tmp_path / "m.gguf", small_llama())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(AtlasError, match="needs the packages gguf and accelerate") as caught:
        load_model(path)
    assert caught.value.remedy == "pip install gguf accelerate"


def test_onnx_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    for path in (tmp_path / "model.onnx", tmp_path / "onnx" / "model.onnx"):
        path.write_bytes(b"x")
        for given in (path, tmp_path):
            with pytest.raises(AtlasError, match=r"ONNX, which is not read") as caught:
                load_model(given)
            assert "HuggingFace directory" in caught.value.remedy
        path.unlink()
    with pytest.raises(AtlasError, match="does not exist"):
        load_model(tmp_path / "model.onnx")
