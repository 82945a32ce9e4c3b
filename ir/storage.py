"""A module on disk: ``NAME.air`` with the text and ``NAME.safetensors`` with the arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.parser import parse
from atlasc.ir.printer import print_module


def save_module(module: Module, path: Path, arrays: Path | None = None) -> None:
    """Write the text to ``path`` and the arrays that it uses beside it."""
    from safetensors.numpy import save_file

    path.write_text(print_module(module), encoding="utf-8")
    used = module.symbols_used()
    kept = {name: np.ascontiguousarray(a) for name, a in module.symbols.items() if name in used}
    save_file(kept, arrays or path.with_suffix(".safetensors"))


def load_module(path: Path, arrays: Path | None = None) -> Module:
    """Read what ``save_module`` wrote; without the arrays, symbols are zeros.

    Raises:
        AtlasError: no such file, not text, a syntax or type error, or a damaged arrays file.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise AtlasError(f"cannot read the IR text {path}", why=str(error)) from None
    beside = arrays or path.with_suffix(".safetensors")
    try:
        symbols = load_file(beside) if beside.exists() else {}
    except SafetensorError as error:
        raise AtlasError(f"{beside} is not a valid safetensors file", why=str(error)) from None
    return parse(text, symbols, str(path))
