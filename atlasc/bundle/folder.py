"""A compiled model on disk, with one part for each role.

```
manifest.json            format, model, target, parameters, security, digests of all files
manifest.json.minisig    the maker's signature, if there is one (``atlasc sign``)
report.html, front.*     the chosen settings and their costs
evaluations.jsonl        all evaluations and trials of a search
step/                    the bundle of a decoder's step (``compile --generate``); the client's part
                         has the plan of the keys of a text: of the step and the prefill
prefill/                 the bundle of the prefill of a prompt, if there is one
client/                  interface.safetensors, embed.air (+ arrays), model/ (config, tokenizer,
                         mask); of a step also generation.json, head.air if the client computes the
                         head, and prefix.json if there is a public prefix
server/                  program.safetensors; program.air and poly.air, for people and passes
```

A client needs only ``manifest.json`` and ``client/``, a server only ``manifest.json`` and
``server/``; ``atlasc split`` makes these two parts. A bundle never contains a key: keys have
folders of their own (``atlasc keygen``).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atlasc.bundle.manifest import (
    INTERFACE_FILE,
    INTERFACE_TEXT,
    MANIFEST,
    PROGRAM_FILE,
    ROLES,
    Manifest,
    Role,
    read_manifest,
    require_unchanged,
)
from atlasc.bundle.program_file import StoredProgram
from atlasc.client.in_clear import require_closed
from atlasc.client.program import ClientProgram
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.storage import load_module
from atlasc.loading import LONG
from atlasc.program.function import EngineParameters
from atlasc.runtime.interface import Interface, interface_of, read_interface
from atlasc.targets.parameters import ParameterSet

if TYPE_CHECKING:
    from atlasc.loading.generation.settings import Settings
    from atlasc.loading.inputs import Inputs
    from atlasc.loading.loaded_model import LoadedModel
    from atlasc.loading.texts.public_prefix import PublicPrefix

STEP, PREFILL = "step", "prefill"
"""Folders in a bundle with those that generate text: of a decoder's step and of the prefill."""
HEAD = "client/head.air"
"""The head that the client computes; its arrays lie beside those of the embedding."""
ATTENTION_WINDOW = "attention_window"
"""Setting of a step: how many tokens its attention looks back, its own one included."""
GENERATION, PREFIX = "client/generation.json", "client/prefix.json"
"""How the client of a step chooses tokens; and the public prefix of all texts, whose keys and
values the server's program has."""


