"""The runtime library (``runtime_cuda``) as a Python module, and its errors."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from atlasc.ir.errors import AtlasError


def load_library() -> Any:
    """The runtime library as a Python module.

    Raises:
        AtlasError: the library was not built.
    """
    try:
        return importlib.import_module("atlasc.runtime._native")
    except ImportError as error:
        raise AtlasError(
            "the runtime of atlasc cannot be loaded: nothing can be encrypted or simulated here",
            why=str(error),
            remedy="install atlasc again on this machine, with a C++17 compiler and make: the "
            "installation builds the runtime",
        ) from None


@contextmanager
def translated(library: Any = None) -> Iterator[None]:
    """Turn errors of the library, or of another module of the runtime, into AtlasErrors."""
    library = library or load_library()
    try:
        yield
    except library.Error as error:
        what, where, why, remedy = error.args
        raise AtlasError(what, where=where, why=why, remedy=remedy) from None
