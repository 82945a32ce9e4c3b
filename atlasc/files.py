"""Files and folders that appear whole or not at all.

Each output is first written into a draft: a folder next to the output, with a random name, so that
nobody can prepare a link there. The draft is forced to the disk and then moved to its place. The
writing process holds a lock on its draft. A draft without a lock was left by a killed process; the
next process that writes into the same folder removes it.
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
from tempfile import gettempdir
from typing import Any

import numpy as np

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.module import Module
from atlasc.ir.text.storage import print_module, save_module

DRAFT = ".part"
"""Suffix of a draft."""
_NAME = re.compile(r"\..+\.[0-9a-f]{16}" + re.escape(DRAFT))
TRIES = 100
"""How often a claim is made again that another process removes as if it were left."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_whole(path: Path) -> bool:
    """Whether a file or folder is none of the drafts and claims that this module makes."""
    return not _NAME.fullmatch(path.name)


def require_new(folder: Path) -> None:
    """Refuse an output that exists, before any work is done for it.

    Drafts that killed processes left beside it are removed. Raises AtlasError if the output exists.
    """
    _remove_stale(folder.parent)
    if os.path.lexists(folder):
        raise AtlasError(
            f"the output {folder} exists already",
            remedy="choose another -o, or remove it first; nothing is overwritten",
        )


def require_file_place(path: Path, suffix: str | None = None, *, new: bool = False) -> None:
    """Refuse a place where no file can be written, before any work is done for it.

    Raises:
        AtlasError: the place is a folder, its parent does not exist, it has another suffix, or
            ``new`` is set and it exists.
    """
    if path.is_dir():
        raise AtlasError(f"the output {path} is a folder", remedy="give the name of a file")
    if not path.parent.is_dir():
        raise AtlasError(f"the folder {path.parent} does not exist", remedy="make it first")
    if suffix is not None and path.suffix != suffix:
        raise AtlasError(
            f"the output {path} does not end in {suffix}", remedy=f"use {path.with_suffix(suffix)}"
        )
    if new:
        require_new(path)


@contextmanager
def new_folder(folder: Path, *, private: bool = False) -> Iterator[Path]:
    """A new folder that appears whole or not at all. Only the owner can ever open a private one.

    Raises AtlasError if the folder exists already or cannot be written.
    """
    require_new(folder)
    with _draft(folder, 0o700 if private else 0o777) as draft:
        yield draft
        _sync(draft)
        require_new(folder)
        draft.rename(folder)
        sync_entry(folder.parent)


def write_with(path: Path, write: Callable[[Path], object], *beside: Path) -> None:
    """Call ``write`` with the path of a draft, and move the file that it makes to ``path``.

    The file replaces an existing one. ``write`` may make other files next to its draft, under the
    names of the paths in ``beside``; they are moved first. Raises AtlasError if a file cannot be
    written; an existing file then stays as it was.
    """
    with _draft(path) as draft:
        write(draft / path.name)
        _sync(draft)
        for place in (*beside, path):
            (draft / place.name).replace(place)
        sync_entry(path.parent)


