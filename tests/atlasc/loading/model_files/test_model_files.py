"""What a model's folder has and the program does not compute: said, or refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from small_files import TINY, tiny_bert
from transformers import (
    BertForPreTraining,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from atlasc.compilation.source import load_source
from atlasc.ir.errors import AtlasError
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.models import load_model

PAGE = Path(__file__).parents[4] / "docs" / "model-files.md"
QUERY = "bert.encoder.layer.0.attention.self.query"


def saved(folder: Path, model: Any = None, **config: object) -> Path:
    (model or tiny_bert()).save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | config))
    return folder


def with_weights(folder: Path, extra: dict[str, tuple[int, ...]]) -> Path:
    weights = load_file(folder / "model.safetensors")
    weights |= {name: torch.ones(shape) for name, shape in extra.items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def as_pt(folder: Path) -> Path:
    torch.save(load_file(folder / "model.safetensors"), folder / "model.pt")
    (folder / "model.safetensors").unlink()
    return folder / "model.pt"


def as_folder(folder: Path) -> Path:
    return folder


def said(model: LoadedModel) -> str:
    return "\n".join(f"{headline}\n{details}" for headline, details in model.notes)


def vit() -> ViTForImageClassification:
    return ViTForImageClassification(ViTConfig(**TINY, image_size=8, patch_size=4))


def llama() -> LlamaForCausalLM:
    return LlamaForCausalLM(LlamaConfig(**TINY, num_key_value_heads=1, vocab_size=50))


@pytest.mark.parametrize("form", [as_folder, as_pt])
@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (tiny_bert, {f"{QUERY}.lora_A.weight": (4, 16), f"{QUERY}.lora_B.weight": (16, 4)}),
        (tiny_bert, {"bert.encoder.layer.2.output.dense.bias": (16,)}),
        (tiny_bert, {"classifier.lora_A.weight": (4, 16)}),
        (tiny_bert, {"prefix_encoder.embedding.weight": (3, 3)}),
        (tiny_bert, {"bert.embeddings.extra.weight": (3, 16), "cls.predictions.bias": (50,)}),
        (vit, {"vit.encoder.layer.5.output.dense.bias": (16,)}),
        (llama, {"model.layers.0.self_attn.q_proj.lora_A.default.weight": (4, 16)}),
    ],
)
def test_weights_inside_the_model_that_are_not_read_are_refused(
    tmp_path: Path,
    make: Callable[[], Any],
    extra: dict[str, tuple[int, ...]],
    form: Callable[[Path], Path],
) -> None:
    folder = with_weights(saved(tmp_path / "m", make()), extra)
    with pytest.raises(AtlasError, match="weights? that .* does not read") as caught:
        load_model(form(folder))
    assert "merge_and_unload" in caught.value.remedy


@pytest.mark.parametrize("form", [as_folder, as_pt])
@pytest.mark.parametrize(
    ("make", "extra", "architecture"),
    [
        (tiny_bert, {"cls.predictions.bias": (50,)}, None),
        (tiny_bert, {}, "BertModel"),
        (lambda: BertForPreTraining(tiny_bert().config), {}, "BertModel"),
        (vit, {"vit.pooler.dense.bias": (16,)}, None),
        (vit, {}, "ViTModel"),
        (llama, {"score.weight": (2, 16)}, None),
    ],
)
def test_the_head_of_another_task_is_said(
    tmp_path: Path,
    make: Callable[[], Any],
    extra: dict[str, tuple[int, ...]],
    architecture: str | None,
    form: Callable[[Path], Path],
) -> None:
    changes = {} if architecture is None else {"architectures": [architecture]}
    model = make()
    if architecture == "ViTModel":  # whose pooler is not saved with a classifier
        extra = {"vit.pooler.dense.bias": (16,), "vit.pooler.dense.weight": (16, 16)}
    folder = with_weights(saved(tmp_path / "m", model, **changes), extra)
    loaded = load_model(form(folder))
    assert len(loaded.notes) == 1 and "not read" in said(loaded)


def test_known_buffers_are_no_weights(tmp_path: Path) -> None:
    folder = with_weights(saved(tmp_path / "m"), {"bert.embeddings.position_ids": (1, 16)})
    assert not load_model(folder).notes
    folder = with_weights(
        saved(tmp_path / "l", llama()), {"model.layers.0.self_attn.rotary_emb.inv_freq": (4,)}
    )
    assert not load_model(folder).notes


@pytest.mark.parametrize(("names", "number"), [(2, 50), (3, 2), (50, 2)])
def test_the_weights_decide_between_two_numbers_of_classes(
    tmp_path: Path, names: int, number: int
) -> None:
    table = {str(n): f"c{n}" for n in range(names)}
    folder = saved(tmp_path / "m", num_labels=number, id2label=table)
    for form in (as_folder, as_pt):
        loaded = load_model(form(folder))
        assert f"both {names} and {number} classes; the weights have 2" in said(loaded)
        ids = torch.arange(8)[None]
        with torch.no_grad():
            torch.testing.assert_close(loaded.module(ids).logits, tiny_bert()(ids).logits)
        expected = {0: "c0", 1: "c1"} if names == 2 else {0: "LABEL_0", 1: "LABEL_1"}
        assert loaded.config is not None and loaded.config.id2label == expected


def test_a_number_of_classes_that_no_weight_has_is_refused(tmp_path: Path) -> None:
    table = {str(n): f"c{n}" for n in range(4)}
    with pytest.raises(AtlasError, match="do not have the size"):
        load_model(saved(tmp_path / "m", num_labels=50, id2label=table))


def test_hostile_lists_of_modules(tmp_path: Path) -> None:
    folder = saved(tmp_path / "m")
    (folder / "modules.json").write_text('[{"path": "../..", "type": "a.Pooling"}, {}]')
    model = load_model(folder)
    assert "an unknown step" in said(model) and model.sentences.steps is None
    (folder / "modules.json").write_text('{"a": 1}')
    with pytest.raises(AtlasError, match="list of modules"):
        load_model(folder)


def test_the_page_computes_sentence_embeddings() -> None:
    """The block of the page against torch."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    block = next(block for block in blocks if "last_hidden_state" in block)
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randn(2, 5, 4, generator=generator)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])
    dense = torch.nn.Linear(4, 3)
    program = SimpleNamespace(
        run=lambda texts: SimpleNamespace(
            outputs={"last_hidden_state": tokens.numpy()},
            inputs=SimpleNamespace(arrays={"attention_mask": mask.numpy()}),
        )
    )
    names = {name: value.numpy(force=True) for name, value in dense.state_dict().items()}
    found: dict[str, Any] = {"program": program, "texts": [], "np": np, **names}
    exec(block, found)
    mean = torch.stack([tokens[0, :3].mean(0), tokens[1].mean(0)])
    expected = torch.nn.functional.normalize(torch.tanh(dense(mean)), dim=1)
    np.testing.assert_allclose(found["embeddings"], expected.numpy(force=True), atol=1e-6)


