"""Loading of models: every accepted form, and one clear error for every broken one."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from small_files import TINY, Payload, pickled, tiny_bert
from transformers import (
    BertForSequenceClassification,
    BertModel,
    BertTokenizerFast,
    LlamaConfig,
    LlamaForCausalLM,
    MPNetConfig,
    MPNetModel,
    ViTConfig,
    ViTForImageClassification,
)

from atlasc.ir.errors import AtlasError
from atlasc.loading.models import load_model, model_of

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A directory with a tiny BERT classifier."""
    tiny_bert().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def edit_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_directory_round_trip(bert: Path) -> None:
    loaded = load_model(bert)
    ids = torch.arange(8)[None]
    assert loaded.kind == "bert"
    assert loaded.input_names == ("input_ids", "attention_mask", "token_type_ids")
    assert loaded.optional_names == ("position_ids",)
    assert isinstance(loaded.module, BertForSequenceClassification)
    assert not loaded.module.training
    assert loaded.config is not None and loaded.config._attn_implementation == "sdpa"
    with torch.no_grad():
        torch.testing.assert_close(loaded.module(ids).logits, tiny_bert()(ids).logits)


def test_a_model_without_sdpa_is_loaded_with_eager_attention(tmp_path: Path) -> None:
    config = MPNetConfig(vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
                         intermediate_size=8, max_position_embeddings=12)  # fmt: skip
    MPNetModel(config).save_pretrained(tmp_path / "m")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.json").write_text((tmp_path / "m" / "config.json").read_text())
    for loaded in (load_model(tmp_path / "m"), load_model(bare, weights=False)):
        assert loaded.config is not None and loaded.config._attn_implementation == "eager"


def test_base_model_without_pooler_weights_is_loaded_without_pooler(tmp_path: Path) -> None:
    BertModel(tiny_bert().config, add_pooling_layer=False).save_pretrained(tmp_path / "m")
    assert load_model(tmp_path / "m").module.pooler is None


@pytest.mark.parametrize(
    ("model", "kind", "inputs"),
    [
        (
            ViTForImageClassification(
                ViTConfig(**TINY, image_size=8, patch_size=4, num_channels=1)
            ),
            "vit",
            ("pixel_values",),
        ),
        (
            LlamaForCausalLM(LlamaConfig(**TINY, num_key_value_heads=1, vocab_size=50)),
            "llama",
            ("input_ids", "attention_mask"),
        ),
    ],
)
def test_families(
    tmp_path: Path, model: torch.nn.Module, kind: str, inputs: tuple[str, ...]
) -> None:
    model.save_pretrained(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert (loaded.kind, loaded.input_names) == (kind, inputs)
    assert type(loaded.module) is type(model)
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float32}


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    tiny_bert().half().save_pretrained(tmp_path / "m")
    assert next(load_model(tmp_path / "m").module.parameters()).dtype == torch.float32


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("bert-base", 109_514_298), ("vit-base", 86_567_656), ("llama3-8b", 8_030_261_248)],
)
def test_bare_configs_take_no_memory(name: str, parameters: int) -> None:
    loaded = load_model(EXAMPLES / "configs" / name, weights=False)
    assert all(p.is_meta for p in loaded.module.parameters())
    assert sum(p.numel() for p in loaded.module.parameters()) == parameters


