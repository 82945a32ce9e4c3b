"""Bundles: what is accepted under a bundle's identity must be that bundle."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

from atlasc.bundle import load_bundle
from atlasc.ir.module import Module
from atlasc.ir.printer import print_module
from atlasc.session import parameters_of
from tests.fuzz.reader import Reader
from tests.fuzz.seeds import compiled


def _seeds(folder: Path) -> list[Path]:
    return [Path(shutil.copytree(compiled() / "desilo" / "bundle", folder / "bundle"))]


def _meaning(module: Module) -> str:
    state = hashlib.sha256(print_module(module).encode())
    for name, array in sorted(module.arrays_used().items()):
        assert array.size < 2 or any(array.strides), f"zeros stand for the weights @{name}"
        state.update(array.tobytes())
    return state.hexdigest()


def _read(folder: Path) -> tuple[str, Any]:
    bundle = load_bundle(folder)
    client = bundle.client
    modules = (client.embed, client.interface, bundle.program, bundle.poly)
    length = bundle.manifest.get("sequence_length")
    facts = bundle.target, str(parameters_of(bundle.manifest)), bundle.manifest["batch"], length
    return bundle.identity, (facts, bundle.manifest.get("insecure"), *map(_meaning, modules))


def _same(seeds: list[Any], found: Any) -> bool:
    return all(identity != found[0] or meaning == found[1] for identity, meaning in seeds)


READER = Reader("bundle", _seeds, _read, 60, _same)