def test_notes_of_a_model_are_told_when_it_is_compiled(tmp_path: Path) -> None:
    folder = with_weights(saved(tmp_path / "m"), {"cls.predictions.bias": (50,)})
    heard: list[str] = []
    ids = [[1, 2, 3], [4, 5]]
    load_source(folder, ids, note=lambda headline, details: heard.append(headline))
    assert any("not read" in headline for headline in heard)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"hidden_size": 32}, "lm_head.weight|the file has (40, 16), the config asks for"),
        ({"num_hidden_layers": 1}, "the file has 9 weights that LlamaForCausalLM does not read"),
        ({"num_hidden_layers": 3}, "9 weights of the architecture are missing"),
        ({"num_key_value_heads": 4}, "k_proj.weight|has (8, 16), the config asks for (16, 16)"),
        ({"num_attention_heads": 8}, "o_proj.weight|has (16, 16), the config asks for (16, 32)"),
        ({"vocab_size": 50}, "the file has (40, 16), the config asks for (50, 16)"),
        ({"tie_word_embeddings": True}, "ties two weights that differ"),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_a_config_that_contradicts_its_weights_is_refused(
    tmp_path: Path, changed: dict[str, Any], what: str
) -> None:
    folder = saved(tmp_path / "model", small_llama(), **changed)
    with pytest.raises(AtlasError) as refused:
        load_model(str(folder))
    assert all(part in str(refused.value) for part in what.split("|"))


def test_a_head_that_is_tied_in_the_weights_alone_is_missing(tmp_path: Path) -> None:
    folder = saved(
        tmp_path / "model", small_llama(tie_word_embeddings=True), tie_word_embeddings=False
    )
    with pytest.raises(AtlasError, match="1 weights of the architecture are missing") as refused:
        load_model(str(folder))
    assert "lm_head.weight" in refused.value.why


def small_llama(**config: Any) -> LlamaForCausalLM:
    return LlamaForCausalLM(
        LlamaConfig(
            hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=4, vocab_size=40, max_position_embeddings=32,
            **{"bos_token_id": 0, "eos_token_id": 1, **config},
        )
    )  # fmt: skip
