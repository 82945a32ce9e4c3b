"""The directory of a model, from a path or a name in the local HuggingFace cache."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from atlasc.ir.errors import AtlasError
from atlasc.loading.model_files.adapters import check_adapter
from atlasc.loading.model_files.huggingface import SAVE_REMEDY


def model_directory(reference: str | Path, path: Path) -> Path:
    """The directory of a reference; a name is looked up in the local cache and never downloaded."""
    if path.is_dir():
        check_adapter(path, lambda headline, details: None)
        if not (path / "config.json").is_file():
            fault = "has no config.json" if any(path.iterdir()) else "is empty"
            raise AtlasError(
                f"model directory {path} {fault}",
                why="config.json names the architecture",
                remedy=f"copy a HuggingFace model there, or {SAVE_REMEDY}",
            )
        return path
    if path.exists():
        raise AtlasError(
            f"{path} is not a model",
            remedy="give a HuggingFace directory, a .pt2 archive or a .pt file",
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
