"""The model as the client of a bundle knows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from atlasc.ir.module import Op
from atlasc.loading import IDS, MASK, padding_of
from atlasc.loading.model_files.huggingface import read_object
from atlasc.loading.models import CLIENT, LoadedModel, Shape


def client_model(inputs: Sequence[Op], folder: Path) -> LoadedModel:
    """The model as the client of a bundle knows it, without weights or torch, to read inputs.

    Args:
        inputs: raw inputs of the program, private inputs first; they give the shapes.
        folder: has the original model's config (unless it was an archive of torch.export),
            tokenizer and preprocessor.

    Raises:
        AtlasError: the config is no JSON object.
    """
    path = folder / "config.json"
    config: Any = SimpleNamespace(**(read_object(path, links=False) if path.exists() else {}))
    shapes: dict[str, Shape | None] = {
        op.attributes["name"]: (None, *op.attributes["shape"][1:]) for op in inputs
    }
    if IDS in shapes:  # lengths of texts are checked when they are padded
        shapes = dict.fromkeys([IDS, MASK, *(name for name in shapes if name != IDS)])
    padding = padding_of(inputs)
    return LoadedModel(None, CLIENT, config, folder, shapes=shapes, padding=padding)
