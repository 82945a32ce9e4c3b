"""Loading of models: every accepted form, and one clear error for every broken one."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

from atlasc.ir.errors import AtlasError
from atlasc.loading.models import load_model

EXAMPLES = Path(__file__).parents[3] / "examples"
TINY = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def tiny_bert(**options: int) -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(vocab_size=50, max_position_embeddings=16, **(TINY | options))
    return BertForSequenceClassification(config).eval()


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """A directory with a tiny BERT classifier."""
    tiny_bert().save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def edit_config(directory: Path, **changes: object) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_directory_round_trip(bert: Path, attention: str) -> None:
    loaded = load_model(bert, attention=attention)
    ids = torch.arange(8)[None]
    assert loaded.kind == "bert"
    assert loaded.input_names == ("input_ids", "attention_mask")
    assert isinstance(loaded.module, BertForSequenceClassification)
    assert not loaded.module.training
    assert loaded.config is not None and loaded.config._attn_implementation == attention
    with torch.no_grad():
        torch.testing.assert_close(loaded.module(ids).logits, tiny_bert()(ids).logits)


def test_head_can_be_left_out(bert: Path) -> None:
    assert isinstance(load_model(bert, head=False).module, BertModel)


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
    assert not loaded.has_weights
    assert all(p.is_meta for p in loaded.module.parameters())
    assert sum(p.numel() for p in loaded.module.parameters()) == parameters


def test_pickled_weights_are_read_as_tensors_only(bert: Path) -> None:
    torch.save(tiny_bert().state_dict(), bert / "pytorch_model.bin")
    (bert / "model.safetensors").unlink()
    ids = torch.arange(8)[None]
    with torch.no_grad():
        found = load_model(bert).module(ids).logits
        torch.testing.assert_close(found, tiny_bert()(ids).logits)


class Payload:
    """An object whose unpickling writes a file: what an attacker would put into a model."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return (open, (str(self.path), "w"))


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


