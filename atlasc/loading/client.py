"""The model as the client of a bundle knows it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import read_json
from atlasc.ir.module import Op
from atlasc.loading import IDS, MASK, padding_of
from atlasc.loading.loaded_model import CLIENT, LoadedModel, Shape
from atlasc.loading.mask_argument import OwnMask
from atlasc.loading.model_files.huggingface import read_object
from atlasc.runtime.interface import PublicInput

OWN_MASK = "mask.json"
"""File of a bundle's client: the mask under the module's own name."""
MOST = 4096
"""Greatest number of bytes of this file."""


def client_config(folder: Path) -> Any:
    """The original model's config, with attributes, from the client's files; empty if it was an
    archive of torch.export.

    Raises:
        AtlasError: it is no JSON object.
    """
    path = folder / "config.json"
    return SimpleNamespace(**(read_object(path, links=False) if path.exists() else {}))


def client_model(
    inputs: Sequence[Op], folder: Path, publics: Sequence[PublicInput] = ()
) -> LoadedModel:
    """The model as the client of a bundle knows it, without weights or torch, to read inputs.

    Args:
        inputs: private inputs of the program, which give the shapes.
        folder: has the original model's config (unless it was an archive of torch.export),
            tokenizer and preprocessor, and the mask under the model's own name.
        publics: inputs that the server sees.

    Raises:
        AtlasError: the config is no JSON object, or the mask is not the program's.
    """
    config = client_config(folder)
    given = {op.attributes["name"]: op.attributes["shape"] for op in inputs}
    given |= {one.name: one.shape for one in publics}
    shapes: dict[str, Shape | None] = {name: (None, *shape[1:]) for name, shape in given.items()}
    if IDS in shapes:  # lengths of texts are checked when they are padded
        shapes = dict.fromkeys([IDS, MASK, *(name for name in shapes if name != IDS)])
    padding, mask = padding_of(inputs), None
    if (file := folder / OWN_MASK).exists():
        remedy = "compile the model again"
        mask = read_json(file, OwnMask, "the mask", MOST, remedy=remedy, links=False)
        if MASK not in shapes or mask.argument in shapes:
            raise AtlasError(f"the mask {mask.argument} is no mask of the program", where=str(file))
    return LoadedModel(None, CLIENT, config, folder, shapes=shapes, padding=padding, mask=mask)
