"""Turns errors of the system and of other libraries into :class:`AtlasError`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from atlasc.api.words import in_python
from atlasc.ir.errors import AtlasError

SHORT_OF_MEMORY = (
    "can't start new thread",
    "failed to map segment",
    "annot allocate memory",
    "can't allocate memory",
)
"""Words in errors of Python, the loader of libraries, the system and torch about lacking memory."""
COMPILER = ("huggingface_hub", "jinja2", "matplotlib", "mpmath", "pymoo", "torch", "transformers")
"""Modules of the extra ``compile``; a client and a server need none of these."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def as_atlas_error(error: BaseException) -> AtlasError | None:
    """The AtlasError for a fault that the user can mend; None for a fault of the program."""
    if isinstance(error, AtlasError):
        return error
    if isinstance(error, ModuleNotFoundError) and (error.name or "").split(".")[0] in COMPILER:
        return AtlasError(
            "the compiler's libraries are not installed here",
            why=str(error),
            remedy="pip install 'WHEEL[compile]', with the path of atlasc's wheel or clone for "
            "WHEEL; a client and a server do not need them",
        )
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in SHORT_OF_MEMORY):
        return AtlasError("not enough memory", remedy="a shorter input, or a larger machine")
    # Libraries in Rust report errors of the system as text.
    if not isinstance(error, OSError) and "(os error " not in str(error):
        return None
    headline = getattr(error, "strerror", None) or str(error) or type(error).__name__
    full = any(os.strerror(code) in headline for code in FULL)
    remedy = "make room on the disk, and run the command again" if full else ""
    return AtlasError(headline, where=str(getattr(error, "filename", None) or ""), remedy=remedy)


@contextmanager
def atlas_errors() -> Iterator[None]:
    """Raise faults that the user can mend as AtlasError, whatever library they came from, in the
    words of Python.
    """
    try:
        yield
    except AtlasError as error:
        error.reword(in_python)
        raise
    except Exception as error:
        known = as_atlas_error(error)
        if known is None:
            raise
        known.reword(in_python)
        raise known from error
