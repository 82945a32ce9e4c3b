"""Opens untrusted files.

Every file that atlasc reads goes through :func:`open_plain`. It refuses devices, pipes and folders
before anything is read from them, and files that are larger than the limit of their kind.
"""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path
from typing import BinaryIO

from atlasc.ir.errors import AtlasError

KIB, MIB, GIB = 2**10, 2**20, 2**30


def open_plain(path: Path, limit: int, *, links: bool = True) -> BinaryIO:
    """Open a plain file for reading.

    Args:
        path: the file.
        limit: bytes that a file of its kind has at most.
        links: whether the path may be a symbolic link. A path that the user typed may; one inside a
            folder that came from somebody else may not.

    Raises:
        AtlasError: it is missing, cannot be read, is no plain file, or is too large.
    """
    # O_NONBLOCK: a pipe must not make us wait. It changes nothing for a plain file.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
        if path.is_symlink():
            reason = "it is a link, and links are not followed here"
        raise AtlasError(f"{path} cannot be read", why=reason) from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise AtlasError(f"{path} is not a plain file", remedy="give a file, not a device")
        if status.st_size > limit:
            raise too_large(path, status.st_size, limit)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bytes(path: Path, limit: int, *, links: bool = True) -> bytes:
    """The content of a plain file; arguments and errors as :func:`open_plain`."""
    with open_plain(path, limit, links=links) as file:
        content = file.read(limit + 1)
    if len(content) > limit:  # files of /proc report a size of 0
        raise too_large(path, len(content), limit)
    return content


def sha256_of(path: Path) -> str:
    """SHA-256 of a plain file that is no link, in hexadecimal.

    Raises:
        AtlasError: as :func:`open_plain`.
    """
    state = hashlib.sha256()
    with open_plain(path, 2**63, links=False) as file:
        while block := file.read(MIB):
            state.update(block)
    return state.hexdigest()


def read_text(path: Path, limit: int, *, links: bool = True) -> str:
    """The content of a plain UTF-8 file; a byte order mark is left out.

    Raises:
        AtlasError: as :func:`open_plain`; it is not UTF-8.
    """
    try:
        return read_bytes(path, limit, links=links).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AtlasError(f"{path} is not UTF-8 text", why=str(error)) from None


def require_private(path: Path) -> None:
    """Refuse a file with a secret that somebody else may read.

    Raises:
        AtlasError: it is missing, a link, another user's, or open to group or others.
    """
    try:
        status = os.stat(path, follow_symlinks=False)
    except OSError as error:
        raise AtlasError(f"{path} cannot be read", why=error.strerror or str(error)) from None
    if stat.S_ISLNK(status.st_mode):
        raise AtlasError(f"{path} is a link", remedy="give the folder where the keys lie")
    if status.st_uid != os.geteuid():
        raise AtlasError(
            f"{path} belongs to another user",
            why="a secret is of use only while nobody else has it",
            remedy="use keys that you made yourself with atlasc keygen",
        )
    if loose := stat.S_IMODE(status.st_mode) & 0o077:
        raise AtlasError(
            f"{path} is open to other users of this machine",
            why=f"its mode is {stat.S_IMODE(status.st_mode):04o}, {loose:04o} too much",
            remedy=f"if nobody else has read it: chmod go= {path}; otherwise make new keys",
        )


def too_large(path: Path, size: int, limit: int) -> AtlasError:
    """The refusal of a file, or of what it expands to."""
    return AtlasError(
        f"{path} is too large",
        why=f"it has {size} bytes; a file of this kind has at most {limit}",
        remedy="check that it is the right file",
    )
