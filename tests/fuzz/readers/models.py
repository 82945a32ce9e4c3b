"""Model files that torch and transformers open: directories, archives, tensors in a .pt file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from atlasc.loading.models import load_model
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import DIGITS, compiled

SMALL = {
    "vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 8, "max_position_embeddings": 16,
}  # fmt: skip
BERT = {"model_type": "bert", "architectures": ["BertModel"], "type_vocab_size": 2, **SMALL}
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_key_value_heads": 1,
    "rope_theta": 10000.0, "rms_norm_eps": 1e-6, **SMALL,
}  # fmt: skip


def _configs(folder: Path) -> list[Path]:
    paths = []
    digits = json.loads((DIGITS / "model" / "config.json").read_text())
    for name, config in (("vit", digits), ("bert", BERT), ("llama", LLAMA)):
        (folder / name).mkdir()
        (folder / name / "config.json").write_text(json.dumps(config))
        paths.append(folder / name)
    return paths


def _config(folder: Path) -> object:
    return load_model(folder, weights=False).kind


def _directories(folder: Path) -> list[Path]:
    """As saved; in halves, in two files with an index."""
    from safetensors.torch import load_file, save_file

    places = [Path(shutil.copytree(DIGITS / "model", folder / name)) for name in ("digits", "half")]
    whole = places[1] / "model.safetensors"
    weights = load_file(whole)
    whole.unlink()
    index = {name: f"{number % 2}.safetensors" for number, name in enumerate(weights)}
    for file in set(index.values()):
        part = {name: weights[name].half() for name in weights if index[name] == file}
        save_file(part, places[1] / file, {"format": "pt"})
    text = json.dumps({"metadata": {}, "weight_map": index})
    (places[1] / "model.safetensors.index.json").write_text(text)
    return places


def _directory(folder: Path) -> object:
    return load_model(folder).kind


def _archives(folder: Path) -> list[Path]:
    return [Path(shutil.copy(compiled() / "tiny" / "tiny.pt2", folder))]


def _archive(path: Path) -> object:
    from atlasc.compilation.prepare import trace_model
    from atlasc.ir.text.storage import print_module

    return print_module(trace_model(load_model(path), 2))


def _torch_files(folder: Path) -> list[Path]:
    import torch

    torch.save({"w": torch.ones(2, 3), "b": torch.arange(3)}, folder / "weights.pt")
    return [folder / "weights.pt"]


def _torch_file(path: Path) -> object:
    from atlasc.loading.model_files.torch_files import load_pt

    return sorted(map(str, load_pt(path)))


def _ggufs(folder: Path) -> list[Path]:
    from tests.atlasc.loading.model_files.small_gguf import small_llama, write_gguf

    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
    return [write_gguf(folder / "m.gguf", small_llama(**sizes, num_key_value_heads=1))]


def _gguf(path: Path) -> object:
    return load_model(path).kind


READERS = [
    Reader("config", _configs, _config, 15),
    Reader("model-directory", _directories, _directory, 10),
    Reader("pt2", _archives, _archive, 5),
    Reader("pt", _torch_files, _torch_file, 100),
    Reader("gguf", _ggufs, _gguf, 50),
]
