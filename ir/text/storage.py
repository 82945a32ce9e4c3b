"""A module on disk: ``NAME.air`` with the text and ``NAME.safetensors`` with the arrays."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.files import MIB, read_safetensors, read_text
from atlasc.ir.module import Module
from atlasc.ir.text.parser import parse
from atlasc.ir.text.printer import print_module
from atlasc.ir.verifier import verify

MAX_TEXT = 32 * MIB
"""Largest IR text in bytes; a model of 48 layers has 10 MiB."""


def save_module(module: Module, path: Path) -> None:
    """Write the text to ``path`` and the arrays that it uses beside it."""
    save_modules({path: module}, path.with_suffix(".safetensors"))


def save_modules(modules: Mapping[Path, Module], arrays: Path) -> None:
    """Write several texts, and the arrays of all of them into one file.

    Modules may share symbols, if these name the same arrays.
    """
    from safetensors.numpy import save_file

    kept: dict[str, np.ndarray] = {}
    for path, module in modules.items():
        path.write_text(print_module(module), encoding="utf-8")
        for name, array in module.arrays_used().items():
            if name in kept and not np.array_equal(kept[name], array):
                raise ValueError(f"two modules have different arrays @{name}")
            kept[name] = np.ascontiguousarray(array)
    save_file(dict(sorted(kept.items())), arrays)


def load_module(path: Path, arrays: Path | None = None) -> Module:
    """Read what ``save_module`` wrote.

    Args:
        path: the text.
        arrays: the file with its arrays, which must have all of them. None: the one beside the
            text; what is missing there, or all, is then taken for zeros.

    Raises:
        AtlasError: no such file, not text, a syntax or type error, a module that does not verify,
            a damaged arrays file, or one that lacks an array.
    """
    beside = arrays or path.with_suffix(".safetensors")
    text = read_text(path, MAX_TEXT)
    symbols = read_safetensors(beside) if arrays or beside.exists() else {}
    module = parse(text, symbols, str(path))
    if arrays and (missing := module.symbols.keys() - symbols.keys()):
        raise AtlasError(f"{arrays} lacks the array @{min(missing)}", where=str(path))
    verify(module)
    return module