def write_private(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file as :func:`write_with` does. Only its owner may read it, from the first byte on:
    ``write`` must fill the file at the given path, not replace it.
    """

    def private(draft: Path) -> None:
        draft.touch(0o600)
        write(draft)
        draft.chmod(0o600)

    write_with(path, private)


def new_private_file(path: Path, content: bytes) -> None:
    """Write a new file that only its owner may read, from the first byte on.

    Raises AtlasError as :func:`new_folder` does.
    """

    def write(draft: Path) -> None:
        draft.write_bytes(content)
        require_new(path)

    write_private(path, write)


def write_text(path: Path, text: str) -> None:
    """Write a text file as :func:`write_with` does."""
    write_with(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_module(path: Path, module: Module, *, arrays: bool = True) -> None:
    """Write a module as :func:`write_with` does, and its arrays beside it as ``.safetensors``.

    Either both files appear or none.
    """
    if arrays:  # arrays first: a text without arrays would mean zeros
        write_with(path, lambda draft: save_module(module, draft), path.with_suffix(".safetensors"))
    else:
        write_text(path, print_module(module))


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write answers to a new ``.npz`` that only its owner may read.

    Raises AtlasError as :func:`require_file_place` and :func:`write_with` do.
    """
    require_file_place(path, ".npz", new=True)
    write_private_arrays(path, arrays)


def write_private_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write an ``.npz`` as :func:`write_private` does."""
    write_private(path, lambda draft: np.savez(draft, **arrays))  # type: ignore[arg-type]


@contextmanager
def _draft(place: Path, mode: int = 0o700) -> Iterator[Path]:
    """A locked folder beside a place, removed afterwards unless it was moved.

    Errors of writing become one AtlasError that names the place.
    """
    from safetensors import SafetensorError

    draft = place.with_name(f".{place.name}.{secrets.token_hex(8)}{DRAFT}")
    try:
        with ExitStack() as stack:
            place.parent.mkdir(parents=True, exist_ok=True)
            _remove_stale(place.parent)
            while not draft.exists():  # another process may remove it before it is locked
                draft.mkdir(mode=mode)
                with suppress(FileNotFoundError):
                    stack.enter_context(locked(draft))
            stack.callback(shutil.rmtree, draft, ignore_errors=True)
            yield draft
    except (OSError, SafetensorError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EPIPE or not _is_about(place, draft, getattr(error, "filename", None)):
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


def _is_about(place: Path, draft: Path, name: Any) -> bool:
    """Whether an error that names this file (or no file) comes from writing to the place."""
    path = Path(os.fsdecode(name)) if name else draft
    return path.is_relative_to(draft) or place.is_relative_to(path)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with all that is in it: a draft is a folder."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _remove_stale(folder: Path) -> None:
    """Remove the drafts in a folder that no process writes any more."""
    for left in folder.glob(f".*{DRAFT}"):
        if not is_whole(left):
            with suppress(OSError), locked(left, fcntl.LOCK_NB):
                shutil.rmtree(left, ignore_errors=True)


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """A private folder among the system's temporary ones, removed afterwards. What a killed process
    left of this name is removed by the next one.
    """
    with _draft(Path(gettempdir()) / name) as draft:
        yield draft


@contextmanager
def claimed(*places: Path | None) -> Iterator[None]:
    """Keep other processes from working for the same outputs, from the start on.

    Raises:
        AtlasError: another process works for one of them, or its folder cannot be written.
    """
    with ExitStack() as stack:
        for place in filter(None, places):
            stack.enter_context(_claimed(place))
        yield


@contextmanager
def _claimed(place: Path) -> Iterator[None]:
    claim = place.absolute().with_name(f".{place.name}.{'0' * 16}{DRAFT}")
    with ExitStack() as stack:
        with explained(f"cannot write to {place.parent}"):
            claim.parent.mkdir(parents=True, exist_ok=True)
        for _ in range(TRIES):
            claim.mkdir(mode=0o700, exist_ok=True)
            with suppress(FileNotFoundError):
                try:
                    stack.enter_context(locked(claim, fcntl.LOCK_NB))
                except BlockingIOError:
                    raise AtlasError(
                        f"another process is working on {place}",
                        why="both would do the same work, and one of them in vain",
                        remedy="wait until it ends, or choose another place",
                    ) from None
            if claim.exists():
                break
        stack.callback(shutil.rmtree, claim, ignore_errors=True)
        yield


@contextmanager
def locked(folder: Path, how: int = 0) -> Iterator[None]:
    """A folder, locked against other processes.

    Raises OSError if the path is no folder or is a link, or if another process holds the lock and
    ``how`` is ``fcntl.LOCK_NB``.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | how)
        yield
    finally:
        os.close(descriptor)


def _sync(folder: Path) -> None:
    """Force a folder and all that is in it to the disk."""
    for path in (*folder.rglob("*"), folder):
        sync_entry(path)


def sync_entry(path: Path) -> None:
    """Force a file, or the entries of a folder, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
