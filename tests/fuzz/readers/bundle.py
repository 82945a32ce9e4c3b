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
from atlasc.bundle.manifest import INTERFACE_FILE, PROGRAM_FILE
from atlasc.bundle.program_file import StoredProgram
from atlasc.ir.arrays.tensor_files import read_safetensors, write_safetensors
from atlasc.ir.files import read_bytes, sha256_of
from atlasc.ir.module import Module
from atlasc.ir.text.storage import print_module
from atlasc.program.function import EngineParameters
from atlasc.runtime.interface import Interface, keys_of, read_interface
from tests.atlasc.client.interfaces import rows_of
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
    for name in (PROGRAM_FILE, INTERFACE_FILE):
        assert name in bundle.manifest.files, f"{name} was read, and no digest was checked"
    client = bundle.client
    modules = (client.embed, bundle.program, bundle.poly)
    # Costs, settings and the like are for reports; whoever changes them has another identity.
    facts = bundle.target, str(bundle.parameters), bundle.batch, bundle.manifest.sequence_length
    played = _played(bundle.server)
    known = _agreed(client.interface), *map(_meaning, modules), played
    return bundle.identity, (facts, bundle.manifest.insecure, *known)


def _agreed(interface: Interface) -> str:
    """What client and server agree on, in full."""
    rows = {part: rows_of(interface, part) for part in ("inputs", "publics", "outputs")}
    return f"{interface.model} {keys_of(interface)} {rows}"


def _played(program: StoredProgram) -> str:
    """What a server plays, in full."""
    calls = [vars(call) for call in program.calls]
    functions = [one.text() for one in program.recorded.functions.values()]
    return f"{_agreed(program.interface)} {calls} {program.outputs} {functions}"


def _texts(folder: Path) -> list[Path]:
    for name in (PROGRAM_FILE, INTERFACE_FILE):
        arrays = read_safetensors(compiled() / "tiny" / "bundle" / name)
        text = Path(name).stem
        (folder / f"{text}.json").write_bytes(arrays[text].tobytes())
    return [folder / "program.json", folder / "interface.json"]


def _text(path: Path) -> str:
    """The program or the interface of a text, in a file with the digest that it has now."""
    text, program = read_bytes(path, 2**20, links=False), not path.name.startswith("interface")
    file = compiled() / "tiny" / "bundle" / (PROGRAM_FILE if program else INTERFACE_FILE)
    arrays = dict(read_safetensors(file))
    arrays[file.stem] = np.frombuffer(text, np.uint8)
    place = path.parent / file.name
    facts = {"program": "0" * 64, "sha256": hashlib.sha256(text).hexdigest()}
    write_safetensors(place, arrays, facts)
    try:
        if not program:
            return _agreed(read_interface(place, "0" * 64))
        return _played(StoredProgram.read(place, "0" * 64, EngineParameters(8, 1)))
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
