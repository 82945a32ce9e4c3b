"""Keeps evaluations and trials on disk, one per line, so that a restarted search need not repeat
them.

A trial is the validation of a point on held-back inputs.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, JsonValue

from atlasc.ir.errors import AtlasError, explained
from atlasc.ir.files import MIB, Count, parse_json, too_large
from atlasc.search.points import POINT_FIELDS, Point, Settings

FORMAT = "atlasc evaluations 4"
SYNC_SECONDS = 1.0
MAX_JOURNAL = 512 * MIB
"""Greatest size in bytes of a journal: about a million evaluations."""

Key = tuple[int | None, Settings]
"""Number of blocks in the early-layer proxy (None for the whole model), and the settings."""
TrialKey = tuple[str, Settings]
"""Digest of the held-back inputs, and the settings."""


def journal_beside(output: Path) -> Path:
    """The place of the evaluations for an output until the output is written."""
    return output.with_name(f"{output.name}.journal")


class Journal(AbstractContextManager["Journal"]):
    """An open journal, locked against other processes.

    The first line is JSON that identifies the search; each further line is a point. A line is
    written by one system call before the point is reported, so that a killed process loses no
    reported point. While points arrive, lines are forced to the disk once a second: a power cut
    loses at most the last second of evaluations.

    Attributes:
        points: its evaluations.
        trials: its points with `held_back_error` and `unsafe`.
    """

    def __init__(
        self, path: Path, descriptor: int, points: dict[Key, Point], trials: dict[TrialKey, Point]
    ) -> None:
        self.path, self.points, self.trials = path, points, trials
        self._descriptor = descriptor
        self._synced = time.monotonic()

    @staticmethod
    def open(
        path: Path, identity: Mapping[str, Any], note: Callable[[str], None] | None = None
    ) -> Journal:
        """Open a journal, or begin one.

        Args:
            path: the file; its folder must exist.
            identity: JSON values that decide which evaluations are made, and their results.
            note: called if a truncated line had to be removed.

        Raises:
            AtlasError: the file cannot be written, is no journal, belongs to another search or has
                a damaged line; or another process has it open.
        """
        header = json.loads(json.dumps({"journal": FORMAT, **identity}))
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with _writable(path):
            descriptor = os.open(path, flags, 0o666)
        try:
            with _writable(path):
                content = _locked_content(path, descriptor)
                *lines, rest = content.split(b"\n")
                # A truncated header is written again; no other file is ever truncated.
                if lines or not json.dumps(header).encode().startswith(rest):
                    _check_header(path, lines[0] if lines else rest, header)
                points: dict[Key, Point] = {}
                trials: dict[TrialKey, Point] = {}
                for number, line in enumerate(lines[1:], 2):
                    entry, point = _parse(path, number, line)
                    if entry.held_back is None:
                        points[entry.layers, point.settings] = point
                    else:
                        trials[entry.held_back, point.settings] = point
                if rest:
                    os.ftruncate(descriptor, len(content) - len(rest))
                if rest and note is not None:
                    note(
                        f"the last line of the journal {path} was incomplete and is removed; "
                        f"{len(points)} evaluations are kept"
                    )
                journal = Journal(path, descriptor, points, trials)
                if not lines:
                    journal._write(header)
        except BaseException:
            os.close(descriptor)
            raise
        return journal

    def __exit__(self, *error: object) -> None:
        self.close()

    def add(self, point: Point, layers: int | None = None) -> None:
        """Append a point that the journal does not have yet.

        Raises:
            AtlasError: the line cannot be written; the file then ends with the previous line.
        """
        if (layers, point.settings) in self.points:
            return
        self._write({**point.to_dict(), **({} if layers is None else {"layers": layers})})
        self.points[layers, point.settings] = point

    def add_trial(self, point: Point, held_back: str) -> None:
        """Append a point that was validated on held-back inputs.

        Args:
            held_back: digest of these inputs, SHA-256 (hex).

        Raises:
            AtlasError: the line cannot be written; the file then ends with the previous line.
        """
        self._write({**point.to_dict(), "held_back": held_back})
        self.trials[held_back, point.settings] = point

    def close(self) -> None:
        """Force everything to the disk and close the file.

        A journal without a point is removed, so that a refused search does not block the next one.
        """
        if self._descriptor >= 0:
            if not self.points:
                self.path.unlink(missing_ok=True)
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        with _writable(self.path):
            size = os.fstat(self._descriptor).st_size
            try:
                if os.write(self._descriptor, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                if time.monotonic() - self._synced >= SYNC_SECONDS:
                    os.fsync(self._descriptor)
                    self._synced = time.monotonic()
            except OSError:
                os.ftruncate(self._descriptor, size)
                raise


def _locked_content(path: Path, descriptor: int) -> bytes:
    """Lock the file and return its content.

    Raises:
        AtlasError: another process has locked it, it is no plain file, or it is too large.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise AtlasError(
            f"the journal {path} is in use",
            why="another search writes to it",
            remedy="wait until that search ends, or give this search another journal",
        ) from None
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise AtlasError(f"the journal {path} is not a plain file", remedy="give another path")
    if status.st_size > MAX_JOURNAL:
        raise too_large(path, status.st_size, MAX_JOURNAL)
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(MAX_JOURNAL)


def _check_header(path: Path, line: bytes, wanted: Mapping[str, Any]) -> None:
    try:
        header = parse_json(line, dict[str, JsonValue])
        version = header["journal"]
    except (ValueError, KeyError):
        raise AtlasError(
            f"{path} is not a journal of evaluations",
            why="its first line does not identify a search",
            remedy="give another path; nothing was changed",
        ) from None
    if version != FORMAT:
        raise AtlasError(
            f"the journal {path} has another format",
            why=f"its format is {version!r}, but this atlasc writes {FORMAT!r}",
            remedy="remove the journal, or use the version of atlasc that wrote it",
        )
    differences = [
        _difference(name.replace("_", " "), header.get(name), wanted.get(name))
        for name in dict.fromkeys([*wanted, *header])
        if header.get(name) != wanted.get(name)
    ]
    if differences:
        raise AtlasError(
            f"the journal {path} belongs to another search",
            why="; ".join(differences),
            remedy="repeat its command to continue that search, remove the journal to start again, "
            "or give another path",
        )


def _difference(words: str, there: Any, here: Any) -> str:
    if any(isinstance(value, str) and len(value) == 64 for value in (there, here)):
        return f"the {words} differ" if words.endswith("s") else f"the {words} differs"
    return f"the {words} is {json.dumps(there)} in the journal, but {json.dumps(here)} here"


@dataclass(frozen=True)
class _Line(Point):
    """A point of the journal; a trial also has the digest of the held-back inputs."""

    layers: Count | None = None
    held_back: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


def _parse(path: Path, number: int, line: bytes) -> tuple[_Line, Point]:
    remedy = "remove this line; its evaluation is then repeated"
    with explained(f"line {number} of the journal {path} is damaged", remedy=remedy):
        entry = parse_json(line, _Line)
    return entry, Point(*(getattr(entry, name) for name in POINT_FIELDS))


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Turn an error of the operating system into an AtlasError with a remedy."""
    try:
        yield
    except OSError as error:
        remedy = "give a path that can be written"
        if isinstance(error, FileNotFoundError) and not path.parent.exists():
            remedy = f"make the folder {path.parent} first, or give another path"
        elif error.errno == errno.ELOOP:
            remedy = "the path is a link; give the path of the file itself"
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = "make room on the disk; the same command then continues"
        why = str(error.strerror or error)
        raise AtlasError(f"the journal {path} cannot be written", why=why, remedy=remedy) from None
