"""What a reader opens: a file or a folder of files, held in memory and written when asked."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path


class Link(str):
    """A symbolic link in the place of a file; the text is its target."""


File = bytes | Link


@dataclass(frozen=True)
class Content:
    """A file or a folder.

    Attributes:
        name: of the file or the folder.
        files: by their path in the folder; a single file has the path "".
    """

    name: str
    files: dict[str, File]

    @staticmethod
    def read(path: Path) -> Content:
        """What lies at a path."""
        if not path.is_dir():
            return Content(path.name, {"": path.read_bytes()})
        files = sorted(file for file in path.rglob("*") if file.is_file())
        return Content(path.name, {str(f.relative_to(path)): f.read_bytes() for f in files})

    def with_file(self, name: str, content: File) -> Content:
        """A copy with one file more, or with another content of one."""
        return replace(self, files={**self.files, name: content})

    def without(self, name: str) -> Content:
        """A copy without one of the files."""
        return replace(self, files={n: file for n, file in self.files.items() if n != name})


class Place:
    """A folder on the disk that holds one content at a time; what is there already stays."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._there: Content | None = None

    def put(self, content: Content) -> Path:
        """Write a content and return its path."""
        path, before = self.root / content.name, self._there
        if before is None or before.name != content.name:
            self._empty()
            before = Content(content.name, {})
            if "" not in content.files:
                path.mkdir()
        self._there = None  # until all of it is written
        for name in before.files.keys() - content.files.keys():
            (path / name).unlink()
        for name, file in content.files.items():
            if before.files.get(name) is not file:
                _write(path / name if name else path, file)
        self._there = content
        return path

    def _empty(self) -> None:
        for entry in self.root.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def _write(path: Path, file: File) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_symlink() or (path.exists() and isinstance(file, Link)):
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if isinstance(file, Link):
        os.symlink(file, path)
    else:
        path.write_bytes(file)
