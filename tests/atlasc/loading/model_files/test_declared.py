"""Members of config.json and of a tokenizer's files: declared by a class, harmless, or said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from text_models import tokenizer_of

from atlasc.loading.model_files import declared
from atlasc.loading.model_files.declared import unknown_of_config, unknown_of_tokenizer
from atlasc.loading.models import load_model
from tests.atlasc.cli.command import ROOT
from tests.atlasc.loading.model_files.test_settings import classifier, notes_of

OLD_BERT = {
    "architectures": ["BertForMaskedLM"], "gradient_checkpointing": False, "torch_dtype": "float16",
    "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "use_cache": True,
    "model_type": "bert", "pruned_heads": {}, "output_past": True, "max_length": 20, "top_k": 50,
    "_name_or_path": "bert-base-uncased", "finetuning_task": "mnli", "_num_labels": 2,
    "use_bfloat16": False, "torchscript": False, "do_sample": False, "num_beams": 1,
}  # fmt: skip
"""Members that folders of older versions have."""
CLASSES = (
    "BertConfig", "AlbertConfig", "DistilBertConfig", "RobertaConfig", "DebertaV2Config",
    "MPNetConfig", "T5Config", "GPT2Config", "LlamaConfig", "Qwen2Config", "ModernBertConfig",
    "ViTConfig", "DeiTConfig", "CLIPConfig", "WhisperConfig", "Wav2Vec2Config", "XLNetConfig",
)  # fmt: skip


def config_of(folder: Path, kind: str, **more: object) -> Any:
    """The config that transformers reads from a folder with further members."""
    getattr(transformers, kind)().save_pretrained(folder)
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | more))
    return transformers.AutoConfig.from_pretrained(folder)


@pytest.mark.parametrize("kind", CLASSES)
def test_what_transformers_writes_itself_is_known(tmp_path: Path, kind: str) -> None:
    assert [*unknown_of_config(tmp_path, config_of(tmp_path, kind), writes_text=True)] == []


def test_what_older_versions_wrote_is_known(tmp_path: Path) -> None:
    found = config_of(tmp_path, "BertConfig", **OLD_BERT)
    assert [*unknown_of_config(tmp_path, found, writes_text=False)] == []
    llama = config_of(tmp_path, "LlamaConfig", rope_theta=5e5, rope_scaling=None, pretraining_tp=1)
    assert [*unknown_of_config(tmp_path, llama, writes_text=True)] == []


@pytest.mark.parametrize(
    ("kind", "more", "named"),
    [
        ("BertConfig", {"future": 3}, [("config.json", "future", 3)]),
        ("BertConfig", {"position_embedding_type": "relative_key"}, [
            ("config.json", "position_embedding_type", "relative_key")]),
        ("BertConfig", {"rope_theta": 5e5}, [("config.json", "rope_theta", 5e5)]),
        ("AlbertConfig", {"net_structure_type": 7, "down_scale_factor": 2}, [
            ("config.json", "net_structure_type", 7), ("config.json", "down_scale_factor", 2)]),
        ("CLIPConfig", {"text_config": {"window": 3}}, [
            ("config.json, text_config", "window", 3)]),
    ],
)  # fmt: skip
def test_a_member_that_no_class_declares_is_named(
    tmp_path: Path, kind: str, more: dict[str, Any], named: list[Any]
) -> None:
    found = config_of(tmp_path, kind, **more)
    assert [*unknown_of_config(tmp_path, found, writes_text=False)] == named


def test_settings_of_writing_concern_what_writes(tmp_path: Path) -> None:
    found = config_of(tmp_path, "GPT2Config", temperature=0.5)
    assert [*unknown_of_config(tmp_path, found, writes_text=False)] == []
    wanted = [("config.json", "temperature", 0.5)]
    assert [*unknown_of_config(tmp_path, found, writes_text=True)] == wanted


def test_a_tokenizers_members(tmp_path: Path) -> None:
    tokenizer_of("bert", do_lower_case=True).save_pretrained(tmp_path)
    assert [*unknown_of_tokenizer(tmp_path)] == []
    path = tmp_path / "tokenizer_config.json"
    facts = json.loads(path.read_text())
    old = {"special_tokens_map_file": "x", "max_length": 128, "stride": 0, "image_token": "[CLS]"}
    path.write_text(json.dumps(facts | old | {"normalise_numbers": True}))
    special = tmp_path / "special_tokens_map.json"
    special.write_text(json.dumps({"cls_token": "[CLS]", "end": "[SEP]"}))
    assert [*unknown_of_tokenizer(tmp_path)] == [
        ("tokenizer_config.json", "normalise_numbers", True),
        ("special_tokens_map.json", "end", "[SEP]"),
    ]


def test_a_folder_says_them_in_one_note(tmp_path: Path) -> None:
    folder = classifier(tmp_path / "m", 2)
    assert notes_of(folder) == ""
    for name, more in (("config.json", {"future": 3}), ("tokenizer_config.json", {"odd": "x"})):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | more))
    ((headline, details),) = load_model(folder).notes
    assert headline == "2 settings of the folder are not applied"
    assert "config.json: future = 3" in details and "tokenizer_config.json: odd = x" in details


def test_the_page_lists_every_harmless_member() -> None:
    page = (ROOT / "docs" / "model-files.md").read_text(encoding="utf-8")
    for reasons in declared.HARMLESS.values():
        assert [member for member in reasons if f"`{member}`" not in page] == []