@dataclass(frozen=True)
class Bundle:
    """A bundle whose files match its manifest.

    Attributes:
        folder: folder of the bundle.
        manifest: facts of the bundle.
        identity: digest of the manifest, which has the digests of all files.
        role: the role whose part is used; None: both.
    """

    folder: Path
    manifest: Manifest
    identity: str
    role: Role | None = None

    @cached_property
    def client(self) -> ClientProgram:
        """The client's side.

        Raises:
            AtlasError: it answers another number of inputs than the manifest says, or asks for an
                input in the clear that is private.
        """
        embed = self._module("client/embed")
        require_closed(embed, self._clients)
        return ClientProgram(embed, self._clients, self.head)

    @cached_property
    def head(self) -> Module | None:
        """The head that the client computes, if there is one."""
        listed = HEAD in self.manifest.files
        name = HEAD.removesuffix(".air")
        return self._module(name, "client/embed.safetensors") if listed else None

    @cached_property
    def _clients(self) -> Interface:
        """The interface in the client's part."""
        _require_part(self.folder, "client")
        found = client_interface(self.folder, self.manifest)
        if found.batch != self.batch:
            raise AtlasError(
                f"{self.folder} answers {found.batch} inputs a run, but its manifest says "
                f"{self.batch}"
            )
        return found

    @cached_property
    def program(self) -> Module:
        """The packed program that the server runs."""
        return self._module("server/program", self.manifest.arrays)

    @cached_property
    def server(self) -> StoredProgram:
        """The program as the server plays it.

        Raises:
            AtlasError: the file is damaged; see :meth:`StoredProgram.read`.
        """
        _require_part(self.folder, "server")
        if self.manifest.stored:
            shape = EngineParameters.of(self.parameters)
            return StoredProgram.read(self.folder / PROGRAM_FILE, self.manifest.program, shape)
        from atlasc.bundle.program_writer import stored_program

        return stored_program(self.program, self.parameters, self.manifest.program)

    @cached_property
    def poly(self) -> Module:
        """The program in the clear: the poly module that simulates its polynomials."""
        return self._module("server/poly", self.manifest.arrays)

    @property
    def has_step(self) -> bool:
        """Whether it was compiled with the step of a decoder."""
        return f"{STEP}/{MANIFEST}" in self.manifest.files

    @property
    def has_prefill(self) -> bool:
        """Whether it was compiled with the prefill of a prompt, too."""
        return f"{PREFILL}/{MANIFEST}" in self.manifest.files

    @cached_property
    def step(self) -> Bundle:
        """The step of a decoder, with which text is generated.

        Raises:
            AtlasError: the bundle has none, or it is not the one that the manifest lists.
        """
        return self._inner(STEP, "step that generates text")

    @cached_property
    def prefill(self) -> Bundle:
        """The prefill of a prompt, after which steps go on; raises as :attr:`step`."""
        return self._inner(PREFILL, "prefill of a prompt")

    def _inner(self, name: str, what: str) -> Bundle:
        """The bundle in a folder of this one."""
        listed = self.manifest.files.get(f"{name}/{MANIFEST}")
        if listed is None or not (self.folder / name).is_dir():
            raise AtlasError(
                f"{self.folder} has no {what}",
                remedy="compile a causal decoder with --generate, and give the whole bundle, or "
                "the role's part of it (atlasc split)",
            )
        inner = load_bundle(self.folder / name, self.role)
        if inner.identity != listed:
            raise AtlasError(
                f"{inner.folder} was changed after the bundle was compiled",
                why="its manifest is not the one that the bundle lists",
                remedy="compile the model again, or restore the folder",
            )
        return inner

    def _module(self, name: str, arrays: str = "") -> Module:
        _require_part(self.folder, name.partition("/")[0])
        return load_module(
            self.folder / f"{name}.air", self.folder / (arrays or f"{name}.safetensors")
        )

    @cached_property
    def public_prefix(self) -> PublicPrefix | None:
        """The public prefix of all texts that this step generates, from the client's part; None if
        there is none.

        Raises:
            AtlasError: its file is damaged.
        """
        if PREFIX not in self.manifest.files:
            return None
        from atlasc.loading.texts.public_prefix import read_prefix

        _require_part(self.folder, "client")
        return read_prefix(self.folder / PREFIX)

    @cached_property
    def generation(self) -> Settings:
        """How the client of this step chooses tokens, unless its user says otherwise; of a bundle
        of an older version up to the end tokens of its config. A damaged file is refused.
        """
        from atlasc.loading.generation.settings import end_alone, read_settings

        if GENERATION not in self.manifest.files:
            return end_alone(getattr(self.config, "eos_token_id", None))
        _require_part(self.folder, "client")
        return read_settings(self.folder / GENERATION)

    @property
    def target(self) -> str:
        """Name of the target that the bundle was compiled for."""
        return self.manifest.target

    @property
    def batch(self) -> int:
        """Number of inputs that one run answers."""
        return self.manifest.batch

    @cached_property
    def parameters(self) -> ParameterSet:
        """The parameter set that the bundle was compiled for."""
        return self.manifest.parameter_set()

    @cached_property
    def interface(self) -> Interface:
        """The program's inputs and outputs, from the role's own part."""
        return self.server.interface.of_messages() if self.role == "server" else self._clients

    @property
    def has_server(self) -> bool:
        """Whether the server's part is here too."""
        return (self.folder / "server").is_dir()

    @cached_property
    def model(self) -> LoadedModel:
        """The model as far as it is needed to read inputs. Data without a name is the first input,
        which is a private one, whatever the bundle's order is.
        """
        from atlasc.loading.client import client_model

        public = set(self.client.public)
        private = [op for op in self.client.embed.inputs if op.attributes["name"] not in public]
        return client_model(private, self._model_files, self.interface.publics)

    @property
    def config(self) -> Any:
        """The original model's config."""
        from atlasc.loading.client import client_config

        return client_config(self._model_files)

    @property
    def _model_files(self) -> Path:
        _require_part(self.folder, "client")
        return self.folder / "client" / "model"

    def require_no_state(self) -> None:
        """Refuse a program whose server keeps ciphertexts from run to run.

        Raises:
            AtlasError: it is the step or the prefill of a decoder.
        """
        if self.server.interface.keeps_state:
            raise AtlasError(
                f"{self.folder} is the step or the prefill of a decoder",
                why="the keys and values of its tokens stay with the server",
                remedy="use atlasc generate, or atlasc answer with the roles apart: these keep "
                "them",
            )

    def load_inputs(self, data: object, long: str = LONG[0], **options: Any) -> Inputs:
        """Inputs in the shape that the program was compiled for.

        Args:
            data: a path, or objects in memory; see :func:`atlasc.loading.data.inputs_of`.
            long: treatment of longer texts, one of ``LONG``.
            options: ``partial`` and ``choice`` of :func:`atlasc.loading.data.inputs_of`.

        Raises:
            AtlasError: as :func:`atlasc.loading.data.inputs_of`.
        """
        from atlasc.loading.data import inputs_of

        return inputs_of(data, self.model, self.manifest.sequence_length, long, **options)

    def whole(self) -> Bundle:
        """The bundle with the parts of both roles. Files that are checked already are not checked
        again.

        Raises:
            AtlasError: as :func:`load_bundle`.
        """
        if self.role is None:
            return self
        for part in ROLES:
            if part != self.role:
                _require_part(self.folder, part, alone=False)
                _check_part(self.folder, self.manifest, part)
        whole = replace(self, role=None)
        # Keeps what was read from the role's part.
        vars(whole).update({n: v for n, v in vars(self).items() if n not in vars(whole)})
        return whole


