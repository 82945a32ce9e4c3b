"""Files and folders that appear whole or not at all.

Everything is written into a draft: a folder beside the place, with a random name for which nobody
can prepare a link. It is forced to the disk and then moved to its place. A draft is locked while a
process writes it. An unlocked one was left by a process that was killed, and the next process that
writes into the same folder removes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import numpy as np

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.text.printer import print_module
from atlasc.ir.text.storage import save_module

DRAFT = ".part"
"""Suffix of a draft."""
_NAME = re.compile(r"\..+\.[0-9a-f]{16}" + re.escape(DRAFT))
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def require_new(folder: Path) -> None:
    """Refuse an output that exists, before any work is done for it.

    Drafts of killed processes beside it are removed.

    Raises:
        AtlasError: it exists.
    """
    _remove_stale(folder.parent)
    if os.path.lexists(folder):
        raise AtlasError(
            f"the output {folder} exists already",
            remedy="choose another -o, or remove it first; nothing is overwritten",
        )


def require_file_place(path: Path, suffix: str | None = None) -> None:
    """Refuse a place where no file can be written, before any work is done for it.

    Raises:
        AtlasError: it is a folder, its parent does not exist, or it has another suffix.
    """
    if path.is_dir():
        raise AtlasError(f"the output {path} is a folder", remedy="give the name of a file")
    if not path.parent.is_dir():
        raise AtlasError(f"the folder {path.parent} does not exist", remedy="make it first")
    if suffix is not None and path.suffix != suffix:
        raise AtlasError(
            f"the output {path} does not end in {suffix}", remedy=f"use {path.with_suffix(suffix)}"
        )


def require_array_file(path: Path) -> None:
    """Refuse a place for an ``.npz`` before any work is done for it.

    Raises:
        AtlasError: it exists already, has another suffix, or its folder does not exist.
    """
    require_file_place(path, ".npz")
    require_new(path)


@contextmanager
def new_folder(folder: Path, *, private: bool = False) -> Iterator[Path]:
    """A new folder that appears whole or not at all.

    Args:
        folder: its place.
        private: for its owner alone, from the first moment on.

    Raises:
        AtlasError: it exists already, or cannot be written.
    """
    require_new(folder)
    with _draft(folder, private) as draft:
        yield draft
        _sync(draft)
        require_new(folder)
        draft.rename(folder)
        _sync_folder(folder.parent)


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make a file, which replaces an existing one.

    Raises:
        AtlasError: it cannot be written; an existing file then stays as it was.
    """
    with _draft(path, True) as draft:
        write(draft / path.name)
        _publish(draft, path)


def new_private_file(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read, from the first byte on; raises as
    :func:`new_folder`.
    """
    with _draft(path, True) as draft:
        descriptor = os.open(draft / path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        require_new(path)
        _publish(draft, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file as :func:`write_with` does."""
    write_with(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_module(path: Path, module: Module, *, arrays: bool = True) -> None:
    """Write a module as :func:`write_with` does, and its arrays beside it as ``.safetensors``; both
    or none appear.
    """
    if not arrays:
        write_text(path, print_module(module))
        return
    with _draft(path, True) as draft:
        save_module(module, draft / path.name)
        # The arrays first: a text without them would mean zeros.
        _publish(draft, path.with_suffix(".safetensors"), path)


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write a new ``.npz``.

    Raises:
        AtlasError: as :func:`require_array_file` and :func:`write_with`.
    """
    require_array_file(path)
    write_with(path, lambda draft: np.savez(draft, **arrays))  # type: ignore[arg-type]


@contextmanager
def _draft(place: Path, private: bool) -> Iterator[Path]:
    """A locked folder beside a place, which is gone afterwards unless it was moved."""
    draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}{DRAFT}")
    with ExitStack() as stack:
        stack.enter_context(_writing_errors(place, draft))
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(place.parent)
        stack.callback(os.close, _make_and_lock(draft, 0o700 if private else 0o777))
        stack.callback(shutil.rmtree, draft, ignore_errors=True)
        yield draft


def _make_and_lock(draft: Path, mode: int) -> int:
    """Make a draft; again, if another process removed it before it was locked."""
    while True:
        draft.mkdir(mode=mode)
        with suppress(FileNotFoundError):
            lock = _lock(draft)
            if draft.exists():
                return lock
            os.close(lock)


def _remove_stale(folder: Path) -> None:
    """Remove the drafts in a folder that no process writes any more."""
    for left in folder.glob(f".*{DRAFT}"):
        if not _NAME.fullmatch(left.name):
            continue
        with suppress(OSError):
            lock = _lock(left, fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
            os.close(lock)


def _lock(folder: Path, how: int = 0) -> int:
    """Lock a folder against other processes; closing the descriptor unlocks it.

    Raises:
        OSError: it is no folder, or a link; with ``fcntl.LOCK_NB``, somebody has it.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


@contextmanager
def _writing_errors(place: Path, draft: Path) -> Iterator[None]:
    """Errors of writing, as one AtlasError that names the place."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        elsewhere = getattr(error, "filename", None)
        if number == errno.EPIPE or (elsewhere and not _about(elsewhere, place, draft)):
            raise
        why = os.strerror(number) if number else str(error)
        full = any(os.strerror(code) in why for code in _FULL)
        raise AtlasError(
            f"{place} cannot be written",
            why=why,
            remedy="make room on the disk, and run the command again"
            if full
            else "choose a place that you may write to",
        ) from None


def _about(name: object, place: Path, draft: Path) -> bool:
    path = Path(os.fsdecode(name))  # type: ignore[arg-type]
    return path.is_relative_to(draft) or place.is_relative_to(path)


def _publish(draft: Path, *places: Path) -> None:
    _sync(draft)
    for place in places:
        (draft / place.name).replace(place)
    _sync_folder(places[0].parent)


def _sync(folder: Path) -> None:
    """Force all files of a folder to the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with (Path(parent) / name).open("rb") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(parent))


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