def test_pickled_weights_are_read_as_tensors_only(bert: Path) -> None:
    torch.save(tiny_bert().state_dict(), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = load_model(bert).module(ids).logits
        torch.testing.assert_close(found, tiny_bert()(ids).logits)


def test_code_in_pickled_weights_does_not_run(bert: Path, tmp_path: Path) -> None:
    torch.save({"x": Payload(tmp_path / "owned")}, bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    with pytest.raises(AtlasError, match="weights cannot be read"):
        load_model(bert)
    assert not (tmp_path / "owned").exists()


def test_code_beside_a_config_does_not_run(bert: Path, tmp_path: Path) -> None:
    (bert / "code.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')")
    edit_config(
        bert,
        architectures=["Custom"],
        model_type="custom",
        auto_map={"AutoConfig": "code.C", "AutoModel": "code.Custom"},
    )
    with pytest.raises(AtlasError, match="unknown model_type 'custom'"):
        load_model(bert)
    assert not (tmp_path / "owned").exists()


def break_config(directory: Path) -> None:
    (directory / "config.json").write_text('{"model_type": ')


def break_weights(directory: Path) -> None:
    path = directory / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def write_config(directory: Path, value: str) -> None:
    (directory / "config.json").write_text(f'{{"model_type": "bert", "x": {value}}}')


def write_huge_header(directory: Path) -> None:
    (directory / "model.safetensors").write_bytes((1 << 40).to_bytes(8, "little"))


def index_weights(directory: Path, name: str) -> None:
    index = {"weight_map": {"x": name}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "model.safetensors").unlink()


def lose_a_shard(directory: Path) -> None:
    index_weights(directory, "model-00001-of-00001.safetensors")


def adapter(directory: Path) -> Path:
    """Put the files of an adapter beside a model."""
    base = {"base_model_name_or_path": "team/base"}
    (directory / "adapter_config.json").write_text(json.dumps(base))
    (directory / "adapter_model.safetensors").write_bytes(b"")
    return directory


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "not found"),
        (lambda d: [file.unlink() for file in d.iterdir()], "is empty"),
        (lambda d: (d / "config.json").unlink(), "has no config.json"),
        (break_config, "the config .* cannot be read"),
        (lambda d: (d / "config.json").write_text("{}"), "does not name a model_type"),
        (lambda d: (d / "config.json").write_text("[]"), "should be an object"),
        (lambda d: edit_config(d, model_type="nonsense"), "unknown model_type 'nonsense'"),
        (lambda d: edit_config(d, architectures=["NoModel"]), "unknown architecture NoModel"),
        (lambda d: edit_config(d, architectures=["Trainer"]), "unknown architecture Trainer"),
        (
            lambda d: edit_config(d, architectures=["ViTModel"]),
            "unknown architecture ViTModel",
        ),
        (lambda d: edit_config(d, hidden_size="wide"), "values that describe no model"),
        (lambda d: edit_config(d, num_attention_heads=3), "(cannot be built|cannot be read)"),
        (lambda d: edit_config(d, quantization_config={"bits": 4}), "quantized"),
        (lambda d: edit_config(d, transformers_weights="other.bin"), "another file of weights"),
        (lambda d: adapter(d).joinpath("model.safetensors").unlink(), "holds only an adapter"),
        (lambda d: adapter(d).joinpath("config.json").unlink(), "lies elsewhere .team/base"),
        (adapter, "(?s)a model and an adapter beside it.*if it is merged, delete adapter_config"),
        (lambda d: (d / "model.safetensors").unlink(), "has no weights"),
        (lambda d: edit_config(d, num_hidden_layers=10**7), "num_hidden_layers is 10000000"),
        (lambda d: edit_config(d, hidden_size=10**12), "hidden_size is 1000000000000"),
        (lambda d: edit_config(d, vocab_size=10**15), "size that is too large: vocab_size"),
        (lambda d: edit_config(d, num_labels=10**6), "size that is too large: num_labels"),
        (lambda d: edit_config(d, max_position_embeddings=-4), "negative size"),
        (lambda d: edit_config(d, num_attention_heads=0), "cannot be built"),
        (lambda d: edit_config(d, architectures={"a": 1}), "unknown architecture"),
        (lambda d: edit_config(d, vocab_size=1 << 24), "larger model than its weights"),
        (lambda d: write_config(d, "[" * 10_000 + "]" * 10_000), "recursion limit"),
        (lambda d: write_config(d, "9" * 5_000), "cannot be read"),
        (lambda d: write_config(d, '1, "x": 2'), "given twice"),
        (lambda d: index_weights(d, "../other/model.safetensors"), "not in its folder"),
        (lambda d: index_weights(d, "/etc/passwd"), "not in its folder"),
        (write_huge_header, "header is too large"),
        (break_weights, "model.safetensors is missing or damaged"),
        (lambda d: (d / "model.safetensors").write_bytes(b""), "missing or damaged"),
        (lose_a_shard, "model-00001-of-00001.safetensors is missing or damaged"),
        (
            lambda d: edit_config(d, intermediate_size=48),
            r"3 weights .* size(.|\n)*\(32,\).*\(48,\)",
        ),
        (lambda d: edit_config(d, num_hidden_layers=2), r"16 weights .* missing(.|\n)*layer.1"),
    ],
)
def test_broken_directories(bert: Path, damage, message: str) -> None:
    damage(bert)
    with pytest.raises(AtlasError, match=message):
        load_model(bert)


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("digits/model", "digits"),
        (f"models--org--tiny-bert/snapshots/{'0a' * 20}", "tiny-bert"),
        ("tmpx3_k9abc", "BertForSequenceClassification"),
        ("tmp.Fg1KxYz2aB/model", "BertForSequenceClassification"),
    ],
)
def test_a_model_has_its_own_name(bert: Path, tmp_path: Path, place: str, name: str) -> None:
    assert load_model(Path(shutil.copytree(bert, tmp_path / place))).name == name


