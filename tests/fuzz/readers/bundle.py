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
from atlasc.ir.files import sha256_of
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
    return bundle.identity, (facts, bundle.manifest.insecure, *map(_meaning, modules))


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
    Reader("kept-answers", _kept_seeds, _kept, 1500),
]
