"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from atlasc.ir.errors import AtlasError
from atlasc.ir.module import Module
from atlasc.ir.printer import print_module
from atlasc.ir.storage import save_module


def require_new(folder: Path) -> None:
    """Refuse an output folder that exists, before any work is done for it.

    Raises:
        AtlasError: it exists.
    """
    if folder.exists():
        raise AtlasError(
            f"the output {folder} exists already",
            remedy="choose another -o, or remove it first; nothing is overwritten",
        )


def require_file_place(path: Path, suffix: str | None = None) -> None:
    """Refuse a place where no file can be written, before any work is done for it.

    Raises:
        AtlasError: a folder is there, its parent is not, or the suffix is another one.
    """
    if path.is_dir():
        raise AtlasError(f"the output {path} is a folder", remedy="give the name of a file")
    if not path.parent.is_dir():
        raise AtlasError(f"the folder {path.parent} does not exist", remedy="make it first")
    if suffix is not None and path.suffix != suffix:
        raise AtlasError(
            f"the output {path} does not end in {suffix}", remedy=f"use {path.with_suffix(suffix)}"
        )


def write_text(path: Path, text: str) -> None:
    """Write a text file; one that is there is replaced."""
    write_with(path, lambda draft: draft.write_text(text, encoding="utf-8"))


def write_with(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` make the file; one that is there is replaced."""
    folder = _draft_folder(path)
    try:
        write(folder / path.name)
        (folder / path.name).replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_module(path: Path, module: Module, *, arrays: bool = True) -> None:
    """Write a module, and its arrays beside it as ``.safetensors``; both or none appear."""
    if not arrays:
        write_text(path, print_module(module))
        return
    folder = _draft_folder(path)
    try:
        save_module(module, folder / path.name)
        # The arrays first: a text without them would mean zeros.
        for name in (path.with_suffix(".safetensors").name, path.name):
            (folder / name).replace(path.parent / name)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _draft_folder(path: Path) -> Path:
    folder = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        folder.mkdir()
    except OSError as error:
        raise AtlasError(f"cannot write to {path.parent}", why=str(error)) from None
    return folder
