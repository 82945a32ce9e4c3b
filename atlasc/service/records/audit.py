"""Who added, revoked, uploaded and deleted: a file that grows by lines, and in no other way.

Each line has the SHA-256 of the line before it, so that a line that was changed or taken out of the
middle shows. Lines name tenants and ids; never a token, a key or an input. Who may write the folder
can still shorten the file: copy it elsewhere, or let the kernel forbid it (``chattr +a``).
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

AUDIT = "audit.jsonl"
MOST_NEWS = 1 << 20
"""Bytes of lines that are told at once."""
_TAIL = 1 << 16
"""Bytes in which the last line lies."""


class Audit:
    """The audit of a service's folder; for several processes at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / AUDIT
        self._told: int | None = None

    def note(self, event: str, by: str, **facts: object) -> None:
        """Add a line, which is on the disk when this returns.

        Args:
            event: such as ``token added``.
            by: who did it: ``tenant NAME``, ``service``, or a user of the machine.
            facts: further members of the line.
        """
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(-min(_TAIL, file.seek(0, os.SEEK_END)), os.SEEK_END)
            tail = file.read()
            line = {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "event": event,
                "by": by, **facts, "before": _digest(tail.rstrip(b"\n").rpartition(b"\n")[2]),
            }  # fmt: skip
            cut = b"" if tail.endswith(b"\n") or not tail else b"\n"  # of a disk that was full
            file.write(cut + json.dumps(line).encode() + b"\n")
            os.fsync(file.fileno())

    def news(self) -> list[dict[str, Any]]:
        """The lines that came since the last call, from whatever process; none at the first."""
        size = self.path.stat().st_size if self.path.exists() else 0
        if self._told is None or size <= self._told:
            self._told = size  # a file that was moved away begins again
            return []
        with open(self.path, "rb") as file:
            file.seek(self._told)
            content = file.read(MOST_NEWS)
        whole = content.rpartition(b"\n")[0]
        self._told += len(whole) + 1 if whole else 0
        found = [_facts(line) for line in whole.splitlines()]
        return [{k: v for k, v in one.items() if k != "before"} for one in found if one]

    def named(self, event: str, member: str) -> set[str]:
        """What the lines of an event have as a member."""
        if not self.path.exists():
            return set()
        with open(self.path, "rb") as file:
            found = (_facts(line) for line in file if event.encode() in line)
            return {str(one.get(member)) for one in found if one.get("event") == event}

    def faults(self) -> list[int]:
        """Numbers of the lines, from 1, that do not follow the line before them."""
        if not self.path.exists():
            return []
        found, before = [], b""
        with open(self.path, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    right = json.loads(line)["before"] == _digest(before)
                except (ValueError, KeyError, TypeError, RecursionError):
                    right = False
                if not right:
                    found.append(number)
                before = line.rstrip(b"\n")
        return found


def operator() -> str:
    """The user of this machine who gave a command."""
    return f"user {os.getuid()}"


def _facts(line: bytes) -> dict[str, Any]:
    """The members of a line; none of one that was damaged."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