def lose_a_shard(directory: Path) -> None:
    index = {"weight_map": {"x": "model-00001-of-00001.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (shutil.rmtree, "not found"),
        (lambda d: [file.unlink() for file in d.iterdir()], "is empty"),
        (lambda d: (d / "config.json").unlink(), "has no config.json"),
        (break_config, "not valid JSON"),
        (lambda d: (d / "config.json").write_text("[]"), "does not name a model_type"),
        (lambda d: edit_config(d, model_type="nonsense"), "unknown model_type 'nonsense'"),
        (lambda d: edit_config(d, architectures=["NoModel"]), "unknown architecture NoModel"),
        (lambda d: edit_config(d, architectures=["Trainer"]), "unknown architecture Trainer"),
        (
            lambda d: edit_config(d, architectures=["ViTModel"]),
            "unknown architecture ViTModel",
        ),
        (lambda d: edit_config(d, hidden_size="wide"), "values that do not make a model"),
        (lambda d: edit_config(d, num_attention_heads=3), "(cannot be built|cannot be read)"),
        (lambda d: edit_config(d, quantization_config={"bits": 4}), "quantized"),
        (lambda d: (d / "model.safetensors").unlink(), "has no weights"),
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


def test_a_name_that_is_not_cached_is_not_fetched() -> None:
    with pytest.raises(AtlasError, match="never downloads"):
        load_model("nobody/no-such-model-here")


def test_unknown_attention(bert: Path) -> None:
    with pytest.raises(AtlasError, match="eager or sdpa"):
        load_model(bert, attention="flash")


def export(path: Path, dynamic: bool = False) -> Path:
    # Two tensors: export would take one that is given twice for a single input.
    ids, mask = torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long)
    batch = {0: torch.export.Dim("batch", min=2, max=16)}
    program = torch.export.export(
        tiny_bert(),
        (),
        {"input_ids": ids, "attention_mask": mask},
        dynamic_shapes={"input_ids": batch, "attention_mask": batch} if dynamic else None,
        strict=False,
    )
    torch.export.save(program, path)
    return path


@pytest.mark.parametrize("dynamic", [False, True])
def test_exported_archive(tmp_path: Path, dynamic: bool) -> None:
    loaded = load_model(export(tmp_path / "model.pt2", dynamic))
    ids = torch.arange(16).reshape(2, 8)
    assert loaded.kind == "exported" and loaded.exported is not None
    assert loaded.input_names == ("input_ids", "attention_mask")
    assert loaded.exported_shape("input_ids") == ((None if dynamic else 2), 8)
    with torch.no_grad():
        found = loaded.module(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
        torch.testing.assert_close(found, tiny_bert()(ids).logits)


def rewrite(archive: Path, record: str, content: bytes) -> None:
    """Replace or add one record of a torch archive."""
    with zipfile.ZipFile(archive) as source:
        records = {name: source.read(name) for name in source.namelist()}
    root = next(iter(records)).split("/")[0]
    records[f"{root}/{record}"] = content
    with zipfile.ZipFile(archive, "w") as target:
        for name, data in records.items():
            target.writestr(name, data)


def read_record(archive: Path, record: str) -> dict:
    with zipfile.ZipFile(archive) as source:
        name = next(name for name in source.namelist() if name.endswith(record))
        return json.loads(source.read(name))


def pickled(path: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save({"x": Payload(path)}, buffer)
    return buffer.getvalue()


def test_archive_with_pickled_code_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    rewrite(archive, "data/sample_inputs/model.pt", pickled(tmp_path / "owned"))
    with pytest.raises(AtlasError, match="is refused(.|\n)*sample_inputs"):
        load_model(archive)
    assert not (tmp_path / "owned").exists()


def test_archive_with_a_pickled_weight_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    config = read_record(archive, "model_weights_config.json")
    payload = next(iter(config["config"].values()))
    payload["use_pickle"] = True
    rewrite(archive, "data/weights/model_weights_config.json", json.dumps(config).encode())
    rewrite(archive, f"data/weights/{payload['path_name']}", pickled(tmp_path / "owned"))
    with pytest.raises(AtlasError, match="is refused"):
        load_model(archive)
    assert not (tmp_path / "owned").exists()


def test_archive_with_a_compiled_library_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    rewrite(archive, "data/aotinductor/model/model.so", b"\x7fELF")
    with pytest.raises(AtlasError, match=r"model\.so"):
        load_model(archive)


def test_archive_with_code_in_a_symbolic_size_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2", dynamic=True)
    with zipfile.ZipFile(archive) as source:
        name = next(name for name in source.namelist() if name.endswith("models/model.json"))
        program = source.read(name).decode()
    symbol = next(part for part in program.split('"') if part.startswith("Symbol("))
    attack = f"open('{tmp_path / 'owned'}', 'w')"
    rewrite(archive, "models/model.json", program.replace(symbol, attack).encode())
    with pytest.raises(AtlasError, match="not plain arithmetic"):
        load_model(archive)
    assert not (tmp_path / "owned").exists()


def test_archive_that_calls_something_else_is_refused(tmp_path: Path) -> None:
    archive = export(tmp_path / "model.pt2")
    program = read_record(archive, "models/model.json")
    program["graph_module"]["graph"]["nodes"][0]["target"] = "torch.os.system"
    rewrite(archive, "models/model.json", json.dumps(program).encode())
    with pytest.raises(AtlasError, match=r"torch\.os\.system"):
        load_model(archive)


@pytest.mark.parametrize("content", [b"", b"not an archive"])
def test_file_that_is_no_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.pt2").write_bytes(content)
    with pytest.raises(AtlasError, match="is not an archive of torch.export"):
        load_model(tmp_path / "model.pt2")


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
    with pytest.raises(AtlasError, match="asks for .*open"):
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
