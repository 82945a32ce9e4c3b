"""A compiled model on disk, split by who needs what.

```
manifest.json            format, model, target, parameters, security, digests of all files
report.html  front.json  what was chosen and what it costs
client/                  embed.air, interface.air (+ arrays), model/ (config and tokenizer)
server/                  program.air, poly.air, weights.safetensors
```

No key is ever part of a bundle: keys have folders of their own (``atlasc keygen``).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from atlasc.client import ClientProgram
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.storage import load_module, save_modules

FORMAT = 1
MANIFEST = "manifest.json"
MODEL_FILES = (
    "config.json",
    "preprocessor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
)
"""What the client needs of a HuggingFace directory to read its inputs: no weights, no code."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files are those that its manifest lists.

    Attributes:
        folder: where it lies.
        manifest: the parsed manifest.
    """

    folder: Path
    manifest: dict[str, Any]

    @cached_property
    def client(self) -> ClientProgram:
        """The client's side."""
        return ClientProgram.load(self.folder / "client")

    @cached_property
    def program(self) -> Module:
        """The packed program that the server runs."""
        server = self.folder / "server"
        return load_module(server / "program.air", server / "weights.safetensors")

    @cached_property
    def poly(self) -> Module:
        """The program's cleartext meaning: the polynomial simulation."""
        server = self.folder / "server"
        return load_module(server / "poly.air", server / "weights.safetensors")

    @property
    def target(self) -> str:
        """The backend that it was compiled for."""
        return str(self.manifest["target"])

    @property
    def model_folder(self) -> Path:
        """Config and tokenizer, to read inputs with."""
        return self.folder / "client" / "model"


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A folder that appears whole or not at all: written beside its place, then renamed.

    Raises:
        AtlasError: it exists already, or its parent cannot be written.
    """
    if folder.exists():
        raise AtlasError(
            f"the output {folder} exists already",
            remedy="choose another -o, or remove it first; nothing is overwritten",
        )
    draft = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        draft.mkdir(parents=True)
    except OSError as error:
        raise AtlasError(f"cannot write to {folder.parent}", why=str(error)) from None
    try:
        yield draft
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_bundle(
    draft: Path,
    client: ClientProgram,
    program: Module,
    poly: Module,
    model_directory: Path,
    facts: dict[str, Any],
) -> None:
    """Fill a new folder; the manifest, with the digests of all other files, comes last."""
    for name in ("client/model", "server"):
        (draft / name).mkdir(parents=True)
    client.save(draft / "client")
    for name in MODEL_FILES:
        if (model_directory / name).is_file():
            shutil.copyfile(model_directory / name, draft / "client" / "model" / name)
    server = draft / "server"
    texts = {server / "program.air": program, server / "poly.air": poly}
    save_modules(texts, server / "weights.safetensors")
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    manifest = {
        "format": FORMAT,
        **facts,
        "files": {str(path.relative_to(draft)): digest(path) for path in files},
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def load_bundle(folder: Path) -> Bundle:
    """Open a bundle and check every file against the manifest.

    Raises:
        AtlasError: not a bundle, another format version, or a changed or missing file.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise AtlasError(
            f"{folder} is not a compiled bundle",
            why=f"it has no {MANIFEST}",
            remedy="give the folder that atlasc compile -o wrote",
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AtlasError(f"{path} cannot be read", why=str(error)) from None
    version = manifest.get("format") if isinstance(manifest, dict) else None
    if version != FORMAT:
        raise AtlasError(
            f"{folder} has bundle format {version!r}",
            why=f"this atlasc reads format {FORMAT}",
            remedy="compile the model again, or use the atlasc that made it",
        )
    _check_files(folder, manifest["files"])
    return Bundle(folder, manifest)


def _check_files(folder: Path, files: dict[str, str]) -> None:
    for name, expected in files.items():
        path = folder / name
        if not path.is_file():
            raise AtlasError(f"{folder} lacks {name}", remedy="compile the model again")
        if digest(path) != expected:
            raise AtlasError(
                f"{path} was changed after the bundle was compiled",
                why="its SHA-256 is not the one in the manifest",
                remedy="compile the model again, or restore the file",
            )
