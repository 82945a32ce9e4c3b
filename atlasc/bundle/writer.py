"""Writes the folder of a compiled model: both roles' parts, and the manifest last."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from atlasc.bundle.folder import GENERATION, HEAD, PREFIX
from atlasc.bundle.manifest import FORMAT, INTERFACE_FILE, MANIFEST, PROGRAM_FILE
from atlasc.bundle.program_writer import write_interface, write_program
from atlasc.client.program import ClientProgram
from atlasc.ir.files import sha256_of
from atlasc.ir.module import Module
from atlasc.ir.text.storage import save_modules, save_texts
from atlasc.loading import IDS, MASK
from atlasc.loading.client import OWN_MASK
from atlasc.loading.generation.settings import Settings
from atlasc.loading.images.processor import FILES as PROCESSOR_FILES
from atlasc.loading.loaded_model import LoadedModel
from atlasc.loading.mask_argument import own_mask
from atlasc.loading.model_files.huggingface import FURTHER_FILES, TOKENIZER_FILES
from atlasc.loading.texts.public_prefix import PublicPrefix
from atlasc.loading.texts.tokenizer import write_tokenizer
from atlasc.runtime.interface import keys_of
from atlasc.targets.parameters import ParameterSet
from atlasc.targets.program import identity_of


def write_bundle(
    draft: Path,
    client: ClientProgram,
    program: Module,
    parameters: ParameterSet,
    poly: Module,
    model: LoadedModel,
    facts: dict[str, Any],
    prefix: PublicPrefix | None = None,
    generation: Settings | None = None,
) -> None:
    """Fill a new folder; the manifest, with the digests of all other files, is written last.

    ``prefix`` is the public prefix of the texts that a step generates, and ``generation`` says how
    their tokens are chosen.
    """
    for name in ("client/model", "server"):
        (draft / name).mkdir(parents=True)
    identity = identity_of(program)
    write_interface(
        draft / INTERFACE_FILE, program, identity, parameters, keys_of(client.interface)
    )
    texts = {draft / "client" / "embed.air": client.embed}
    if client.head is not None:
        texts[draft / HEAD] = client.head  # a matrix that is tied to the embedding lies there once
    save_modules(texts, draft / "client" / "embed.safetensors")
    if prefix is not None:
        (draft / PREFIX).write_text(prefix.model_dump_json() + "\n", encoding="utf-8")
    if generation is not None:
        chosen = generation.model_dump_json(exclude_defaults=True)
        (draft / GENERATION).write_text(chosen + "\n", encoding="utf-8")
    # The client's files for reading inputs: no weights, no code.
    copied = ["config.json", *PROCESSOR_FILES]
    reads_texts = IDS in model.input_names and model.tokenizer is not None
    if reads_texts and not write_tokenizer(model.tokenizer, draft / "client" / "model"):
        copied += [*TOKENIZER_FILES, *FURTHER_FILES]
    for name in copied:
        if (model.directory / name).is_file():
            shutil.copyfile(model.directory / name, draft / "client" / "model" / name)
    mask = own_mask(model.module)
    if mask is not None and mask.argument != MASK:
        (draft / "client" / "model" / OWN_MASK).write_text(mask.model_dump_json() + "\n")
    server = draft / "server"
    arrays = save_texts({server / "program.air": program, server / "poly.air": poly})
    write_program(draft / PROGRAM_FILE, program, identity, parameters, arrays)
    files = sorted(path for path in draft.rglob("*") if path.is_file())
    manifest = {
        "format": FORMAT,
        "program": identity,
        **facts,
        "files": {str(path.relative_to(draft)): sha256_of(path) for path in files},
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
