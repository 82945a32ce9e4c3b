"""The directory of a model, from a path or a name in the local HuggingFace cache; and what lies
there instead of HuggingFace's own weights.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from atlasc.files import is_whole
from atlasc.ir.errors import AtlasError, named
from atlasc.loading.model_files.adapters import check_adapter
from atlasc.loading.model_files.huggingface import SAVE_REMEDY

GGUF, ONNX = ".gguf", ".onnx"
WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""Files of weights; the first that exists counts. An index names several files."""


def gguf_file(path: Path) -> Path | None:
    """The `.gguf` file that a path names: itself, or the only one of a folder that has no other
    weights. None if there is none.

    Raises:
        AtlasError: a folder has several, or has only `.onnx` files; or the path is such a file.
    """
    if not path.is_dir():
        if path.suffix == ONNX:
            raise _onnx(path)
        return path if path.suffix == GGUF else None
    if any((path / name).is_file() for name in WEIGHTS):
        return None
    found = sorted(path.glob("*" + GGUF))
    if len(found) > 1:
        raise AtlasError(
            f"model directory {path} has {len(found)} {GGUF} files",
            why=named([one.name for one in found]),
            remedy=f"give one of them, for example {found[0]}",
        )
    if not found and (models := sorted((*path.glob("*" + ONNX), *path.glob("onnx/*" + ONNX)))):
        raise _onnx(models[0])
    return found[0] if found else None


def _onnx(path: Path) -> AtlasError:
    return AtlasError(
        f"{path.name} is a model in ONNX, which is not read",
        where=str(path),
        why="neither transformers nor optimum turns ONNX weights into a model of torch; optimum "
        "runs such a file with ONNX Runtime",
        remedy="give the HuggingFace directory that the file was exported from, or export that "
        "model with torch.export",
    )


def model_directory(reference: str | Path, path: Path) -> Path:
    """The directory of a reference; a name is looked up in the local cache and never downloaded."""
    if path.is_dir():
        check_adapter(path, lambda headline, details: None)
        if not (path / "config.json").is_file():
            fault = "has no config.json" if any(map(is_whole, path.iterdir())) else "is empty"
            raise AtlasError(
                f"model directory {path} {fault}",
                why="config.json names the architecture",
                remedy=f"copy a HuggingFace model there, or {SAVE_REMEDY}",
            )
        return path
    if path.exists():
        raise AtlasError(
            f"{path} is not a model",
            remedy="give a HuggingFace directory, a .gguf file, a .pt2 archive or a .pt file",
        )
    name = str(reference)
    if not path.is_absolute() and not name.startswith((".", "~")) and name.count("/") <= 1:
        from huggingface_hub import try_to_load_from_cache
        from huggingface_hub.errors import HFValidationError

        with suppress(HFValidationError):
            cached = try_to_load_from_cache(name, "config.json")
            if isinstance(cached, str):
                return Path(cached).parent
    raise AtlasError(
        f"model {name} not found",
        why="there is no such directory or file, and no model of that name in the local "
        "HuggingFace cache; atlasc never downloads",
        remedy=f"check the path, or download the model first: hf download {name}",
    )