def test_a_name_that_is_not_cached_is_not_fetched() -> None:
    with pytest.raises(AtlasError, match="never downloads"):
        load_model("nobody/no-such-model-here")


def test_nothing_is_fetched_where_the_hub_may_be_reached(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def refuse(*address: object, **_: object) -> None:
        asked.append(address)
        raise OSError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("socket.socket.connect", refuse)
    tokenizer = BertTokenizerFast(vocab={"[UNK]": 0, "a": 1, "[CLS]": 2, "[SEP]": 3})
    tokenizer.save_pretrained(bert)
    edit_config(bert, _name_or_path="nobody/no-such-model-here")
    torch.save(tiny_bert().state_dict(), bert / "model.pt")
    for model in (bert, bert / "model.pt"):
        assert load_model(model).tokenize(["a"]) == [[2, 1, 3]]
    assert load_model(bert, weights=False).tokenizer is not None
    assert model_of(tiny_bert(), tokenizer).tokenizer is not None
    with pytest.raises(AtlasError, match="never downloads"):
        load_model("nobody/no-such-model-here")
    assert not asked


def test_pickled_module_is_refused_unless_trusted(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save(tiny_bert(), path)
    with pytest.raises(AtlasError) as caught:
        load_model(path)
    for part in ("BertForSequenceClassification", "save_pretrained", "torch.export.save"):
        assert part in str(caught.value)
    loaded = load_model(path, trust_pickle=True)
    assert loaded.kind == "bert" and not loaded.module.training


def test_pickled_code_in_a_pt_file_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(pickled(tmp_path / "owned"))
    with pytest.raises(AtlasError, match="which calls .*open"):
        load_model(tmp_path / "model.pt")
    assert not (tmp_path / "owned").exists()


def test_state_dictionary_beside_a_config(bert: Path) -> None:
    torch.save(tiny_bert().state_dict(), bert / "model.pt")
    (bert / "model.safetensors").unlink()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = load_model(bert / "model.pt").module(ids).logits
        torch.testing.assert_close(found, tiny_bert()(ids).logits)
    edit_config(bert, intermediate_size=48)
    with pytest.raises(AtlasError, match="do not have the size"):
        load_model(bert / "model.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": torch.ones(2)}, "no architecture"),
        ([torch.ones(2)], "neither a module nor a dictionary"),
        ({"a": 3}, "neither a module nor a dictionary"),
    ],
)
def test_pt_file_with_something_else(tmp_path: Path, content: object, message: str) -> None:
    torch.save(content, tmp_path / "model.pt")
    with pytest.raises(AtlasError, match=message):
        load_model(tmp_path / "model.pt")


def test_pt_file_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="does not exist"):
        load_model(tmp_path / "none.pt")
    (tmp_path / "model.pt").write_bytes(b"garbage")
    with pytest.raises(AtlasError, match="cannot be read"):
        load_model(tmp_path / "model.pt")


def test_packed_pt_file_is_refused_before_it_expands(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(2)}, tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt", "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model/data/1", bytes(1 << 26))
    with pytest.raises(AtlasError, match="compressed or overlap"):
        load_model(tmp_path / "model.pt")


def test_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(AtlasError, match="is not a model"):
        load_model(tmp_path / "notes.txt")


def test_damaged_tokenizer_is_reported_when_it_is_needed(bert: Path) -> None:
    assert load_model(bert).tokenizer is None
    (bert / "tokenizer.json").write_text("{")
    loaded = load_model(bert)
    with pytest.raises(AtlasError, match="tokenizer cannot be read"):
        _ = loaded.tokenizer


def test_a_merged_model_is_read_beside_the_config_of_its_adapter(tmp_path: Path) -> None:
    tiny_bert().save_pretrained(tmp_path)
    adapter(tmp_path).joinpath("adapter_model.safetensors").unlink()
    said: list[str] = []
    loaded = load_model(tmp_path, note=lambda headline, details: said.append(headline))
    torch.testing.assert_close(loaded.module.state_dict(), tiny_bert().state_dict())
    assert said == [
        "adapter_config.json is not read: the weights beside it count as the merged model"
    ]
