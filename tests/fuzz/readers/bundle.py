"""Bundles: what is accepted under a bundle's identity must be that bundle."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from atlasc.bundle.folder import load_bundle
from atlasc.bundle.kept import KEPT, kept_of, write_kept
from atlasc.bundle.manifest import PROGRAM_FILE
from atlasc.bundle.program_file import MAX_TEXT, StoredProgram
from atlasc.ir.arrays.tensor_files import read_safetensors, write_safetensors
from atlasc.ir.files import read_bytes, sha256_of
from atlasc.ir.module import Module
from atlasc.ir.text.storage import print_module
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import compiled


def _seeds(folder: Path) -> list[Path]:
    return [Path(shutil.copytree(compiled() / "tiny" / "bundle", folder / "bundle"))]


def _meaning(module: Module) -> str:
    state = hashlib.sha256(print_module(module).encode())
    for name, array in sorted(module.arrays_used().items()):
        assert array.size < 2 or any(array.strides), f"zeros stand for the weights @{name}"
        state.update(array.tobytes())
    return state.hexdigest()


def _read(folder: Path) -> tuple[str, Any]:
    bundle = load_bundle(folder)
    for name in ("server/program.safetensors", "client/interface.air"):
        assert name in bundle.manifest.files, f"{name} was read, and no digest was checked"
    client = bundle.client
    modules = (client.embed, client.interface, bundle.program, bundle.poly)
    # Costs, settings and the like are for reports; whoever changes them has another identity.
    facts = bundle.target, str(bundle.parameters), bundle.batch, bundle.manifest.sequence_length
    played = _played(bundle.server)
    return bundle.identity, (facts, bundle.manifest.insecure, *map(_meaning, modules), played)


def _played(program: StoredProgram) -> str:
    """What a server plays, in full."""
    calls = [vars(call) for call in program.calls]
    functions = [one.text() for one in program.recorded.functions.values()]
    return f"{_meaning(program.interface)} {calls} {program.outputs} {functions}"


def _texts(folder: Path) -> list[Path]:
    arrays = read_safetensors(compiled() / "tiny" / "bundle" / PROGRAM_FILE)
    (folder / "program.json").write_bytes(arrays["program"].tobytes())
    return [folder / "program.json"]


def _text(path: Path) -> str:
    """The program of a text, in a file with the digest that it has now."""
    text = read_bytes(path, MAX_TEXT, links=False)
    arrays = dict(read_safetensors(compiled() / "tiny" / "bundle" / PROGRAM_FILE))
    arrays["program"] = np.frombuffer(text, np.uint8)
    place = path.parent / "program.safetensors"
    facts = {"program": "0" * 64, "sha256": hashlib.sha256(text).hexdigest()}
    write_safetensors(place, arrays, facts)
    try:
        return _played(StoredProgram.read(place, "0" * 64))
    finally:
        place.unlink()


def _same(seeds: list[Any], found: Any) -> bool:
    return all(identity != found[0] or meaning == found[1] for identity, meaning in seeds)


def _kept_seeds(folder: Path) -> list[Path]:
    secret, x = "a", np.arange(6.0).reshape(3, 2)
    write_kept(folder, {"x": x}, {"logits": x[:, :1]}, secret)
    return [folder / KEPT]


def _kept(path: Path) -> Any:
    """The owner's answers, under the digest that they have now."""
    folder = path.parent / "bundle"
    (folder / KEPT).parent.mkdir(parents=True)
    try:
        shutil.copyfile(path, folder / KEPT, follow_symlinks=False)
        manifest = SimpleNamespace(files={KEPT: sha256_of(path)})
        found: Any = kept_of(SimpleNamespace(folder=folder, manifest=manifest))  # type: ignore[arg-type]
        return {name: one.tobytes() for name, one in (found.inputs | found.answers).items()}
    finally:
        shutil.rmtree(folder)


READERS = [
    Reader("bundle", _seeds, _read, 60, _same),
    Reader("program-text", _texts, _text, 150),
    Reader("kept-answers", _kept_seeds, _kept, 1500),
]
