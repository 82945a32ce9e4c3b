"""The server's arrays: what is stored, and what an emitted server knows of them."""

from __future__ import annotations

import hashlib

import numpy as np

from atlasc.emit import text
from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module

TYPES = {np.dtype(np.float32): "F32", np.dtype(np.float64): "F64", np.dtype(np.int64): "I64"}
"""Types of arrays that the runtime reads, as safetensors names them."""


def stored_arrays(program: Module) -> dict[str, np.ndarray]:
    """The arrays of a program by name, in one of ``TYPES``.

    Raises:
        AtlasError: a name has characters that no file may have.
    """
    arrays = {}
    for name, array in sorted(program.arrays_used().items()):
        if not name.isprintable():
            raise AtlasError(f"an array cannot be called {name!r}")
        kept = None if array.dtype in TYPES else np.float64
        arrays[name] = np.ascontiguousarray(array, kept).reshape(np.shape(array))
    return arrays


def array_text(name: str, array: np.ndarray) -> str:
    """An initialiser of the runtime's ``Array``: name, type, shape, SHA-256."""
    facts = [text.string(name), text.string(TYPES[array.dtype]), text.integers(array.shape)]
    digest = hashlib.sha256(array.tobytes()).hexdigest()
    indent = " " * 12
    return f"{indent}{{{', '.join(facts)},\n{indent} {text.string(digest)}}}"