def load_bundle(folder: Path, role: Role | None = None) -> Bundle:
    """Open a bundle, or its part of a role, and check every file against the manifest.

    With a role, only the role's files are checked: the others may be on another machine.

    Raises:
        AtlasError: the folder is no bundle, or has another format version; or a file is missing,
            changed, a link, or not in the manifest.
    """
    found = listed_bundle(folder, role)
    folder, manifest = found.folder, found.manifest
    if unlisted := [name for name in manifest.required if name not in manifest.files]:
        raise AtlasError(
            f"{folder / MANIFEST} is damaged",
            why=f"the manifest does not list {unlisted[0]}",
            remedy="compile the model again",
        )
    for part in ROLES if role is None else (role,):
        _require_part(folder, part, alone=role is not None)
        _check_part(folder, manifest, part)
    return found


def listed_bundle(folder: Path, role: Role | None = None) -> Bundle:
    """A bundle of which the manifest alone was read. Its step and its prefill are checked when they
    are opened. Raises as :func:`load_bundle`.
    """
    folder = _located(folder, role)
    manifest, identity = read_manifest(folder)
    return Bundle(folder, manifest, identity, role)


def client_interface(folder: Path, manifest: Manifest) -> Interface:
    """The interface in the client's part of a bundle.

    Raises:
        AtlasError: it is damaged, or of another program.
    """
    place = folder / INTERFACE_FILE
    if manifest.stored:
        return read_interface(place, manifest.program)
    module = load_module(folder / INTERFACE_TEXT, place)
    return interface_of(module, identity=manifest.program)


def _check_part(folder: Path, manifest: Manifest, part: str) -> None:
    """Check the files of a role's part against the manifest."""
    for name, expected in manifest.files.items():
        if not name.startswith(f"{part}/"):
            continue
        if not os.path.lexists(folder / name):
            raise AtlasError(
                f"{folder} lacks {name}", remedy="copy the bundle again, or compile again"
            )
        require_unchanged(folder / name, expected, "compile the model again, or restore the file")
    for path in (folder / part).rglob("*"):
        listed = path.relative_to(folder).as_posix() in manifest.files
        if not listed and (path.is_symlink() or not path.is_dir()):
            raise AtlasError(
                f"{path} does not belong to the bundle",
                why="the manifest does not list it",
                remedy="remove the file, or copy the bundle again",
            )


def _require_part(folder: Path, part: str, *, alone: bool = True) -> None:
    """Refuse a folder without a part; ``alone``: whether this part alone is enough."""
    if not (folder / part).is_dir():
        enough = f", or the {part}'s part of it (atlasc split)" if alone else ""
        raise AtlasError(
            f"{folder} lacks {part}/",
            why=f"only the {part}'s part of a bundle has what is needed here",
            remedy=f"give the whole bundle{enough}",
        )


def _located(folder: Path, role: Role | None) -> Path:
    """The folder with the manifest: the given folder, or its parent if it is a role's part."""
    if (folder / MANIFEST).is_file():
        return folder
    whole = folder.resolve()
    if role is not None and whole.name == role and (whole.parent / MANIFEST).is_file():
        return whole.parent
    part = f", or its {role} folder with {MANIFEST} beside it" if role is not None else ""
    raise AtlasError(
        f"{folder} is not a compiled bundle" if folder.is_dir() else f"bundle {folder} not found",
        why=f"the folder has no {MANIFEST}" if folder.is_dir() else "there is no such folder",
        remedy=f"give the folder that atlasc compile -o or atlasc split wrote{part}",
    )
