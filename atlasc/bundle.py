"""A compiled model on disk, split by who needs what.

```
manifest.json            format, model, target, parameters, security, digests of all files
report.html, front.*     what was chosen and what it costs
evaluations.jsonl        of a search, everything that was evaluated
client/                  embed.air, interface.air (+ arrays), model/ (config and tokenizer)
server/                  program.air, poly.air, weights.safetensors
```

A client needs ``manifest.json`` and ``client/`` alone, a server ``manifest.json`` and ``server/``.
No key is ever part of a bundle: keys have folders of their own (``atlasc keygen``).
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from atlasc.client import ClientProgram
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.storage import load_module, save_modules
from atlasc.loading.client_model import ClientModel
from atlasc.loading.inputs import Inputs

Role = Literal["client", "server"]

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


FACTS = ("files", "target", "parameters", "batch")
"""What every manifest must have beside its format."""


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
    def identity(self) -> str:
        """Names the program that a query or an answer belongs to: a digest of all its files."""
        files = json.dumps(self.manifest["files"], sort_keys=True)
        return hashlib.sha256(files.encode()).hexdigest()

    @property
    def has_server(self) -> bool:
        """Whether the server's part lies here too."""
        return (self.folder / "server").is_dir()

    @property
    def model_folder(self) -> Path:
        """Config and tokenizer, to read inputs with."""
        return self.folder / "client" / "model"

    @cached_property
    def model(self) -> ClientModel:
        """What :func:`atlasc.loading.data.load_inputs` has to know of the model."""
        return ClientModel.of(self.client.embed, self.model_folder)

    def load_inputs(self, path: Path) -> Inputs:
        """Inputs in the shape that the program was compiled for.

        Raises:
            AtlasError: as :func:`atlasc.loading.data.load_inputs`.
        """
        from atlasc.loading.data import load_inputs

        return load_inputs(path, self.model, self.manifest.get("sequence_length"))


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    state = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.hexdigest()


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


def load_bundle(folder: Path, role: Role | None = None) -> Bundle:
    """Open a bundle and check every file against the manifest.

    Args:
        folder: the bundle, or its part of the role.
        role: check the files of one role alone: the others may be on another machine.

    Raises:
        AtlasError: not a bundle, another format version, or a changed or missing file.
    """
    folder = _located(folder, role)
    path = folder / MANIFEST
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
    missing = [name for name in FACTS if name not in manifest]
    if missing or not isinstance(manifest["files"], dict):
        raise AtlasError(
            f"{path} is damaged",
            why=f"it lacks {', '.join(missing) or 'the list of files'}",
            remedy="compile the model again",
        )
    _check_files(folder, manifest["files"], role)
    return Bundle(folder, manifest)


def _located(folder: Path, role: Role | None) -> Path:
    """The folder with the manifest: the one given, or the one that holds it as its role's part."""
    if (folder / MANIFEST).is_file():
        return folder
    whole = folder.resolve()
    if role is not None and whole.name == role and (whole.parent / MANIFEST).is_file():
        return whole.parent
    part = f", or its {role} folder with {MANIFEST} beside it" if role is not None else ""
    raise AtlasError(
        f"{folder} is not a compiled bundle" if folder.is_dir() else f"bundle {folder} not found",
        why=f"it has no {MANIFEST}" if folder.is_dir() else "there is no such folder",
        remedy=f"give the folder that atlasc compile -o wrote{part}",
    )


def _check_files(folder: Path, files: dict[str, str], role: Role | None) -> None:
    for name, expected in files.items():
        if role is not None and not name.startswith(f"{role}/"):
            continue
        path = folder / name
        if not path.is_file():
            raise AtlasError(f"{folder} lacks {name}", remedy="copy it again, or compile again")
        if digest(path) != expected:
            raise AtlasError(
                f"{path} was changed after the bundle was compiled",
                why="its SHA-256 is not the one in the manifest",
                remedy="compile the model again, or restore the file",
            )
